"""TREK-150's measures: success (SS), normalised precision (NPS) and generalised success robustness (GSR).

A run starts from the ground-truth box; frames where the object is not visible are skipped. Boxes are
x, y, w, h in the order of the run (N, 4), a missing one is nan: its IoU is 0, its centre infinitely far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import QueryKey, reading
from egohieraloc.data.stream import read_object
from egohieraloc.data.trek150 import PROTOCOLS, Protocol, TrekRun, TrekSequence, read_rectangles
from egohieraloc.errors import DataError
from egohieraloc.evaluation.predictions import is_own, read_tracks
from egohieraloc.types import Floats

SUCCESS_THRESHOLDS = np.linspace(0, 1, 21)
PRECISION_THRESHOLDS = np.linspace(0, 0.5, 51)
ROBUSTNESS_THRESHOLDS = np.linspace(0, 0.5, 51)
RECALL_IOU = 0.5


@dataclass(frozen=True)
class TrekScores:
    """All in [0, 1]. `recall` is the share of frames with IoU of at least 0.5, part of the HOI protocol."""

    success: float
    normalized_precision: float
    robustness: float
    recall: float


NOTHING = TrekScores(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class TrekReport:
    protocol: Protocol
    num_sequences: int  # that have a run of this protocol with something to find
    overall: TrekScores
    attributes: tuple[tuple[str, int, TrekScores], ...]  # name, sequences that have it, scores of these
    missing: int  # runs without a prediction

    def to_json(self) -> dict[str, Any]:
        attributes = {name: {"num_sequences": n, **asdict(s)} for name, n, s in self.attributes}
        return {**asdict(self), "attributes": attributes}


def iou_xywh(a: Floats, b: Floats) -> Floats:
    """IoU of boxes (N, 4) x, y, w, h, rounded as in the toolkit; 0 for a missing box (nan)."""
    corner = np.minimum(a[:, :2] + a[:, 2:], b[:, :2] + b[:, 2:])
    size = np.maximum(corner - np.maximum(a[:, :2], b[:, :2]), 0)
    common = size.prod(1)
    union = a[:, 2:].prod(1) + b[:, 2:].prod(1) - common
    iou: Floats = np.nan_to_num(common / (union + np.finfo(float).eps), nan=0.0)
    return np.clip(iou, 0, 1)


def normalized_center_error(boxes: Floats, truth: Floats) -> Floats:
    """Distance of the centres, each axis in units of the ground-truth box's side (1 at least)."""
    # The -1 cancels; it is here so that rounding is the toolkit's too.
    centers, wanted = (b[:, :2] + (b[:, 2:] - 1) / 2 for b in (boxes, truth))
    distance = np.linalg.norm((centers - wanted) / np.maximum(truth[:, 2:], 1), axis=1)
    error: Floats = np.nan_to_num(distance, nan=np.inf)
    return error


@dataclass(frozen=True, eq=False)
class TrekCurves:
    """The curves whose means are the measures: one share in [0, 1] for each threshold."""

    success: Floats  # (21,) over SUCCESS_THRESHOLDS
    normalized_precision: Floats  # (51,) over PRECISION_THRESHOLDS
    robustness: Floats  # (51,) over ROBUSTNESS_THRESHOLDS
    recall: float


def score_run(run: TrekRun, boxes_xywh: Floats) -> TrekScores | None:
    """One run, or None when the object is visible in none of its frames."""
    curves = run_curves(run, boxes_xywh)
    if curves is None:
        return None
    return TrekScores(
        success=float(curves.success.mean()),
        normalized_precision=float(curves.normalized_precision.mean()),
        robustness=float(curves.robustness.mean()),
        recall=curves.recall,
    )


def run_curves(run: TrekRun, boxes_xywh: Floats) -> TrekCurves | None:
    """The shares of one run over all thresholds, or None when the object is visible in none of its frames."""
    if boxes_xywh.shape != run.truth_xywh.shape:
        raise DataError(
            f"{len(boxes_xywh)} boxes for {len(run.truth_xywh)} frames in {run.key}: "
            "a run needs one box per frame, the first frame included."
        )
    if not run.visible.any():
        return None
    boxes = np.concatenate([run.truth_xywh[:1], boxes_xywh[1:]])[run.visible]
    truth = run.truth_xywh[run.visible]
    iou = iou_xywh(boxes, truth)
    error = normalized_center_error(boxes, truth)
    return TrekCurves(
        success=(iou[:, None] > SUCCESS_THRESHOLDS).mean(0),
        normalized_precision=(error[:, None] <= PRECISION_THRESHOLDS).mean(0),
        robustness=np.array([_share_before_failure(iou <= t) for t in ROBUSTNESS_THRESHOLDS]),
        recall=float((iou >= RECALL_IOU).mean()),
    )


