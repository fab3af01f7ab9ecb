"""The three files of a COLMAP model, text or binary. COLMAP's own reader trusts what they claim: a file of a
kilobyte that announces 2^60 points keeps it busy for ever, so we read them ourselves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.types import Floats, Ints

# By COLMAP's number: the name of a lens and how many parameters it has.
LENSES = dict(
    enumerate(
        (
            *(("SIMPLE_PINHOLE", 3), ("PINHOLE", 4), ("SIMPLE_RADIAL", 4), ("RADIAL", 5), ("OPENCV", 8)),
            *(("OPENCV_FISHEYE", 8), ("FULL_OPENCV", 12), ("FOV", 5), ("SIMPLE_RADIAL_FISHEYE", 4)),
            *(("RADIAL_FISHEYE", 5), ("THIN_PRISM_FISHEYE", 12), ("RAD_TAN_THIN_PRISM_FISHEYE", 16)),
        )
    )
)
SEEN = np.dtype([("x", "<f8"), ("y", "<f8"), ("point", "<i8")])  # -1 where it is no point of the map
Point = tuple[float, float, float]
TRACK_BYTES = 8  # of one sight of a point


@dataclass(frozen=True)
class Lens:
    """A camera of the model."""

    model: str
    width: int
    height: int
    params: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class View:
    """An image of the model."""

    quaternion: tuple[float, ...]  # w, x, y, z: camera from world
    translation: tuple[float, ...]
    lens: int
    name: str
    pixel: Floats  # (n, 2)
    point: Ints  # (n,) numbers of points; -1 where there is none


@dataclass(frozen=True, eq=False)
class Model:
    """Lenses and points by their numbers, and all views."""

    lenses: dict[int, Lens]
    views: list[View]
    points: dict[int, Point]


def read_files(folder: Path) -> Model:
    """Binary files come first, as with COLMAP; what is damaged is a ValueError."""
    binary = (folder / "cameras.bin").is_file()
    cameras, images, points = (
        (folder / f"{name}{'.bin' if binary else '.txt'}").read_bytes()
        for name in ("cameras", "images", "points3D")
    )
    try:
        if binary:
            read = _Bytes(cameras), _Bytes(images), _Bytes(points)
            return Model(_binary_lenses(read[0]), _binary_views(read[1]), _binary_points(read[2]))
        return Model(_text_lenses(cameras), _text_views(images), _text_points(points))
    except (struct.error, IndexError, KeyError) as error:
        raise ValueError(f"a file is cut off or damaged ({error})") from error


class _Bytes:
    """What is left of a file."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self._data, self._at)
        self._at += struct.calcsize(f"<{layout}")
        return values

    def records(self) -> Iterator[None]:
        """As many as the file claims; one that is not there ends in a struct.error."""
        (count,) = self.take("Q")
        for _ in range(count):
            yield

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ValueError("a name has no end")
        start, self._at = self._at, end + 1
        return self._data[start:end].decode("utf-8")

    def array(self, dtype: np.dtype[Any]) -> Any:
        (count,) = self.take("Q")
        start = self._at
        self.skip(count * dtype.itemsize)
        return np.frombuffer(self._data, dtype, count, start)

    def skip(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise ValueError("it is shorter than it claims")
        self._at += size


def _binary_lenses(data: _Bytes) -> dict[int, Lens]:
    lenses = {}
    for _ in data.records():
        number, model, width, height = data.take("iiQQ")
        name, count = LENSES[model]
        lenses[number] = Lens(name, width, height, data.take(f"{count}d"))
    return lenses


def _binary_views(data: _Bytes) -> list[View]:
    views = []
    for _ in data.records():
        _, *pose, lens = data.take("i7di")
        name, seen = data.text(), data.array(SEEN)
        pixel = np.column_stack([seen["x"], seen["y"]])
        views.append(
            View(tuple(pose[:4]), tuple(pose[4:]), lens, name, pixel, seen["point"].astype(np.int64))
        )
    return views


def _binary_points(data: _Bytes) -> dict[int, Point]:
    points = {}
    for _ in data.records():
        number, x, y, z, _, _, _, _, count = data.take("q3d3BdQ")
        points[number] = (x, y, z)
        data.skip(count * TRACK_BYTES)
    return points


def _lines(data: bytes) -> list[str]:
    return [line for line in data.decode("utf-8").splitlines() if not line.lstrip().startswith("#")]


def _text_lenses(data: bytes) -> dict[int, Lens]:
    lenses = {}
    for line in filter(str.strip, _lines(data)):
        number, model, width, height, *params = line.split()
        lenses[int(number)] = Lens(model, int(width), int(height), tuple(map(float, params)))
    return lenses


def _text_views(data: bytes) -> list[View]:
    """Two lines each; the second, what is seen where, may be empty."""
    views, lines = [], iter(_lines(data))
    for line in lines:
        if not line.strip():
            continue
        _, *pose, lens, name = line.split(maxsplit=9)
        seen = np.array(next(lines, "").split(), np.float64).reshape(-1, 3)
        quaternion, translation = (tuple(map(float, part)) for part in (pose[:4], pose[4:]))
        views.append(View(quaternion, translation, int(lens), name.strip(), seen[:, :2], _whole(seen[:, 2])))
    return views


def _whole(values: Floats) -> Ints:
    if not (np.abs(values) < 2**53).all():
        raise ValueError("a point has no number")
    return values.astype(np.int64)


def _text_points(data: bytes) -> dict[int, Point]:
    points = {}
    for line in filter(str.strip, _lines(data)):
        number, x, y, z, *_ = line.split()
        points[int(number)] = (float(x), float(y), float(z))
    return points
