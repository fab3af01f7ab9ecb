"""Poses of Project Aria glasses: by the Machine Perception Services (MPS), or by the glasses themselves.

MPS writes `closed_loop_trajectory.csv` (one world), `open_loop_trajectory.csv` (odometry, which drifts) and
semi-dense points; the data set ADT writes `aria_trajectory.csv` in the same form. Gen 2 glasses record
odometry of their own. All are metric; a pose is of the device, on which the calibrated lens sits.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.given import TRAJECTORY, GivenCameras, GivenView
from egohieraloc.geometry.interpolate import TimedPath
from egohieraloc.geometry.reconstruction import SparsePoints
from egohieraloc.types import Floats, Ints
from egohieraloc.vrs import RGB, open_vrs, quarter_turns, quiet

CLOSED_LOOP, OPEN_LOOP, ADT = "closed_loop_trajectory.csv", "open_loop_trajectory.csv", "aria_trajectory.csv"
POINTS = ("semidense_points.csv.gz", "global_points.csv.gz")
VIO = "vio_high_frequency"
# What MPS advises for points that are sure.
MAX_INVERSE_DISTANCE_STD, MAX_DISTANCE_STD = 0.005, 0.01
MIN_QUALITY = 0.1  # of a pose, from 0 to 1
STEP_S = 0.005  # poses come at up to 1 kHz; the head does not need more than 200 a second
_ROTATION_COLUMNS = re.compile(r"q([xyzw])_(world|odometry)_device")


@dataclass(frozen=True, eq=False)
class _Lens:
    """The colour camera of the glasses for upright images, and where it sits."""

    camera: Camera
    device_from_cam: Floats  # (4, 4)


def is_mps_trajectory(head: str) -> bool:
    """Whether the beginning of a file is that of a trajectory of MPS."""
    first = head.splitlines()[0] if head else ""
    return "tracking_timestamp_us" in first and _ROTATION_COLUMNS.search(first) is not None


def find_trajectory(recording: Path) -> Path | None:
    """The closed-loop trajectory that lies beside a recording by convention, else the open-loop one."""
    folder, name = recording.parent, recording.stem
    roots = (folder, folder / "mps", folder / f"mps_{name}_vrs", folder / f"{name}_mps")
    for file in (CLOSED_LOOP, ADT, OPEN_LOOP):
        for root in roots:
            for inner in ("slam", "trajectory", "."):
                if (root / inner / file).is_file():
                    return root / inner / file
    return None


def aria_cameras(recording: Path, device_ns: Ints, trajectory: Path | None = None) -> GivenCameras | None:
    """Poses of the frames captured at `device_ns` (F,), or None where neither file nor recording has any."""
    provider = open_vrs(recording)
    trajectory = trajectory or find_trajectory(recording)
    path = read_mps_trajectory(trajectory) if trajectory else _odometry(provider)
    if path is None:
        return None
    lens = _lens(provider, recording)
    matrices, known = path.at(device_ns / 1e9)
    errors = path.turn_errors_rad(device_ns / 1e9)
    views = tuple(
        GivenView(matrices[frame] @ lens.device_from_cam, frame=frame, turn_error_rad=float(errors[frame]))
        for frame in np.flatnonzero(known).tolist()
    )
    source = f"the trajectory {trajectory}" if trajectory else f"the glasses' own odometry in {recording}"
    if not views:
        raise GeometryError(f"No pose of {source} is of a time of {recording}. Do they belong together?")
    points = (
        read_points(trajectory.parent) if trajectory and trajectory.name == CLOSED_LOOP else SparsePoints()
    )
    return GivenCameras(source, lens.camera, views, "m", TRAJECTORY, points)


def read_mps_trajectory(path: Path) -> TimedPath:
    """World (or odometry) from device, at times of the device's clock."""
    try:
        with path.open(encoding="utf-8") as stream:
            header = stream.readline().strip().split(",")
            column = {re.sub(r"_(world|odometry)_device$", "", key): i for i, key in enumerate(header)}
            names = ["tracking_timestamp_us", "tx", "ty", "tz", "qx", "qy", "qz", "qw", "quality_score"]
            columns = [column[name] for name in names]
            start = stream.tell()
            times_us = [float(line.split(",")[columns[0]]) for line in islice(iter(stream.readline, ""), 2)]
            stream.seek(start)
            step_us = times_us[1] - times_us[0] if len(times_us) > 1 else STEP_S * 1e6
            every = max(1, int(STEP_S * 1e6 / max(step_us, 1.0)))
            rows = np.loadtxt(islice(stream, 0, None, every), delimiter=",", usecols=columns, ndmin=2)
        rows = rows[rows[:, 8] >= MIN_QUALITY] if (rows[:, 8] >= MIN_QUALITY).any() else rows
        matrices = np.tile(np.eye(4), (len(rows), 1, 1))
        matrices[:, :3, :3] = Rotation.from_quat(rows[:, 4:8]).as_matrix()
    except (OSError, ValueError, LookupError, OverflowError) as error:
        raise GeometryError(
            f"Cannot read the trajectory {path}: {type(error).__name__} {error}. Wanted a CSV file of Aria's "
            "MPS, with tracking_timestamp_us, tx_world_device ... and qw_world_device."
        ) from error
    matrices[:, :3, 3] = rows[:, 1:4]
    return TimedPath.sorted(rows[:, 0] / 1e6, matrices)


