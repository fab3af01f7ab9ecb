"""A model of COLMAP, text or binary: cameras, poses by image name, points with where they were seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.config import CameraModel
from egohieraloc.errors import GeometryError
from egohieraloc.files import atomic_folder
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.formats.colmap_files import Model, View, read_files
from egohieraloc.geometry.given import GivenCameras, GivenView
from egohieraloc.geometry.reconstruction import Reconstruction, SparsePoints
from egohieraloc.types import Floats

_FILES = ("cameras", "images", "points3D")


def find_model(folder: Path) -> Path | None:
    """The folder that holds the model: this one, or where COLMAP and its like put it below."""
    for place in (
        folder,
        folder / "0",
        folder / "sparse" / "0",
        folder / "sparse",
        folder / "colmap" / "sparse" / "0",
    ):
        if any(all((place / f"{name}{end}").is_file() for name in _FILES) for end in (".bin", ".txt")):
            return place
    return None


def read_model(folder: Path) -> GivenCameras:
    """Without a scale: COLMAP's unit is its own, unless somebody aligned the model."""
    try:
        model = read_files(folder)
        views = sorted(model.views, key=lambda view: view.name)
        matrices, points = [_matrix(view) for view in views], _points(model, views)
    except (OSError, ValueError, OverflowError) as error:
        raise GeometryError(f"Cannot read the COLMAP model {folder}: {error}.") from error
    return GivenCameras(
        f"the COLMAP model {folder}",
        _camera(folder, model),
        tuple(GivenView(matrix, name=view.name) for matrix, view in zip(matrices, views, strict=True)),
        "sfm",
        points=points,
    )


def _matrix(view: View) -> Floats:
    """Camera from world (4, 4)."""
    w, *xyz = view.quaternion
    if not np.isfinite([*view.quaternion, *view.translation]).all():
        raise ValueError(f"the pose of {view.name} is not finite")
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_quat([*xyz, w]).as_matrix()
    matrix[:3, 3] = view.translation
    return matrix


def _camera(folder: Path, model: Model) -> Camera:
    """One lens for all: the median of the parameters where each image has its own of one model and size."""
    lenses = [
        model.lenses[number] for number in sorted({view.lens for view in model.views} & {*model.lenses})
    ]
    kinds = {(lens.model, lens.width, lens.height, len(lens.params)) for lens in lenses}
    if len(kinds) != 1:
        raise GeometryError(
            f"The model {folder} has cameras of {len(kinds)} kinds; wanted the frames of one video."
        )
    name, width, height, _ = kinds.pop()
    if name not in get_args(CameraModel):
        raise GeometryError(
            f"The model {folder} uses the lens {name}, wanted one of {', '.join(get_args(CameraModel))}. "
            "Convert it with COLMAP's image_undistorter."
        )
    params = np.median([lens.params for lens in lenses], axis=0)
    return Camera(cast(CameraModel, name), width, height, tuple(float(v) for v in params))


def _points(model: Model, views: Sequence[View]) -> SparsePoints:
    numbers = np.array(sorted(model.points), np.int64)
    xyz = np.array([model.points[number] for number in numbers.tolist()], np.float64).reshape(-1, 3)
    known = [np.isin(view.point, numbers) for view in views]
    return SparsePoints(
        xyz,
        np.repeat(np.arange(len(views)), [np.count_nonzero(mask) for mask in known]),
        np.searchsorted(numbers, np.concatenate([v.point[m] for v, m in zip(views, known, strict=True)])),
        np.concatenate([v.pixel[m] for v, m in zip(views, known, strict=True)]).reshape(-1, 2),
    )


def write_model(folder: Path, reconstruction: Reconstruction, names: dict[int, str]) -> None:
    """The three text files, all or none; the points with their tracks where these are known."""
    camera, points = reconstruction.camera, reconstruction.points
    numbers = " ".join(repr(v) for v in camera.params)
    note = f"# unit: {reconstruction.unit}; poses are camera from world, pixel centres are at halves"
    images = [note, "# IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME, then X Y POINT3D_ID ..."]
    tracks: dict[int, list[str]] = {}
    for number, (index, pose) in enumerate(reconstruction.poses.items(), 1):
        quaternion = Rotation.from_matrix(pose.rotation).as_quat()[[3, 0, 1, 2]]
        values = " ".join(repr(float(v)) for v in (*quaternion, *pose.translation))
        images.append(f"{number} {values} 1 {names[index]}")
        seen = []
        for place, (row, (x, y)) in enumerate(zip(*reconstruction.observed_in(index), strict=True)):
            seen.append(f"{float(x)!r} {float(y)!r} {row + 1}")
            tracks.setdefault(int(row), []).append(f"{number} {place}")
        images.append(" ".join(seen))
    cloud = [note, "# POINT3D_ID X Y Z R G B ERROR, then IMAGE_ID POINT2D_IDX ..."]
    for row, xyz in enumerate(points.xyz_world):
        position = " ".join(repr(float(v)) for v in xyz)
        cloud.append(f"{row + 1} {position} 128 128 128 -1 {' '.join(tracks.get(row, []))}".rstrip())
    lens = [note, f"1 {camera.model} {camera.width} {camera.height} {numbers}"]
    with atomic_folder(folder, replaces=[f"{name}.bin" for name in _FILES]) as temporary:
        for name, lines in zip(_FILES, (lens, images, cloud), strict=True):
            (temporary / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
