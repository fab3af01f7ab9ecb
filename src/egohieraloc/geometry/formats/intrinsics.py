"""The lens for poses that come without one: JSON, a line of numbers, `sensor.yaml` of EuRoC or Kalibr."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.config import CameraModel
from egohieraloc.documents import parse_json
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera
from egohieraloc.types import Floats

NAMES = ("intrinsics.json", "sensor.yaml", "camchain.yaml", "intrinsics.txt", "cameras.json")
_WANTED = (
    'JSON {"width", "height", "fx", "fy", "cx", "cy"} (and "k1" ... or COLMAP\'s "model" and "params"), '
    "a line `width height fx fy cx cy`, or a sensor.yaml of EuRoC or Kalibr"
)


@dataclass(frozen=True, eq=False)
class Mount:
    """A lens, and where it sits on the body whose poses are known."""

    camera: Camera
    body_from_cam: Floats = field(default_factory=lambda: np.eye(4))  # (4, 4)


def find_intrinsics(trajectory: Path, given: Path | None) -> Mount:
    """From the file that is given, else from one that lies beside the trajectory."""
    if given is not None:
        return read_intrinsics(given)
    folder = trajectory.parent
    candidates = [folder / name for name in NAMES] + [folder.parent / "cam0" / "sensor.yaml"]
    for path in candidates:
        if path.is_file():
            return read_intrinsics(path)
    raise GeometryError(
        f"{trajectory} holds poses without a lens. Give --intrinsics FILE, or put {', '.join(NAMES[:4])} "
        f"beside it: {_WANTED}."
    )


def read_intrinsics(path: Path) -> Mount:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".yaml", ".yml"):
            return _from_yaml(text)
        if text.lstrip().startswith("{"):
            return Mount(_from_json(parse_json(text)))
        numbers = [float(word) for word in re.split(r"[\s,]+", text.strip())]
        return Mount(_lens(numbers[:2], numbers[2:6], numbers[6:]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise GeometryError(
            f"Cannot read a lens from {path}: {type(error).__name__} {error}. Wanted {_WANTED}."
        ) from error


def _from_json(value: Any) -> Camera:
    value = value.get("camera", value)
    width, height = int(value.get("width", value.get("w"))), int(value.get("height", value.get("h")))
    if "model" in value:
        return Camera(value["model"], width, height, tuple(float(v) for v in value["params"]))
    focal = [float(value[key]) for key in ("fx", "fy", "cx", "cy")]
    terms = [float(value.get(key, 0.0)) for key in ("k1", "k2", "p1", "p2")]
    return _lens([width, height], focal, terms if any(terms) else ())


def _from_yaml(text: str) -> Mount:
    """Three lists and a name; no more of YAML is needed. OpenCV's pixel centres are integers."""
    width, height = _numbers(text, "resolution")[:2]
    fx, fy, cx, cy = _numbers(text, "intrinsics")
    found = re.search(r"distortion_model:\s*[\"']?([\w-]+)", text)
    kind = found.group(1) if found else "radtan"
    keys = ("distortion_coefficients", "distortion_coeffs")
    terms = next((_numbers(text, key) for key in keys if f"{key}:" in text), [])
    fisheye = kind in ("equidistant", "fisheye", "kannala_brandt")
    if not fisheye and kind not in ("radtan", "radial-tangential", "plumb_bob", "none"):
        raise ValueError(f"the distortion model {kind} is not known here")
    focal = (fx, fy, cx + 0.5, cy + 0.5)
    camera = _lens([width, height], focal, terms, "OPENCV_FISHEYE" if fisheye else "OPENCV")
    mount = re.search(r"T_BS:.*?data:\s*\[([^\]]*)\]", text, re.DOTALL)
    body_from_cam = (
        np.array([float(v) for v in mount.group(1).split(",")]).reshape(4, 4) if mount else np.eye(4)
    )
    return Mount(camera, body_from_cam)


def _numbers(text: str, key: str) -> list[float]:
    found = re.search(rf"{key}:\s*\[([^\]]*)\]", text)
    if found is None:
        raise KeyError(key)
    return [float(word) for word in found.group(1).split(",")]


def _lens(
    size: Sequence[float], focal: Sequence[float], terms: Sequence[float], model: CameraModel = "OPENCV"
) -> Camera:
    width, height = (round(v) for v in size)
    fx, fy, cx, cy = focal
    if not any(terms) and model == "OPENCV":
        return Camera("PINHOLE", width, height, (fx, fy, cx, cy))
    if len(terms) > 4 and any(terms[4:]):
        raise ValueError(f"wanted four distortion terms, got {len(terms)}")
    return Camera(model, width, height, (fx, fy, cx, cy, *(list(terms) + [0.0] * 4)[:4]))
