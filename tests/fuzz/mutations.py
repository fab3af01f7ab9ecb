"""Inputs made from seeds: a few changes each, the same for the same number."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

TOKENS = (
    b"", b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0\0\0\0\0",
    b"[", b"]", b"{", b"}", b'"', b",", b":", b"\n", b"\r\n", b"\\", b"\\ud800", b"\xc3\x28",
    b"null", b"true", b"[]", b"{}", b'""', b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"1e-999", b"-0",
    b"9" * 25, b"9" * 400, b"9" * 4500, b"[" * 2000, b'{"a":' * 300, b"0x", b"1_0", b"\xef\xbb\xbf",
    b"'", b"=", b"..", b"../../etc/passwd", b"99999999999", b"4294967296", b"2147483648", b"0.1", b"1/0",
    b" ", b"a" * 300,
)  # fmt: skip
Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def flip(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        if data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def overwrite(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    token = draw.choice(TOKENS)
    place = draw.randrange(len(data) + 1)
    data[place : place + len(token)] = token


def insert(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    place = draw.randrange(len(data) + 1)
    data[place:place] = draw.choice(TOKENS)


def remove(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    place = draw.randrange(len(data) + 1)
    del data[place : place + draw.choice((1, 2, 4, 16, 256))]


def truncate(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    del data[draw.randrange(len(data) + 1) :]


def repeat(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = draw.randrange(len(data) + 1)
    piece = bytes(data[start : start + draw.choice((1, 8, 64, 512))])
    data[start:start] = piece * draw.choice((1, 2, 50))


def splice(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = draw.choice(seeds)
    start = draw.randrange(len(other) + 1)
    place = draw.randrange(len(data) + 1)
    data[place : place + draw.choice((0, 16, 10**9))] = other[start:]


def value(draw: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    """Another value in the place of one, as in `"width": 64`."""
    ends = [found.end() for found in re.finditer(rb"[:=,\[]", data)]
    if ends:
        start = draw.choice(ends)
        after = re.compile(rb"[,\]}\n]").search(data, start)
        data[start : after.start() if after else len(data)] = draw.choice(TOKENS)


CHANGES: tuple[Change, ...] = (flip, flip, overwrite, insert, remove, truncate, repeat, splice, value, value)


def mutated(seeds: Sequence[bytes], number: int) -> bytes:
    """The input of that number."""
    draw = random.Random(number)
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        draw.choice(CHANGES)(draw, data, seeds)
    return bytes(data[: 1 << 20])
