"""Some thousand broken inputs, the same each time; `make fuzz` gives many more."""

from __future__ import annotations

import pytest

from fuzz.runner import PARSERS, inputs_of, run_parser, seeds_of

COUNT = {"weights": 20, "video": 60, "times": 40, "recipe": 60}  # others take a millisecond or two


@pytest.mark.parametrize("name", PARSERS)
def test_broken_inputs_are_refused_with_words(name: str) -> None:
    inputs = [*seeds_of(name), *inputs_of(name, 0, COUNT.get(name, 90))]
    outcome = run_parser(PARSERS[name], inputs)
    words = "\n\n".join(f"{place}: {text}\n{data[:200]!r}" for place, (text, data) in outcome.finds.items())
    assert not outcome.finds, words


def test_a_find_is_seen() -> None:
    """The loop notices what it looks for."""
    from fuzz.runner import Parser

    broken = run_parser(Parser(lambda path: {}["x"]), [b"a", b"b"])
    assert list(broken.finds) == ["KeyError at test_fuzz.py:<lambda>"]
    assert broken.inputs == 2
    hungry = run_parser(Parser(lambda path: len(bytearray(b"x" * 1_100_000_000))), [b"a", b"b"])
    assert list(hungry.finds) == ["memory"]
