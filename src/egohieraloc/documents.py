"""JSON and TOML from anywhere, read in one way: limited in size, nesting and digits.

Whatever is wrong is a ValueError that says so; a file that cannot be opened is an OSError, as always.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

MAX_BYTES = 64_000_000
MAX_TOML_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_DIGITS = 20  # of a whole number; nanoseconds since 1970 have 19
_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value in a JSON file."""
    return parse_json(read_limited(path, max_bytes), max_bytes=max_bytes)


def parse_json(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value that a JSON text stands for."""
    text = _decoded(text, max_bytes)
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    check_json(value, text)
    return value


def check_json(value: Any, text: str) -> None:
    """Refuse a value, and the text it was read from, that is nested too deeply, has a whole number of too
    many digits or half of a character."""
    _check_depth(value)
    if b"0" * (MAX_DIGITS + 1) in text.encode("ascii", "replace").translate(_TO_ZEROS):
        json.loads(text, parse_int=_checked_integer)  # it may only be the digits of a fraction
    if _HALF_CHARACTER.search(text):
        json.dumps(value, ensure_ascii=False).encode()


def read_toml(path: str | Path) -> dict[str, Any]:
    """The table in a TOML file."""
    return parse_toml(read_limited(path, MAX_TOML_BYTES))


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """The table that a TOML text stands for."""
    try:
        table = tomllib.loads(_decoded(text, MAX_TOML_BYTES))
    except RecursionError:
        raise ValueError(_too_deep()) from None
    _check_depth(table)
    check_json(table, json.dumps(table, default=str))
    return table


def read_limited(path: str | Path, max_bytes: int) -> bytes:
    """The bytes of a file, at most so many."""
    with Path(path).open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it is too large: at most {max_bytes / 1e6:g} MB are read")
    return data


def _decoded(text: str | bytes, max_bytes: int) -> str:
    if len(text) > max_bytes:
        raise ValueError(f"it is too large: at most {max_bytes / 1e6:g} MB are read")
    return text if isinstance(text, str) else text.decode("utf-8-sig")


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(_too_deep())


def _too_deep() -> str:
    return f"it is nested too deeply: {MAX_DEPTH} levels are read"


def _checked_integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)
