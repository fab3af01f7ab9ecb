"""Figures at an equal refusal of absent objects, with bootstrap intervals: `hard_heldout.py`, `personal.py`.

Models are asked to answer every question; what they would refuse follows from the scores. So models with
different thresholds are compared where they refuse the same share of absent objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD, Overlaps, measure, score
from egohieraloc.localize import Localizer, LocalizerConfig, with_settings
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.types import Floats
from figures import Outcome

REFUSED_SHARE = 0.9  # of the absent objects
RESAMPLES = 500
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


@dataclass(frozen=True)
class Row:
    """Figures in percent. The first four count every answer, the last refuses absent objects."""

    present: int
    absent: int
    success: Interval
    recovery: Interval
    stap25: Interval
    refused: float | None  # share of absent objects refused at the model's own threshold
    success_at_refusal: Interval  # answers that score higher than REFUSED_SHARE of all absent objects


def answering_localizer(
    model: str, *, device: str | None, engine: str | None, settings: Sequence[str], cache: Path
) -> tuple[Localizer, float]:
    """A localizer that answers every question, and the threshold at which the model would refuse."""
    weights = load_weights(find_weights(model))
    config = with_settings(LocalizerConfig(), settings, weights)
    own = weights.calibration
    threshold = own.threshold
    if config.search.second_look and own.looks.second:
        threshold = own.looks.threshold
    elif config.search.look_back and own.back.second:
        threshold = own.back.threshold
    always = replace(
        own,
        threshold=0.0,
        looks=replace(own.looks, threshold=0.0),
        back=replace(own.back, threshold=0.0),
    )
    weights = replace(weights, calibration=always)
    return Localizer(weights, device=device, engine=engine, config=config, cache=cache), threshold


def rows_by_group(
    outcomes: Sequence[Outcome], groups: Mapping[str, NDArray[np.bool_]], threshold: float
) -> dict[str, Row]:
    """A row for all questions and one for each group (Q,) of them that has present objects."""
    everything = {"all": np.ones(len(outcomes), bool)} | dict(groups)
    present = np.array([len(outcome.truth) > 0 for outcome in outcomes])
    scores = np.array([outcome.score for outcome in outcomes])
    overlaps = measure((o.truth, o.answer, o.score) for o in outcomes)
    rng = np.random.default_rng(0)
    return {
        name: _row(
            overlaps.take(chosen & present), scores[~present], scores[chosen & ~present], threshold, rng
        )
        for name, chosen in everything.items()
        if (chosen & present).any()
    }


def _row(
    overlaps: Overlaps, absent: Floats, absent_here: Floats, threshold: float, rng: np.random.Generator
) -> Row:
    figures = _figures(overlaps, absent)
    samples = np.array(
        [
            _figures(
                overlaps.take(rng.integers(len(overlaps), size=len(overlaps))),
                absent[rng.integers(len(absent), size=len(absent))] if len(absent) else absent,
            )
            for _ in range(RESAMPLES)
        ]
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, (tail, 1 - tail), axis=0)
    success, recovery, stap25, at_refusal = map(Interval, figures, low.tolist(), high.tolist())
    refused = float(100 * np.mean(absent_here < threshold)) if len(absent_here) else None
    return Row(len(overlaps), len(absent_here), success, recovery, stap25, refused, at_refusal)


def _figures(overlaps: Overlaps, absent: Floats) -> tuple[float, float, float, float]:
    """Success, recovery, stAP25, and success at an equal refusal of absent objects with these scores."""
    measured = score(overlaps)
    given = overlaps.score > refusal_bar(absent)
    kept = 100 * float(np.mean(given & (overlaps.tube_iou >= SUCCESS_THRESHOLD)))
    return measured.success, measured.recovery, 100 * measured.stap25, kept


def refusal_bar(absent: Floats) -> float:
    """The lowest score that refuses REFUSED_SHARE of the absent objects."""
    if len(absent) == 0:
        return -np.inf
    return float(np.sort(absent)[int(np.ceil(REFUSED_SHARE * len(absent))) - 1])


def print_rows(rows: Mapping[str, Row]) -> None:
    headings = (
        "present",
        "absent",
        "success %",
        "recovery %",
        "stAP25 %",
        "refused %",
        "success at 90 % refused",
    )
    widths = (8, 7, 22, 22, 22, 10, 25)
    print(f"{'':22}" + "".join(f"{text:>{width}}" for text, width in zip(headings, widths, strict=True)))
    for name, row in rows.items():
        refused = "-" if row.refused is None else f"{row.refused:.1f}"
        cells = (
            row.present,
            row.absent,
            row.success,
            row.recovery,
            row.stap25,
            refused,
            row.success_at_refusal,
        )
        texts = (f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{name:22}" + "".join(texts))


def print_differences(
    name: str, changed: Sequence[Outcome], base: Sequence[Outcome], groups: Mapping[str, NDArray[np.bool_]]
) -> None:
    """Success of the present, counted at an equal refusal, minus that of the same questions in `base`."""
    present = np.array([len(outcome.truth) > 0 for outcome in base])
    rng = np.random.default_rng(0)
    print(f"\n{name} minus the first, success in points: all answers, at {100 * REFUSED_SHARE:.0f} % refused")
    everything = {"all": np.ones(len(base), bool)} | dict(groups)
    for group, chosen in everything.items():
        rows = np.flatnonzero(chosen & present)
        if len(rows) == 0:
            continue
        cells = (
            bootstrapped((hits(changed, share) - hits(base, share))[rows], rng)
            for share in (0.0, REFUSED_SHARE)
        )
        print(f"{group:22}" + "".join(f"{cell!s:>24}" for cell in cells))


def hits(outcomes: Sequence[Outcome], refused_share: float) -> Floats:
    """(Q,) 100 for a question whose answer is right and scores above that share of the absent, else 0."""
    overlaps = measure((o.truth, o.answer, o.score) for o in outcomes)
    absent = np.array([o.score for o in outcomes if len(o.truth) == 0])
    bar = refusal_bar(absent) if refused_share else -np.inf
    return 100.0 * ((overlaps.tube_iou >= SUCCESS_THRESHOLD) & (overlaps.score > bar))


def bootstrapped(values: Floats, rng: np.random.Generator) -> Interval:
    """The mean of values (N,) and its interval."""
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    return Interval(float(values.mean()), float(low), float(high))


def to_json(rows: Mapping[str, Row]) -> dict[str, object]:
    return {name: asdict(row) for name, row in rows.items()}


def banded(values: Floats, edges: Sequence[float], name: str) -> dict[str, NDArray[np.bool_]]:
    """Groups (Q,) of values between neighbouring edges; values that are not numbers are in none."""
    return {f"{name} {low:g} to {high:g}": (values >= low) & (values < high) for low, high in pairwise(edges)}
