"""EgoTracks' measures: average overlap, and precision, recall and F of long-term tracking.

For a threshold tau on the tracker's score, precision is the mean IoU over the frames it reports (frames
without the object count 0), recall the mean IoU over the frames that show it (unreported frames count 0). The
tau with the best F is reported.

As the authors evaluate it (branch egotracks_eval of EGO4D/episodic-memory), every frame of a clip counts, 30
a second, and one without a prediction is reported with score 0: a tracker that answers 5 frames a second
has scores of 0 in the others, and most thresholds are 0. `grid` scores the 5 frames a second around the crop
alone. T is the number of frames of a sequence with a true or a predicted box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.boxes import iou_xyxy
from egohieraloc.data.base import QueryKey, Track, reading
from egohieraloc.data.egotracks import TrackingQuery, scored_frames
from egohieraloc.data.stream import stream_object
from egohieraloc.errors import DataError
from egohieraloc.evaluation import groups as kinds
from egohieraloc.evaluation.predictions import TrackAnswer, is_own, read_tracks, require_common
from egohieraloc.types import Floats

NUM_THRESHOLDS = 100


@dataclass(frozen=True, eq=False)
class SequenceOverlaps:
    """One sequence, frame by frame: all arrays (T,)."""

    iou: Floats  # 0 where there is no ground truth or no prediction
    visible: NDArray[np.bool_]  # the ground truth has a box; never at the crop's own frame
    score: Floats  # nan where there is no prediction
    silent: int = 0  # frames without a prediction that count as reported with score 0


@dataclass(frozen=True)
class LongTermScores:
    """The point of the precision-recall curve with the best F."""

    f_score: float
    precision: float
    recall: float
    threshold: float | None  # None when every prediction counts, or none does


@dataclass(frozen=True)
class GroupScores:
    """Scores of one group of sequences, averaged over sequences."""

    num_sequences: int
    average_overlap: float
    by_sequence: LongTermScores


@dataclass(frozen=True)
class EgoTracksReport:
    """`by_sequence` averages the curves of the sequences, as the benchmark does; `pooled` all frames."""

    num_sequences: int
    average_overlap: float
    by_sequence: LongTermScores
    pooled: LongTermScores
    groups: tuple[tuple[str, GroupScores], ...]
    missing: int  # frames to find (on the grid: all) without a prediction
    grid: bool  # whether only 5 frames a second were scored
    ignored: int  # predictions for no sequence of the annotation file
    left_out: int  # sequences that are not annotated, or without any frame to find

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "groups": {name: asdict(scores) for name, scores in self.groups}}


def measure(
    query: TrackingQuery, answer: TrackAnswer | None, num_frames: int | None, *, grid: bool = False
) -> SequenceOverlaps:
    """Compare over the whole clip, or on its 5 fps grid.

    Without `num_frames` the clip ends with the last box known.
    """
    if query.truth is None:
        raise DataError(f"The annotation file has no track for {query.key}: this split cannot be scored.")
    track = answer.track if answer else Track.empty()
    if num_frames is None:
        num_frames = 1 + max(int(t.frames[-1]) for t in (query.truth, track) if len(t))
    frames = scored_frames(query.crop_frame, num_frames)
    if not grid:
        frames = np.union1d(query.truth.frames, track.frames)
        frames = frames[frames < num_frames]
    truth, visible = query.truth.at(frames)
    # The tracker was given the object at the crop's frame. As in the benchmark's code that frame is no longer
    # one to find, though a box reported there still counts against precision.
    visible &= frames != query.crop_frame
    boxes, reported = track.at(frames)
    iou = np.where(visible & reported, iou_xyxy(truth, boxes), 0.0)
    scores = np.full(len(frames), np.nan)
    if answer is not None and len(track):
        of_track = answer.frame_scores if answer.frame_scores is not None else np.ones(len(track))
        scores[reported] = of_track[np.searchsorted(track.frames, frames[reported])]
    silent = 0 if grid else num_frames - int(np.count_nonzero(reported))
    return SequenceOverlaps(iou, visible, scores, silent)


def average_overlap(sequences: Sequence[SequenceOverlaps]) -> float:
    """Mean over sequences of the mean IoU over the frames that show the object."""
    return float(np.mean([s.iou[s.visible].mean() for s in sequences]))


def thresholds(sequences: Sequence[SequenceOverlaps], resolution: int = NUM_THRESHOLDS) -> Floats:
    """Infinity, scores of all frames (evenly thinned when there are many), minus infinity."""
    scores = np.concatenate([s.score for s in sequences])
    scores = np.sort(scores[~np.isnan(scores)])[::-1]
    silent = sum(s.silent for s in sequences)
    count = len(scores) + silent
    places = np.arange(count)
    if count > resolution - 2:
        margin = count // (resolution - 2)
        places = np.round(np.linspace(margin, count - margin, resolution - 2)).astype(int)
    # The zeros of silent frames follow the scores that are not negative; they are too many to write down.
    first_zero = int(np.count_nonzero(scores >= 0))
    own = np.where(places < first_zero, places, places - silent)
    own[(places >= first_zero) & (places < first_zero + silent)] = len(scores)
    return np.concatenate([[np.inf], np.append(scores, 0.0)[own], [-np.inf]])


def long_term_scores(sequences: Sequence[SequenceOverlaps], *, pooled: bool = False) -> LongTermScores:
    taus = thresholds(sequences)
    if pooled:
        everything = SequenceOverlaps(
            np.concatenate([s.iou for s in sequences]),
            np.concatenate([s.visible for s in sequences]),
            np.concatenate([s.score for s in sequences]),
            sum(s.silent for s in sequences),
        )
        curves = np.array([_curve(everything, taus)])
    else:
        curves = np.array([_curve(s, taus) for s in sequences])
    precision, recall = curves.mean(0)
    total = precision + recall
    f_scores = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    best = int(f_scores.argmax())
    tau = float(taus[best]) if np.isfinite(taus[best]) else None
    return LongTermScores(float(f_scores[best]), float(precision[best]), float(recall[best]), tau)


def report_egotracks(
    queries: Sequence[TrackingQuery],
    answers: Mapping[QueryKey, TrackAnswer],
    clip_lengths: Mapping[str, int] | None = None,
    *,
    grid: bool = False,
) -> EgoTracksReport:
    """Score a set of predictions. `clip_lengths` are frames of each exported clip, from clip_info.json.

    grid: only the 5 frames a second around the crop, instead of all as the authors do.
    """
    require_common(queries, answers)
    lengths = clip_lengths or {}
    measured = [
        (q, measure(q, answers.get(q.key), lengths.get(q.key.clip), grid=grid))
        for q in queries
        if q.truth is not None
    ]
    measured = [(query, sequence) for query, sequence in measured if sequence.visible.any()]
    if not measured:
        raise DataError("There is no EgoTracks sequence to score: the annotations have no ground truth.")
    sequences = [sequence for _, sequence in measured]
    return EgoTracksReport(
        num_sequences=len(sequences),
        average_overlap=average_overlap(sequences),
        by_sequence=long_term_scores(sequences),
        pooled=long_term_scores(sequences, pooled=True),
        groups=tuple(
            (name, _group([sequences[i] for i in np.flatnonzero(which)]))
            for name, which in groups([query for query, _ in measured], answers).items()
            if which.any()
        ),
        missing=sum(int(np.isnan(s.score).sum()) for s in sequences),
        grid=grid,
        ignored=len(answers.keys() - {q.key for q in queries}),
        left_out=len(queries) - len(sequences),
    )


def groups(
    queries: Sequence[TrackingQuery], answers: Mapping[QueryKey, TrackAnswer]
) -> dict[str, NDArray[np.bool_]]:
    """Which sequences are in which group: by object size, longest time out of view, and blur of the crop."""
    largest = [None if q.truth is None else q.truth.largest_px for q in queries]
    sharpness = [answers[q.key].crop_sharpness if q.key in answers else None for q in queries]
    return {
        **kinds.by_size(kinds.numbers(largest)),
        **kinds.by_time(kinds.numbers([q.longest_absence_s for q in queries]), "away {} at a time"),
        **kinds.by_blur(kinds.numbers(sharpness)),
    }


def _group(sequences: Sequence[SequenceOverlaps]) -> GroupScores:
    return GroupScores(len(sequences), average_overlap(sequences), long_term_scores(sequences))


def read_egotracks_predictions(
    path: str | Path, queries: Sequence[TrackingQuery]
) -> dict[QueryKey, TrackAnswer]:
    """Our own file, or the challenge's: sequence name -> frame -> [x, y, w, h, score]."""
    if is_own(path):
        return read_tracks(path)
    keys = {q.sequence_name: q.key for q in queries}
    answers: dict[QueryKey, TrackAnswer] = {}
    for name, boxes in stream_object(path, array=""):
        key = keys.get(name, QueryKey(name, "", ""))
        with reading(f"{path}: sequence {name}"):
            ordered = sorted((int(frame), row) for frame, row in boxes.items())
            rows = np.array([row for _, row in ordered], np.float64).reshape(-1, 5)
            corners = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:4]], 1)
            track = Track.from_boxes([frame for frame, _ in ordered], corners)
            if not np.isfinite(rows).all():
                raise ValueError("a box or a score is not finite")
            answers[key] = TrackAnswer(key, track, float(rows[:, 4].max(initial=0)), frame_scores=rows[:, 4])
    return answers


def _curve(sequence: SequenceOverlaps, taus: Floats) -> Floats:
    """Precision and recall at each threshold (2, number of thresholds). Nothing reported: 1 and 0."""
    there = ~np.isnan(sequence.score)
    scores = sequence.score[there]
    order = np.argsort(-scores, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(sequence.iou[there][order])])
    reported = np.searchsorted(-scores[order], -taus, side="right")
    total = sums[reported]
    reported = reported + sequence.silent * (taus <= 0)
    precision = np.divide(total, reported, out=np.ones(len(taus)), where=reported > 0)
    return np.array([precision, total / np.count_nonzero(sequence.visible)])
