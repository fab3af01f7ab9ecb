"""Which poses of a reconstruction are reliable. That the mapper registered a frame proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.reconstruction import Reconstruction, SparsePoints
from egohieraloc.types import Floats, Ints

MIN_SHARED_POINTS = 20  # two frames with fewer common points are not connected
MIN_CONSISTENT = 0.5  # of the matches of two frames, on the epipolar lines of their poses
LEAP_SPEED = 3.0  # depths of the scene a second: no head moves so fast
LEAP_RATIO = 8.0  # times as fast as around that moment, where ...
LEAP_RATIO_SPEED = 1.0  # ... it is at least this fast
AROUND_S = 1.5


@dataclass(frozen=True, eq=False)
class MatchedPair:
    """Two neighbouring frames, and the pixels (n, 2) at which each sees the same n points."""

    first: int
    second: int
    pixels_first: Floats
    pixels_second: Floats


def drop_unreliable_poses(
    reconstruction: Reconstruction, config: SfmConfig | None = None, matches: Sequence[MatchedPair] = ()
) -> Reconstruction:
    """The reconstruction without its unreliable poses, and without what was observed in their frames.

    A pose is dropped when its frame sees fewer than `min_inliers` points, when the median reprojection error
    of these is above `max_reprojection_px`, when most of its matches with the frames beside it contradict it,
    also those that the map left out, or when its frame is not connected by shared points to the largest part
    of the path: parts that share few points are placed against each other by chance.
    """
    config = config or SfmConfig()
    reliable = {
        index
        for index in reconstruction.poses
        if _supported(reconstruction, index, config.min_inliers, config.max_reprojection_px)
    }
    reliable -= contradicted(reconstruction, matches, config.max_reprojection_px)
    reliable = _largest_part(reconstruction, reliable)
    frames = tuple(
        frame if frame.index in reliable else replace(frame, pose=None) for frame in reconstruction.frames
    )
    points = reconstruction.points
    kept = np.isin(points.frame, list(reliable))
    return replace(
        reconstruction,
        frames=frames,
        points=SparsePoints(points.xyz_world, points.frame[kept], points.point[kept], points.pixel[kept]),
    )


def contradicted(reconstruction: Reconstruction, matches: Sequence[MatchedPair], max_px: float) -> set[int]:
    """Frames whose pairs mostly have fewer than MIN_CONSISTENT of their matches on the epipolar lines."""
    shares: dict[int, list[float]] = {}
    for pair in matches:
        if pair.first in reconstruction.poses and pair.second in reconstruction.poses:
            share = float(np.mean(_epipolar_px(reconstruction, pair) <= max_px))
            for index in (pair.first, pair.second):
                shares.setdefault(index, []).append(share)
    return {index for index, each in shares.items() if float(np.median(each)) < MIN_CONSISTENT}


def _epipolar_px(reconstruction: Reconstruction, pair: MatchedPair) -> Floats:
    """How far each match (n,) lies from the plane through both cameras and its ray, in pixels."""
    first, second = (reconstruction.poses[index] for index in (pair.first, pair.second))
    camera = reconstruction.camera
    rays = (
        first.rays_world(camera.rays(pair.pixels_first)),
        second.rays_world(camera.rays(pair.pixels_second)),
    )
    across = np.cross(second.center_world - first.center_world, rays[0])
    length = np.linalg.norm(across, axis=1)
    away = np.abs((across * rays[1]).sum(1)) / np.maximum(length, 1e-12)
    turned = np.linalg.norm(np.cross(rays[0], rays[1]), axis=1)  # where the camera only turns
    off: Floats = np.where(length > 1e-9, away, turned) * camera.focal[0]
    return np.where(np.isfinite(off), off, np.inf)


def leaps(reconstruction: Reconstruction) -> list[float]:
    """The moments, in seconds, over which the path moves as no head does: faster than LEAP_SPEED, or than its
    neighbours by LEAP_RATIO. Without points of the map the path's own extent stands for the scene's depth."""
    frames = [frame for frame in reconstruction.frames if frame.pose is not None]
    if len(frames) < 3:
        return []
    time_s = np.array([frame.time_s for frame in frames])
    centers = np.array([frame.pose.center_world for frame in frames if frame.pose is not None])
    depth = _scene_depths(reconstruction, [frame.index for frame in frames], centers)
    duration_s = np.diff(time_s)
    speed = np.linalg.norm(np.diff(centers, axis=0), axis=1) / duration_s / np.minimum(depth[1:], depth[:-1])
    middle_s = (time_s[1:] + time_s[:-1]) / 2
    around = np.abs(middle_s[:, None] - middle_s) <= AROUND_S + duration_s / 2
    usual = np.array([np.median(speed[near]) for near in around])
    sudden = (speed > LEAP_RATIO * usual) & (speed > LEAP_RATIO_SPEED)
    return [float(s) for s in time_s[1:][(speed > LEAP_SPEED) | sudden]]


def weak_links(reconstruction: Reconstruction) -> list[float]:
    """The moments, in seconds, at which a frame shares fewer than MIN_SHARED_POINTS with the posed one before
    it: its place then hangs on other times alone. None where the map's observations are not known."""
    frames = [frame for frame in reconstruction.frames if frame.pose is not None]
    if not len(reconstruction.points.frame):
        return []

    def seen(index: int) -> Ints:
        return reconstruction.observed_in(index)[0]

    return [
        after.time_s
        for before, after in pairwise(frames)
        if np.isin(seen(after.index), seen(before.index)).sum() < MIN_SHARED_POINTS
    ]


def _scene_depths(reconstruction: Reconstruction, indices: list[int], centers: Floats) -> Floats:
    """Median depth of the points that each frame sees (F,)."""
    depths = []
    for index in indices:
        rows, _ = reconstruction.observed_in(index)
        in_camera = reconstruction.poses[index].to_cam(reconstruction.points.xyz_world[rows])
        depths.append(float(np.median(in_camera[:, 2])) if len(rows) else np.nan)
    known = np.array(depths)
    extent = float(np.linalg.norm(centers.max(0) - centers.min(0)))
    usual = np.nanmedian(known) if np.isfinite(known).any() else extent
    return np.maximum(np.where(known > 0, known, usual), 1e-12)


def _supported(reconstruction: Reconstruction, index: int, min_inliers: int, max_px: float) -> bool:
    rows, pixels = reconstruction.observed_in(index)
    if len(rows) < min_inliers:
        return False
    in_camera = reconstruction.poses[index].to_cam(reconstruction.points.xyz_world[rows])
    error = np.linalg.norm(reconstruction.camera.project(in_camera) - pixels, axis=1)
    return float(np.median(np.where(np.isnan(error), np.inf, error))) <= max_px


def _largest_part(reconstruction: Reconstruction, frames: set[int]) -> set[int]:
    """The largest set of frames connected by at least MIN_SHARED_POINTS common points."""
    points = reconstruction.points
    kept = np.isin(points.frame, list(frames))
    if not kept.any():
        return set()
    names, row = np.unique(points.frame[kept], return_inverse=True)
    column: NDArray[np.int64] = points.point[kept]
    sees = coo_matrix((np.ones(len(row)), (row, column)), (len(names), len(points.xyz_world))).tocsr()
    _, label = connected_components(sees @ sees.T >= MIN_SHARED_POINTS, directed=False)
    return set(names[label == np.bincount(label).argmax()].tolist())
