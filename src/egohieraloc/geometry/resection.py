"""Poses of frames outside a map, from the points of the map that they show; the map stays as it is.

The points of a map's frame are followed through the frames around it, or features are matched. Either costs
far less than letting the map grow by the frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.following import Gray, follow
from egohieraloc.geometry.selection import Pair
from egohieraloc.types import Floats

_FOLLOWED_POINTS = 200  # of a frame of the map, evenly chosen


@dataclass(frozen=True, eq=False)
class Track:
    """Points (n,) followed from a frame of the map into another frame, and their pixels (n, 2) in both."""

    source: int
    point_ids: NDArray[np.int64]
    pixels_source: Floats
    pixels: Floats


@dataclass(frozen=True, eq=False)
class Resected:
    """A frame whose pose the points of a map give."""

    cam_from_world: Floats  # (3, 4)
    point_ids: NDArray[np.int64]  # (n,) the points that agree ...
    pixels: Floats  # ... and where they are seen (n, 2)
    tracks: tuple[Track, ...] = ()  # what it was found from, where points were followed


def image_name(position: int) -> str:
    """How COLMAP's database calls the frame at a position in the list of frames."""
    return f"{position:06d}.jpg"


def position_of(image: Any) -> int:
    """The position of a COLMAP image."""
    return int(Path(image.name).stem)


def resect_followed(images: Path, model: Any, count: int, config: SfmConfig) -> dict[int, Resected]:
    """Frames outside a map, of `count` in all, into which its points can be followed, by position."""
    tracks: dict[int, list[Track]] = {}
    for order in (range(count), range(count - 1, -1, -1)):
        for position, track in _followed(images, model, order, config.min_inliers):
            tracks.setdefault(position, []).append(track)
    found: dict[int, Resected] = {}
    for position, each in tracks.items():
        ids, first = np.unique(np.concatenate([track.point_ids for track in each]), return_index=True)
        pixels = np.concatenate([track.pixels for track in each])[first]
        if (pose := _pose(model, ids, pixels, config)) is not None:
            found[position] = replace(pose, tracks=tuple(each))
    return found


def _followed(images: Path, model: Any, order: Iterable[int], fewest: int) -> Iterator[tuple[int, Track]]:
    """The points of each frame of the map in the frames that come after it in this order, while there are
    enough. They are looked for where they were in the frame before, so that they may move far, but compared
    with how they look in the map's frame, so that they do not drift."""
    mapped = {position_of(image): image for image in model.images.values() if image.has_pose}
    gray: Gray | None = None
    ids, start, now = np.empty(0, np.int64), np.empty((0, 2)), np.empty((0, 2))
    source = -1
    for position in order:
        if position in mapped:
            source, gray = position, None
            seen = mapped[position].get_observation_points2D()
            seen = seen[:: -(-len(seen) // _FOLLOWED_POINTS) or 1]
            ids = np.array([point.point3D_id for point in seen], np.int64)
            start = now = np.array([point.xy for point in seen]).reshape(-1, 2)
        elif len(ids) >= fewest:
            gray = _gray(images, source) if gray is None else gray
            now = follow(gray, _gray(images, position), start, now)
            kept = ~np.isnan(now[:, 0])
            ids, start, now = ids[kept], start[kept], now[kept]
            yield position, Track(source, ids, start, now)


def _gray(images: Path, position: int) -> Gray:
    return np.asarray(cv2.imread(str(images / image_name(position)), cv2.IMREAD_GRAYSCALE), np.uint8)


def _pose(model: Any, ids: NDArray[np.int64], pixels: Floats, config: SfmConfig) -> Resected | None:
    """The pose of a frame with the map's first camera that shows these points; None where too few agree."""
    import pycolmap

    if len(ids) < config.min_inliers:
        return None
    options = pycolmap.AbsolutePoseEstimationOptions()
    options.ransac.max_error, options.ransac.random_seed = config.max_reprojection_px, config.seed
    xyz = np.array([model.points3D[point].xyz for point in ids.tolist()])
    pose = pycolmap.estimate_and_refine_absolute_pose(pixels, xyz, model.cameras[1], options)
    if pose is None or pose["num_inliers"] < config.min_inliers:
        return None
    agree = np.asarray(pose["inlier_mask"], bool)
    return Resected(pose["cam_from_world"].matrix(), ids[agree], pixels[agree])


def resect_matched(
    database_path: Path, model: Any, pairs: Iterable[Pair], config: SfmConfig
) -> dict[int, Resected]:
    """Frames outside a map that are matched with frames of it, by position; those that show too little of the
    map are left out."""
    import pycolmap

    mapped = {position_of(image): image for image in model.images.values() if image.has_pose}
    points = {i: np.array([_point_id(p) for p in image.points2D]) for i, image in mapped.items()}
    found: dict[int, Resected] = {}
    with pycolmap.Database.open(database_path) as database:
        for position, near in _neighbours(pairs, mapped).items():
            image: Any = database.read_image_with_name(image_name(position))
            parts = [_shown(database, image, mapped[other], points[other]) for other in near]
            shown = np.unique(np.concatenate(parts), axis=0)
            pixels = np.asarray(database.read_keypoints(image.image_id), np.float64)[shown[:, 0], :2]
            if (pose := _pose(model, shown[:, 1], pixels, config)) is not None:
                found[position] = pose
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
