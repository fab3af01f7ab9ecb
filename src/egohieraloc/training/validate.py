"""Validation during training: the benchmark's metrics on a fixed set of queries.

It does not use the run's random numbers, so a run is the same with and without it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from egohieraloc.data.base import ClipQueries, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths, read_vq2d
from egohieraloc.documents import read_json
from egohieraloc.errors import DataError, QueryError, VideoError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.run_vq2d import ClipSearch
from egohieraloc.files import write_json
from egohieraloc.localize import Localizer
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, Weights, save_weights
from egohieraloc.training.composer.composed_videos import Halves, answer_to, queries_of
from egohieraloc.video.reader import Video

Answers = Iterable[tuple[Track, Track, float]]  # truth, answer, score of each query
AnswerQueries = Callable[[Localizer], Answers]
BEST_BY = "stap25"


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """The validation queries: from Ego4D-VQ when training on footage, otherwise composed."""

    queries: int = 40  # 0 for none; with few composed queries the videos are short, which is easier
    annotations: str = "ego4d/vq_val.json"
    clips: str = "ego4d/clips"


class Validation:
    """Scores a network; the best so far is kept as `best.safetensors`, its scores in `best.json`."""

    def __init__(self, answer: AnswerQueries, folder: Path, device: torch.device, *, resume: bool) -> None:
        self._answer, self._folder, self._device = answer, folder, device
        if not resume:
            (folder / "best.json").unlink(missing_ok=True)

    def __call__(self, step: int, network: EgoHieraLocNet) -> dict[str, float]:
        weights = Weights(network, Calibration(threshold=0.0), "in training")
        with tempfile.TemporaryDirectory() as scratch:
            localizer = Localizer(weights, device=str(self._device), cache=Path(scratch))
            found = vq2d.score(vq2d.measure(self._answer(localizer)))
        scores = {name: value for name, value in asdict(found).items() if name != "num_queries"}
        if scores[BEST_BY] > self._best():
            save_weights(self._folder / "best.safetensors", network)
            write_json(self._folder / "best.json", {"step": step, **scores})
        return scores

    def _best(self) -> float:
        path = self._folder / "best.json"
        return float(read_json(path)[BEST_BY]) if path.exists() else -1.0


def composed_answers(halves: Halves) -> AnswerQueries:
    """Answer queries in composed videos."""

    def answer(localizer: Localizer) -> Answers:
        with tempfile.TemporaryDirectory() as scratch:
            for query in queries_of(halves, localizer.predictor, Path(scratch)):
                yield query.truth, *answer_to(query, localizer)
                for used in Path(scratch).iterdir():  # each video has a single query
                    shutil.rmtree(used)

    return answer


def ego4d_answers(annotations: Path, folder: Path, queries: int) -> AnswerQueries:
    """Answer about this many queries of Ego4D-VQ, in clips spread evenly over the annotation file."""
    clips = _spread_clips(annotations, folder, queries)

    def answer(localizer: Localizer) -> Answers:
        for clip, path in clips:
            search = ClipSearch(localizer, Video.open(path, folder_fps=clip.fps), clip.queries, clip.fps)
            for query in clip.queries:
                yield query.response or Track.empty(), *_find(search, query)

    return answer


def _find(search: ClipSearch, query: VisualQuery) -> tuple[Track, float]:
    """The found track and its score. A crop that cannot be cut is a miss; it must not end the training."""
    try:
        found = search.find(query)
    except (VideoError, QueryError):
        return Track.empty(), 0.0
    boxes = [p.box.xyxy for p in found.predictions]
    return Track.from_boxes([p.frame_index for p in found.predictions], boxes), found.score


def _spread_clips(
    annotations: Path, folder: Path, queries: int
) -> list[tuple[ClipQueries[VisualQuery], Path]]:
    usable = []
    for clip in read_vq2d(annotations):
        paths = clip_paths(folder, clip.clip_uid) if clip.clip_uid else ()
        path = next((path for path in paths if path.exists()), None)
        if path and clip.queries and all(query.response for query in clip.queries):
            usable.append((clip, path))
    if not usable:
        raise DataError(
            f"No clip of {annotations} that has answers is in {folder}. Set validation.annotations and "
            "validation.clips, or disable validation with validation.queries=0."
        )
    total = sum(len(clip.queries) for clip, _ in usable)
    return usable[:: max(1, total // queries)]
