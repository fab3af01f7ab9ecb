"""A model of COLMAP, text or binary: cameras, poses by image name, points with where they were seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.config import CameraModel
from egohieraloc.errors import GeometryError
from egohieraloc.files import atomic_folder
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.given import GivenCameras, GivenView
from egohieraloc.geometry.reconstruction import Reconstruction, SparsePoints

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
    import pycolmap

    try:
        model = pycolmap.Reconstruction(str(folder))
    except Exception as error:  # COLMAP raises its own kinds for damaged files
        raise GeometryError(f"Cannot read the COLMAP model {folder}: {error}.") from error
    images = sorted(
        (image for image in model.images.values() if image.has_pose), key=lambda image: str(image.name)
    )
    views = tuple(
        GivenView(np.vstack([image.cam_from_world().matrix(), [0, 0, 0, 1.0]]), name=str(image.name))
        for image in images
    )
    return GivenCameras(
        f"the COLMAP model {folder}",
        _camera(folder, model, images),
        views,
        "sfm",
        points=_points(model, images),
    )


def _camera(folder: Path, model: Any, images: list[Any]) -> Camera:
    """One lens for all: the median of the parameters where each image has its own of one model and size."""
    lenses = [model.cameras[number] for number in sorted({image.camera_id for image in images})]
    kinds = {(lens.model.name, lens.width, lens.height) for lens in lenses}
    if len(kinds) != 1:
        raise GeometryError(
            f"The model {folder} has cameras of {len(kinds)} kinds; wanted the frames of one video."
        )
    name, width, height = kinds.pop()
    if name not in get_args(CameraModel):
        raise GeometryError(
            f"The model {folder} uses the lens {name}, wanted one of {', '.join(get_args(CameraModel))}. "
            "Convert it with COLMAP's image_undistorter."
        )
    params = np.median([lens.params for lens in lenses], axis=0)
    return Camera(name, int(width), int(height), tuple(float(v) for v in params))


def _points(model: Any, images: list[Any]) -> SparsePoints:
    numbers = sorted(model.points3D)
    row_of_point = {number: row for row, number in enumerate(numbers)}
    xyz = np.array([model.points3D[number].xyz for number in numbers], np.float64).reshape(-1, 3)
    view, point, pixel = [], [], []
    for row, image in enumerate(images):
        for seen in image.points2D:
            if seen.has_point3D():
                view.append(row)
                point.append(row_of_point[seen.point3D_id])
                pixel.append(seen.xy)
    return SparsePoints(
        xyz, np.array(view, np.int64), np.array(point, np.int64), np.array(pixel, np.float64).reshape(-1, 2)
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
