"""Calibration of the answer's score, and the threshold below which no answer is given.

Logistic regression over composed queries turns the highest score of an answer's samples into the probability
that it is correct, and so do others for candidates that a look back or a second look saw too; the thresholds
then follow from the queries whose object is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from egohieraloc.boxes import iou_xyxy
from egohieraloc.config import QueryMaskConfig
from egohieraloc.data.base import Track
from egohieraloc.errors import DataError
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.files import scratch_folder
from egohieraloc.inference.answer import answer
from egohieraloc.inference.complete import completed
from egohieraloc.inference.look_back import look_back
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.second_look import logit, look_again
from egohieraloc.inference.temporal import Interval
from egohieraloc.localize import Localizer
from egohieraloc.models.weights import BothLooks, Calibration, load_weights
from egohieraloc.settings import update
from egohieraloc.training.composer.composed_videos import (
    VIDEO_CLIPS,
    ComposedQuery,
    compose_queries,
)
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs
from egohieraloc.types import Floats, ResponseTrack

CORRECT_TUBE_IOU = 0.25
PACK_LIMIT = 320  # photos and objects read; enough for all photos held out from training
REJECTED_SHARE = 0.8  # of the queries with an absent object, at the threshold
# Objects from small to large and from any side: what the looks say is to be weighed where they disagree.
MIXED_CLIPS = update(
    VIDEO_CLIPS,
    {
        "near_view_share": 0.5,
        "far_sides": 0.8,
        "size_px": (24.0, 240.0),
        "usual_size_px": (30.0, 160.0),
    },
)
LARGE_CLIPS = update(MIXED_CLIPS, {"frame_px": 896})  # four times the pixels, for a second look
ON_OBJECT = 0.25  # IoU of a candidate's box with the true one


@dataclass(frozen=True)
class Evidence:
    """How a query was answered by one look, without a threshold."""

    peak: float  # the highest score of the answer's samples, in (0, 1)
    present: bool
    correct: bool

    @property
    def logit(self) -> float:
        return logit(self.peak)


@dataclass(frozen=True)
class CandidateEvidence:
    """What two looks say of a candidate, in logits, and whether it shows the object."""

    query: int  # candidates of one query have the same number
    first: float
    second: float
    present: bool
    correct: bool


@dataclass(frozen=True)
class Collected:
    """How queries were answered by one look, and their candidates by a look back and by a second look."""

    answers: list[Evidence] = field(default_factory=list)
    back: list[CandidateEvidence] = field(default_factory=list)
    closer: list[CandidateEvidence] = field(default_factory=list)


def calibrate(
    path: Path,
    packs: Packs,
    *,
    queries: int,
    rounds: int,
    config: ComposerConfig | None = None,
    query_mask: QueryMaskConfig | None = None,
    second_look: bool = False,
) -> tuple[Calibration, list[Evidence]]:
    """Calibrate a weights file on composed videos; also returns the evidence the first look was fitted to.

    Each round composes new videos, with `queries` queries; query_mask: instead of the file's; second_look:
    also for that, which needs larger clips and is taken from then on.
    """
    config = config or (LARGE_CLIPS if second_look else MIXED_CLIPS)
    weights = replace(load_weights(path), calibration=Calibration(threshold=0.0))
    network = weights.network.config
    weights = weights.with_settings(replace(network, query_mask=query_mask or network.query_mask))
    collected = Collected()
    for seed in range(rounds):
        with scratch_folder() as scratch:
            localizer = Localizer(weights, cache=Path(scratch))
            composed = compose_queries(
                packs, localizer.predictor, Path(scratch), clips=queries, config=config, seed=seed
            )
            for query in composed:
                collect_evidence(localizer, query, collected, second_look=second_look)
    fitted = replace(fit(collected.answers), back=fit_looks(collected.back))
    if second_look:
        fitted = replace(fitted, looks=fit_looks(collected.closer))
    return fitted, collected.answers


def collect_evidence(
    localizer: Localizer, query: ComposedQuery, collected: Collected, *, second_look: bool = False
) -> None:
    """Answer a query by the first look alone, and look at its candidates again; the localizer's threshold
    must be 0."""
    config = localizer.config
    wanted = max(config.temporal.max_alternatives, config.search.look_appearances - 1)
    search = QuerySearch(
        query=localizer.predictor.prepare(query.query),
        video=query.video,
        predictor=localizer.predictor,
        config=config.search,
        temporal=replace(config.temporal, max_alternatives=wanted),
    )
    decoded = search.decode(search.coarse_scores())
    found = completed(search, answer(search, decoded)).track
    given = Track.empty()
    if isinstance(found, ResponseTrack):
        boxes = [p.box.xyxy for p in found.predictions]
        given = Track.from_boxes([p.sample for p in found.predictions], boxes)
    number, present = len(collected.answers), len(query.truth) > 0
    correct = overlap(query.truth, given)[1] >= CORRECT_TUBE_IOU
    collected.answers.append(Evidence(found.score, present, correct))
    choice = search.choice(decoded)
    if choice.chosen is None:
        return
    intervals = (choice.chosen, *choice.alternatives)
    first = [logit(float(choice.curve.raw[a : b + 1].max())) for a, b in intervals]
    shown = [shows_object(interval, decoded, query) for interval in intervals]

    def looked(further: Sequence[float | None]) -> list[CandidateEvidence]:
        rows = zip(first, further, shown, strict=True)
        return [CandidateEvidence(number, a, b, present, right) for a, b, right in rows if b is not None]

    collected.back.extend(looked(look_back(search, decoded, intervals) or [None] * len(intervals)))
    closer = look_again(search, decoded, intervals) if second_look else None
    collected.closer.extend(looked([look.logit for look in closer]) if closer else [])


def shows_object(interval: Interval, decoded: Mapping[int, Decoded], query: ComposedQuery) -> bool:
    """Whether the box of the interval's best sample lies on the object."""
    samples = [s for s in range(interval[0], interval[1] + 1) if s in decoded]
    if not samples:  # of a stretch that only bridges a gap
        return False
    best = max(samples, key=lambda s: decoded[s].score)
    here = np.flatnonzero(query.truth.frames == best)
    box = query.video.letterbox.box_from_canvas(decoded[best].box)
    return len(here) > 0 and float(iou_xyxy(np.array(box.xyxy), query.truth.boxes_xyxy[here[0]])) >= ON_OBJECT


