"""VQ2D's measures, as the benchmark's own code computes them.

One predicted track per query against one ground-truth response track, both without gaps. Both ends of a track
count as frames, a box has no extra pixel, an IoU equal to a threshold reaches it. Q is the number of queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from egohieraloc.boxes import intersection_xyxy, iou_xyxy
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.errors import DataError
from egohieraloc.evaluation import groups as kinds
from egohieraloc.evaluation.predictions import TrackAnswer, require_common
from egohieraloc.types import Floats

PRECISION_THRESHOLDS = (0.25, 0.5, 0.75, 0.95)
RECOVERY_THRESHOLD = 0.5
SUCCESS_THRESHOLD = 0.05


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Overlap of prediction and ground truth for each query. Every array is (Q,)."""

    temporal_iou: Floats
    tube_iou: Floats
    recovered: Floats  # ground-truth frames whose box was found
    true_frames: Floats
    score: Floats

    def __len__(self) -> int:
        return len(self.score)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Overlaps:
        return Overlaps(*(getattr(self, f.name)[which] for f in fields(self)))


@dataclass(frozen=True)
class Vq2dScores:
    """The leaderboard's numbers. AP in [0, 1], recovery and success in percent."""

    num_queries: int
    tap: float
    tap25: float
    stap: float
    stap25: float
    recovery: float
    success: float

    @property
    def measures(self) -> dict[str, float | None]:
        """By their usual names."""
        return {
            "tAP": self.tap,
            "tAP25": self.tap25,
            "stAP": self.stap,
            "stAP25": self.stap25,
            "recovery %": self.recovery,
            "success %": self.success,
        }


@dataclass(frozen=True)
class Vq2dReport:
    """Ranked by the file's own scores, and by one constant score as published systems do; and by group."""

    own_score: Vq2dScores
    constant_score: Vq2dScores
    groups: tuple[tuple[str, Vq2dScores], ...]
    missing: int  # queries without a prediction, counted as not found
    ignored: int  # predictions for no query of the annotation file

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "groups": {name: asdict(scores) for name, scores in self.groups}}


def overlap(truth: Track, answer: Track) -> tuple[float, float, int]:
    """Temporal IoU, space-time IoU and the number of recovered true frames of two tracks without gaps."""
    if len(truth) == 0 or len(answer) == 0:
        return 0.0, 0.0, 0
    first = max(truth.frames[0], answer.frames[0])
    last = min(truth.frames[-1], answer.frames[-1])
    shared = max(int(last - first) + 1, 0)
    if shared == 0:
        return 0.0, 0.0, 0
    a = truth.boxes_xyxy[first - truth.frames[0] :][:shared]
    b = answer.boxes_xyxy[first - answer.frames[0] :][:shared]
    recovered = int(np.count_nonzero(iou_xyxy(a, b) >= RECOVERY_THRESHOLD))
    common = _sum_in_order(intersection_xyxy(a, b))
    union = _sum_in_order(truth.areas) + _sum_in_order(answer.areas) - common
    tube = common / union if union > 0 else 0.0
    return shared / (len(truth) + len(answer) - shared), tube, recovered


def _sum_in_order(values: Floats) -> float:
    """One after the other, as the benchmark's code adds: `np.sum` rounds otherwise, which can flip a hit."""
    return float(np.add.accumulate(values)[-1])


def measure(pairs: Iterable[tuple[Track, Track, float]]) -> Overlaps:
    """From (ground-truth track, predicted track, score) of each query."""
    rows = [(*overlap(truth, answer), len(truth), score) for truth, answer, score in pairs]
    return Overlaps(*np.array(rows, np.float64).reshape(-1, 5).T)


def average_precision(hits: NDArray[np.bool_], scores: Floats) -> float:
    """VOC 2011 interpolated AP when each query has one prediction that can only match its own truth.

    Equal scores keep the order of a stable sort that is then reversed; the benchmark's code leaves it open.
    """
    ranked = hits[np.argsort(scores, kind="stable")[::-1]]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(envelope[ranked].sum() / len(ranked))


def score(overlaps: Overlaps, *, constant_score: bool = False) -> Vq2dScores:
    """All measures of a set of queries."""
    if len(overlaps) == 0:
        raise DataError("There is no query to score. Are these annotations of a split with ground truth?")
    scores = np.ones(len(overlaps)) if constant_score else overlaps.score
    temporal, tube = (
        [average_precision(iou >= threshold, scores) for threshold in PRECISION_THRESHOLDS]
        for iou in (overlaps.temporal_iou, overlaps.tube_iou)
    )
    true_frames = overlaps.true_frames.sum()
    return Vq2dScores(
        num_queries=len(overlaps),
        tap=float(np.mean(temporal)),
        tap25=temporal[0],
        stap=float(np.mean(tube)),
        stap25=tube[0],
        recovery=float(100 * overlaps.recovered.sum() / true_frames) if true_frames else 0.0,
        success=float(100 * np.mean(overlaps.tube_iou >= SUCCESS_THRESHOLD)),
    )


def measure_answers(
    queries: Sequence[VisualQuery], answers: Mapping[QueryKey, TrackAnswer]
) -> tuple[Overlaps, int]:
    """Overlaps in the order of the queries, and how many queries have no prediction (an empty track)."""
    require_common(queries, answers)
    pairs: list[tuple[Track, Track, float]] = []
    for query in queries:
        if query.response is None:
            raise DataError(
                f"The annotation file has no response track for {query.key}: this split cannot be scored."
            )
        answer = answers.get(query.key)
        if answer is not None and not answer.track.is_contiguous:
            raise DataError(f"The predicted track for {query.key} has gaps; give every frame a box.")
        track, confidence = (answer.track, answer.score) if answer else (Track.empty(), 0.0)
        pairs.append((query.response, track, confidence))
    return measure(pairs), sum(q.key not in answers for q in queries)


def report_vq2d(queries: Sequence[VisualQuery], answers: Mapping[QueryKey, TrackAnswer]) -> Vq2dReport:
    """Score a set of predictions, as a whole and by group."""
    overlaps, missing = measure_answers(queries, answers)
    sharpness = [answers[q.key].crop_sharpness if q.key in answers else None for q in queries]
    return Vq2dReport(
        own_score=score(overlaps),
        constant_score=score(overlaps, constant_score=True),
        groups=tuple(
            (name, score(overlaps.take(which)))
            for name, which in groups(queries, sharpness).items()
            if which.any()
        ),
        missing=missing,
        ignored=len(answers.keys() - {q.key for q in queries}),
    )


def groups(
    queries: Sequence[VisualQuery], sharpness: Sequence[float | None] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Which queries are in which group: by object size, time since last seen, blur of the crop if known."""
    largest = [None if q.response is None else q.response.largest_px for q in queries]
    return {
        **kinds.by_size(kinds.numbers(largest)),
        **kinds.by_time(kinds.numbers([q.unseen_s for q in queries]), "seen {} ago"),
        **kinds.by_blur(kinds.numbers(list(sharpness or ()))),
    }
