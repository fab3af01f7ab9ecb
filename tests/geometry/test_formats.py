"""Each format of camera poses: written and read again it is the same, and files in their makers' own form are
read."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from scipy.spatial.transform import Rotation

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import PARAMETER_NAMES, Camera, CameraPose
from egohieraloc.geometry.cameras_from import read_given
from egohieraloc.geometry.formats.colmap import write_model
from egohieraloc.geometry.formats.nerfstudio import write_transforms
from egohieraloc.geometry.formats.trajectory import write_tum
from egohieraloc.geometry.given import FrameTable, matched
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, write_cameras

COUNT = 6
TERMS = {
    "fx": 60.0,
    "fy": 61.0,
    "f": 60.0,
    "cx": 33.0,
    "cy": 23.0,
    "k1": 0.02,
    "k2": -0.01,
    "p1": 1e-3,
    "p2": 2e-3,
}
TABLE = FrameTable(np.arange(COUNT) / 5, tuple(f"{i}.jpg" for i in range(COUNT)))
NAMES = dict(enumerate(TABLE.names))


def lens(model: str) -> Camera:
    return Camera(model, 64, 48, tuple(TERMS.get(name, 1e-3) for name in PARAMETER_NAMES[model]))


def walk(model: str = "OPENCV", unit: str = "m") -> Reconstruction:
    turns = Rotation.from_rotvec(np.random.default_rng(0).normal(0, 0.4, (COUNT, 3)))
    poses = [CameraPose.from_rotation(r.as_matrix(), [0.3 * i, 0.1, -0.2 * i]) for i, r in enumerate(turns)]
    frames = [PosedFrame(i, i / 5, pose) for i, pose in enumerate(poses)]
    points = SparsePoints(
        np.array([[0.0, 0, 3], [0.5, 0.2, 4]]), np.array([0, 0, 2]), np.array([0, 1, 1]),
        np.array([[10.25, 11], [20, 21], [30, 31.5]]),
    )  # fmt: skip
    return Reconstruction(lens(model), (*frames[:4], PosedFrame(4, 0.8, None), frames[5]), unit, points)


def assert_same(found: Reconstruction, expected: Reconstruction, atol: float = 1e-9) -> None:
    assert list(found.poses) == list(expected.poses)
    for index, pose in expected.poses.items():
        np.testing.assert_allclose(found.poses[index].cam_from_world, pose.cam_from_world, atol=atol)
    probe = np.array([[0.1, -0.2, 1.0], [-0.4, 0.3, 2.0]])
    np.testing.assert_allclose(found.camera.project(probe), expected.camera.project(probe), atol=1e-6)
    assert (found.camera.width, found.camera.height) == (expected.camera.width, expected.camera.height)


@pytest.mark.parametrize("model", PARAMETER_NAMES)
def test_colmap_both_ways(tmp_path, model):
    write_model(tmp_path, walk(model), NAMES)
    given = read_given(tmp_path)
    found = matched(given, TABLE)
    assert_same(found, walk(model))
    assert found.camera.model == model
    for index in (0, 2):
        np.testing.assert_array_equal(found.observed_in(index)[1], walk().observed_in(index)[1])
    np.testing.assert_allclose(found.points.xyz_world, walk().points.xyz_world)
    assert (given.unit, "unit: m" in (tmp_path / "images.txt").read_text()) == ("sfm", True)
    assert_same(matched(read_given(tmp_path / "images.txt"), TABLE), walk(model))


@pytest.mark.parametrize("binary", [True, False])
def test_a_model_of_colmaps_own_is_read(tmp_path, binary):
    model = pycolmap.synthesize_dataset(
        pycolmap.SyntheticDatasetOptions(num_points3D=40, num_frames_per_rig=4)
    )
    folder = tmp_path / "sparse" / "0"
    folder.mkdir(parents=True)
    model.write_binary(folder) if binary else model.write_text(folder)
    given = read_given(tmp_path)
    assert len(given.views) == model.num_reg_images() >= 4
    images = {image.name: image for image in model.images.values()}
    for row, view in enumerate(given.views):
        image = images[view.name]
        pose = given.convention.pose(view.matrix)
        np.testing.assert_allclose(pose.cam_from_world, image.cam_from_world().matrix(), atol=1e-9)
        seen = given.points.frame == row
        projected = given.camera.project(pose.to_cam(given.points.xyz_world[given.points.point[seen]]))
        np.testing.assert_allclose(projected, given.points.pixel[seen], atol=1e-3)
        assert seen.sum() == image.num_points3D


@pytest.mark.parametrize("name", ["cameras", "images", "points3D"])
def test_a_model_that_claims_more_than_it_holds(tmp_path, name):
    """COLMAP's own reader would read on for ever."""
    write_model(tmp_path, walk(), NAMES)
    pycolmap.Reconstruction(str(tmp_path)).write_binary(str(tmp_path))
    path = tmp_path / f"{name}.bin"
    whole = path.read_bytes()
    for bad in ((2**60).to_bytes(8, "little") + whole[8:], whole[:-1], whole[:4], b""):
        path.write_bytes(bad)
        with pytest.raises(GeometryError, match="Cannot read the COLMAP model"):
            read_given(tmp_path)


