"""Camera poses as a device or another program gives them, and which frames of the video they belong to.

A pose belongs to a frame of the same name, or to a moment: then the poses around the frame's time are
interpolated. V is the number of poses, F of frames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.interpolate import TOLERANCE_S, TimedPath
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.types import Floats

_SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))  # numbers above which they count smaller units
FLIP = np.diag([1.0, -1.0, -1.0])  # OpenGL's camera axes (x right, y up, z backward) to ours, and back


class Convention(NamedTuple):
    """What a 3x4 matrix of a file means."""

    axes: Literal["OpenCV", "OpenGL"]  # of the camera
    direction: Literal["world from camera", "camera from world"]

    def pose(self, matrix: Floats) -> CameraPose:
        """The pose that a matrix (3 or 4, 4) of this convention says."""
        rotation, translation = matrix[:3, :3], matrix[:3, 3]
        if self.direction == "world from camera":
            rotation, translation = rotation.T, -rotation.T @ translation
        if self.axes == "OpenGL":
            rotation, translation = FLIP @ rotation, FLIP @ translation
        return CameraPose.from_rotation(rotation, translation)

    def matrix(self, pose: CameraPose) -> Floats:
        """The other way: 4x4."""
        rotation, translation = pose.rotation, pose.translation
        if self.axes == "OpenGL":
            rotation, translation = FLIP @ rotation, FLIP @ translation
        if self.direction == "world from camera":
            rotation, translation = rotation.T, -rotation.T @ translation
        return np.vstack([np.column_stack([rotation, translation]), [0.0, 0.0, 0.0, 1.0]])

    def __str__(self) -> str:
        return f"{self.direction}, {self.axes} axes"


OURS = Convention("OpenCV", "camera from world")
TRAJECTORY = Convention("OpenCV", "world from camera")  # TUM, EuRoC, most SLAM systems
OPENGL = Convention("OpenGL", "world from camera")  # nerfstudio, ARKit


@dataclass(frozen=True, eq=False)
class GivenView:
    """One matrix of a file: of a numbered frame, of a named image, or of a moment."""

    matrix: Floats  # (3 or 4, 4), of the file's convention
    frame: int | None = None
    name: str | None = None
    time_s: float | None = None
    turn_error_rad: float = 0.0  # of the direction it looks in, where it was interpolated


@dataclass(frozen=True, eq=False)
class GivenCameras:
    """What a file of camera poses holds. `points.frame` counts views."""

    source: str  # what was read, such as "the COLMAP model sparse/0"
    camera: Camera
    views: tuple[GivenView, ...]
    unit: Literal["m", "sfm"]
    convention: Convention = OURS
    points: SparsePoints = field(default_factory=SparsePoints)

    def __post_init__(self) -> None:
        if not self.views:
            raise GeometryError(f"There is no camera pose in {self.source}.")


@dataclass(frozen=True, eq=False)
class FrameTable:
    """What is known of a video's frames: names where it is a folder of images, and times (F,)."""

    times_s: Floats
    names: tuple[str, ...] = ()

    def clocks(self) -> list[Floats]:
        """Times of the frames (F,) by each clock that may be meant: the video's, and that of images which
        are called by their time."""
        named = [time_in_name(name) for name in self.names]
        if not named or None in named:
            return [self.times_s]
        return [self.times_s, np.array(named, np.float64)]


def time_in_name(name: str) -> float | None:
    """Seconds, where a file is called by a number of them, or of milli-, micro- or nanoseconds since 1970."""
    try:
        value = float(Path(name).stem)
    except ValueError:
        return None
    scale = next((scale for least, scale in _SINCE_1970 if value >= least), 1.0)
    return value * scale if math.isfinite(value) else None


def matched(given: GivenCameras, frames: FrameTable) -> Reconstruction:
    """The poses of a video's frames: a `Reconstruction` with a row for every frame."""
    if given.views[0].time_s is None:
        frame_of_view = _by_name_or_number(given, frames.names, len(frames.times_s))
        poses = {frame: _pose(given, given.views[view]) for view, frame in frame_of_view.items()}
        points = _renumbered(given.points, frame_of_view)
    else:
        poses, points = _by_time(given, frames), given.points
    rows = tuple(PosedFrame(i, float(t), poses.get(i)) for i, t in enumerate(frames.times_s))
    return Reconstruction(given.camera, rows, given.unit, points)


