"""Calibration of the answer's score, and the threshold below which no answer is given.

Logistic regression over composed queries turns the highest score of an answer's samples into the probability
that it is correct; the threshold then follows from the queries whose object is absent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from egohieraloc.errors import DataError
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.localize import Localizer
from egohieraloc.models.weights import Calibration, load_weights
from egohieraloc.training.composer.composed_videos import (
    VIDEO_CLIPS,
    ComposedQuery,
    answer_to,
    compose_queries,
)
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs
from egohieraloc.types import Floats

CORRECT_TUBE_IOU = 0.25
PACK_LIMIT = 320  # photos and objects read; enough for all photos held out from training
REJECTED_SHARE = 0.8  # of the queries with an absent object, at the threshold
CLIP = 1e-6  # keeps logits finite


@dataclass(frozen=True)
class Evidence:
    """How a query was answered, without a threshold."""

    peak: float  # the highest score of the answer's samples, in (0, 1)
    present: bool
    correct: bool

    @property
    def logit(self) -> float:
        return float(logit(np.clip(self.peak, CLIP, 1 - CLIP)))


def calibrate(
    path: Path, packs: Packs, *, queries: int, rounds: int, config: ComposerConfig = VIDEO_CLIPS
) -> tuple[Calibration, list[Evidence]]:
    """Calibrate a weights file on composed videos; also returns the evidence it was fitted to.

    Each round composes new videos, with `queries` queries.
    """
    weights = replace(load_weights(path), calibration=Calibration(threshold=0.0))
    evidence: list[Evidence] = []
    for seed in range(rounds):
        with tempfile.TemporaryDirectory() as scratch:
            localizer = Localizer(weights, cache=Path(scratch))
            composed = compose_queries(
                packs, localizer.predictor, Path(scratch), clips=queries, config=config, seed=seed
            )
            evidence += collect_evidence(localizer, composed)
    return fit(evidence), evidence


def collect_evidence(localizer: Localizer, queries: Iterable[ComposedQuery]) -> list[Evidence]:
    """Answer all queries; the localizer's threshold must be 0."""
    evidence = []
    for query in queries:
        answer, score = answer_to(query, localizer)
        tube = overlap(query.truth, answer)[1]
        evidence.append(Evidence(score, len(query.truth) > 0, tube >= CORRECT_TUBE_IOU))
    return evidence


def fit(evidence: list[Evidence]) -> Calibration:
    """Slope and offset by logistic regression, then the threshold."""
    absent = [e for e in evidence if not e.present]
    if not absent or not any(e.correct for e in evidence):
        raise DataError(
            "Calibration needs correct answers and absent objects, got "
            f"{sum(e.correct for e in evidence)} and {len(absent)} in {len(evidence)} queries. "
            "Use more queries, or train longer."
        )
    slope, offset = logistic(
        np.array([e.logit for e in evidence]), np.array([e.correct for e in evidence], np.float64)
    )
    threshold = float(expit(slope * logit_threshold(evidence) + offset))
    return Calibration(slope=slope, offset=offset, threshold=threshold)


def logistic(logits: Floats, correct: Floats) -> tuple[float, float]:
    """Slope and offset (Platt scaling); smoothed targets keep them finite for separable data."""
    count = correct.sum()
    high, low = (count + 1) / (count + 2), 1 / (len(correct) - count + 2)
    targets = np.where(correct > 0.5, high, low)

    def loss(line: Floats) -> tuple[float, Floats]:
        value = line[0] * logits + line[1]
        residual = expit(value) - targets
        cost = np.logaddexp(0, value) - targets * value
        return float(cost.mean()), np.array([(residual * logits).mean(), residual.mean()])

    slope, offset = minimize(loss, np.array([1.0, 0.0]), jac=True, method="BFGS").x
    return float(slope), float(offset)


def logit_threshold(evidence: list[Evidence]) -> float:
    """The logit of the peak below which answers are rejected, as REJECTED_SHARE of the absent objects are.

    It lies halfway between the last rejected absent object and the next correct answer.
    """
    absent = np.sort([e.logit for e in evidence if not e.present])
    floor = absent[int(np.ceil(REJECTED_SHARE * len(absent))) - 1]
    above = [e.logit for e in evidence if e.correct and e.logit > floor]
    return float((floor + min(above)) / 2) if above else float(np.nextafter(floor, np.inf))