@pytest.mark.parametrize("model", [m for m in PARAMETER_NAMES if m != "RAD_TAN_THIN_PRISM_FISHEYE"])
@pytest.mark.parametrize("unit", ["m", "sfm"])
def test_nerfstudio_both_ways(tmp_path, model, unit):
    write_transforms(tmp_path / "transforms.json", walk(model, unit), NAMES)
    given = read_given(tmp_path)
    assert_same(matched(given, TABLE), walk(model))
    assert given.unit == unit


def test_nerfstudio_has_no_aria_lens(tmp_path):
    with pytest.raises(GeometryError, match="--to colmap"):
        write_transforms(tmp_path / "transforms.json", walk("RAD_TAN_THIN_PRISM_FISHEYE"), NAMES)
    assert not list(tmp_path.iterdir())


def test_transforms_with_a_lens_for_each_image_and_blenders(tmp_path):
    """A camera one metre up that looks north along +y: OpenGL's -z is y, its y is up."""
    matrix = [[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 1], [0, 0, 0, 1]]
    frames = [{"file_path": f"images/{i}.jpg", "transform_matrix": matrix} for i in range(3)]
    each = [{"fl_x": 50.0 + i, "fl_y": 50.0 + i, "cx": 32, "cy": 24, "w": 64, "h": 48} for i in range(3)]
    path = tmp_path / "transforms.json"
    path.write_text(json.dumps({"frames": [f | e for f, e in zip(frames, each, strict=True)]}))
    found = matched(read_given(path), TABLE)
    assert found.camera.params == (51.0, 51.0, 32.0, 24.0)
    np.testing.assert_allclose(found.poses[1].to_cam([0, 5.0, 1]), [0, 0, 5], atol=1e-12)
    np.testing.assert_allclose(found.poses[1].to_cam([0, 5.0, 2]), [0, -1, 5], atol=1e-12)  # up is -y
    path.write_text(json.dumps({"camera_angle_x": np.pi / 2, "w": 64, "h": 48, "frames": frames}))
    assert read_given(path).camera.params == pytest.approx((32.0, 32.0, 32.0, 24.0))
    path.write_text(json.dumps({"camera_model": "EQUIRECTANGULAR", "frames": [frames[0] | each[0]]}))
    with pytest.raises(GeometryError, match="EQUIRECTANGULAR"):
        read_given(path)
    path.write_text(json.dumps({"frames": frames}))
    with pytest.raises(GeometryError, match="fl_x"):
        read_given(path)


