"""What structure from motion gives: one camera, a pose for most frames, and sparse points with tracks.

F is the number of frames, P of points, O of observations (a point seen in a frame). `cameras.json` holds the
camera and the poses for other programs; `save` and `load` keep everything in one file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from egohieraloc.documents import parse_json, read_json
from egohieraloc.errors import GeometryError
from egohieraloc.files import atomic_path, write_json
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.types import Floats, Ints

FORMAT = 1


@dataclass(frozen=True, eq=False)
class PosedFrame:
    """A frame of the video and its pose, or None where it has none."""

    index: int
    time_s: float
    pose: CameraPose | None


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """Points of the map and where they were seen. Row o: `point[o]` at `pixel[o]` in `frame[o]`."""

    xyz_world: Floats = field(default_factory=lambda: np.empty((0, 3)))  # (P, 3)
    frame: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # (O,) file frame number
    point: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # (O,) row of xyz_world
    pixel: Floats = field(default_factory=lambda: np.empty((0, 2)))  # (O, 2)

    def __post_init__(self) -> None:
        count = len(self.frame)
        if self.point.shape != (count,) or self.pixel.shape != (count, 2) or self.xyz_world.shape[1:] != (3,):
            raise GeometryError(
                f"Observations must be (O,), (O,) and (O, 2) and points (P, 3), got {self.frame.shape}, "
                f"{self.point.shape}, {self.pixel.shape} and {self.xyz_world.shape}."
            )
        if count and not (self.point.min() >= 0 and self.point.max() < len(self.xyz_world)):
            raise GeometryError(f"An observation names a point outside 0..{len(self.xyz_world) - 1}.")


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A camera path and a sparse map, in metres or, without any reference, in units of its own."""

    camera: Camera
    frames: tuple[PosedFrame, ...]
    unit: Literal["m", "sfm"] = "sfm"
    points: SparsePoints = field(default_factory=SparsePoints)

    @cached_property
    def poses(self) -> Mapping[int, CameraPose]:
        """Pose by file frame number, for the frames that have one."""
        return {frame.index: frame.pose for frame in self.frames if frame.pose is not None}

    @property
    def num_posed(self) -> int:
        return len(self.poses)

    @property
    def frame_gap_s(self) -> float:
        """The usual time between two frames; 0 for a single one."""
        times = np.sort([frame.time_s for frame in self.frames])
        return float(np.median(np.diff(times))) if len(times) > 1 else 0.0

    def nearest_posed(self, time_s: float, *, within_s: float = math.inf) -> PosedFrame | None:
        """The posed frame closest in time, the earlier one of two; None when none is that near."""
        posed = [f for f in self.frames if f.pose is not None and abs(f.time_s - time_s) <= within_s]
        return min(posed, key=lambda frame: (abs(frame.time_s - time_s), frame.time_s), default=None)

    def until(self, time_s: float) -> Reconstruction:
        """The path up to a time; the map stays whole."""
        return replace(self, frames=tuple(frame for frame in self.frames if frame.time_s <= time_s))

    def observed_in(self, frame_index: int) -> tuple[NDArray[np.int64], Floats]:
        """The points seen in a frame: rows of `points.xyz_world` (n,) and pixels (n, 2)."""
        rows = self._rows_by_frame.get(frame_index, np.empty(0, np.int64))
        return self.points.point[rows], self.points.pixel[rows]

    def at_frames(self, indices: Ints) -> Reconstruction:
        """With these frames alone, where it knows them all; otherwise as it is."""
        wanted = set(indices.tolist())
        frames = tuple(frame for frame in self.frames if frame.index in wanted)
        return replace(self, frames=frames) if len(frames) == len(wanted) else self

    def resized(self, width: int, height: int) -> Reconstruction:
        """The same in pixels of frames of another size."""
        scale = width / self.camera.width, height / self.camera.height
        points = replace(self.points, pixel=self.points.pixel * scale)
        return replace(self, camera=self.camera.resized(width, height), points=points)

    @cached_property
    def _rows_by_frame(self) -> dict[int, NDArray[np.int64]]:
        order = np.argsort(self.points.frame, kind="stable")
        values, starts = np.unique(self.points.frame[order], return_index=True)
        return dict(zip(values.tolist(), np.split(order, starts[1:]), strict=True)) if len(values) else {}


def write_cameras(path: str | Path, reconstruction: Reconstruction) -> None:
    """Write `cameras.json`: the unit, the camera and each frame's `cam_from_world` (or null)."""
    write_json(path, cameras_to_json(reconstruction))


def read_cameras(path: str | Path) -> Reconstruction:
    """Read `cameras.json`, ours or a user's. There are no sparse points in it."""
    try:
        return cameras_from_json(read_json(path))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise GeometryError(
            f"Cannot read camera poses from {path}: {type(error).__name__} {error}. Wanted "
            '{"unit": "m"|"sfm", "camera": {"model", "width", "height", "params"}, '
            '"frames": [{"frame", "time_s", "cam_from_world": 3x4 or null}]}.'
        ) from error


def cameras_to_json(reconstruction: Reconstruction) -> dict[str, Any]:
    camera = reconstruction.camera
    return {
        "unit": reconstruction.unit,
        "camera": {
            "model": camera.model,
            "width": camera.width,
            "height": camera.height,
            "params": list(camera.params),
            **({} if camera.valid_radius_px is None else {"valid_radius_px": camera.valid_radius_px}),
        },
        "frames": [
            {
                "frame": frame.index,
                "time_s": frame.time_s,
                "cam_from_world": None if frame.pose is None else frame.pose.cam_from_world.tolist(),
            }
            for frame in reconstruction.frames
        ],
    }


def cameras_from_json(value: Any, points: SparsePoints | None = None) -> Reconstruction:
    camera = value["camera"]
    if value["unit"] not in ("m", "sfm"):
        raise ValueError(f"the unit must be 'm' or 'sfm', got {value['unit']!r}")
    frames = tuple(
        PosedFrame(
            int(frame["frame"]),
            float(frame["time_s"]),
            None if frame["cam_from_world"] is None else CameraPose(np.array(frame["cam_from_world"], float)),
        )
        for frame in value["frames"]
    )
    params = tuple(float(v) for v in camera["params"])
    radius = camera.get("valid_radius_px")
    lens = Camera(
        camera["model"],
        int(camera["width"]),
        int(camera["height"]),
        params,
        None if radius is None else float(radius),
    )
    return Reconstruction(lens, frames, value["unit"], points or SparsePoints())


def save(path: str | Path, reconstruction: Reconstruction) -> None:
    """Keep a whole reconstruction in one file, atomically."""
    points = reconstruction.points
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(
            stream,
            format=FORMAT,
            cameras=json.dumps(cameras_to_json(reconstruction)),
            xyz_world=points.xyz_world,
            frame=points.frame,
            point=points.point,
            pixel=points.pixel,
        )


def load(path: str | Path) -> Reconstruction:
    """Read what `save` wrote. A damaged or foreign file is a GeometryError."""
    try:
        with np.load(path, allow_pickle=False) as data:
            if int(data["format"]) != FORMAT:
                raise ValueError(f"format {int(data['format'])}, wanted {FORMAT}")
            whole = cameras_from_json(parse_json(str(data["cameras"])))
            points = SparsePoints(data["xyz_world"], data["frame"], data["point"], data["pixel"])
    except Exception as error:  # zip, NumPy and JSON each raise their own kinds for a damaged file
        raise GeometryError(
            f"Cannot read the reconstruction {path}: {error}. Delete it to have it remade."
        ) from error
    return replace(whole, points=points)
