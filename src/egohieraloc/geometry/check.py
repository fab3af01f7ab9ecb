"""Which poses of a reconstruction are reliable. That the mapper registered a frame proves nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.reconstruction import Reconstruction, SparsePoints

MIN_SHARED_POINTS = 20  # two frames with fewer common points are not connected


def drop_unreliable_poses(reconstruction: Reconstruction, config: SfmConfig | None = None) -> Reconstruction:
    """The reconstruction without its unreliable poses, and without what was observed in their frames.

    A pose is dropped when its frame sees fewer than `min_inliers` points, when the median reprojection error
    of these is above `max_reprojection_px`, or when its frame is not connected by shared points to the
    largest part of the path: parts that share few points are placed against each other by chance.
    """
    config = config or SfmConfig()
    reliable = {
        index
        for index in reconstruction.poses
        if _supported(reconstruction, index, config.min_inliers, config.max_reprojection_px)
    }
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
