"""The frames of clips that training reads, as JPEG files in one file per clip: made once, read many times.

`<clip>.jpgs` holds the images one after the other, `<clip>.npy` their index: int64 (N, 2), for each frame its
number and where its image ends. The index is written last, so a clip with an index is complete. Reading a
frame is one seek and one small JPEG: no video is opened, nothing before the frame is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from egohieraloc.data.base import Ints
from egohieraloc.errors import DataError, VideoError
from egohieraloc.files import atomic_path
from egohieraloc.types import Rgb

QUALITY = 92


@dataclass(frozen=True)
class FrameStore:
    """A folder of such files."""

    folder: Path

    def has(self, clip: str) -> bool:
        return (self.folder / f"{clip}.npy").exists()

    def write(self, clip: str, frames: Ints, images: Iterable[Rgb], *, side: int) -> None:
        """Store images of increasing frames, made smaller where their longer side is above `side`."""
        ends, total = [], 0
        with atomic_path(self.folder / f"{clip}.jpgs") as temporary, temporary.open("wb") as file:
            for image in images:
                total += file.write(_encoded(_fitted(image, side)))
                ends.append(total)
        index = np.column_stack([frames, np.array(ends, np.int64)])
        with atomic_path(self.folder / f"{clip}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, index)

    def read(self, clip: str, frames: Ints) -> list[Rgb]:
        """The images of these frames of a clip; DataError where the store does not have one."""
        path = self.folder / f"{clip}.jpgs"
        numbers, ends = _index(self.folder / f"{clip}.npy").T
        places = np.searchsorted(numbers, frames).clip(max=len(numbers) - 1)
        if len(numbers) == 0 or (numbers[places] != frames).any():
            raise DataError(
                f"{path} lacks frames that training needs. Remove it and run `egohieraloc frames`."
            )
        starts = np.r_[0, ends[:-1]]
        with path.open("rb") as file:
            images = []
            for place in places.tolist():
                file.seek(int(starts[place]))
                images.append(_decoded(file.read(int(ends[place] - starts[place])), path))
        return images


@lru_cache(maxsize=4096)
def _index(path: Path) -> Ints:
    index: Ints = np.load(path)
    return index


def _fitted(image: Rgb, side: int) -> Rgb:
    height, width = image.shape[:2]
    scale = side / max(height, width)
    if scale >= 1:
        return image
    size = max(1, round(width * scale)), max(1, round(height * scale))
    smaller: Rgb = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    return smaller


def _encoded(image: Rgb) -> bytes:
    done, data = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    assert done
    return data.tobytes()


def _decoded(data: bytes, path: Path) -> Rgb:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if data else None
    if image is None:
        raise VideoError(f"{path} has a damaged image. Remove it and run `egohieraloc frames`.")
    rgb: Rgb = image.astype(np.uint8, copy=False)
    return rgb
