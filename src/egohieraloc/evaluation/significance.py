"""Is one better than the other, or lucky? Over queries (paired bootstrap) and over seeds (Welch's t)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Difference:
    """First minus second: its value, its 95 % interval, and how likely chance makes one as large."""

    first: float
    second: float
    low: float
    high: float
    p_value: float

    @property
    def value(self) -> float:
        return self.first - self.second


@dataclass(frozen=True)
class SeedComparison:
    """Runs with several seeds. The interval is the paper's: 1.96 standard errors around the difference."""

    difference: Difference
    std_first: float  # with n - 1
    std_second: float
    t: float
    degrees_of_freedom: float


def paired_bootstrap(
    first: T,
    second: T,
    *,
    metric: Callable[[T], Sequence[float]],
    take: Callable[[T, NDArray[np.intp]], T],
    num_queries: int,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[Difference, ...]:
    """One difference per measure. Both systems are scored on the same resampled queries each time.

    The p-value is two-sided: twice the share of resamples on the other side of zero, which is never taken
    to be exactly nothing.
    """
    random = np.random.default_rng(seed)
    differences = []
    for _ in range(resamples):
        chosen = random.integers(0, num_queries, num_queries)
        differences.append(np.subtract(metric(take(first, chosen)), metric(take(second, chosen))))
    table = np.array(differences)  # (resamples, measures)
    low, high = np.quantile(table, [0.025, 0.975], axis=0)
    tail = np.minimum((table <= 0).sum(0), (table >= 0).sum(0))
    p_values = np.minimum(2 * (tail + 1) / (resamples + 1), 1.0)
    rows = zip(metric(first), metric(second), low, high, p_values, strict=True)
    return tuple(Difference(*(float(v) for v in row)) for row in rows)


def compare_seeds(first: Sequence[float], second: Sequence[float]) -> SeedComparison:
    """Welch's t-test and the interval of the difference of the means."""
    if min(len(first), len(second)) < 2:
        raise ValueError(
            f"Comparing seeds needs two runs of each at least, got {len(first)} and {len(second)}."
        )
    from scipy.stats import ttest_ind

    test = ttest_ind(first, second, equal_var=False)
    mean_first, mean_second = float(np.mean(first)), float(np.mean(second))
    std_first, std_second = float(np.std(first, ddof=1)), float(np.std(second, ddof=1))
    reach = NORMAL_95 * float(np.sqrt(std_first**2 / len(first) + std_second**2 / len(second)))
    value = mean_first - mean_second
    difference = Difference(mean_first, mean_second, value - reach, value + reach, float(test.pvalue))
    return SeedComparison(difference, std_first, std_second, float(test.statistic), float(test.df))