def test_tum_both_ways(tmp_path):
    write_tum(tmp_path / "walk.txt", walk())
    (tmp_path / "intrinsics.json").write_text(
        json.dumps({"width": 64, "height": 48} | {k: v for k, v in TERMS.items() if k != "f"})
    )
    given = read_given(tmp_path / "walk.txt")
    assert given.unit == "m"
    found = matched(given, FrameTable(np.arange(4) / 5))
    expected = walk().at_frames(np.arange(4))
    assert_same(found, expected, atol=1e-7)
    (tmp_path / "intrinsics.json").unlink()
    with pytest.raises(GeometryError, match="--intrinsics FILE"):
        read_given(tmp_path / "walk.txt")
    (tmp_path / "lens.txt").write_text("64 48 60 61 33 23\n")
    assert read_given(tmp_path / "walk.txt", tmp_path / "lens.txt").camera.params == (60.0, 61.0, 33.0, 23.0)
    (tmp_path / "walk.txt").write_text("# t x y z q\n0.0 1 2 3 0 0 0 1\n0.2 1 2 3 0 0 zero 1\n")
    with pytest.raises(GeometryError, match="Line 3"):
        read_given(tmp_path / "walk.txt", tmp_path / "lens.txt")


EUROC = """#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z []
1403636580838555648,4.6,-1.7,0.8,0.7071067811865476,0,0,0.7071067811865476,0.1,0.2
1403636580888555648,4.6,-1.8,0.8,0.7071067811865476,0,0,0.7071067811865476,0.1,0.2
"""
SENSOR = """sensor_type: camera
T_BS:
  cols: 4
  rows: 4
  data: [0.0, 0.0, 1.0, 0.1,
        -1.0, 0.0, 0.0, 0.2,
         0.0, -1.0, 0.0, 0.3,
         0.0, 0.0, 0.0, 1.0]
rate_hz: 20
resolution: [752, 480]
camera_model: pinhole
intrinsics: [458.654, 457.296, 367.215, 248.375] #fu, fv, cu, cv
distortion_model: radial-tangential
distortion_coefficients: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]
"""


def test_euroc_has_a_camera_on_a_body(tmp_path):
    """The body looks along its x; turned by 90 degrees about z it looks along y."""
    (tmp_path / "cam0").mkdir()
    (tmp_path / "state_groundtruth_estimate0").mkdir()
    (tmp_path / "cam0" / "sensor.yaml").write_text(SENSOR)
    path = tmp_path / "state_groundtruth_estimate0" / "data.csv"
    path.write_text(EUROC)
    given = read_given(path)
    assert given.camera.model == "OPENCV"
    assert given.camera.params[2:5] == (367.715, 248.875, -0.28340811)
    names = ("1403636580838555648.png", "1403636580888555648.png")
    found = matched(given, FrameTable(np.array([0.0, 0.05]), names))
    np.testing.assert_allclose(found.poses[0].center_world, [4.6 - 0.2, -1.7 + 0.1, 0.8 + 0.3], atol=1e-6)
    np.testing.assert_allclose(found.poses[0].rays_world([0, 0, 1.0]), [0, 1, 0], atol=1e-9)
    fisheye = SENSOR.replace("radial-tangential", "equidistant")
    (tmp_path / "cam0" / "sensor.yaml").write_text(fisheye)
    assert read_given(path).camera.model == "OPENCV_FISHEYE"
    (tmp_path / "cam0" / "sensor.yaml").write_text(SENSOR.replace("radial-tangential", "omni"))
    with pytest.raises(GeometryError, match="omni"):
        read_given(path)


def record3d() -> dict:
    """Two images of a phone that stands at (1, 2, 3) and then half a metre further along its view."""
    return {
        "w": 72, "h": 96, "K": [80.0, 0, 0, 0, 81.0, 0, 36.0, 48.0, 1.0], "fps": 30,
        "poses": [[0, 0, 0, 1, 1, 2, 3], [0, 0, 0, 1, 1, 2, 2.5]],
    }  # fmt: skip


