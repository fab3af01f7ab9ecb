"""Ego4D's visual queries in 3D: `vq3d_*.json`, the mapping to the 2D queries, poses and intrinsics.

Annotated positions live in a frame turned by 90 degrees about z against the Matterport scan. Everything here
is in the scan's frame, called `world`: (x, y, z) of the file becomes (y, -x, z).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.data.base import QueryKey, reading
from egohieraloc.data.ego4d import VisualQuery, annotation_name, clip_name
from egohieraloc.data.stream import read_json, stream_object
from egohieraloc.errors import DataError
from egohieraloc.types import Floats

POSES_PER_S = 5.0  # frames of a clip that have a place in the pose file


@dataclass(frozen=True, eq=False)
class Box3D:
    """What one annotator drew. Only its centre and its diagonal are scored."""

    center_world: Floats  # (3,) metres
    size: Floats  # (3,) metres
    rotation_xyz_rad: Floats  # (3,) about the axes of the annotation file

    @property
    def diagonal(self) -> float:
        return float(np.linalg.norm(self.size))


@dataclass(frozen=True, eq=False)
class PlaceQuery:
    """One VQ3D question. `boxes` are the two annotators' answers, None in files without answers."""

    key: QueryKey
    video_uid: str
    annotation_index: int
    scan_uid: str
    object_title: str
    boxes: tuple[Box3D, Box3D] | None
    problem: str = ""  # why the record cannot be used; then it has no boxes


@dataclass(frozen=True, eq=False)
class ClipPoses:
    """Camera poses of a clip's frames at POSES_PER_S, in the scan's frame."""

    cam_from_world: Floats  # (N, 3, 4)
    is_good: NDArray[np.bool_]  # (N,) False also where the file has no matrix
    problem: str = ""  # why the clip's record cannot be used; then there are no frames
    map_file: str = (
        ""  # of `egohieraloc poses`: its lens, poses and points, named from the pose file's folder
    )


@dataclass(frozen=True)
class Intrinsics:
    """A radial fisheye camera, in pixels of an image of this size."""

    width: int
    height: int
    focal: float
    center_x: float
    center_y: float
    k1: float
    k2: float


def world_from_annotation(position: Floats) -> Floats:
    """The scan's coordinates of an annotated position (..., 3)."""
    x, y, z = np.moveaxis(np.asarray(position, np.float64), -1, 0)
    return np.stack([y, -x, z], -1)


def read_vq3d(path: str | Path, *, split: str | None = None) -> Iterator[PlaceQuery]:
    """Queries in the order of the file. Empty annotations keep their place in the count."""
    for key, video in stream_object(path, array="videos"):
        if key != "videos":
            continue
        with reading(str(path)):
            video_uid, scan_uid, clips = video["video_uid"], video.get("scan_uid") or "", list(video["clips"])
            wanted = split is None or video["split"] == split
        for index, clip in enumerate(clips if wanted else ()):
            yield from _read_clip(clip, video_uid, scan_uid, index, f"{path}: video {video_uid}")


def read_mapping(path: str | Path) -> dict[tuple[str, str, int, str], tuple[int, str]]:
    """(video, clip, 3D annotation's place, query set) -> (2D annotation's place, query set)."""
    links: dict[tuple[str, str, int, str], tuple[int, str]] = {}
    content = read_json(path)
    with reading(f"{path}"):
        for video_uid, clips in content.items():
            for clip_uid, annotations in clips.items():
                for place, query_sets in annotations.items():
                    for query_set, link in query_sets.items():
                        with reading(f"{path}: clip {clip_uid}, annotation {place}, query {query_set}"):
                            links[video_uid, clip_uid, int(place), query_set] = (
                                int(link["ai"]),
                                str(link["qset_id"]),
                            )
    return links


