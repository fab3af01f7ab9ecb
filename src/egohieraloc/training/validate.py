"""Validation during training: the benchmark's metrics on a fixed set of queries.

Processes that train together each answer a share of them. Validation does not use the run's random numbers,
so a run is the same with and without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch

from egohieraloc.data.base import ClipQueries, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths, read_vq2d
from egohieraloc.documents import read_json
from egohieraloc.errors import DataError, QueryError, VideoError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.run_vq2d import ClipSearch
from egohieraloc.files import scratch_folder, write_json
from egohieraloc.localize import Localizer
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, Weights, save_weights
from egohieraloc.training.composer.composed_videos import Halves, answer_to, queries_of
from egohieraloc.video.reader import Video

Share = tuple[int, int]  # (k, n): every n-th, from the k-th on
Answers = Iterable[tuple[int, Track, Track, float]]  # number, truth, answer, score of each query of a share
AnswerQueries = Callable[[Localizer, Share], Answers]
ALL: Share = (0, 1)
BEST_BY = "stap25"


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """The validation queries: from Ego4D-VQ when training on footage, otherwise composed."""

    queries: int = 40  # 0 for none; with few composed queries the videos are short, which is easier
    annotations: str = "ego4d/vq_val.json"
    clips: str = "ego4d/clips"


class Validation:
    """Scores a network; the best so far is kept as `best.safetensors`, its scores in `best.json`.

    Called in all processes that train together, each with its share of the queries; the first keeps the best.
    """

    def __init__(
        self, answer: AnswerQueries, folder: Path, device: torch.device, *, resume: bool, share: Share = ALL
    ) -> None:
        self._answer, self._folder, self._device, self._share = answer, folder, device, share
        if not resume and self._is_first:
            (folder / "best.json").unlink(missing_ok=True)

    @property
    def _is_first(self) -> bool:
        return self._share[0] == 0

    def __call__(self, step: int, network: EgoHieraLocNet) -> dict[str, float]:
        weights = Weights(network, Calibration(threshold=0.0), "in training")
        with scratch_folder() as scratch:
            localizer = Localizer(weights, device=str(self._device), cache=Path(scratch))
            answers = _gathered(list(self._answer(localizer, self._share)), self._share)
        found = vq2d.score(vq2d.measure((truth, given, score) for _, truth, given, score in answers))
        scores = {name: value for name, value in asdict(found).items() if name != "num_queries"}
        if self._is_first and scores[BEST_BY] > self._best():
            save_weights(self._folder / "best.safetensors", network)
            write_json(self._folder / "best.json", {"step": step, **scores})
        return scores

    def _best(self) -> float:
        path = self._folder / "best.json"
        return float(read_json(path)[BEST_BY]) if path.exists() else -1.0


def _gathered(answers: list[tuple[int, Track, Track, float]], share: Share) -> Answers:
    """The answers of all processes, in the order of the queries."""
    if share != ALL:
        from accelerate.utils import gather_object

        answers = gather_object(answers)
    return sorted(answers, key=lambda answer: answer[0])


def composed_answers(halves: Halves) -> AnswerQueries:
    """Answer queries in composed videos."""

    def answer(localizer: Localizer, share: Share) -> Answers:
        with scratch_folder() as scratch:
            queries = queries_of(halves, localizer.predictor, Path(scratch), share=share)
            for number, query in zip(count(*share), queries):
                yield number, query.truth, *answer_to(query, localizer)
                for used in Path(scratch).iterdir():  # each video has a single query
                    shutil.rmtree(used)

    return answer


def ego4d_answers(annotations: Path, folder: Path, queries: int) -> AnswerQueries:
    """Answer about this many queries of Ego4D-VQ, in clips spread evenly over the annotation file."""
    clips = _spread_clips(annotations, folder, queries)
    firsts = np.cumsum([0, *(len(clip.queries) for clip, _ in clips)])[:-1]

    def answer(localizer: Localizer, share: Share) -> Answers:
        first, step = share
        for (clip, path), number in zip(clips[first::step], firsts[first::step].tolist(), strict=True):
            search = ClipSearch(localizer, Video.open(path, folder_fps=clip.fps), clip.queries, clip.fps)
            for place, query in enumerate(clip.queries, number):
                yield place, query.response or Track.empty(), *_find(search, query)

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
