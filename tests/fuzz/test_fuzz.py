"""Some thousand broken inputs, the same each time; `make fuzz` gives many more."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from fuzz.runner import PARSERS, Parser, inputs_of, run_parser, seeds_of

ROOT = Path(__file__).parents[2]
COUNT = {"weights": 20, "video": 60, "times": 40, "recipe": 60}  # others take a millisecond or two


@pytest.mark.parametrize("name", PARSERS)
def test_broken_inputs_are_refused_with_words(name: str) -> None:
    inputs = [*seeds_of(name), *inputs_of(name, 0, COUNT.get(name, 90))]
    outcome = run_parser(PARSERS[name], inputs)
    words = "\n\n".join(f"{place}: {text}\n{data[:200]!r}" for place, (text, data) in outcome.finds.items())
    assert not outcome.finds, words


def test_a_find_is_seen() -> None:
    """The loop notices what it looks for."""
    broken = run_parser(Parser(lambda path: {}["x"]), [b"a", b"b"])
    assert list(broken.finds) == ["KeyError at test_fuzz.py:<lambda>"]
    assert broken.inputs == 2
    hungry = run_parser(Parser(lambda path: len(bytearray(b"x" * 1_100_000_000))), [b"a", b"b"])
    assert "memory" in hungry.finds  # and "time", where memory is slow


def test_a_crash_and_a_hang_are_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of native code, which no exception tells; the inputs after it are still given."""
    spec = importlib.util.spec_from_file_location("fuzz_tool", ROOT / "tools" / "fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz_tool", tool)
    spec.loader.exec_module(tool)
    given = {tool.FIRST + number: word for number, word in enumerate(b"good abort good sleep good".split())}

    def parse(path: Path) -> None:
        {b"good": list, b"abort": lambda: os._exit(3), b"sleep": lambda: time.sleep(60)}[path.read_bytes()]()

    def inputs_of(name: str, first: int, count: int) -> list[bytes]:
        return [given[number] for number in range(first, first + count)]

    monkeypatch.setattr(tool, "STUCK_S", 0.5)
    monkeypatch.setattr(tool, "PARSERS", {"native": Parser(parse)})
    monkeypatch.setattr(tool, "seeds_of", lambda name: [b"good"])
    monkeypatch.setattr(tool, "inputs_of", inputs_of)
    kept: list[bytes] = []
    monkeypatch.setattr(tool, "keep", lambda name, data: kept.append(data))
    rows = {"native": tool.Row("native")}
    assert len(list(tool.run(rows, len(given), 1))) == 3
    assert kept == [b"abort", b"sleep"]
    assert (rows["native"].inputs, rows["native"].finds) == (5, 2)
