"""Files made to harm their reader."""

from __future__ import annotations

import struct
import zlib
from functools import cache


def png_chunk(kind: bytes, data: bytes, *, length: int | None = None) -> bytes:
    """A chunk of a PNG, whose length may lie."""
    claimed = len(data) if length is None else length
    return struct.pack(">I", claimed) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@cache
def png_bomb(width: int = 12_000, height: int = 12_000, *, bits: int = 8) -> bytes:
    """A grey image that is small as a file and huge as pixels; of the right length for what it claims."""
    line = bytes(1 + width * bits // 8)
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    return _png(width, height, bits, png_chunk(b"IDAT", data))


def lying_png(*, bits: int = 8) -> bytes:
    """A few hundred bytes with chunks that claim four gigabytes."""
    lies = (png_chunk(kind, b"x" * 20, length=0xFFFFFFF0) for kind in (b"IDAT", b"tEXt", b"iCCP", b"eXIf"))
    return _png(64, 64, bits, b"".join(lies))


def _png(width: int, height: int, bits: int, rest: bytes) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + rest + png_chunk(b"IEND", b"")