@pytest.mark.parametrize("packed", [True, False])
def test_record3d(tmp_path, packed):
    path = tmp_path / ("walk.r3d" if packed else "metadata.json")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("metadata", json.dumps(record3d()))
    else:
        path.write_text(json.dumps(record3d()))
    given = read_given(path if packed else tmp_path)
    assert (given.unit, given.camera.params) == ("m", (80.0, 81.0, 36.0, 48.0))
    found = matched(given, FrameTable(np.arange(2) / 30, ("0.jpg", "1.jpg")))
    np.testing.assert_allclose(found.poses[1].center_world, [1, 2, 2.5])
    np.testing.assert_allclose(found.poses[0].to_cam(found.poses[1].center_world), [0, 0, 0.5], atol=1e-12)
    (tmp_path / "metadata.json").write_text("{}")
    with pytest.raises(GeometryError, match="Wanted K, w, h, poses"):
        read_given(tmp_path / "metadata.json")


def test_polycam(tmp_path):
    folder = tmp_path / "keyframes" / "corrected_cameras"
    folder.mkdir(parents=True)
    for name, x in (("100", 0.0), ("200", 0.5)):
        matrix = {f"t_{r}{c}": float(r == c) for r in range(3) for c in range(4)} | {"t_03": x}
        lens_of = {"fx": 70.0, "fy": 70.0, "cx": 32, "cy": 24, "width": 64, "height": 48}
        (folder / f"{name}.json").write_text(json.dumps(matrix | lens_of))
    found = matched(read_given(tmp_path), FrameTable(np.arange(2.0), ("100.jpg", "200.jpg")))
    np.testing.assert_allclose(found.poses[1].center_world, [0.5, 0, 0])
    np.testing.assert_allclose(found.poses[0].rays_world([0, 0, 1.0]), [0, 0, -1])


def test_stray_scanner(tmp_path):
    (tmp_path / "camera_matrix.csv").write_text("700,0,480\n0,700,360\n0,0,1\n")
    (tmp_path / "odometry.csv").write_text(
        "timestamp, frame, x, y, z, qx, qy, qz, qw\n"
        "1.0, 000000, 0, 0, 0, 0, 0, 0, 1\n1.1, 000003, 0, 0, 2, 0, 0, 0, 1\n"
    )
    found = matched(read_given(tmp_path), FrameTable(np.arange(5) / 60))
    assert (list(found.poses), found.camera.width, found.camera.height) == ([0, 3], 960, 720)
    np.testing.assert_allclose(found.poses[3].center_world, [0, 0, 2])


def test_our_own_file_and_what_is_none(tmp_path):
    write_cameras(tmp_path / "cameras.json", walk(unit="sfm"))
    given = read_given(tmp_path / "cameras.json")
    assert given.unit == "sfm"
    assert_same(matched(given, TABLE), walk())
    (tmp_path / "notes.txt").write_text("nothing of the kind\n")
    for path in (tmp_path / "notes.txt", tmp_path / "absent"):
        with pytest.raises(GeometryError, match=r"cameras\.json, a COLMAP model"):
            read_given(path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(GeometryError, match="holds no camera poses"):
        read_given(empty)


def test_damaged_files_are_errors_of_ours(tmp_path):
    write_model(tmp_path / "model", walk(), NAMES)
    (tmp_path / "model" / "images.txt").write_text("1 0.5 nonsense\n")
    with pytest.raises(GeometryError, match="COLMAP model"):
        read_given(tmp_path / "model")
    for name, text in (
        ("metadata.json", '{"K": 3}'),
        ("bad.json", "{"),
        ("transforms.json", '{"frames": 3}'),
    ):
        path: Path = tmp_path / name
        path.write_text(text)
        with pytest.raises(GeometryError):
            read_given(path)
