"""Masks for boxes: made once by a provider such as SAM, kept in one file for each object.

A mask is kept on a grid inside its box, so it fits images of any size. N boxes, G the grid's side.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.data.base import Ints
from egohieraloc.errors import DataError
from egohieraloc.files import atomic_path
from egohieraloc.models.query_mask import MaskProvider
from egohieraloc.query import Query
from egohieraloc.training.footage.footage import FootageObject
from egohieraloc.types import Box, Mask, Rgb

GRID = 96
AT_A_TIME = 16  # images in memory
AGAIN = "Remove it and run `egohieraloc pseudo-masks` again."


class HasImages(Protocol):
    """Where the boxes lie."""

    def images(self, target: FootageObject, frames: Ints) -> list[Rgb]: ...


@dataclass(frozen=True)
class MaskCache:
    """A folder of masks."""

    folder: Path

    def path(self, target: FootageObject) -> Path:
        return self.folder / f"{hashlib.blake2b(target.name.encode(), digest_size=12).hexdigest()}.npz"

    def missing(self, objects: Iterable[FootageObject]) -> list[FootageObject]:
        there = {path.name for path in self.folder.glob("*.npz")}
        return [target for target in objects if self.path(target).name not in there]

    def grids(self, target: FootageObject) -> NDArray[np.uint8]:
        """(N, G, G) of 0 and 1, in the order of the object's boxes."""
        return _read(self.path(target), target.boxes.boxes_xyxy.tobytes(), len(target.boxes))

    def make(self, target: FootageObject, footage: HasImages, provider: MaskProvider) -> None:
        """Ask the provider for each box, and write the file."""
        grids = []
        for frames in np.split(target.boxes.frames, range(AT_A_TIME, len(target.boxes), AT_A_TIME)):
            for frame, image in zip(frames, footage.images(target, frames), strict=True):
                grids.append(_ask(provider, image, target.box(int(frame), image)))
        with atomic_path(self.path(target)) as temporary:
            np.savez(temporary, boxes=target.boxes.boxes_xyxy, bits=np.packbits(grids))


def paint(grid: NDArray[np.uint8], box: Box, height: int, width: int) -> Mask:
    """A mask of the whole image from the grid (G, G) inside a box of it."""
    canvas = np.zeros((height, width), bool)
    x1, y1, x2, y2 = _pixels(box, height, width)
    canvas[y1:y2, x1:x2] = cv2.resize(grid * 255, (x2 - x1, y2 - y1), interpolation=cv2.INTER_LINEAR) > 127
    return canvas


def _ask(provider: MaskProvider, image: Rgb, box: Box | None) -> NDArray[np.uint8]:
    """(G, G). What reaches out of the box is cut off; where nothing is found, the box itself is the mask."""
    assert box is not None  # the frames are those of the boxes
    found, _ = provider(Query(image, box))
    x1, y1, x2, y2 = _pixels(box, *image.shape[:2])
    inside = found[y1:y2, x1:x2].astype(np.uint8)
    if not inside.any():
        return np.ones((GRID, GRID), np.uint8)
    grid = cv2.resize(inside * 255, (GRID, GRID), interpolation=cv2.INTER_LINEAR) > 127
    return grid.astype(np.uint8)


def _pixels(box: Box, height: int, width: int) -> tuple[int, int, int, int]:
    """Whole pixels of a box, at least one."""
    x1, y1 = min(int(box.x1), width - 1), min(int(box.y1), height - 1)
    return x1, y1, max(x1 + 1, min(round(box.x2), width)), max(y1 + 1, min(round(box.y2), height))


@lru_cache(maxsize=256)
def _read(path: Path, boxes: bytes, count: int) -> NDArray[np.uint8]:
    try:
        with np.load(path) as file:
            same = file["boxes"].tobytes() == boxes
            bits = np.unpackbits(file["bits"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as pseudo-masks ({error}). {AGAIN}") from error
    if not same:
        raise DataError(f"{path} was made for other boxes. {AGAIN}")
    return bits[: count * GRID * GRID].reshape(count, GRID, GRID)