def score(
    sequences: Sequence[TrekSequence], protocol: Protocol, boxes: Mapping[QueryKey, Floats]
) -> TrekScores:
    """OPE: every sequence counts alike. MSE: runs by their length within a sequence, sequences by theirs.
    HOI: all runs by their length. Lengths include invisible frames. A broken sequence scores 0."""
    of_sequences: list[tuple[TrekScores, int]] = []
    of_runs: list[tuple[TrekScores, int]] = []
    for sequence in sequences:
        runs = [(_scores(run, boxes), len(run.frames)) for run in sequence.runs(protocol)]
        if sequence.problem:
            runs = [(NOTHING, max(1, len(sequence)))]
        found = [(scores, length) for scores, length in runs if scores is not None]
        of_runs += found
        if found:
            length = 1 if protocol == "ope" else max(1, len(sequence))
            of_sequences.append((_weighted(found), length))
    if not of_runs:
        raise DataError(f"There is no {protocol} run to score: the object is never visible.")
    return _weighted(of_runs if protocol == "hoi" else of_sequences)


def report_trek150(
    sequences: Sequence[TrekSequence], protocol: Protocol, boxes: Mapping[QueryKey, Floats]
) -> TrekReport:
    keys = {run.key for s in sequences for run in s.runs(protocol)}
    if not keys & boxes.keys():
        raise DataError(
            f"None of the {len(boxes)} predictions is for one of the {len(keys)} {protocol} runs."
        )
    sequences = [s for s in sequences if s.problem or any(run.visible.any() for run in s.runs(protocol))]
    overall = score(sequences, protocol, boxes)
    rows = []
    for name in sorted(set().union(*(s.attributes for s in sequences))):
        having = [s for s in sequences if name in s.attributes]
        rows.append((name, len(having), score(having, protocol, boxes)))
    return TrekReport(protocol, len(sequences), overall, tuple(rows), len(keys - boxes.keys()))


def read_trek150_predictions(
    path: str | Path, sequences: Sequence[TrekSequence], protocol: Protocol
) -> dict[QueryKey, Floats]:
    """A tracker's result folder (with ope/, mse/, hoi/), a challenge JSON, or our own file."""
    path = Path(path)
    runs = [run for s in sequences for run in s.runs(protocol) if not run.problem]
    if path.is_dir():
        files = {run.key: path / protocol / f"{result_name(run.key)}.txt" for run in runs}
        return {key: read_rectangles(file) for key, file in files.items() if file.exists()}
    if is_own(path):
        tracks = read_tracks(path)
        return {
            run.key: _in_run_order(run, *tracks[run.key].track.at(run.frames))
            for run in runs
            if run.key in tracks
        }
    content = read_object(path, "a challenge file")
    with reading(str(path)):
        results = content["results"].get(protocol, {})
    return dict(_from_challenge(runs, results, path))


def read_all_protocols(path: str | Path, sequences: Sequence[TrekSequence]) -> dict[QueryKey, Floats]:
    """The predictions of a file or folder for all three protocols."""
    found = [read_trek150_predictions(path, sequences, protocol) for protocol in PROTOCOLS]
    return {key: boxes for part in found for key, boxes in part.items()}


def result_name(key: QueryKey) -> str:
    """What the toolkit calls the result file of a run."""
    return f"{key.clip}-{key.query_set}" if key.query_set else key.clip


def _from_challenge(
    runs: Iterable[TrekRun], results: dict[str, Any], path: Path
) -> Iterable[tuple[QueryKey, Floats]]:
    for run in runs:
        with reading(f"{path}: {result_name(run.key)}"):
            rows = results.get(run.key.clip)
            if rows is not None and run.key.query_set:
                rows = rows.get(run.key.query_set)
            if rows is not None:
                yield run.key, np.array(rows, np.float64).reshape(-1, 4)


def _in_run_order(run: TrekRun, boxes_xyxy: Floats, there: Any) -> Floats:
    xywh = np.concatenate([boxes_xyxy[:, :2], boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]], 1)
    return np.where(there[:, None], xywh, np.nan)


def _scores(run: TrekRun, boxes: Mapping[QueryKey, Floats]) -> TrekScores | None:
    return score_run(run, boxes[run.key] if run.key in boxes else np.full_like(run.truth_xywh, np.nan))


def _share_before_failure(failed: Any) -> float:
    return float(failed.argmax() / len(failed)) if failed.any() else 1.0


def _weighted(scores: Sequence[tuple[TrekScores, int]]) -> TrekScores:
    values = np.array([[s.success, s.normalized_precision, s.robustness, s.recall] for s, _ in scores])
    return TrekScores(*(float(v) for v in np.average(values, axis=0, weights=[w for _, w in scores])))
