"""Camera poses from any file or folder that holds some; its format is recognised by its content."""

from __future__ import annotations

from pathlib import Path

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.formats.colmap import find_model, read_model
from egohieraloc.geometry.formats.nerfstudio import is_transforms, load_json, read_transforms
from egohieraloc.geometry.formats.phones import find_phone_export
from egohieraloc.geometry.formats.trajectory import is_trajectory, read_trajectory
from egohieraloc.geometry.given import GivenCameras, GivenView
from egohieraloc.geometry.reconstruction import Reconstruction, read_cameras

KNOWN = (
    "cameras.json, a COLMAP model, nerfstudio's transforms.json, a TUM or EuRoC trajectory, an export of "
    "Record3D, Polycam or Stray Scanner, or with its recording a trajectory of Project Aria"
)


def read_given(path: Path, intrinsics: Path | None = None) -> GivenCameras:
    """What a file or folder holds. `intrinsics` is for trajectories, which have no lens."""
    if not path.exists():
        raise GeometryError(f"There are no camera poses at {path}. Give {KNOWN}.")
    of_colmap = path.stem in ("cameras", "images") and path.suffix in (".txt", ".bin")
    if (path.is_dir() or of_colmap) and (model := find_model(path if path.is_dir() else path.parent)):
        return read_model(model)
    for name in ("transforms.json", "cameras.json"):
        if path.is_dir() and (path / name).is_file():
            path = path / name
    if (phone := find_phone_export(path)) is not None:
        return phone()
    if path.is_dir():
        raise GeometryError(f"{path} holds no camera poses that are known here. Give {KNOWN}.")
    head = path.open("rb").read(4096).decode("utf-8", errors="replace").lstrip("\ufeff")
    if head.lstrip().startswith("{"):
        value = load_json(path)
        return read_transforms(path, value) if is_transforms(value) else from_reconstruction(path)
    if is_trajectory(head):
        return read_trajectory(path, intrinsics)
    raise GeometryError(f"{path} holds no camera poses that are known here. Give {KNOWN}.")


def from_reconstruction(path: Path) -> GivenCameras:
    """Our own cameras.json."""
    return as_given(read_cameras(path), f"the file {path}")


def as_given(known: Reconstruction, source: str) -> GivenCameras:
    """Its poses by frame number."""
    views = tuple(GivenView(pose.cam_from_world, frame=index) for index, pose in known.poses.items())
    return GivenCameras(source, known.camera, views, known.unit)
