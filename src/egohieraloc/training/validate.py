"""Validation during training by the benchmark's own measures, on a fixed set of questions.

It draws no random number of the run's, so that a run is the same with and without it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from egohieraloc.data.base import ClipQueries, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths, read_vq2d
from egohieraloc.errors import DataError, QueryError, VideoError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.run_vq2d import ClipSearch
from egohieraloc.files import write_json
from egohieraloc.localize import Localizer
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, Weights, save_weights
from egohieraloc.training.composer.composed_videos import Halves, answer_to, questions_of
from egohieraloc.video.reader import Video

Answers = Iterable[tuple[Track, Track, float]]  # truth, answer, score
Ask = Callable[[Localizer], Answers]
BEST_BY = "stap25"


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """What is asked. With footage the questions are Ego4D-VQ's, otherwise they are composed."""

    questions: int = 40  # 0 trains without validation; few make short videos, in which the time is easily hit
    annotations: str = "ego4d/vq_val.json"
    clips: str = "ego4d/clips"


class Validation:
    """Scores a network; the best one so far is kept as `best.safetensors`, its scores in `best.json`."""

    def __init__(self, ask: Ask, folder: Path, device: torch.device, *, resume: bool) -> None:
        self._ask, self._folder, self._device = ask, folder, device
        if not resume:
            (folder / "best.json").unlink(missing_ok=True)

    def __call__(self, step: int, network: EgoHieraLocNet) -> dict[str, float]:
        weights = Weights(network, Calibration(threshold=0.0), "in training")
        with tempfile.TemporaryDirectory() as scratch:
            localizer = Localizer(weights, device=str(self._device), cache=Path(scratch))
            found = vq2d.score(vq2d.measure(self._ask(localizer)))
        scores = {name: value for name, value in asdict(found).items() if name != "num_queries"}
        if scores[BEST_BY] > self._best():
            save_weights(self._folder / "best.safetensors", network)
            write_json(self._folder / "best.json", {"step": step, **scores})
        return scores

    def _best(self) -> float:
        path = self._folder / "best.json"
        return json.loads(path.read_text())[BEST_BY] if path.exists() else -1.0


def composed_answers(halves: Halves) -> Ask:
    """Ask about composed videos."""

    def ask(localizer: Localizer) -> Answers:
        with tempfile.TemporaryDirectory() as scratch:
            for question in questions_of(halves, localizer.predictor, Path(scratch)):
                yield question.truth, *answer_to(question, localizer)
                for asked in Path(scratch).iterdir():  # a video is asked about once
                    shutil.rmtree(asked)

    return ask


def ego4d_answers(annotations: Path, folder: Path, questions: int) -> Ask:
    """Ask questions of Ego4D-VQ, from clips spread evenly over the file."""
    clips = _some(annotations, folder, questions)

    def ask(localizer: Localizer) -> Answers:
        for clip, path in clips:
            search = ClipSearch(localizer, Video.open(path, folder_fps=clip.fps), clip.queries, clip.fps)
            for query in clip.queries:
                yield query.response or Track.empty(), *_find(search, query)

    return ask


def _find(search: ClipSearch, query: VisualQuery) -> tuple[Track, float]:
    """A crop that cannot be cut is a miss, not the end of a training."""
    try:
        found = search.find(query)
    except (VideoError, QueryError):
        return Track.empty(), 0.0
    boxes = [p.box.xyxy for p in found.predictions]
    return Track.from_boxes([p.frame_index for p in found.predictions], boxes), found.score


def _some(annotations: Path, folder: Path, questions: int) -> list[tuple[ClipQueries[VisualQuery], Path]]:
    there = []
    for clip in read_vq2d(annotations):
        paths = clip_paths(folder, clip.clip_uid) if clip.clip_uid else ()
        path = next((path for path in paths if path.exists()), None)
        if path and clip.queries and all(query.response for query in clip.queries):
            there.append((clip, path))
    if not there:
        raise DataError(
            f"No clip of {annotations} with answers lies in {folder}. Give validation.annotations and "
            "validation.clips, or set validation.questions=0."
        )
    total = sum(len(clip.queries) for clip, _ in there)
    return there[:: max(1, total // questions)]
