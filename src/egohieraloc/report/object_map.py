"""A map of objects: where each was last seen, when, and how sure that is, in the world of one camera path.

It is a view over answers with a place in space. Answers share a world when they stand on the same path, as
all answers from one video do; places of other worlds cannot be put into one map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import numpy as np

from egohieraloc.errors import DataError
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.report.scene import leveling, uncertainty_axes
from egohieraloc.result import Result
from egohieraloc.types import Floats, Localization3D, ResponseTrack

LATER = timedelta(seconds=1)  # than this a sighting is another one


@dataclass(frozen=True, eq=False)
class MappedObject:
    """An object at its last known place."""

    name: str
    point_world: Floats  # (3,)
    covariance: Floats  # (3, 3) of point_world
    size: tuple[float, float] | None  # width and height as seen, in the unit of the map
    last_seen_s: float  # in the video
    last_seen_at: datetime | None  # by the wall clock, where the video knows it
    confidence: float
    seen_later_at: datetime | None = None  # after that, where its place is not known

    @property
    def ellipsoid_axes(self) -> Floats:
        """Half-axes (3, 3), one per row, of the ellipsoid that the 3D views draw."""
        return uncertainty_axes(self.covariance)


@dataclass(frozen=True, eq=False)
class ObjectMap:
    """Objects in one world, and the path they were seen from."""

    cameras: Reconstruction
    objects: tuple[MappedObject, ...]
    without_place: tuple[tuple[str, str], ...] = ()  # name and reason

    @property
    def unit(self) -> Literal["m", "sfm"]:
        return self.cameras.unit

    @property
    def level_from_world(self) -> Floats:
        """The rotation (3, 3) after which z is up."""
        poses = np.array([pose.cam_from_world for pose in self.cameras.poses.values()]).reshape(-1, 3, 4)
        return leveling(poses)


def object_map(results: Mapping[str, Result]) -> ObjectMap:
    """The map of named answers. They must share a world; those without a place are listed with the reason."""
    placed = {name: r for name, r in results.items() if isinstance(r.place, Localization3D) and r.cameras}
    missing = {name: _why_not(result) for name, result in results.items() if name not in placed}
    if not placed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise DataError(f"No answer has a place in space, so there is no map ({reasons}).")
    (first_name, first), *others = placed.items()
    for name, result in others:
        if not same_world(first, result):
            raise DataError(
                f"{name} and {first_name} stand on different camera paths: their places cannot share a map. "
                "Map the answers of each video on their own."
            )
    longest = max(placed.values(), key=lambda r: r.cameras.num_posed if r.cameras else 0)
    assert longest.cameras is not None
    objects = tuple(mapped_object(name, result) for name, result in placed.items())
    return ObjectMap(longest.cameras, objects, tuple(missing.items()))


def object_maps(
    results: Mapping[str, Result], missing: Mapping[str, str], last_seen: Mapping[str, datetime]
) -> dict[str, ObjectMap]:
    """A map for each video that named answers with a place stand in, by its path; the latest first.

    Each map tells of every other object why it is not on it. `missing` are objects without a place and why,
    `last_seen` tells of objects that were seen again after the moment of their place.
    """
    by_video: dict[str, list[str]] = {}
    for name in sorted(results, key=lambda name: _seen_at(results[name]), reverse=True):
        by_video.setdefault(results[name].video.source.path, []).append(name)
    maps = {}
    for path, names in by_video.items():
        here = [name for name in names if same_world(results[names[0]], results[name])]
        elsewhere = {
            name: "on another camera path of this video; ask for it again with --3d"
            if name in names
            else f"last place is in {Path(each.video.source.path).name}"
            for name, each in results.items()
            if name not in here
        }
        mapped = object_map({name: results[name] for name in here})
        objects = tuple(_with_later(each, last_seen.get(each.name)) for each in mapped.objects)
        maps[path] = replace(mapped, objects=objects, without_place=(*elsewhere.items(), *missing.items()))
    return maps


def _seen_at(result: Result) -> tuple[float, float]:
    """For sorting: by the wall clock, else by the time in the video."""
    assert isinstance(result.track, ResponseTrack)
    start, last_s = result.video.source.start, result.track.predictions[-1].time_s
    return (0.0 if start is None else start.timestamp() + last_s), last_s


def _with_later(each: MappedObject, last_seen: datetime | None) -> MappedObject:
    if last_seen is None or each.last_seen_at is None or last_seen - each.last_seen_at < LATER:
        return each
    return replace(each, seen_later_at=last_seen)


def mapped_object(name: str, result: Result) -> MappedObject:
    """An answer with a place as an object of a map."""
    place, track = result.place, result.track
    assert isinstance(place, Localization3D)
    assert isinstance(track, ResponseTrack)
    last_s = track.predictions[-1].time_s
    start = result.video.source.start
    return MappedObject(
        name,
        place.point_world,
        place.covariance,
        _seen_size(result, place, track),
        last_s,
        None if start is None else start + timedelta(seconds=last_s),
        track.score,
    )


def same_world(one: Result, other: Result) -> bool:
    """Whether two answers stand on the same path: in the same unit, and equal wherever both have a pose."""
    a, b = one.cameras, other.cameras
    if a is None or b is None or a.unit != b.unit or one.video.source.path != other.video.source.path:
        return False
    common = a.poses.keys() & b.poses.keys()
    return bool(common) and all(
        np.allclose(a.poses[i].cam_from_world, b.poses[i].cam_from_world, atol=1e-6) for i in common
    )


def _seen_size(result: Result, place: Localization3D, track: ResponseTrack) -> tuple[float, float] | None:
    """The median width and height of its boxes at its distance."""
    cameras, boxes = result.cameras, {p.frame_index: p.box for p in track.predictions}
    sizes = []
    for view in place.views:
        box = boxes.get(view.frame_index)
        pose = cameras.poses.get(view.frame_index) if cameras else None
        if cameras is None or box is None or pose is None:
            continue
        x, y = box.center
        ends = cameras.camera.rays([(box.x1, y), (box.x2, y), (x, box.y1), (x, box.y2)])
        cosine = np.clip([ends[0] @ ends[1], ends[2] @ ends[3]], -1, 1)
        distance = float(np.linalg.norm(place.point_world - pose.center_world))
        sizes.append(2 * distance * np.tan(np.arccos(cosine) / 2))
    if not sizes or not np.isfinite(sizes).all():
        return None
    width, height = np.median(sizes, axis=0).tolist()
    return (width, height)


def _why_not(result: Result) -> str:
    if not result.found:
        return "not found"
    return getattr(result.place, "reason", "its place was not asked for (--3d)")
