"""Plots of numbers: training curves, accuracy against cost, and a measure over a setting.

They are the paper's figures trainingloss, flopsparams, fps, ablations and combined_degradation.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.config import QueryMaskConfig
from egohieraloc.data.stream import read_json
from egohieraloc.documents import parse_json
from egohieraloc.errors import DataError
from egohieraloc.figures import style
from egohieraloc.types import Floats

RATE_DROP = 0.3  # a learning rate below this share of the previous one was stepped down
TICK_FORMAT = "{:g}"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a CSV file with a heading, or of a JSON list of objects."""

    path: Path
    rows: tuple[dict[str, Any], ...]

    def words(self, column: str) -> list[str]:
        self._require(column)
        return [str(row.get(column, "")) for row in self.rows]

    def numbers(self, column: str) -> Floats:
        self._require(column)
        try:
            return np.array([float(row[column]) for row in self.rows])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.path}: column '{column}' must hold a number in every row ({error})."
            ) from error

    def is_numeric(self, column: str) -> bool:
        try:
            return bool(np.isfinite(self.numbers(column)).all())
        except DataError:
            return False

    def _require(self, column: str) -> None:
        known = list(self.rows[0])
        if column not in known:
            raise DataError(f"{self.path} has no column '{column}'. It has {', '.join(known)}.")


def read_table(path: str | Path) -> Table:
    """A .json list of objects; everything else is read as CSV."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        rows = read_json(path)
        if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
            raise DataError(f"{path} must hold a list of objects, one for each row.")
    else:
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    if not rows:
        raise DataError(f"{path} has no rows. It needs a heading and a line for each method.")
    return Table(path, tuple(rows))


def read_log(path: str | Path) -> list[dict[str, float]]:
    """The records of a training's log.jsonl, in order of steps. After a resume the later record counts."""
    found: dict[tuple[int, bool], dict[str, float]] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    for number, line in enumerate(lines, 1):
        try:
            record = parse_json(line)
            found[int(record["step"]), "learning_rate" in record] = record
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            if number == len(lines):  # the run is being written, or was cut off
                break
            raise DataError(f"{path}: line {number} is not a training record ({error}).") from error
    if not found:
        raise DataError(f"{path} has no records yet.")
    return [found[key] for key in sorted(found)]


def draw_training(
    path: str | Path,
    records: Sequence[dict[str, float]],
    *,
    losses: Sequence[str] = ("total",),
    measure: str = "success",
    width_in: float = style.COLUMN_IN,
) -> None:
    """Losses on the left axis, the validation measure on the right; dashes where the learning rate drops."""
    steps = [record for record in records if "learning_rate" in record]
    checks = [record for record in records if measure in record and "learning_rate" not in record]
    known = sorted({name for record in steps for name in record} - {"step", "time_s"})
    for name in losses:
        if name not in known:
            raise DataError(f"The log has no loss '{name}'. It has {', '.join(known)}.")
    with style.figure(path, width_in, 0.66 * width_in) as drawn:
        axes = drawn.subplots()
        for i, name in enumerate(losses):
            pairs = [(record["step"], record[name]) for record in steps if name in record]
            axes.plot(*zip(*pairs, strict=True), color=style.colour(i), linewidth=0.8, label=name)
        for drop in rate_drops(steps):
            axes.axvline(drop, color=style.QUIET, linewidth=0.6, linestyle=(0, (3, 2)))
        axes.set(xlabel="step", ylabel="loss", yscale="log")
        axes.margins(x=0)
        _label_log_ticks(axes.yaxis)
        handles, names = axes.get_legend_handles_labels()
        if checks:
            right = axes.twinx()
            right.spines["right"].set_visible(True)
            values = [(record["step"], record[measure]) for record in checks]
            right.plot(*zip(*values, strict=True), ".-", color=style.TRUTH, label=f"validation {measure}")
            right.set_ylabel(f"validation {measure}", color=style.TRUTH)
            right.tick_params(axis="y", colors=style.TRUTH)
            handles, names = (
                a + b for a, b in zip((handles, names), right.get_legend_handles_labels(), strict=True)
            )
        drawn.legend(handles, names, loc="outside upper center", ncols=min(4, len(names)))


def rate_drops(steps: Sequence[dict[str, float]]) -> list[float]:
    """Steps at which the learning rate was cut, as a multi-step schedule does."""
    rates = [(record["step"], record["learning_rate"]) for record in steps]
    return [b[0] for a, b in pairwise(rates) if b[1] < RATE_DROP * a[1]]


@dataclass(frozen=True)
class TradeoffColumns:
    """The columns of a table that a trade-off shows."""

    x: str
    y: str
    name: str
    size: str | None = None  # shown as the area of the dots


