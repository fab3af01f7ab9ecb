"""Recordings of phones that know their pose (ARKit): exports of Record3D, Polycam and Stray Scanner.

Positions are metric. ARKit's camera axes are OpenGL's, but Stray Scanner writes OpenCV's.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.documents import MAX_BYTES, parse_json, read_json
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.given import OPENGL, TRAJECTORY, GivenCameras, GivenView
from egohieraloc.types import Floats

_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),  # of archives
)


def find_phone_export(path: Path) -> Callable[[], GivenCameras] | None:
    """What reads this export, or None where it is none."""
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".r3d" or path.name in ("metadata", "metadata.json"):
        return lambda: read_record3d(path)
    for name in ("metadata.json", "metadata"):
        if path.is_dir() and (path / name).is_file():
            return lambda: read_record3d(path / name)
    if path.name == "odometry.csv" or (path.is_dir() and (path / "odometry.csv").is_file()):
        return lambda: read_stray_scanner(folder)
    for inner in ("keyframes/corrected_cameras", "keyframes/cameras", "corrected_cameras", "cameras"):
        if path.is_dir() and any((path / inner).glob("*.json")):
            return lambda: read_polycam(path / inner)
    return None


def read_record3d(path: Path) -> GivenCameras:
    """`metadata` of an .r3d file or of an export: K by columns, poses qx qy qz qw x y z, one per image."""
    try:
        value = parse_json(_metadata(path))
        matrix = np.array(value["K"], np.float64).reshape(3, 3).T
        poses = np.array(value["poses"], np.float64).reshape(-1, 7)
        lens = (matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2])
        camera = Camera("PINHOLE", int(value["w"]), int(value["h"]), tuple(float(v) for v in lens))
        matrices = _matrices(poses[:, 4:], poses[:, :4])
    except _UNREADABLE as error:
        raise GeometryError(
            f"Cannot read the Record3D export {path}: {type(error).__name__} {error}. Wanted K, w, h, poses."
        ) from error
    views = tuple(GivenView(matrix, name=str(i)) for i, matrix in enumerate(matrices))
    return GivenCameras(f"the Record3D export {path}", camera, views, "m", OPENGL)


def _metadata(path: Path) -> str:
    if path.suffix != ".r3d":
        return path.read_text(encoding="utf-8")
    with zipfile.ZipFile(path) as archive, archive.open("metadata") as member:
        return member.read(MAX_BYTES + 1).decode("utf-8")  # one too many is refused, whatever it unpacks to


def read_stray_scanner(folder: Path) -> GivenCameras:
    """`odometry.csv` (timestamp, frame, x, y, z, qx, qy, qz, qw) and `camera_matrix.csv`."""
    try:
        matrix = np.loadtxt(folder / "camera_matrix.csv", delimiter=",").reshape(3, 3)
        with (folder / "odometry.csv").open(encoding="utf-8", newline="") as stream:
            rows = [
                {key.strip(): v for key, v in row.items() if key}
                for row in csv.DictReader(stream, skipinitialspace=True)
            ]
        positions = np.array([[float(row[key]) for key in "xyz"] for row in rows])
        turns = np.array([[float(row[key]) for key in ("qx", "qy", "qz", "qw")] for row in rows])
        names = [str(int(row["frame"])) for row in rows]
        # The file does not give the size: the principal point is within a percent of the middle.
        width, height = 2 * round(matrix[0, 2]), 2 * round(matrix[1, 2])
        lens = (matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2])
        camera = Camera("PINHOLE", width, height, tuple(float(v) for v in lens))
        matrices = _matrices(positions, turns)
    except _UNREADABLE as error:
        raise GeometryError(f"Cannot read the Stray Scanner export {folder}: {error}.") from error
    views = tuple(GivenView(matrix, name=name) for matrix, name in zip(matrices, names, strict=True))
    return GivenCameras(f"the Stray Scanner export {folder}", camera, views, "m", TRAJECTORY)


def read_polycam(folder: Path) -> GivenCameras:
    """One JSON per image, of the image's name: fx, fy, cx, cy, width, height and t_00 to t_23."""
    views, lenses, sizes = [], [], set()
    for path in sorted(folder.glob("*.json")):
        try:
            value = read_json(path)
            top = [[float(value[f"t_{row}{column}"]) for column in range(4)] for row in range(3)]
            lenses.append([float(value[key]) for key in ("fx", "fy", "cx", "cy")])
            sizes.add((int(value["width"]), int(value["height"])))
        except _UNREADABLE as error:
            raise GeometryError(f"Cannot read {path} of a Polycam export: {error}.") from error
        views.append(GivenView(np.array([*top, [0, 0, 0, 1.0]]), name=path.stem))
    if len(sizes) != 1:
        raise GeometryError(f"The images of {folder} have {len(sizes)} sizes; wanted one.")
    width, height = sizes.pop()
    camera = Camera("PINHOLE", width, height, tuple(float(v) for v in np.median(lenses, axis=0)))
    return GivenCameras(f"the Polycam export {folder}", camera, tuple(views), "m", OPENGL)


def _matrices(positions: Floats, quaternions_xyzw: Floats) -> Any:
    matrices = np.tile(np.eye(4), (len(positions), 1, 1))
    matrices[:, :3, :3] = Rotation.from_quat(quaternions_xyzw).as_matrix()
    matrices[:, :3, 3] = positions
    return matrices
