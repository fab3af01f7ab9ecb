"""Fit the answer's score: how likely is an answer right, and from where on is it given at all?

The score of the answer's surest sample becomes a probability by logistic regression over questions with a
known answer; the threshold then follows from the questions about absent objects.
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
from egohieraloc.training.composer.composed_videos import VIDEO_CLIPS, Question, answer_to, compose_questions
from egohieraloc.training.composer.config import ComposerConfig
from egohieraloc.training.composer.packs import Packs
from egohieraloc.types import Floats

RIGHT_TUBE_IOU = 0.25
PACK_LIMIT = 320  # photos and objects read; every photo that was kept from training is among them
REJECTED_SHARE = 0.8  # of the absent objects, at the threshold
CERTAIN = 1e-6


@dataclass(frozen=True)
class Evidence:
    """How a question was answered, with every answer given."""

    peak: float  # the score of the answer's surest sample, in (0, 1)
    present: bool
    right: bool

    @property
    def logit(self) -> float:
        return float(logit(np.clip(self.peak, CERTAIN, 1 - CERTAIN)))


def calibrate(
    path: Path, packs: Packs, *, questions: int, rounds: int, config: ComposerConfig = VIDEO_CLIPS
) -> tuple[Calibration, list[Evidence]]:
    """Calibrate a weights file on composed videos; returns also what it was fitted to.

    The videos of a round are made of its own clips, one a question.
    """
    weights = replace(load_weights(path), calibration=Calibration(threshold=0.0))
    evidence: list[Evidence] = []
    for seed in range(rounds):
        with tempfile.TemporaryDirectory() as scratch:
            localizer = Localizer(weights, cache=Path(scratch))
            evidence += gather(
                localizer,
                compose_questions(
                    packs, localizer.predictor, Path(scratch), clips=questions, config=config, seed=seed
                ),
            )
    return fit(evidence), evidence


def gather(localizer: Localizer, questions: Iterable[Question]) -> list[Evidence]:
    """Ask all questions; the localizer must not refuse any answer."""
    evidence = []
    for question in questions:
        given, score = answer_to(question, localizer)
        tube = overlap(question.truth, given)[1]
        evidence.append(Evidence(score, len(question.truth) > 0, tube >= RIGHT_TUBE_IOU))
    return evidence


def fit(evidence: list[Evidence]) -> Calibration:
    """Slope and offset by logistic regression, then the threshold."""
    absent = [e for e in evidence if not e.present]
    if not absent or not any(e.right for e in evidence):
        raise DataError(
            f"Calibration needs right answers and absent objects, got {sum(e.right for e in evidence)} and "
            f"{len(absent)} in {len(evidence)} questions. Ask more questions, or train longer."
        )
    slope, offset = logistic(
        np.array([e.logit for e in evidence]), np.array([e.right for e in evidence], np.float64)
    )
    threshold = float(expit(slope * logit_threshold(evidence) + offset))
    return Calibration(slope=slope, offset=offset, threshold=threshold)


def logistic(logits: Floats, right: Floats) -> tuple[float, float]:
    """Slope and offset (Platt): targets are drawn in a little, so that separable data stay finite."""
    count = right.sum()
    high, low = (count + 1) / (count + 2), 1 / (len(right) - count + 2)
    targets = np.where(right > 0.5, high, low)

    def loss(line: Floats) -> tuple[float, Floats]:
        value = line[0] * logits + line[1]
        slack = expit(value) - targets
        cost = np.logaddexp(0, value) - targets * value
        return float(cost.mean()), np.array([(slack * logits).mean(), slack.mean()])

    slope, offset = minimize(loss, np.array([1.0, 0.0]), jac=True, method="BFGS").x
    return float(slope), float(offset)


def logit_threshold(evidence: list[Evidence]) -> float:
    """The peak's logit from which answers are given: above REJECTED_SHARE of the absent objects.

    From there it moves up halfway to the next right answer, which costs nothing and keeps a distance to both.
    """
    absent = np.sort([e.logit for e in evidence if not e.present])
    floor = absent[int(np.ceil(REJECTED_SHARE * len(absent))) - 1]
    above = [e.logit for e in evidence if e.right and e.logit > floor]
    return float((floor + min(above)) / 2) if above else float(np.nextafter(floor, np.inf))