def read_points(folder: Path) -> SparsePoints:
    """The semi-dense points of a folder, those that are sure. Which frames see them is not in the file."""
    path = next((folder / name for name in POINTS if (folder / name).is_file()), None)
    if path is None:
        return SparsePoints()
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            header = stream.readline().strip().split(",")
            names = ("px_world", "py_world", "pz_world", "inv_dist_std", "dist_std")
            columns = [header.index(name) for name in names]
            rows = np.loadtxt(stream, delimiter=",", usecols=columns, ndmin=2)
    except (OSError, ValueError, EOFError, LookupError, zlib.error) as error:
        raise GeometryError(
            f"Cannot read the points {path}: {error}. Delete the file to go without."
        ) from error
    sure = (rows[:, 3] <= MAX_INVERSE_DISTANCE_STD) & (rows[:, 4] <= MAX_DISTANCE_STD)
    return SparsePoints(rows[sure, :3])


def _odometry(provider: Any) -> TimedPath | None:
    """What the glasses themselves recorded (Gen 2)."""
    with quiet():
        stream = provider.get_stream_id_from_label(VIO)
        if stream is None or not provider.check_stream_is_active(stream):
            return None
        poses = [
            provider.get_vio_high_freq_data_by_index(stream, i) for i in range(provider.get_num_data(stream))
        ]
    times_s = np.array([pose.tracking_timestamp.total_seconds() for pose in poses])
    matrices = np.array([pose.transform_odometry_device.to_matrix() for pose in poses]).reshape(-1, 4, 4)
    return TimedPath.sorted(times_s, matrices) if len(poses) else None


def _lens(provider: Any, recording: Path) -> _Lens:
    calibration = provider.get_device_calibration()
    lens = calibration and calibration.get_camera_calib(RGB)
    if lens is None or lens.get_model_name().name != "FISHEYE624":
        raise GeometryError(f"{recording} holds no calibration of its colour camera by the model FISHEYE624.")
    width, height = (int(side) for side in lens.get_image_size())
    f, cx, cy, *terms = (float(v) for v in lens.get_projection_params())
    # Pixel centres of Project Aria are integers, ours are halves.
    params, radius = (f, f, cx + 0.5, cy + 0.5, *terms), lens.get_valid_radius()
    camera = Camera(
        "RAD_TAN_THIN_PRISM_FISHEYE", width, height, params, None if radius is None else float(radius)
    )
    turns = quarter_turns(provider)
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_euler("z", -90 * turns, degrees=True).as_matrix()  # sensor from upright
    device_from_cam = np.asarray(lens.get_transform_device_camera().to_matrix(), np.float64) @ turn
    return _Lens(camera.turned(turns), device_from_cam)
