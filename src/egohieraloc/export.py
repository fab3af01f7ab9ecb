"""What is known in space, for other programs: cameras, points and objects, with their unit and frame."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import DataError, VideoError
from egohieraloc.files import write_json
from egohieraloc.geometry.formats.colmap import write_model
from egohieraloc.geometry.formats.nerfstudio import write_transforms
from egohieraloc.geometry.formats.ply import Mesh, ellipsoid, write_ply
from egohieraloc.geometry.formats.trajectory import write_tum
from egohieraloc.geometry.reconstruction import cameras_to_json
from egohieraloc.report.object_map import MappedObject, ObjectMap, object_map
from egohieraloc.report.recording import write_recording
from egohieraloc.result import Result
from egohieraloc.video.folder import Folder
from egohieraloc.video.reader import Video

FRAME = "world of the camera path; camera axes x right, y down, z forward; poses are camera from world"
GREY, PATH_COLOUR = (150, 150, 150), (60, 90, 200)
OBJECT_COLOURS = ((21, 128, 61), (180, 83, 9), (190, 24, 93), (3, 105, 161), (109, 40, 217), (161, 98, 7))


class Form(StrEnum):
    """What to export to."""

    COLMAP = "colmap"  # a folder: cameras.txt, images.txt, points3D.txt, objects.json
    NERFSTUDIO = "nerfstudio"  # a folder: transforms.json, objects.json
    TUM = "tum"  # trajectory.txt
    PLY = "ply"
    RERUN = "rerun"
    JSON = "json"


def export(result: Result, form: Form, out: Path, *, name: str = "object") -> None:
    """Write an answer's cameras, points and object. The first two forms write a folder, the others a file."""
    if result.cameras is None:
        raise DataError("The answer has no camera path. Ask for it: `egohieraloc locate ... --3d --out DIR`.")
    if form is Form.RERUN:
        return write_recording(out, result)
    if form is Form.TUM:
        return write_tum(out, result.cameras)
    if form in (Form.COLMAP, Form.NERFSTUDIO):
        names = frame_names(result)
        if form is Form.COLMAP:
            write_model(out, result.cameras, names)
        else:
            write_transforms(out / "transforms.json", result.cameras, names)
        write_json(out / "objects.json", objects_json(_map(result, name)))
        return None
    return write_map(_map(result, name), form, out)


def write_map(mapped: ObjectMap, form: Form, out: Path) -> None:
    """A map of objects as PLY or JSON."""
    if form is Form.JSON:
        cameras = cameras_to_json(mapped.cameras)
        points = {"points_world": mapped.cameras.points.xyz_world.tolist()}
        write_json(out, objects_json(mapped) | cameras | points)
    else:
        write_ply(out, _meshes(mapped), [f"unit {mapped.unit}", FRAME, *_legend(mapped)])


def objects_json(mapped: ObjectMap) -> dict[str, Any]:
    """Objects with position, covariance, ellipsoid and an upright box, whose axes are given as rows."""
    return {
        "format": "egohieraloc-space",
        "version": 1,
        "unit": mapped.unit,
        "frame_of_reference": FRAME,
        "objects": [_object_json(each, mapped.level_from_world) for each in mapped.objects],
        "without_place": [{"name": name, "reason": reason} for name, reason in mapped.without_place],
    }


def _object_json(each: MappedObject, level_from_world: Any) -> dict[str, Any]:
    box = None
    if each.size is not None:
        width, height = each.size  # what was not seen, its depth, is taken as its width
        box = {"size": [width, width, height], "axes_world": level_from_world.tolist()}
    return {
        "name": each.name,
        "position_world": each.point_world.tolist(),
        "covariance": each.covariance.tolist(),
        "ellipsoid_half_axes_world": each.ellipsoid_axes.tolist(),
        "box": box,
        "last_seen_s": each.last_seen_s,
        "last_seen_at": each.last_seen_at and each.last_seen_at.isoformat(),
        "seen_later_at": each.seen_later_at and each.seen_later_at.isoformat(),
        "confidence": each.confidence,
    }


def frame_names(result: Result) -> dict[int, str]:
    """The image of each posed frame: of a folder by its name, of a video by its number."""
    frames = result.cameras.poses if result.cameras else {}
    names = {index: f"{index:06d}.jpg" for index in frames}
    try:
        backend = Video.reopen(result.video.source).backend
    except VideoError:
        return names
    if isinstance(backend, Folder):
        names |= {index: backend.images[index].name for index in frames if index < len(backend.images)}
    return names


def _map(result: Result, name: str) -> ObjectMap:
    """Of one answer; without objects where it has no place."""
    try:
        return object_map({name: result})
    except DataError as error:
        assert result.cameras is not None
        return ObjectMap(result.cameras, (), ((name, str(error)),))


def _meshes(mapped: ObjectMap) -> list[Mesh]:
    path = np.array([pose.center_world for pose in mapped.cameras.poses.values()])
    objects = [
        ellipsoid(each.point_world, each.ellipsoid_axes, OBJECT_COLOURS[i % len(OBJECT_COLOURS)])
        for i, each in enumerate(mapped.objects)
    ]
    return [Mesh.points(mapped.cameras.points.xyz_world, GREY), Mesh.points(path, PATH_COLOUR), *objects]


def _legend(mapped: ObjectMap) -> list[str]:
    """Which colour is which object."""
    lines = ["grey: points of the map; blue: camera path; ellipsoids: objects"]
    for i, each in enumerate(mapped.objects):
        red, green, blue = OBJECT_COLOURS[i % len(OBJECT_COLOURS)]
        lines.append(f"object {each.name!r}: colour {red} {green} {blue}".replace("\n", " "))
    return lines
