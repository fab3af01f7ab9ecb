"""A table of ablations: runs with several seeds of each row against the full system."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import DataError
from egohieraloc.evaluation.significance import SeedComparison, compare_seeds

# What the paper's tables show of each benchmark: where in a file of results, and under which name.
MEASURES: dict[str, dict[str, tuple[str, ...]]] = {
    "vq2d": {
        "tAP25": ("own_score", "tap25"),
        "stAP25": ("own_score", "stap25"),
        "recovery %": ("own_score", "recovery"),
        "success %": ("own_score", "success"),
    },
    "vq3d": {
        "success %": ("scores", "success"),
        "success* %": ("scores", "success_star"),
        "L2 m": ("scores", "distance_m"),
        "angle rad": ("scores", "angle_1_rad"),
        "QwP %": ("scores", "coverage"),
    },
    "egotracks": {
        "AO": ("average_overlap",),
        "F": ("by_sequence", "f_score"),
        "precision": ("by_sequence", "precision"),
        "recall": ("by_sequence", "recall"),
    },
}
COLUMNS = ("ablation", "measure", "runs", "mean", "std", "difference", "95 % interval", "t", "p")


@dataclass(frozen=True)
class AblationRow:
    """One measure of one ablation."""

    ablation: str
    measure: str
    values: tuple[float, ...]  # one for each run
    against_full: SeedComparison | None  # None for the full system, and with less than two runs of either

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float | None:
        """With n - 1."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


def ablation_rows(runs: Mapping[str, Sequence[str | Path]], *, full: str = "full") -> list[AblationRow]:
    """Rows from files of results (`NAME.results.json`) by ablation; the full system must be among them."""
    if full not in runs:
        raise DataError(f"Ablations are compared with '{full}': give its files of results too.")
    results = {name: [_read(path) for path in paths] for name, paths in runs.items()}
    kinds = {str(file.get("benchmark")) for files in results.values() for file in files}
    kind = kinds.pop()
    if kinds or kind not in MEASURES:
        raise DataError(
            f"A table has files of one benchmark, {', '.join(MEASURES)}; got {', '.join([kind, *kinds])}."
        )
    rows = []
    for measure, place in MEASURES[kind].items():
        values = {name: tuple(_number(file, place) for file in files) for name, files in results.items()}
        rows += [_row(name, measure, values[name], None if name == full else values[full]) for name in runs]
    return rows


def markdown(rows: Sequence[AblationRow]) -> str:
    """The rows as a table in Markdown."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *map(_cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(
    name: str, measure: str, values: tuple[float, ...], reference: tuple[float, ...] | None
) -> AblationRow:
    enough = reference is not None and min(len(values), len(reference)) > 1
    return AblationRow(name, measure, values, compare_seeds(values, reference or ()) if enough else None)


def _cells(row: AblationRow) -> tuple[str, ...]:
    compared = row.against_full
    cells = [row.ablation, row.measure, str(len(row.values)), f"{row.mean:.4f}", _figure(row.std)]
    if compared is None:
        return (*cells, "", "", "", "")
    change = compared.difference
    interval = f"{change.low:+.4f} to {change.high:+.4f}"
    return (*cells, f"{change.value:+.4f}", interval, _figure(compared.t), _figure(change.p_value))


def _figure(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.4f}"


def _read(path: str | Path) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read the results {path}: {error}.") from error
    if not isinstance(content, dict) or "results" not in content:
        raise DataError(f"{path} holds no results: it should be a NAME.results.json that `eval` wrote.")
    return content


def _number(file: dict[str, Any], place: tuple[str, ...]) -> float:
    value: Any = file["results"]
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, int | float):
        raise DataError(f"A file of results has no number '{'.'.join(place)}'. Score its predictions again.")
    return float(value)
