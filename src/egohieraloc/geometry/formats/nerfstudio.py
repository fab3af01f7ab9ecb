"""nerfstudio's `transforms.json`: world-from-camera matrices with OpenGL's axes, by image name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.documents import read_json
from egohieraloc.errors import GeometryError
from egohieraloc.files import write_json
from egohieraloc.geometry.camera import PARAMETER_NAMES, Camera
from egohieraloc.geometry.given import OPENGL, GivenCameras, GivenView
from egohieraloc.geometry.reconstruction import Reconstruction

# nerfstudio takes OPENCV for every perspective lens; files of other programs may lack `camera_model`.
_INTRINSICS = ("fl_x", "fl_y", "cx", "cy", "w", "h")
_DISTORTION = ("k1", "k2", "p1", "p2", "k3", "k4")


def is_transforms(value: Any) -> bool:
    frames = value.get("frames") if isinstance(value, dict) else None
    return isinstance(frames, list) and any(
        isinstance(frame, dict) and "transform_matrix" in frame for frame in frames
    )


def read_transforms(path: Path, value: Any) -> GivenCameras:
    """The unit is metres only where the file says so: the format itself does not know."""
    try:
        frames = value["frames"]
        views = tuple(
            GivenView(np.array(frame["transform_matrix"], np.float64), name=str(frame["file_path"]))
            for frame in frames
        )
        camera = _camera([value | frame for frame in frames])
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise GeometryError(
            f"Cannot read {path}: {type(error).__name__} {error}. Wanted a transforms.json with fl_x, fl_y, "
            "cx, cy, w, h and for each frame a file_path and a transform_matrix."
        ) from error
    metric = value.get("unit") == "m"
    return GivenCameras(f"the transforms.json {path}", camera, views, "m" if metric else "sfm", OPENGL)


def _camera(frames: list[dict[str, Any]]) -> Camera:
    """One lens for all: the median where each image has its own, as of a phone that focuses."""
    if "camera_angle_x" in frames[0] and "fl_x" not in frames[0]:
        frames = [frame | _from_angle(frame) for frame in frames]
    values = {
        key: float(np.median([float(frame.get(key, 0.0)) for frame in frames]))
        for key in (*_INTRINSICS, *_DISTORTION)
    }
    missing = [key for key in _INTRINSICS if key not in frames[0] and key != "fl_y"]
    if missing:
        raise KeyError(missing[0])
    values["fl_y"] = values["fl_y"] or values["fl_x"]
    stated = str(frames[0].get("camera_model", "OPENCV"))
    width, height = round(values["w"]), round(values["h"])
    focal = (values["fl_x"], values["fl_y"], values["cx"], values["cy"])
    if stated == "OPENCV_FISHEYE":
        return Camera(
            "OPENCV_FISHEYE", width, height, (*focal, *(values[k] for k in ("k1", "k2", "k3", "k4")))
        )
    if stated not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL") or values["k3"]:
        raise ValueError(f"the camera model {stated} (with k3 = {values['k3']}) is not known here")
    if not any(values[key] for key in _DISTORTION):
        return Camera("PINHOLE", width, height, focal)
    return Camera("OPENCV", width, height, (*focal, *(values[k] for k in ("k1", "k2", "p1", "p2"))))


def _from_angle(frame: dict[str, Any]) -> dict[str, float]:
    """Blender's form: the angle of view instead of the focal length."""
    focal = 0.5 * float(frame["w"]) / math.tan(0.5 * float(frame["camera_angle_x"]))
    return {"fl_x": focal, "fl_y": focal, "cx": float(frame["w"]) / 2, "cy": float(frame["h"]) / 2}


def write_transforms(path: Path, reconstruction: Reconstruction, names: dict[int, str]) -> None:
    """All posed frames. `unit` and `frame_of_reference` are ours; nerfstudio passes over them."""
    camera = reconstruction.camera
    terms = dict(zip(PARAMETER_NAMES[camera.model], camera.params, strict=True))
    if camera.model == "RAD_TAN_THIN_PRISM_FISHEYE":
        raise GeometryError(
            "nerfstudio's transforms.json has no model for the lens of Project Aria. Export --to colmap."
        )
    fisheye = camera.is_fisheye
    (fx, fy), (cx, cy) = camera.focal, camera.principal_point
    kept = ("k1", "k2", "k3", "k4") if fisheye else ("k1", "k2", "p1", "p2")
    write_json(
        path,
        {
            "camera_model": "OPENCV_FISHEYE" if fisheye else "OPENCV",
            "fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, "w": camera.width, "h": camera.height,
            **{key: terms.get(key, 0.0) for key in kept},
            "unit": reconstruction.unit,
            "frame_of_reference": "transform_matrix: world from camera, camera axes of OpenGL",
            "frames": [
                {"file_path": names[index], "transform_matrix": OPENGL.matrix(pose).tolist()}
                for index, pose in reconstruction.poses.items()
            ],
        },
    )  # fmt: skip


def load_json(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise GeometryError(f"Cannot read {path}: {error}.") from error
