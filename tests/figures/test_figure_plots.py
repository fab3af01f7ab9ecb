"""Plots of numbers: what is read, what is chosen, and what is written on the axes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egohieraloc.errors import DataError
from egohieraloc.figures import plots, style


def write_log(path: Path, *records: dict[str, float], more: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + more)
    return path


def step(number: int, rate: float = 1e-3, **values: float) -> dict[str, float]:
    return {"step": number, "time_s": 0.0, "total": 5.0 / number, "learning_rate": rate, **values}


def test_after_a_resume_the_later_record_counts(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "log.jsonl",
        step(20),
        step(40),
        {"step": 40, "success": 11.0},
        step(40, total=9.0),
        step(60),
        more='{"step": 80, "to',
    )
    records = plots.read_log(log)
    assert [(r["step"], r.get("total"), r.get("success")) for r in records] == [
        (20, 0.25, None),
        (40, None, 11.0),
        (40, 9.0, None),
        (60, 5 / 60, None),
    ]


def test_logs_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read .*none\.jsonl: No such file"):
        plots.read_log(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match=r"log\.jsonl: line 1 is not a training record"):
        plots.read_log(write_log(tmp_path / "log.jsonl", {"loss": 1.0}, step(20)))
    with pytest.raises(DataError, match="has no records yet"):
        plots.read_log(write_log(tmp_path / "log.jsonl"))


def test_steps_of_the_learning_rate_are_found() -> None:
    rates = [1e-5, 1e-3, 1e-3, 9e-4, 1e-4, 1e-4, 1e-5]
    records = [step(20 * i, rate) for i, rate in enumerate(rates, 1)]
    assert plots.rate_drops(records) == [100, 140]


def test_training_curves(tmp_path: Path) -> None:
    records = [step(20, mask=1.0), step(40), {"step": 40, "success": 30.0}, step(60, 1e-4, mask=0.5)]
    plots.draw_training(tmp_path / "a.svg", records, losses=["total", "mask"])
    assert "validation success" in (tmp_path / "a.svg").read_text()
    plots.draw_training(tmp_path / "b.svg", records, measure="recovery")
    assert "validation" not in (tmp_path / "b.svg").read_text()
    with pytest.raises(DataError, match=r"no loss 'box'\. It has learning_rate, mask, total"):
        plots.draw_training(tmp_path / "c.svg", records, losses=["box"])


def test_no_other_beats_the_front_in_both() -> None:
    fps, success = np.array([41, 30, 12, 3.5, 5, 41.0]), np.array([62, 48, 58, 63, 40, 50.0])
    assert plots.pareto(fps, success, less_is_better=False) == [3, 0]
    assert plots.pareto(fps, success, less_is_better=True) == [3]
    assert plots.pareto(np.array([1.0, 2, 3]), np.array([1.0, 2, 3]), less_is_better=True) == [0, 1, 2]
    assert plots.pareto(np.array([1.0, 2]), np.array([5.0, 5]), less_is_better=True) == [0]


@pytest.fixture
def table(tmp_path: Path) -> plots.Table:
    path = tmp_path / "t.csv"
    path.write_text("name,fps,success,part\nours,40,60.5,full\nother,4,62,less\n")
    return plots.read_table(path)


def test_tables(table: plots.Table, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"name": "ours", "fps": 40}, {"name": "other"}]))
    same = plots.read_table(path)
    assert table.words("name") == same.words("name") == ["ours", "other"]
    assert table.numbers("fps").tolist() == [40, 4]
    assert [table.is_numeric(column) for column in ("fps", "part")] == [True, False]
    with pytest.raises(DataError, match=r"has no column 'speed'. It has name, fps, success, part"):
        table.numbers("speed")
    with pytest.raises(DataError, match="column 'part' must hold a number in every row"):
        table.numbers("part")
    with pytest.raises(DataError, match="column 'fps' must hold a number in every row"):
        same.numbers("fps")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"a": 1}', "must hold a list of objects"),
        ("a.json", "[]", "has no rows"),
        ("a.csv", "name,fps\n", "has no rows"),
        ("none.csv", None, "Cannot read .*none.csv: No such file"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        plots.read_table(tmp_path / name)


def test_tradeoff(table: plots.Table, tmp_path: Path) -> None:
    columns = plots.TradeoffColumns("fps", "success", "name")
    sized = replace(columns, size="success")
    plots.draw_tradeoff(tmp_path / "a.svg", table, sized, log_x=True)
    text = (tmp_path / "a.svg").read_text()
    assert all(word in text for word in ("ours", "other", "area: success", ">10<"))
    plots.draw_tradeoff(tmp_path / "b.svg", table, columns, less_is_better=True)
    assert "area" not in (tmp_path / "b.svg").read_text()
    free = plots.Table(Path("t.csv"), ({"name": "free", "fps": 0, "success": 1},))
    with pytest.raises(DataError, match=r"t\.csv: column 'fps' must be above 0 for a logarithmic axis"):
        plots.draw_tradeoff(tmp_path / "c.svg", free, columns, log_x=True)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every figure that is drawn."""
    kept: list[Any] = []
    plain = style.figure

    @contextmanager
    def keeping(*arguments: Any, **options: Any) -> Iterator[Any]:
        with plain(*arguments, **options) as figure:
            kept.append(figure)
            yield figure

    monkeypatch.setattr(style, "figure", keeping)
    return kept


def test_a_line_goes_from_left_to_right_and_bars_stand_side_by_side(
    table: plots.Table, drawn: list[Any], tmp_path: Path
) -> None:
    plots.draw_sweep(tmp_path / "a.svg", table, x="fps", measures=["success"])
    assert drawn[0].axes[0].lines[0].get_xydata().tolist() == [[4, 62], [40, 60.5]]
    plots.draw_sweep(tmp_path / "a.svg", table, x="part", measures=["success", "fps", "fps"])
    bars = drawn[1].axes[0].patches
    assert [bar.get_height() for bar in bars] == [60.5, 62, 40, 4, 40, 4]
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars)
    assert all(a[1] < b[0] for a, b in pairwise(edges))
    plots.draw_sweep(tmp_path / "a.svg", table, x="fps", measures=["success", "fps"])
    assert [axes.get_ylabel() for axes in drawn[2].axes] == ["success", "fps"]


def test_sweeps_over_numbers_and_words(table: plots.Table, tmp_path: Path) -> None:
    for name, x, measures in (
        ("one", "fps", ["success"]),
        ("two", "fps", ["success", "fps"]),
        ("bars", "part", ["success", "fps", "success"]),
    ):
        plots.draw_sweep(tmp_path / f"{name}.svg", table, x=x, measures=measures)
    assert all(word in (tmp_path / "bars.svg").read_text() for word in ("full", "less", "part"))
    assert (tmp_path / "two.svg").read_text().count("success") > 0


@pytest.mark.parametrize(("value", "text"), [(0.02, "0.02"), (0.03, ""), (50, "50"), (0, "")])
def test_only_some_minor_ticks_are_written(value: float, text: str) -> None:
    assert plots._minor(value) == text
