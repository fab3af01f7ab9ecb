"""JSON and TOML from anywhere: whatever is wrong with it, one kind of error."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import egohieraloc
from egohieraloc.data.stream import read_json as read_whole
from egohieraloc.data.stream import stream_array
from egohieraloc.documents import MAX_DEPTH, parse_json, parse_toml, read_json, read_toml
from egohieraloc.errors import ConfigError, DataError, EgoHieraLocError, GeometryError
from egohieraloc.evaluation.predictions import read_own
from egohieraloc.figures.plots import read_log
from egohieraloc.geometry.reconstruction import read_cameras
from egohieraloc.result import Result
from egohieraloc.settings import override
from egohieraloc.training.optim import OptimConfig
from egohieraloc.training.recipe import read_recipe

SOURCE = Path(egohieraloc.__file__).parent
BAD_JSON = {
    "nested": b"[" * 100_000,
    "nested and whole": b"[" * 500 + b"]" * 500,
    "nested objects": b'{"a":' * 500 + b"1" + b"}" * 500,
    "digits": b'{"a": ' + b"9" * 5000 + b"}",
    "fewer digits": b'{"a": -' + b"9" * 400 + b"}",
    "bytes": b'{"a": "\xff\xfe"}',
    "half a character": rb'{"a": "\ud800"}',
    "cut": b'{"a": [1, 2',
    "nothing": b"",
}
READERS: dict[str, Callable[[Path], Any]] = {
    "result": Result.load,
    "cameras": read_cameras,
    "predictions": read_own,
    "annotations": read_whole,
    "array": lambda path: list(stream_array(path)),
    "log": read_log,
}


@pytest.mark.parametrize("bad", BAD_JSON)
def test_bad_json_is_a_value_error(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(BAD_JSON[bad])
    with pytest.raises(ValueError):
        read_json(path)


@pytest.mark.parametrize("bad", BAD_JSON)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_json_says_what_is_wrong(tmp_path: Path, reader: str, bad: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(BAD_JSON[bad])
    with pytest.raises((DataError, GeometryError)):
        READERS[reader](path)


def test_what_is_within_the_limits_is_read() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(deep) is not None
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(b"[" + deep + b"]")
    assert parse_json('{"time_ns": 1731700000000000000, "x": 0.' + "3" * 40 + "}")["x"] == pytest.approx(
        1 / 3
    )
    assert parse_json(rb'"\ud83d\ude00"') == "\N{GRINNING FACE}"
    with pytest.raises(ValueError, match="more than 20 digits"):
        parse_json('{"x": 0.' + "3" * 40 + ', "y": ' + "3" * 21 + "}")


def test_size(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[" + "1," * 500 + "1]")
    with pytest.raises(ValueError, match=r"at most 0\.001 MB"):
        read_json(path, max_bytes=1000)
    assert len(read_json(path, max_bytes=1003)) == 501


BAD_TOML = {
    "nested": b"a = " + b"[" * 100_000,
    "dotted": b".".join([b"a"] * 1000) + b" = 1",
    "digits": b"a = " + b"9" * 5000,
    "fewer digits": b"a = " + b"9" * 400,
    "bytes": b"a = '\xff'",
    "large": b"#" * 1_000_001,
}


@pytest.mark.parametrize("bad", BAD_TOML)
def test_bad_toml(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(BAD_TOML[bad])
    with pytest.raises(ValueError):
        read_toml(path)
    with pytest.raises(ConfigError):
        read_recipe(path)


def test_settings_in_words() -> None:
    assert parse_toml("a = 0x10") == {"a": 16}
    for text in ("9" * 400, "[" * 5000, "9" * 5000):
        with pytest.raises(EgoHieraLocError):
            override(OptimConfig(), [f"steps={text}"])


def test_there_is_one_reader() -> None:
    """No other file calls `json.load`, `json.loads` or `tomllib`."""
    others = [
        f"{path.name}: {ast.unparse(node)}"
        for path in SOURCE.rglob("*.py")
        if path.name != "documents.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in {"json.load", "json.loads", "tomllib.load", "tomllib.loads"}
    ]
    assert not others