def _pose(given: GivenCameras, view: GivenView) -> CameraPose:
    return replace(given.convention.pose(view.matrix), turn_error_rad=view.turn_error_rad)


def _by_name_or_number(given: GivenCameras, names: Sequence[str], count: int) -> dict[int, int]:
    """Frame number of each view that belongs to one."""
    frame: int | None
    by_name = {name: i for i, name in enumerate(names)} | {Path(name).stem: i for i, name in enumerate(names)}
    found: dict[int, int] = {}
    for row, view in enumerate(given.views):
        path = Path(view.name or "")
        if view.frame is not None:
            frame = view.frame if view.frame < count else None
        elif names:
            frame = by_name.get(path.name, by_name.get(path.stem))
        else:
            frame = int(path.stem) if path.stem.isdecimal() and int(path.stem) < count else None
        if frame is not None:
            found[row] = frame
    if not found:
        wanted = f"images such as {names[0]}" if names else f"frame numbers from 0 to {count - 1}"
        raise GeometryError(
            f"No pose in {given.source} belongs to a frame: the first is of "
            f"{given.views[0].name or given.views[0].frame!r}, wanted {wanted}. "
            "Give the folder of images that the poses were made for as the video."
        )
    return found


def _renumbered(points: SparsePoints, frame_of_view: dict[int, int]) -> SparsePoints:
    kept = np.isin(points.frame, list(frame_of_view))
    frame = np.array([frame_of_view[view] for view in points.frame[kept].tolist()], np.int64)
    return SparsePoints(points.xyz_world, frame, points.point[kept], points.pixel[kept])


def _by_time(given: GivenCameras, frames: FrameTable) -> dict[int, CameraPose]:
    times_s = np.array([view.time_s for view in given.views], np.float64)
    poses = [TRAJECTORY.matrix(given.convention.pose(view.matrix)) for view in given.views]
    path = TimedPath.sorted(times_s, np.array(poses))
    clocks = frames.clocks()
    reached = [_near(times_s, clock) for clock in clocks]
    best = max(range(len(clocks)), key=lambda i: reached[i])  # the first of equals
    if reached[best] == 0:
        raise GeometryError(
            f"No pose in {given.source} belongs to a frame: it runs from {times_s.min():.3f} to "
            f"{times_s.max():.3f} s, the video from {clocks[0][0]:.3f} to {clocks[0][-1]:.3f} s. Give "
            "--time-offset, the time of the poses' clock at the start of the video."
        )
    matrices, known = path.at(clocks[best])
    errors = path.turn_errors_rad(clocks[best])
    return {
        index: replace(TRAJECTORY.pose(matrices[index]), turn_error_rad=float(errors[index]))
        for index in np.flatnonzero(known).tolist()
    }


def _near(times_s: Floats, clock: Floats) -> int:
    return int(((clock >= times_s.min() - TOLERANCE_S) & (clock <= times_s.max() + TOLERANCE_S)).sum())


def gaps(reconstruction: Reconstruction) -> str:
    """In words: how many frames have a pose, and the longest stretch without one."""
    frames = reconstruction.frames
    words = f"{reconstruction.num_posed} of {len(frames)} frames have a camera pose"
    longest, start, begun = 0.0, 0.0, math.nan
    for frame in frames:
        if frame.pose is not None:
            begun = math.nan
        elif math.isnan(begun):
            begun = frame.time_s
        if frame.time_s - begun > longest:
            longest, start = frame.time_s - begun, begun
    return words if longest == 0 else f"{words}; none for {longest:.1f} s from {start:.1f} s on"


def fitted_to(camera: Camera, width: int, height: int) -> Camera:
    """The camera for frames of this size."""
    if abs(camera.width * height - camera.height * width) > 0.01 * camera.width * height:
        raise GeometryError(
            f"The camera is for images of {camera.width}x{camera.height}, the video has {width}x{height}: "
            "not the same shape. Give the intrinsics of the video's own images."
        )
    return camera if (camera.width, camera.height) == (width, height) else camera.resized(width, height)
