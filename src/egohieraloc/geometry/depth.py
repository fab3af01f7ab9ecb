"""Depth maps with a unit, and how relative ones get the scale of the reconstruction.

A network such as Depth Anything gives inverse depth up to a scale and a shift that differ in every image.
The paper back-projects it as it is; here only depth in a known unit can be back-projected, and relative maps
are first fitted, image by image, to the points of the reconstruction: 1/z = a d + b.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import ArrayLike, NDArray

from egohieraloc.config import DepthConfig
from egohieraloc.errors import GeometryError, QueryError
from egohieraloc.geometry.align import scaled
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.images import MAX_PIXELS, read_16_bit
from egohieraloc.types import DepthMap, DepthUnit, Floats

MIN_SCALE_POINTS = 20
_MAX_PAIRS = 2000
_NUMBER = re.compile(r"[0-9]{1,18}")


def values_at(depth: DepthMap, pixels: ArrayLike, width: int, height: int) -> Floats:
    """The values of the cells under pixels (N, 2) of a frame of this size; NaN outside the frame."""
    pixel = np.asarray(pixels, np.float64).reshape(-1, 2)
    rows, columns = depth.values.shape
    cell = np.floor(pixel * (columns / width, rows / height))
    inside = ((cell >= 0) & (cell < (columns, rows))).all(1)
    x, y = np.where(inside[:, None], cell, 0).astype(int).T
    return np.where(inside, depth.values[y, x], np.nan).astype(np.float64)


def depth_at(depth: DepthMap, pixels: ArrayLike, width: int, height: int) -> Floats:
    """Depth along z under pixels (N, 2); NaN where it is unknown. Refused for relative maps."""
    if depth.unit is DepthUnit.RELATIVE:
        raise GeometryError(
            "Relative depth has no scale and cannot be back-projected. Fit it to the reconstruction first "
            "(geometry.depth.fit_to_points), or give depth in metres."
        )
    values = values_at(depth, pixels, width, height)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def read_depth_folder(folder: str | Path, frame_indices: Iterable[int]) -> dict[int, DepthMap]:
    """Metric maps named by frame number: `12.png` or `000012.png` (16 bit, millimetres) or `12.npy` (metres).

    Frames without a file are left out; zero means unknown.
    """
    try:
        named = [path for path in sorted(Path(folder).iterdir()) if _NUMBER.fullmatch(path.stem)]
    except OSError as error:
        raise GeometryError(f"Cannot read depth maps from {folder}: {error}.") from error
    files = {int(path.stem): path for path in named}
    return {index: read_depth(files[index]) for index in frame_indices if index in files}


def read_depth(path: Path) -> DepthMap:
    """A map in metres: of 16-bit millimetres, or of EXR or NumPy metres."""
    try:
        if path.suffix == ".npy":
            return DepthMap(_read_metres(path), DepthUnit.METRIC)
        if path.suffix.lower() == ".exr":
            return DepthMap(_read_exr(path), DepthUnit.METRIC)
        return DepthMap(read_16_bit(path).astype(np.float32) / np.float32(1000), DepthUnit.METRIC)
    except (OSError, ValueError, QueryError) as error:
        raise GeometryError(
            f"{path} is not a depth map ({error}). Wanted a 16-bit PNG in millimetres, "
            "or EXR or .npy in metres."
        ) from error


def _read_metres(path: Path) -> NDArray[np.float32]:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)  # as large as its file, whatever it claims
        if values.ndim != 2 or values.size > MAX_PIXELS or values.dtype.kind not in "fiu":
            raise ValueError(f"{values.dtype} of shape {values.shape}")
        return np.asarray(values, np.float32)
    except OSError:
        raise
    except Exception as error:  # NumPy has many kinds for a damaged header
        raise ValueError(str(error)) from error


def _read_exr(path: Path) -> NDArray[np.float32]:
    """The first channel (h, w), by FFmpeg: OpenCV is mostly built without."""
    try:
        with path.open("rb") as file, av.open(file, "r", format="exr_pipe") as container:
            container.streams.video[0].codec_context.options = {"max_pixels": str(MAX_PIXELS)}
            frame = next(container.decode(video=0))
            planes = frame.to_ndarray()
    except (FFmpegError, StopIteration, IndexError) as error:
        raise ValueError(f"not an EXR image: {error}") from error
    return np.ascontiguousarray(planes if planes.ndim == 2 else planes[..., 0], np.float32)


@dataclass(frozen=True)
class AffineDisparity:
    """1/z = scale * value + shift, supported by a share of the points it was fitted to."""

    scale: float
    shift: float
    inlier_share: float

    def depth(self, values: ArrayLike) -> Floats:
        """Depth from relative values; NaN where the inverse depth would not be positive."""
        inverse = self.scale * np.asarray(values, np.float64) + self.shift
        return np.divide(1.0, inverse, out=np.full_like(inverse, np.nan), where=inverse > 0)


def fit_affine_disparity(
    values: ArrayLike, depths: ArrayLike, config: DepthConfig | None = None
) -> AffineDisparity | None:
    """The robust scale and shift between relative values (N,) and depths (N,); None when there is none.

    Every pair of points (or 2000 of them) proposes a line; the one most points lie on, within a relative
    depth error of `tolerance`, is refitted to these. A negative scale would be depth, not inverse depth.
    """
    config = config or DepthConfig()
    x, z = np.asarray(values, np.float64), np.asarray(depths, np.float64)
    valid = np.isfinite(x) & np.isfinite(z) & (z > 0)
    x, y = x[valid], 1 / z[valid]
    if len(x) < config.min_points:
        return None
    first, second = _pairs(len(x))
    run = x[second] - x[first]
    usable = np.abs(run) > 1e-9 * np.abs(x).max()
    scale = (y[second] - y[first])[usable] / run[usable]
    shift = y[first][usable] - scale * x[first][usable]
    if len(scale) == 0:
        return None
    support = (np.abs(scale[:, None] * x + shift[:, None] - y) <= config.tolerance * y).sum(1)
    line = float(scale[support.argmax()]), float(shift[support.argmax()])
    inliers = np.abs(line[0] * x + line[1] - y) <= config.tolerance * y
    for _ in range(5):
        # Weighted by z so that the residual is the relative depth error.
        design = np.column_stack([x, np.ones_like(x)])[inliers] / y[inliers, None]
        solution = np.linalg.lstsq(design, np.ones(inliers.sum()), rcond=None)[0]
        again = np.abs(solution[0] * x + solution[1] - y) <= config.tolerance * y
        line = float(solution[0]), float(solution[1])
        if again.sum() < 2 or (again == inliers).all():
            break
        inliers = again
    share = float(inliers.mean())
    if line[0] <= 0 or share < config.min_inlier_share:
        return None
    return AffineDisparity(*line, share)


def fit_to_points(
    relative: Mapping[int, DepthMap], reconstruction: Reconstruction, config: DepthConfig | None = None
) -> dict[int, DepthMap]:
    """Relative maps by frame number to maps in the reconstruction's unit.

    A frame without enough points takes the fit of the nearest fitted frame within `neighbour_s`; a frame
    without such a neighbour, or without a pose, is left out. Maps that have a unit already pass unchanged.
    """
    config = config or DepthConfig()
    unit = DepthUnit.METRIC if reconstruction.unit == "m" else DepthUnit.SFM
    times = {frame.index: frame.time_s for frame in reconstruction.frames}
    fits = {
        index: fit
        for index, depth in relative.items()
        if depth.unit is DepthUnit.RELATIVE and (fit := _fit_frame(index, depth, reconstruction, config))
    }
    fitted: dict[int, DepthMap] = {}
    for index, depth in relative.items():
        if depth.unit is not DepthUnit.RELATIVE:
            fitted[index] = depth
        elif index in times and fits:
            nearest = min(fits, key=lambda other: abs(times[other] - times[index]))
            if abs(times[nearest] - times[index]) <= config.neighbour_s:
                values = fits[nearest].depth(depth.values).astype(np.float32)
                fitted[index] = DepthMap(values, unit)
    return fitted


def in_one_unit(
    reconstruction: Reconstruction, depth: Mapping[int, DepthMap], config: DepthConfig | None = None
) -> tuple[Reconstruction, Mapping[int, DepthMap]]:
    """Path and maps made to agree: metric maps make the path metric, relative ones are fitted to it."""
    metric = any(depth_map.unit is DepthUnit.METRIC for depth_map in depth.values())
    if metric and reconstruction.unit != "m":
        reconstruction = scale_by_depth(reconstruction, depth)
    return reconstruction, fit_to_points(depth, reconstruction, config)


def _fit_frame(
    index: int, depth: DepthMap, reconstruction: Reconstruction, config: DepthConfig
) -> AffineDisparity | None:
    values, depths = _values_and_depths(index, depth, reconstruction)
    return fit_affine_disparity(values, depths, config)


def scale_by_depth(reconstruction: Reconstruction, metric: Mapping[int, DepthMap]) -> Reconstruction:
    """Make the reconstruction metric by depth maps in metres: the median ratio over all points they cover."""
    ratios = [np.empty(0)]
    for index, depth in metric.items():
        if depth.unit is DepthUnit.METRIC:
            values, depths = _values_and_depths(index, depth, reconstruction)
            valid = np.isfinite(values) & (values > 0) & (depths > 0)
            ratios.append(values[valid] / depths[valid])
    ratio = np.concatenate(ratios)
    if len(ratio) < MIN_SCALE_POINTS:
        raise GeometryError(
            f"Metric scale from depth needs {MIN_SCALE_POINTS} points of the reconstruction in frames "
            f"with metric depth, got {len(ratio)}."
        )
    return scaled(reconstruction, float(np.median(ratio)))


def _values_and_depths(index: int, depth: DepthMap, reconstruction: Reconstruction) -> tuple[Floats, Floats]:
    """The map's values and the depths along z of the points seen in a frame (n,); none without a pose."""
    pose = reconstruction.poses.get(index)
    if pose is None:
        return np.empty(0), np.empty(0)
    rows, pixels = reconstruction.observed_in(index)
    camera = reconstruction.camera
    values = values_at(depth, pixels, camera.width, camera.height)
    return values, pose.to_cam(reconstruction.points.xyz_world[rows])[:, 2]


def _pairs(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pairs of a small set, otherwise 2000 at random (always the same)."""
    if count * (count - 1) // 2 <= _MAX_PAIRS:
        pairs = np.array(list(combinations(range(count), 2)))
        return pairs[:, 0], pairs[:, 1]
    generator = np.random.default_rng(0)
    first = generator.integers(count, size=_MAX_PAIRS)
    return first, (first + generator.integers(1, count, size=_MAX_PAIRS)) % count