def draw_tradeoff(
    path: str | Path,
    table: Table,
    columns: TradeoffColumns,
    *,
    less_is_better: bool = False,
    log_x: bool = False,
    width_in: float = style.COLUMN_IN,
) -> None:
    """A dot per method, the first row emphasised; the line joins those that no other beats in both."""
    across, up, names = table.numbers(columns.x), table.numbers(columns.y), table.words(columns.name)
    if log_x and (across <= 0).any():
        raise DataError(f"{table.path}: column '{columns.x}' must be above 0 for a logarithmic axis.")
    areas = np.full(len(names), 30.0)
    if columns.size is not None:
        values = table.numbers(columns.size)
        areas = 12 + 160 * np.clip(values, 0, None) / max(float(values.max()), 1e-12)
    best = pareto(across, up, less_is_better=less_is_better)
    with style.figure(path, width_in, 0.7 * width_in) as drawn:
        axes = drawn.subplots()
        axes.plot(across[best], up[best], color=style.QUIET, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        for i, name in enumerate(names):
            _show_method(axes, name, (across[i], up[i]), areas[i], emphasised=i == 0)
        axes.set(xlabel=columns.x, ylabel=columns.y)
        if log_x:
            axes.set_xscale("log")
            _label_log_ticks(axes.xaxis)
        axes.margins(0.14)
        axes.grid(visible=True)
        axes.set_axisbelow(True)
        if columns.size is not None:
            axes.set_title(f"area: {columns.size}", loc="right", color=style.QUIET, fontsize=6.5)


def _show_method(axes: Any, name: str, at: tuple[float, float], area: float, *, emphasised: bool) -> None:
    """A dot with its name above it."""
    shade, weight = (style.colour(0), "bold") if emphasised else (style.colour(1), "normal")
    axes.scatter(*at, s=area, color=shade, alpha=0.85, linewidth=0, zorder=2)
    above = {"xytext": (0, 2 + math.sqrt(area) / 2), "textcoords": "offset points", "ha": "center"}
    axes.annotate(name, at, fontsize=6.5, weight=weight, **above)


def draw_sweep(
    path: str | Path, table: Table, *, x: str, measures: Sequence[str], width_in: float = style.COLUMN_IN
) -> None:
    """A measure over a setting: lines where the setting is a number, bars where it is a word.

    Two measures have an axis each, since they seldom share a unit; three or more share one.
    """
    numeric = table.is_numeric(x)
    with style.figure(path, width_in, 0.66 * width_in) as drawn:
        axes = drawn.subplots()
        twin = len(measures) == 2
        plots = [axes, axes.twinx()] if twin else [axes] * len(measures)
        places = table.numbers(x) if numeric else np.arange(len(table.rows), dtype=np.float64)
        for i, (place, measure) in enumerate(zip(plots, measures, strict=True)):
            values, look = table.numbers(measure), {"color": style.colour(i), "label": measure}
            if numeric:
                order = np.argsort(places)
                place.plot(places[order], values[order], "o", linestyle=style.dashes(i), markersize=3, **look)
            else:
                wide = 0.8 / len(measures)
                place.bar(places + (i - (len(measures) - 1) / 2) * wide, values, 0.92 * wide, **look)
            if twin:
                place.set_ylabel(measure, color=style.colour(i))
                place.tick_params(axis="y", colors=style.colour(i))
        if twin:
            plots[1].spines["right"].set_visible(True)
        elif len(measures) == 1:
            axes.set_ylabel(measures[0])
        else:
            drawn.legend(loc="outside upper center", ncols=len(measures))
        axes.set_xlabel(x)
        if numeric:
            axes.set_xticks(np.unique(places))
            axes.grid(visible=True)
        else:
            axes.set_xticks(places, table.words(x))
            axes.tick_params(axis="x", length=0)


def draw_qualities(path: str | Path, qualities: Floats, *, width_in: float = style.COLUMN_IN) -> None:
    """How the qualities (N,) of queries' masks are spread, and the share that goes to each fallback level."""
    limits = QueryMaskConfig()
    edges = (0.0, limits.doubtful, limits.trusted, 1.0)
    with style.figure(path, width_in, 0.66 * width_in) as drawn:
        axes = drawn.subplots()
        axes.hist(qualities, bins=np.linspace(0, 1, 21).tolist(), color=style.colour(1))
        for level, (low, high) in enumerate(pairwise(edges)):
            share = np.mean((qualities >= low) & ((qualities < high) | (high == 1)))
            words = f"level {2 - level}\n{100 * share:.1f} %"
            axes.text((low + high) / 2, 1.02, words, ha="center", transform=axes.get_xaxis_transform())
        for limit in edges[1:3]:
            axes.axvline(limit, color=style.QUIET, linewidth=0.6, linestyle=(0, (3, 2)))
        axes.set(xlabel="quality of the query's mask", ylabel="queries", xlim=(0, 1))


def pareto(across: Floats, up: Floats, *, less_is_better: bool) -> list[int]:
    """Indices of the points that no other point beats in both, from left to right."""
    cost = across if less_is_better else -across
    best: list[int] = []
    for i in np.lexsort((-up, cost)).tolist():  # the cheapest first
        if not best or up[i] > up[best[-1]]:
            best.append(i)
    return sorted(best, key=lambda i: float(across[i]))


def _label_log_ticks(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: TICK_FORMAT.format(value))
    axis.set_minor_formatter(lambda value, _: _minor(value))


def _minor(value: float) -> str:
    """Between the powers of ten, only 2 and 5 are labelled."""
    first = value / 10 ** math.floor(math.log10(value)) if value > 0 else 0
    return TICK_FORMAT.format(value) if round(first) in (2, 5) else ""
