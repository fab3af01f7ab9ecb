"""Pseudo-masks: made from boxes once by a segmenter such as SAM, and stored in one file per object.

A mask is stored on a grid inside its box, so it fits images of any size. N boxes, G the side of the grid.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Sequence
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
BATCH = 16  # images in memory at a time
AGAIN = "Remove it and run `egohieraloc pseudo-masks` again."


class ImageSource(Protocol):
    """Reads the images that the boxes belong to."""

    def images(self, target: FootageObject, frames: Ints) -> list[Rgb]: ...


@dataclass(frozen=True)
class MaskCache:
    """A folder of pseudo-masks."""

    folder: Path

    def path(self, target: FootageObject) -> Path:
        return self.folder / f"{hashlib.blake2b(target.name.encode(), digest_size=12).hexdigest()}.npz"

    def missing(self, objects: Iterable[FootageObject]) -> list[FootageObject]:
        made = {path.name for path in self.folder.glob("*.npz")}
        return [target for target in objects if self.path(target).name not in made]

    def grids(self, target: FootageObject) -> NDArray[np.uint8]:
        """Masks (N, G, G) of 0 and 1, in the order of the object's boxes."""
        return _read(self.path(target), target.boxes.boxes_xyxy.tobytes(), len(target.boxes))

    def make(self, targets: Sequence[FootageObject], footage: ImageSource, provider: MaskProvider) -> None:
        """Make the masks of all boxes of the objects of a clip, and write a file for each object.

        Frame by frame, so that the provider looks at an image once for all its boxes.
        """
        if not targets:
            return
        grids: list[list[NDArray[np.uint8]]] = [[] for _ in targets]
        every = np.unique(np.concatenate([target.boxes.frames for target in targets]))
        for frames in np.split(every, range(BATCH, len(every), BATCH)):
            for frame, image in zip(frames, footage.images(targets[0], frames), strict=True):
                for target, made in zip(targets, grids, strict=True):
                    if (box := target.box(int(frame), image)) is not None:
                        made.append(_predict(provider, image, box))
        for target, made in zip(targets, grids, strict=True):
            with atomic_path(self.path(target)) as temporary:
                np.savez(temporary, boxes=target.boxes.boxes_xyxy, bits=np.packbits(made))


def mask_in_image(grid: NDArray[np.uint8], box: Box, height: int, width: int) -> Mask:
    """The mask of a whole image from the grid (G, G) inside one of its boxes."""
    canvas = np.zeros((height, width), bool)
    x1, y1, x2, y2 = _pixels(box, height, width)
    canvas[y1:y2, x1:x2] = cv2.resize(grid * 255, (x2 - x1, y2 - y1), interpolation=cv2.INTER_LINEAR) > 127
    return canvas


def _predict(provider: MaskProvider, image: Rgb, box: Box) -> NDArray[np.uint8]:
    """The mask (G, G) inside the box; the whole box where the provider finds nothing in it."""
    found, _ = provider(Query(image, box))
    x1, y1, x2, y2 = _pixels(box, *image.shape[:2])
    inside = found[y1:y2, x1:x2].astype(np.uint8)
    if not inside.any():
        return np.ones((GRID, GRID), np.uint8)
    grid: Mask = cv2.resize(inside * 255, (GRID, GRID), interpolation=cv2.INTER_LINEAR) > 127
    return grid.astype(np.uint8)


def _pixels(box: Box, height: int, width: int) -> tuple[int, int, int, int]:
    """The box in whole pixels, at least one in each direction."""
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
        raise DataError(f"{path} was made from other boxes. {AGAIN}")
    return bits[: count * GRID * GRID].reshape(count, GRID, GRID)
