"""Poses of frames outside a map, from the points of the map that they show; the map stays as it is.

A frame is matched with neighbours in the map; their features' points are its own. That costs some
milliseconds a frame, where letting the map grow by the frames costs ten times as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.selection import Pair
from egohieraloc.types import Floats


@dataclass(frozen=True, eq=False)
class Resected:
    """A frame whose pose the points of a map give."""

    cam_from_world: Floats  # (3, 4)
    point_ids: NDArray[np.int64]  # (n,) the points that agree ...
    pixels: Floats  # ... and where they are seen (n, 2)


def image_name(position: int) -> str:
    """How COLMAP's database calls the frame at a position in the list of frames."""
    return f"{position:06d}.jpg"


def position_of(image: Any) -> int:
    """The position of a COLMAP image."""
    return int(Path(image.name).stem)


def resect(database_path: Path, model: Any, pairs: Iterable[Pair], config: SfmConfig) -> dict[int, Resected]:
    """Frames outside a map that are matched with frames of it, by position; those that show too little of the
    map are left out. All frames have the map's first camera."""
    import pycolmap

    mapped = {position_of(image): image for image in model.images.values() if image.has_pose}
    points = {i: np.array([_point_id(p) for p in image.points2D]) for i, image in mapped.items()}
    options = pycolmap.AbsolutePoseEstimationOptions()
    options.ransac.max_error, options.ransac.random_seed = config.max_reprojection_px, config.seed
    found: dict[int, Resected] = {}
    with pycolmap.Database.open(database_path) as database:
        for position, near in _neighbours(pairs, mapped).items():
            image: Any = database.read_image_with_name(image_name(position))
            parts = [_shown(database, image, mapped[other], points[other]) for other in near]
            shown = np.unique(np.concatenate(parts), axis=0)
            if len(shown) < config.min_inliers:
                continue
            pixels = np.asarray(database.read_keypoints(image.image_id), np.float64)[shown[:, 0], :2]
            xyz = np.array([model.points3D[point].xyz for point in shown[:, 1].tolist()])
            pose = pycolmap.estimate_and_refine_absolute_pose(pixels, xyz, model.cameras[1], options)
            if pose is not None and pose["num_inliers"] >= config.min_inliers:
                agree = np.asarray(pose["inlier_mask"], bool)
                found[position] = Resected(pose["cam_from_world"].matrix(), shown[agree, 1], pixels[agree])
    return found


def _neighbours(pairs: Iterable[Pair], mapped: dict[int, Any]) -> dict[int, list[int]]:
    """For each frame outside the map, the frames of the map that it is matched with."""
    found: dict[int, list[int]] = {}
    for i, j in pairs:
        for one, other in ((i, j), (j, i)):
            if one not in mapped and other in mapped:
                found.setdefault(one, []).append(other)
    return found


def _shown(database: Any, image: Any, other: Any, points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Features of an image that match another one's, and their points of the map: (n, 2).

    points: (features of the other image,) identifiers of points, -1 for none.
    """
    if not database.exists_two_view_geometry(image.image_id, other.image_id):
        return np.empty((0, 2), np.int64)
    geometry = database.read_two_view_geometry(image.image_id, other.image_id)
    rows = np.asarray(geometry.inlier_matches, np.int64).reshape(-1, 2)
    shown = np.stack([rows[:, 0], points[rows[:, 1]]], 1)
    return shown[shown[:, 1] >= 0]


def _point_id(point: Any) -> int:
    return int(point.point3D_id) if point.has_point3D() else -1
