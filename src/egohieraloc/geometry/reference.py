"""What makes a camera path metric: known camera positions, images taken from known places, a known length,
or the height at which the camera is carried. Without any of them answers are in units of the path itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from egohieraloc.documents import MAX_DIGITS
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.align import (
    MIN_CAMERAS,
    align_to_positions,
    read_positions,
    scale_by_camera_height,
    scale_by_length,
)
from egohieraloc.geometry.reconstruction import Reconstruction, read_cameras
from egohieraloc.geometry.sfm_process import Anchor
from egohieraloc.images import read_image
from egohieraloc.types import Floats

_MAX_SHIFT_S = 0.25  # pixels are given in a frame this near to a posed one
_NEAR_SHARE = 0.05  # of the image's diagonal: how far from a pixel the points may lie that tell its depth
_NEAR_POINTS = 5


@dataclass(frozen=True, eq=False)
class KnownPositions:
    """Where the camera was at some frames (frame number to (3,), metres)."""

    center_by_frame: Mapping[int, Floats]
    max_error_m: float = 0.5


@dataclass(frozen=True, eq=False)
class PosedImages:
    """Images of the same place taken from known positions, to be registered into the map."""

    anchors: tuple[Anchor, ...]


@dataclass(frozen=True)
class KnownLength:
    """Two pixels of the frame at a time show points that are `length_m` apart."""

    time_s: float
    first_px: tuple[float, float]
    second_px: tuple[float, float]
    length_m: float


@dataclass(frozen=True)
class CameraHeight:
    """How high above the floor the camera is carried."""

    height_m: float


Reference = KnownPositions | PosedImages | KnownLength | CameraHeight


def to_metres(found: Reconstruction, reference: Reference) -> Reconstruction:
    """The camera path in metres. Posed images were used when the map was made."""
    match reference:
        case KnownPositions(center_by_frame, max_error_m):
            return align_to_positions(found, center_by_frame, max_error=max_error_m)[0]
        case KnownLength(time_s, first_px, second_px, length_m):
            first, second = (point_at(found, time_s, pixel) for pixel in (first_px, second_px))
            return scale_by_length(found, first, second, length_m)
        case CameraHeight(height_m):
            return scale_by_camera_height(found, height_m)
        case PosedImages():
            return found


def point_at(found: Reconstruction, time_s: float, pixel: tuple[float, float]) -> Floats:
    """The point (3,) a pixel of the frame at a time shows, at the depth of the map's points around it."""
    frame = found.nearest_posed(time_s, within_s=_MAX_SHIFT_S)
    if frame is None:
        raise GeometryError(
            f"The frame at {time_s:g} s has no camera pose, nor has one within {_MAX_SHIFT_S:g} s. "
            "Measure the known length in another frame."
        )
    pose = found.poses[frame.index]
    rows, pixels = found.observed_in(frame.index)
    off = np.linalg.norm(pixels - np.asarray(pixel, np.float64), axis=1)
    near = np.argsort(off)[:_NEAR_POINTS]
    near = near[off[near] <= _NEAR_SHARE * np.hypot(found.camera.width, found.camera.height)]
    if len(near) == 0:
        raise GeometryError(
            f"No point of the map lies near pixel {pixel[0]:g},{pixel[1]:g} at {time_s:g} s. "
            "Choose the corner of something with texture."
        )
    depth = np.median(pose.to_cam(found.points.xyz_world[rows[near]])[:, 2])
    point: Floats = pose.to_world(found.camera.back_project([pixel], depth))[0]
    return point


def parse_known_length(text: str) -> KnownLength:
    """`seconds,x1,y1,x2,y2,metres`."""
    try:
        time_s, x1, y1, x2, y2, length_m = (float(word) for word in text.split(","))
    except ValueError as error:
        raise GeometryError(
            f"A known length is written seconds,x1,y1,x2,y2,metres, such as 24,410,220,520,230,0.75; "
            f"got {text!r}."
        ) from error
    return KnownLength(time_s, (x1, y1), (x2, y2), length_m)


def read_known_positions(path: str | Path, names: Sequence[str] = ()) -> KnownPositions:
    """A file of lines `name x y z`: the names of a folder's images, or numbers of a video's frames."""
    frame_by_name = {name: index for index, name in enumerate(names)}
    centers: dict[int, Floats] = {}
    for name, center in read_positions(path).items():
        stem = Path(name).stem
        if name in frame_by_name:
            centers[frame_by_name[name]] = center
        elif stem.isdecimal() and len(stem) <= MAX_DIGITS and not names:
            centers[int(stem)] = center
        else:
            wanted = f"an image such as {names[0]}" if names else "a frame number such as 120 or 000120.jpg"
            raise GeometryError(f"{path} names {name!r}; wanted {wanted}.")
    return KnownPositions(centers)


def read_posed_images(folder: str | Path) -> PosedImages:
    """A folder of images called by number (`12.jpg`, `000012.png`) and their `cameras.json` in metres; or of
    any names and `positions.txt`, lines `name x y z` in metres: then their lens is estimated."""
    folder = Path(folder)
    if (folder / "positions.txt").exists():
        positions = read_positions(folder / "positions.txt")
        anchors = tuple(Anchor(read_image(folder / name), None, center) for name, center in positions.items())
        unit = "m"
    else:
        cameras = read_cameras(folder / "cameras.json")
        files = {int(path.stem): path for path in folder.iterdir() if path.stem.isdecimal()}
        posed = [(files[index], pose.center_world) for index, pose in cameras.poses.items() if index in files]
        anchors = tuple(Anchor(read_image(file), cameras.camera, center) for file, center in posed)
        unit = cameras.unit
    if len(anchors) < MIN_CAMERAS or unit != "m":
        raise GeometryError(
            f"{folder} must hold at least {MIN_CAMERAS} images called by number, and a cameras.json with "
            f"their poses in metres, or images and a positions.txt with lines 'name x y z'; it has "
            f"{len(anchors)} with a pose, in the unit {unit!r}."
        )
    return PosedImages(anchors)