def fit(evidence: list[Evidence]) -> Calibration:
    """Slope and offset by logistic regression, then the threshold."""
    _require_both_kinds(evidence)
    (slope,), offset = logistic(
        np.array([[e.logit] for e in evidence]), np.array([e.correct for e in evidence], np.float64)
    )
    absent = np.array([e.logit for e in evidence if not e.present])
    correct = np.array([e.logit for e in evidence if e.correct])
    threshold = float(expit(slope * rejecting_threshold(absent, correct) + offset))
    return Calibration(slope=slope, offset=offset, threshold=threshold)


def fit_looks(candidates: list[CandidateEvidence]) -> BothLooks:
    """The same for both looks at once; a query is answered by its best candidate."""
    _require_both_kinds(candidates)
    (first, second), offset = logistic(
        np.array([[c.first, c.second] for c in candidates]),
        np.array([c.correct for c in candidates], np.float64),
    )
    value = {c: first * c.first + second * c.second for c in candidates}
    best: dict[int, CandidateEvidence] = {}
    for c in candidates:
        if c.query not in best or value[c] > value[best[c.query]]:
            best[c.query] = c
    absent = np.array([value[c] for c in best.values() if not c.present])
    correct = np.array([value[c] for c in best.values() if c.correct])
    threshold = float(expit(rejecting_threshold(absent, correct) + offset))
    return BothLooks(first=first, second=second, offset=offset, threshold=threshold)


def _require_both_kinds(evidence: Sequence[Evidence] | Sequence[CandidateEvidence]) -> None:
    absent = sum(not e.present for e in evidence)
    correct = sum(e.correct for e in evidence)
    if not absent or not correct:
        raise DataError(
            f"Calibration needs correct answers and absent objects, got {correct} and {absent} in "
            f"{len(evidence)} queries. Use more queries, or train longer."
        )


def logistic(logits: Floats, correct: Floats) -> tuple[list[float], float]:
    """Slopes (K) and offset for logits (N, K): Platt scaling, with smoothed targets for separable data."""
    count = correct.sum()
    high, low = (count + 1) / (count + 2), 1 / (len(correct) - count + 2)
    return fit_line(logits, np.where(correct > 0.5, high, low))


def fit_line(logits: Floats, targets: Floats) -> tuple[list[float], float]:
    """Slopes (K) and offset whose sigmoid predicts targets (N,) in [0, 1] from logits (N, K)."""

    def loss(line: Floats) -> tuple[float, Floats]:
        value = logits @ line[:-1] + line[-1]
        residual = expit(value) - targets
        cost = np.logaddexp(0, value) - targets * value
        return float(cost.mean()), np.append(residual @ logits / len(logits), residual.mean())

    start = np.append(np.full(logits.shape[1], 1 / logits.shape[1]), 0.0)
    *slopes, offset = minimize(loss, start, jac=True, method="BFGS").x.tolist()
    return slopes, offset


def rejecting_threshold(absent: Floats, correct: Floats) -> float:
    """The logit below which answers are rejected, as REJECTED_SHARE of the absent objects are.

    It lies halfway between the last rejected absent object and the next correct answer.
    """
    floor = np.sort(absent)[int(np.ceil(REJECTED_SHARE * len(absent))) - 1]
    above = correct[correct > floor]
    return float((floor + above.min()) / 2) if len(above) else float(np.nextafter(floor, np.inf))
