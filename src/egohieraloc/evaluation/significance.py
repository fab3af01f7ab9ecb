"""Significance of a difference: over queries (paired bootstrap) and over seeds (Welch's t)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.data.stream import read_json
from egohieraloc.errors import DataError

# The measures of one system over these queries, by their index, which may repeat.
Resampled = Callable[[NDArray[np.intp]], Mapping[str, float | None]]
NORMAL_95 = 1.96
BREAKDOWNS = ("groups", "attributes", "scan_centroid")


@dataclass(frozen=True)
class Difference:
    """First minus second: its value, its 95 % interval and its p-value."""

    first: float
    second: float
    low: float
    high: float
    p_value: float | None

    @property
    def value(self) -> float:
        return self.first - self.second


@dataclass(frozen=True)
class SeedComparison:
    """Runs with several seeds. The interval is the paper's: 1.96 standard errors around the difference."""

    difference: Difference
    std_first: float  # with n - 1
    std_second: float
    t: float | None  # None, like the p-value, when all runs of each system score the same
    degrees_of_freedom: float | None


def paired_bootstrap(
    first: Resampled, second: Resampled, num_queries: int, *, resamples: int = 2000, seed: int = 0
) -> dict[str, Difference]:
    """One difference per measure that both have. Both are scored on the same resampled queries each time.

    The p-value is two-sided: twice the share of resamples on the other side of zero, never exactly zero.
    """
    ours, theirs = (_known(measure(np.arange(num_queries))) for measure in (first, second))
    names = [name for name in ours if name in theirs]
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(resamples):
        chosen = random.integers(0, num_queries, num_queries)
        one, other = (_known(measure(chosen)) for measure in (first, second))
        rows.append([one.get(name, np.nan) - other.get(name, np.nan) for name in names])
    table = np.array(rows)  # (resamples, measures); nan where a resample has nothing to measure
    low, high = np.nanquantile(table, [0.025, 0.975], axis=0)
    tail = np.minimum((table <= 0).sum(0), (table >= 0).sum(0))
    p_values = np.minimum(2 * (tail + 1) / (np.isfinite(table).sum(0) + 1), 1.0)
    return {
        name: Difference(ours[name], theirs[name], float(low[i]), float(high[i]), float(p_values[i]))
        for i, name in enumerate(names)
    }


def _known(measures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in measures.items() if value is not None}


def measures_of_runs(paths: Sequence[str | Path]) -> dict[str, list[float]]:
    """Every measure of several files of scores (`NAME.results.json`), one value per file."""
    runs = [dict(_measures(_results(path), "")) for path in paths]
    return {name: [run[name] for run in runs] for name in runs[0] if all(name in run for run in runs)}


def _results(path: str | Path) -> Any:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise DataError(f"{path} holds no scores: it should be a file written by `eval` or `score --json`.")
    return content["results"]


def _measures(results: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """All numbers but counts, which are integers, and the tables by group."""
    for name, value in results.items():
        if isinstance(value, dict) and name not in BREAKDOWNS:
            yield from _measures(value, f"{prefix}{name}.")
        elif isinstance(value, float):
            yield f"{prefix}{name}", value


def compare_seeds(first: Sequence[float], second: Sequence[float]) -> SeedComparison:
    """Welch's t-test and the interval of the difference of the means."""
    if min(len(first), len(second)) < 2:
        raise DataError(
            f"Comparing seeds needs at least two runs of each system, got {len(first)} and {len(second)}."
        )
    from scipy.stats import t as student

    means, counts = (float(np.mean(first)), float(np.mean(second))), np.array([len(first), len(second)])
    deviations = np.array([np.std(side, ddof=1) if len(set(side)) > 1 else 0.0 for side in (first, second)])
    squares = deviations**2 / counts
    error, value = float(np.sqrt(squares.sum())), means[0] - means[1]
    t = freedom = p_value = None
    if error > 0:
        t, freedom = value / error, float(error**4 / (squares**2 / (counts - 1)).sum())
        p_value = float(2 * student.sf(abs(t), freedom))
    reach = NORMAL_95 * error
    difference = Difference(*means, value - reach, value + reach, p_value)
    return SeedComparison(difference, float(deviations[0]), float(deviations[1]), t, freedom)
