"""Large JSON files, one element at a time: only the element in hand is in memory.

Annotation files hold one long array (`videos`, `video_annotations`) inside a small object, or are one long
array. The standard decoder reads single values from a text; here it is fed from a window that grows until
the next value is whole.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from egohieraloc.documents import check_json
from egohieraloc.errors import DataError

CHUNK_CHARACTERS = 1 << 20
MAX_CHARACTERS = 1 << 28  # of a value, or of a file that is read whole; packed ones may claim more
_DECODER = json.JSONDecoder()


def stream_object(path: str | Path, *, array: str) -> Iterator[tuple[str, Any]]:
    """(key, value) of each member of the file's object; the elements of member `array` come one by one."""
    with _open(path) as text:
        text.take("{")
        if text.peek() == "}":
            text.take("}")
            text.end()
            return
        while True:
            key = text.value()
            text.take(":")
            if key == array and text.peek() == "[":
                yield from ((array, element) for element in text.elements())
            else:
                yield key, text.value()
            if text.take(",}") == "}":
                text.end()
                return


def stream_array(path: str | Path) -> Iterator[Any]:
    """Each element of a file that is one array."""
    with _open(path) as text:
        yield from text.elements()
        text.end()


def starts_with_array(path: str | Path) -> bool:
    with _open(path) as text:
        return text.peek() == "["


def header(path: str | Path, *, array: str) -> dict[str, Any]:
    """The members before the long array, such as the version."""
    members: dict[str, Any] = {}
    for key, value in stream_object(path, array=array):
        if key == array:
            break
        members[key] = value
    return members


def read_json(path: str | Path) -> Any:
    """A whole file."""
    with _open(path) as text:
        text.more(everything=True)
        value = text.value()
        text.end()
        return value


def read_object(path: str | Path, wanted: str) -> dict[str, Any]:
    """A whole file that must be an object; `wanted` says which, for the error."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path} should be an object, {wanted}, not a {type(content).__name__}.")
    return content


class _Text:
    def __init__(self, file: IO[str], path: str | Path) -> None:
        self.file, self.path = file, path
        self.window, self.position = "", 0

    def __enter__(self) -> _Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def problem(self, what: str) -> DataError:
        near = self.window[self.position : self.position + 40]
        return DataError(f"{self.path} {what} (near {near!r}). Is it a complete JSON file?")

    def more(self, *, everything: bool = False) -> bool:
        """Read on: the window grows fast, since a value that is not whole is decoded again from its start."""
        rest = self.window[self.position :]
        room = MAX_CHARACTERS - len(rest)
        if room <= 0:
            raise self.problem(f"has a value of more than {MAX_CHARACTERS / 1e6:.0f} million characters")
        try:
            wanted = room if everything else max(CHUNK_CHARACTERS, 3 * len(rest))
            read = self.file.read(min(wanted, room))
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise DataError(f"Cannot read {self.path}: {error}.") from error
        self.window, self.position = rest + read, 0
        return bool(read)

    def peek(self) -> str:
        """The next character that is not a space, or nothing at the end."""
        while True:
            while self.position < len(self.window) and self.window[self.position] in " \t\r\n":
                self.position += 1
            if self.position < len(self.window):
                return self.window[self.position]
            if not self.more():
                return ""

    def take(self, wanted: str) -> str:
        found = self.peek()
        if not found or found not in wanted:
            raise self.problem(f"should have {' or '.join(repr(c) for c in wanted)} here")
        self.position += 1
        return found

    def end(self) -> None:
        if self.peek():
            raise self.problem("has something after its end")

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.window, self.position)
            except json.JSONDecodeError:
                if not self.more():
                    raise self.problem("is broken or ends too early") from None
                continue
            except (ValueError, RecursionError) as error:
                raise self.problem(f"holds what cannot be read: {error}") from error
            # A number at the end of the window may go on beyond it, as in "12" or "12.".
            after = self.window[end : end + 1]
            if (not after or after not in ",:]} \t\r\n") and self.more():
                continue
            try:
                check_json(value, self.window[self.position : end])
            except ValueError as error:
                raise self.problem(f"holds what cannot be read: {error}") from error
            self.position = end
            return value

    def elements(self) -> Iterator[Any]:
        self.take("[")
        if self.peek() == "]":
            self.position += 1
            return
        while True:
            yield self.value()
            if self.take(",]") == "]":
                return


def _open(path: str | Path) -> _Text:
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return _Text(gzip.open(path, "rt", encoding="utf-8"), path)
        return _Text(path.open(encoding="utf-8"), path)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
