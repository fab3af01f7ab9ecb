"""The table of ablations: runs of each row with several seeds against those of the full system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from egohieraloc.errors import DataError
from egohieraloc.evaluation.significance import SeedComparison, compare_seeds, measures_of_runs

# The measures in the paper's tables for each benchmark, by their place in a results file.
MEASURES: dict[str, dict[str, str]] = {
    "vq2d": {
        "own_score.tap25": "tAP25",
        "own_score.stap25": "stAP25",
        "own_score.recovery": "recovery %",
        "own_score.success": "success %",
    },
    "vq3d": {
        "scores.success": "success %",
        "scores.success_star": "success* %",
        "scores.distance_m": "L2 m",
        "scores.angle_1_rad": "angle rad",
        "scores.coverage": "QwP %",
    },
    "egotracks": {
        "average_overlap": "AO",
        "by_sequence.f_score": "F",
        "by_sequence.precision": "precision",
        "by_sequence.recall": "recall",
    },
}
COLUMNS = ("ablation", "measure", "runs", "mean", "std", "difference", "95 % interval", "t", "p")


@dataclass(frozen=True)
class AblationRow:
    """One measure of one ablation."""

    ablation: str
    measure: str
    values: tuple[float, ...]  # one for each run
    against_full: SeedComparison | None  # None for the full system, and with fewer than two runs of either
    why_not_compared: str = ""

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float | None:
        """With n - 1."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


def ablation_rows(runs: Mapping[str, Sequence[str | Path]], *, full: str = "full") -> list[AblationRow]:
    """Rows from results files (`NAME.results.json`) by ablation; the full system must be among them."""
    if full not in runs:
        raise DataError(f"Ablations are compared with '{full}': give its results files too.")
    measured = {name: measures_of_runs(paths) for name, paths in runs.items()}
    shared = [
        (place, title)
        for of_benchmark in MEASURES.values()
        for place, title in of_benchmark.items()
        if all(place in values for values in measured.values())
    ]
    if not shared:
        raise DataError(f"The files have no measure in common. Give results of one of {', '.join(MEASURES)}.")
    return [
        _row(name, title, tuple(values[place]), None if name == full else tuple(measured[full][place]))
        for place, title in shared
        for name, values in measured.items()
    ]


def markdown(rows: Sequence[AblationRow]) -> str:
    """The rows as a table in Markdown."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *map(_cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(
    name: str, measure: str, values: tuple[float, ...], reference: tuple[float, ...] | None
) -> AblationRow:
    if reference is None:
        return AblationRow(name, measure, values, None, "the reference")
    if min(len(values), len(reference)) < 2:
        return AblationRow(name, measure, values, None, "needs two runs of both")
    return AblationRow(name, measure, values, compare_seeds(values, reference))


def _cells(row: AblationRow) -> tuple[str, ...]:
    compared = row.against_full
    cells = [row.ablation, row.measure, str(len(row.values)), f"{row.mean:.4f}", _figure(row.std)]
    if compared is None:
        return (*cells, row.why_not_compared, "", "", "")
    change = compared.difference
    interval = f"{change.low:+.4f} to {change.high:+.4f}"
    return (*cells, f"{change.value:+.4f}", interval, _figure(compared.t), _figure(change.p_value))


def _figure(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.4f}"