def visual_queries_of_places(
    places: Iterable[PlaceQuery],
    queries: Iterable[VisualQuery],
    mapping: dict[tuple[str, str, int, str], tuple[int, str]],
) -> dict[QueryKey, VisualQuery]:
    """The 2D question behind each 3D question; the two files do not have the same order."""
    by_place = {(q.key.clip, q.annotation_index, q.key.query_set): q for q in queries}
    found: dict[QueryKey, VisualQuery] = {}
    for place in places:
        source = (place.video_uid, place.key.clip, place.annotation_index, place.key.query_set)
        link = mapping.get(source)
        query = by_place.get((place.key.clip, *link)) if link else None
        if query is None:
            raise DataError(
                f"The 3D query ({place.key}) has no 2D query: the mapping says {link}. "
                "Use the mapping and the VQ2D annotations of the same split and version."
            )
        found[place.key] = query
    return found


def read_clip_poses(path: str | Path) -> dict[str, ClipPoses]:
    """`all_clips_camera_poses_*.json`, or what `egohieraloc poses` writes: by clip."""
    poses: dict[str, ClipPoses] = {}
    for clip_uid, clip in stream_object(path, array=""):
        try:
            with reading(f"{path}: clip {clip_uid}"):
                if reason := clip.get("reason"):
                    raise DataError(str(reason))
                found = _clip_poses(clip["camera_poses"], clip["good_poses"])
                poses[clip_uid] = replace(found, map_file=str(clip.get("map", "")))
        except DataError as error:
            poses[clip_uid] = ClipPoses(np.zeros((0, 3, 4)), np.zeros(0, bool), str(error))
    return poses


def _clip_poses(matrices: list[Any], good: list[bool]) -> ClipPoses:
    if len(good) != len(matrices):
        raise ValueError(f"{len(good)} flags for {len(matrices)} poses")
    cam_from_world = np.full((len(matrices), 3, 4), np.nan)
    for number, matrix in enumerate(matrices):
        with suppress(TypeError, ValueError):  # a frame without a matrix is a frame without a pose
            cam_from_world[number] = np.array(matrix, np.float64).reshape(-1, 4)[:3]
    known = np.isfinite(cam_from_world).all((1, 2))
    return ClipPoses(cam_from_world, np.array(good, bool) & known)


def read_intrinsics(path: str | Path) -> dict[str, tuple[Intrinsics, ...]]:
    """`scan_to_intrinsics.json`: by scan, one camera per image size."""
    cameras: dict[str, tuple[Intrinsics, ...]] = {}
    for scan_uid, sizes in stream_object(path, array=""):
        with reading(f"{path}: scan {scan_uid}"):
            cameras[scan_uid] = tuple(_camera(size, camera) for size, camera in sizes.items())
    return cameras


def _read_clip(
    clip: dict[str, Any], video_uid: str, scan_uid: str, index: int, where: str
) -> Iterator[PlaceQuery]:
    with reading(where):
        name, annotations = clip_name(clip["clip_uid"], video_uid, index), clip["annotations"]
        query_sets = [list(annotation.get("query_sets", {}).items()) for annotation in annotations]
    for place, annotation in enumerate(annotations):
        for query_set, query in query_sets[place]:
            key = QueryKey(name, annotation_name(annotation.get("annotation_uid"), place), query_set)
            title, boxes, problem = "", None, ""
            try:
                with reading(f"{where}, {key}"):
                    title, boxes = query.get("object_title") or "", _boxes(query)
            except DataError as error:
                problem = str(error)
            yield PlaceQuery(key, video_uid, place, scan_uid, title, boxes, problem)


def _camera(size: str, camera: dict[str, float]) -> Intrinsics:
    """`size` is the text of a Python pair, such as "('1920', '1080')"."""
    width, height = (int(v) for v in re.findall(r"\d{1,6}", size))
    focal, center_x, center_y, k1, k2 = (float(camera[field]) for field in ("f", "cx", "cy", "k1", "k2"))
    return Intrinsics(width, height, focal, center_x, center_y, k1, k2)


def _boxes(query: dict[str, Any]) -> tuple[Box3D, Box3D] | None:
    if "3d_annotation_1" not in query and "3d_annotation_2" not in query:
        return None
    return _box(query["3d_annotation_1"]), _box(query["3d_annotation_2"])


def _box(box: dict[str, dict[str, float]]) -> Box3D:
    position, size, rotation = (
        np.array([box[field][axis] for axis in "xyz"], np.float64)
        for field in ("position", "dimension", "rotation")
    )
    return Box3D(world_from_annotation(position), size, rotation)
