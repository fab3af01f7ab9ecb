"""The map of objects as one HTML file, with the 3D view of the report. Needs no network."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import numpy as np

from egohieraloc.files import atomic_path
from egohieraloc.report.html import filled_page
from egohieraloc.report.object_map import MappedObject, ObjectMap
from egohieraloc.report.scene import Level, without_outliers
from egohieraloc.result_json import kept_points
from egohieraloc.result_schema import Part, Point

SCRIPTS = ("tools.js", "scene.js", "map.js")


class SceneObject(Part):
    """An object of the map. `axes` are the half-axes of its ellipsoid, `deviation` the longest of them."""

    name: str
    point: Point
    axes: tuple[Point, Point, Point]
    deviation: float
    last_seen_s: float
    last_seen_at: str | None
    seen_later_at: str | None
    confidence: float
    size: tuple[float, float] | None


class MapScene(Part):
    """What the map's 3D view draws: the report's scene without an answer of its own."""

    unit: str
    path: list[Point]
    path_frames: list[int]
    forward: list[Point]
    map_points: list[Point]
    objects: list[SceneObject]
    without_place: list[tuple[str, str]]
    place: None = None
    views: tuple[()] = ()
    true_point: None = None


def map_scene(mapped: ObjectMap) -> MapScene:
    """Turned so that z is up, around the middle of the path."""
    poses = mapped.cameras.poses
    matrices = np.array([pose.cam_from_world for pose in poses.values()]).reshape(-1, 3, 4)
    centers = np.array([pose.center_world for pose in poses.values()]).reshape(-1, 3)
    level = Level(mapped.level_from_world, centers.mean(0))
    return MapScene(
        unit=mapped.unit,
        path=level.points(centers),
        path_frames=list(poses),
        forward=level.directions(matrices[:, 2, :3]),
        map_points=level.points(without_outliers(kept_points(mapped.cameras))),
        objects=[_object(each, level) for each in mapped.objects],
        without_place=list(mapped.without_place),
    )


def map_page(mapped: ObjectMap) -> str:
    """The whole page."""
    data = json.dumps(map_scene(mapped).model_dump(mode="json"), allow_nan=False, separators=(",", ":"))
    return filled_page("map.html", SCRIPTS, data)


def write_map_page(path: Path, mapped: ObjectMap) -> None:
    """Write the page, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(map_page(mapped), encoding="utf-8")


def _object(each: MappedObject, level: Level) -> SceneObject:
    axes = each.ellipsoid_axes
    first, second, third = level.directions(axes)
    return SceneObject(
        name=each.name,
        point=level.point(each.point_world),
        axes=(first, second, third),
        deviation=float(np.linalg.norm(axes, axis=1).max()),
        last_seen_s=each.last_seen_s,
        last_seen_at=_moment(each.last_seen_at),
        seen_later_at=_moment(each.seen_later_at),
        confidence=each.confidence,
        size=each.size,
    )


def _moment(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")
