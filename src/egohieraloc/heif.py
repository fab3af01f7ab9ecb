"""HEIC, as phones store photographs; needs the extra `heic` (26 MB, so it is no part of the core)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from egohieraloc.errors import MissingExtraError, QueryError
from egohieraloc.types import Rgb

BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")


def is_heif(path: str | Path) -> bool:
    """Whether a file begins as HEIC does; False where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(12)
    except OSError:
        return False
    return start[4:8] == b"ftyp" and start[8:12] in BRANDS


def read_heif(path: str | Path, *, max_pixels: int) -> Rgb:
    """The image (H, W, 3), upright; its size is read before it is decoded."""
    try:
        import pillow_heif
    except ImportError as error:
        raise MissingExtraError("pillow-heif", "heic") from error
    try:
        image = pillow_heif.open_heif(path)
        if image.size[0] * image.size[1] > max_pixels:
            raise QueryError(f"{path} has too many pixels: at most {max_pixels} are read.")
        return np.asarray(image.to_pillow().convert("RGB"), np.uint8)
    except QueryError:
        raise
    except Exception as error:  # of a damaged file the library raises half a dozen unrelated types
        raise QueryError(f"{path} is not an image that can be read: {error}. Is it whole?") from error
