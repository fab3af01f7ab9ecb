"""A folder of images as a video: in natural order, of one size.

A file `times.txt` beside the images gives the time of each in seconds, one a line; without it they come at
the rate the user gives.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np

from egohieraloc.errors import QueryError, VideoError
from egohieraloc.images import read_image
from egohieraloc.types import Floats, Rgb, VideoInfo

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm"}
HASHED_BYTES = 16_384  # at either end of each image
TIMES = "times.txt"
EXIF_BLOCK, EXIF_FOCAL_35MM = 0x8769, 0xA405


@dataclass(frozen=True, eq=False)
class Folder:
    """The images of a folder, `info.fps` of them a second."""

    path: Path
    info: VideoInfo
    times_s: Floats
    images: tuple[Path, ...]

    @classmethod
    def open(cls, path: Path, fps: float) -> Folder:
        if not (math.isfinite(fps) and fps > 0):
            raise VideoError(f"A folder's rate must be a positive number of images a second, got {fps}.")
        images = sorted(
            (p for p in path.iterdir() if p.suffix.lower() in ENDINGS and not p.name.startswith(".")),
            key=_natural_order,
        )
        if not images:
            raise VideoError(f"The folder {path} holds no images. Wanted: files such as 00001.jpg or 1.png.")
        height, width = _read(images[0]).shape[:2]
        if (path / TIMES).exists():
            times_s = _read_times(path / TIMES, len(images))
            mean = (len(times_s) - 1) / (times_s[-1] - times_s[0]) if len(times_s) > 1 else 1.0
            rate = Fraction(mean).limit_denominator(1000) or Fraction(mean)
        else:
            rate = Fraction(fps).limit_denominator(1_000_000)
            times_s = np.arange(len(images)) * rate.denominator / rate.numerator
        return cls(path, VideoInfo(width, height, rate, len(images)), times_s, tuple(images))

    def content_hash(self) -> str:
        """Of every image the name, size, time of writing, first and last bytes."""
        digest = hashlib.blake2b(f"folder at {self.info.fps} fps".encode(), digest_size=16)
        if (self.path / TIMES).exists():
            digest.update(self.times_s.tobytes())
        for image in self.images:
            with image.open("rb") as file:
                facts = os.fstat(file.fileno())
                digest.update(os.fsencode(image.name) + f"\0{facts.st_size} {facts.st_mtime_ns}\0".encode())
                digest.update(file.read(HASHED_BYTES))
                file.seek(max(facts.st_size - HASHED_BYTES, 0))
                digest.update(file.read(HASHED_BYTES))
        return digest.hexdigest()

    def focal_35mm(self) -> float | None:
        """The focal length for a 36x24 mm image, from the EXIF data of the first one."""
        from PIL import Image

        # Damaged EXIF data say nothing; Pillow has many kinds of errors for them.
        with suppress(Exception), Image.open(self.images[0]) as image:
            return float(image.getexif().get_ifd(EXIF_BLOCK)[EXIF_FOCAL_35MM]) or None
        return None

    def read(
        self, indices: Sequence[int], *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Rgb]]:
        """The images of these numbers, scaled to `size` (width and height) where one is given."""
        for index in indices:
            rgb = _read(self.images[index])
            if rgb.shape[:2] != (self.info.height, self.info.width):
                raise VideoError(
                    f"The images of a folder must have one size: {self.images[index].name} is "
                    f"{rgb.shape[1]}x{rgb.shape[0]}, {self.images[0].name} is "
                    f"{self.info.width}x{self.info.height}."
                )
            yield index, rgb if size is None else cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)


def _read(image: Path) -> Rgb:
    try:
        return read_image(image)
    except QueryError as error:
        raise VideoError(str(error)) from error


def _read_times(path: Path, count: int) -> Floats:
    try:
        times_s = np.array([float(line) for line in path.read_text(encoding="ascii").split()])
    except (OSError, ValueError) as error:
        raise VideoError(f"{path} should hold one number of seconds for each image: {error}.") from error
    if len(times_s) != count or not np.isfinite(times_s).all() or (np.diff(times_s) <= 0).any():
        raise VideoError(
            f"{path} should hold {count} increasing times, one for each image, got {len(times_s)}."
        )
    return times_s


def _natural_order(image: Path) -> tuple[list[str | int], str]:
    """2.png comes before 10.png: digits compare as numbers."""
    parts = re.split(r"(\d+)", image.name.lower())
    return [int(part) if part.isdecimal() else part for part in parts], image.name
