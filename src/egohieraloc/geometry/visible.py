"""Which points of a map a frame sees, where the map does not say: those that no nearer ones hide.

n is the number of points in front of a camera.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import Reconstruction, SparsePoints
from egohieraloc.types import Floats, Ints, Mask

CELL_SHARE = 1 / 48  # of the image's width: points this near to each other hide each other
BEHIND = 1.15  # times the distance of the nearest point around: what is further away is hidden
MIN_DEPTH = 0.1


def with_visible_points(reconstruction: Reconstruction, frames: Sequence[int]) -> Reconstruction:
    """With observations in these frames, where there are points without any."""
    points = reconstruction.points
    if not len(points.xyz_world) or len(points.frame):
        return reconstruction
    rows, pixels, numbers = [], [], []
    for index in frames:
        pose = reconstruction.poses.get(index)
        if pose is not None:
            row, pixel = visible(points.xyz_world, reconstruction.camera, pose)
            rows.append(row)
            pixels.append(pixel)
            numbers.append(np.full(len(row), index))
    if not rows:
        return reconstruction
    seen = SparsePoints(
        points.xyz_world, np.concatenate(numbers), np.concatenate(rows), np.concatenate(pixels)
    )
    return replace(reconstruction, points=seen)


def visible(xyz_world: Floats, camera: Camera, pose: CameraPose) -> tuple[Ints, Floats]:
    """Rows of the points a camera sees, and their pixels (n, 2)."""
    in_camera = pose.to_cam(xyz_world)
    rows = np.flatnonzero(in_camera[:, 2] > MIN_DEPTH)
    pixels = camera.project(in_camera[rows])
    with np.errstate(invalid="ignore"):
        inside = ((pixels >= 0) & (pixels < (camera.width, camera.height))).all(1)
    rows, pixels = rows[inside], pixels[inside]
    shown = _not_hidden(pixels, np.linalg.norm(in_camera[rows], axis=1), camera.width * CELL_SHARE)
    return rows[shown], pixels[shown]


def _not_hidden(pixels: Floats, distances: Floats, cell_px: float) -> Mask:
    """Points (n,) that are not much further away than the nearest one of their cell and the eight around."""
    if not len(pixels):
        return np.zeros(0, bool)
    column, row = (np.floor(pixels / cell_px).astype(np.int64) + 1).T
    nearest = np.full((row.max() + 2, column.max() + 2), np.inf)
    np.minimum.at(nearest, (row, column), distances)
    around = np.min([nearest[row + dy, column + dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)], axis=0)
    hidden: Mask = distances > BEHIND * around
    return ~hidden
