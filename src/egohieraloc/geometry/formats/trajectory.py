"""Trajectories of SLAM systems: TUM's lines `time x y z qx qy qz qw` and EuRoC's CSV in nanoseconds.

They hold no lens: it comes from a file beside them or one that is given.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.errors import GeometryError
from egohieraloc.files import atomic_path
from egohieraloc.geometry.formats.intrinsics import find_intrinsics
from egohieraloc.geometry.given import TRAJECTORY, GivenCameras, GivenView
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.types import Floats

_NUMBERS = re.compile(r"[\s,]+")


def is_trajectory(head: str) -> bool:
    """Whether the beginning of a text file reads like one: eight numbers or more, a unit quaternion last."""
    rows = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not rows:
        return False
    try:
        values = [float(word) for word in _NUMBERS.split(rows[0].strip().strip(","))]
    except ValueError:
        return False
    return len(values) >= 8 and bool(abs(np.linalg.norm(values[4:8]) - 1) < 1e-2)


def read_trajectory(path: Path, intrinsics: Path | None = None) -> GivenCameras:
    """Poses of the camera (TUM), or of a body that carries it (EuRoC, where the lens's file says how)."""
    euroc = _is_euroc(path)
    times_s, matrices = _read_euroc(path) if euroc else _read_tum(path)
    mount = find_intrinsics(path, intrinsics)
    views = tuple(
        GivenView(matrix @ mount.body_from_cam, time_s=time_s)
        for time_s, matrix in zip(times_s.tolist(), matrices, strict=True)
    )
    kind = "EuRoC" if euroc else "TUM"
    return GivenCameras(f"the {kind} trajectory {path}", mount.camera, views, "m", TRAJECTORY)


def _is_euroc(path: Path) -> bool:
    """Nanoseconds, commas, and the quaternion's w first."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            first = line.split(",")[0].strip()
            return "," in line and first.isdecimal() and len(first) > 14
    return False


def _rows(path: Path) -> Floats:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rows.append([float(word) for word in _NUMBERS.split(line.strip().strip(","))[:8]])
        except ValueError as error:
            raise GeometryError(f"Line {number} of {path} should hold numbers only: {error}.") from error
        if len(rows[-1]) < 8 or not np.isfinite(rows[-1]).all() or not any(rows[-1][4:8]):
            raise GeometryError(
                f"Line {number} of {path} should hold a time, a position and a quaternion (8 numbers)."
            )
    return np.array(rows, np.float64).reshape(-1, 8)


def _read_tum(path: Path) -> tuple[Floats, Floats]:
    rows = _rows(path)
    return rows[:, 0], _matrices(rows[:, 1:4], rows[:, 4:8])


def _read_euroc(path: Path) -> tuple[Floats, Floats]:
    rows = _rows(path)
    return rows[:, 0] * 1e-9, _matrices(rows[:, 1:4], rows[:, [5, 6, 7, 4]])


def _matrices(positions: Floats, quaternions_xyzw: Floats) -> Floats:
    matrices = np.tile(np.eye(4), (len(positions), 1, 1))
    if len(positions):
        matrices[:, :3, :3] = Rotation.from_quat(quaternions_xyzw).as_matrix()
        matrices[:, :3, 3] = positions
    return matrices


def write_tum(path: Path, reconstruction: Reconstruction) -> None:
    """Every posed frame at its time in the video."""
    lines = [
        f"# unit: {reconstruction.unit}; time_s x y z qx qy qz qw: world from camera, "
        "camera axes x right, y down, z forward"
    ]
    for frame in reconstruction.frames:
        if frame.pose is None:
            continue
        quaternion = Rotation.from_matrix(frame.pose.rotation.T).as_quat()
        numbers = (frame.time_s, *frame.pose.center_world, *quaternion)
        lines.append(" ".join(f"{value:.9g}" for value in numbers))
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
