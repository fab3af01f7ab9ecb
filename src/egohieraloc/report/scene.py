"""The 3D view of report and page: camera path, what each view says, the fused point and its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from egohieraloc.result import Result
from egohieraloc.result_json import kept_points
from egohieraloc.result_schema import Part, Point
from egohieraloc.types import DEVIATIONS_95, Floats, Localization3D, ViewEvidence


class SceneView(Part):
    """A frame that shows the object: where it puts it, and the factors of its weight (GSJC)."""

    frame: int
    camera: int | None  # in the path; None where the frame has no pose
    point: Point
    weight: float
    semantic: float
    depth: float
    reprojection: float
    baseline: float


class ScenePlace(Part):
    """The fused point. `axes` are the half-axes of the ellipsoid that holds it in 95 of 100 cases."""

    point: Point
    axes: tuple[Point, Point, Point]
    query_camera: int | None  # in the path: the camera at the query time


class Scene(Part):
    """What the 3D view draws, turned so that z is up and moved so that the path's middle is the origin."""

    words: str  # where it is seen from and where it is, or why there is no place
    doubts: list[str]  # why it may be off by more than the ellipsoid says
    unit: Literal["m", "sfm"]
    posed_frames: int
    num_frames: int
    path: list[Point]  # camera centres in order of time
    path_frames: list[int]
    forward: list[Point]  # the directions the cameras look in
    map_points: list[Point]
    place: ScenePlace | None
    views: list[SceneView]
    true_point: Point | None  # where it is known


@dataclass(frozen=True, eq=False)
class Level:
    """Turns what is known in the world so that z is up, around an origin."""

    rotation: Floats  # (3, 3)
    origin_world: Floats  # (3,)

    def directions(self, directions_world: Floats) -> list[Point]:
        return [(x, y, z) for x, y, z in np.round(directions_world @ self.rotation.T, 5).tolist()]

    def points(self, points_world: Floats) -> list[Point]:
        return self.directions(points_world - self.origin_world)

    def point(self, point_world: Floats) -> Point:
        return self.points(point_world[None])[0]


def scene_of(result: Result, true_point_world: Floats | None = None) -> Scene | None:
    """What an answer knows in 3D; None when nobody asked for it."""
    place, cameras = result.place, result.cameras
    if place is None:
        return None
    poses = cameras.poses if cameras else {}
    cam_from_world = np.array([pose.cam_from_world for pose in poses.values()]).reshape(-1, 3, 4)
    centers = -np.einsum("nji,nj->ni", cam_from_world[:, :, :3], cam_from_world[:, :, 3])
    level = Level(leveling(cam_from_world), centers.mean(0) if len(centers) else np.zeros(3))
    found = place if isinstance(place, Localization3D) else None
    index_of_frame = {frame: i for i, frame in enumerate(poses)}
    return Scene(
        words=result.place_words,
        doubts=list(found.doubts) if found else [],
        unit=cameras.unit if cameras else "sfm",
        posed_frames=place.posed_frames,
        num_frames=place.num_frames,
        path=level.points(centers),
        path_frames=list(poses),
        forward=level.directions(cam_from_world[:, 2, :3]),
        map_points=level.points(without_outliers(kept_points(cameras))) if cameras else [],
        place=_place(found, level, index_of_frame) if found else None,
        views=[_view(view, level, index_of_frame) for view in found.views] if found else [],
        true_point=None if true_point_world is None else level.point(true_point_world),
    )


def _place(place: Localization3D, level: Level, index_of_frame: Mapping[int, int]) -> ScenePlace:
    first, second, third = level.directions(uncertainty_axes(place.covariance))
    return ScenePlace(
        point=level.point(place.point_world),
        axes=(first, second, third),
        query_camera=index_of_frame.get(place.query_frame),
    )


def _view(view: ViewEvidence, level: Level, index_of_frame: Mapping[int, int]) -> SceneView:
    return SceneView(
        frame=view.frame_index,
        camera=index_of_frame.get(view.frame_index),
        point=level.point(view.point_world),
        weight=view.weight,
        semantic=view.semantic,
        depth=view.depth,
        reprojection=view.reprojection,
        baseline=view.baseline,
    )


def leveling(poses: Floats) -> Floats:
    """Rotation (3, 3) that takes the mean "up" of the heads to z; reconstructions do not know where up is."""
    if len(poses) == 0:
        return np.eye(3)
    up = -poses[:, 1, :3].mean(0)
    length = np.linalg.norm(up)
    if length < 1e-6:
        return np.eye(3)
    up = up / length
    ahead = poses[0, 2, :3] - up * (up @ poses[0, 2, :3])
    if np.linalg.norm(ahead) < 1e-6:
        ahead = np.cross(up, np.eye(3)[np.argmin(np.abs(up))])
    ahead = ahead / np.linalg.norm(ahead)
    return np.stack([np.cross(ahead, up), ahead, up])


def uncertainty_axes(covariance: Floats) -> Floats:
    """The three half-axes (3, 3), one per row, of the ellipsoid that holds the point in 95 of 100 cases."""
    variances, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    axes: Floats = DEVIATIONS_95 * np.sqrt(np.clip(variances, 0, None))[:, None] * directions.T
    return axes


def without_outliers(points: Floats) -> Floats:
    """Every reconstruction has a few points far from all others."""
    if len(points) == 0:
        return points
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return np.asarray(points[distance <= 4 * np.median(distance) + 1e-12], np.float64)
