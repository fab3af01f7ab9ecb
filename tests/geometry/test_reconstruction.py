import json
from dataclasses import replace

import numpy as np
import pytest

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import (
    PosedFrame,
    Reconstruction,
    SparsePoints,
    load,
    read_cameras,
    save,
    write_cameras,
)

POSE = CameraPose(np.column_stack([np.eye(3), [1.0, 2, 3]]))
WALK = Reconstruction(
    Camera("RADIAL_FISHEYE", 640, 480, (250.0, 320.0, 240.0, 0.01, -0.002)),
    (
        PosedFrame(0, 0.0, POSE),
        PosedFrame(6, 0.2, None),
        PosedFrame(12, 0.4, POSE),
        PosedFrame(18, 0.6, POSE),
    ),
    "m",
    SparsePoints(
        np.arange(9.0).reshape(3, 3),
        np.array([12, 0, 12]),
        np.array([2, 1, 0]),
        np.array([[5.0, 6], [7, 8], [9, 10]]),
    ),
)


def test_cameras_json_has_the_agreed_shape_and_comes_back(tmp_path):
    path = tmp_path / "cameras.json"
    write_cameras(path, WALK)
    value = json.loads(path.read_text())
    assert set(value) == {"unit", "camera", "frames"}
    assert set(value["camera"]) == {"model", "width", "height", "params"}
    assert value["frames"][1] == {"frame": 6, "time_s": 0.2, "cam_from_world": None}
    assert np.shape(value["frames"][0]["cam_from_world"]) == (3, 4)
    again = read_cameras(path)
    assert (again.camera, again.unit, again.num_posed) == (WALK.camera, "m", 3)
    np.testing.assert_array_equal(again.poses[12].cam_from_world, POSE.cam_from_world)
    limited = replace(WALK, camera=replace(WALK.camera, valid_radius_px=250.0))
    write_cameras(path, limited)
    assert read_cameras(path).camera == limited.camera


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"unit": "ft", "camera": {}, "frames": []}',
        '{"unit": "m", "frames": []}',
        '{"unit": "m", "camera": {"model": "PINHOLE", "width": 4, "height": 3, "params": 1}, "frames": []}',
    ],
)
def test_a_bad_cameras_file_says_what_is_wanted(tmp_path, text):
    path = tmp_path / "cameras.json"
    path.write_text(text)
    with pytest.raises(GeometryError, match="Wanted"):
        read_cameras(path)


def test_bad_poses_and_cameras_in_a_file_keep_their_own_words(tmp_path):
    path = tmp_path / "cameras.json"
    write_cameras(path, WALK)
    value = json.loads(path.read_text())
    value["frames"][0]["cam_from_world"] = [[1, 2], [3, 4]]
    path.write_text(json.dumps(value))
    with pytest.raises(GeometryError, match="3x4"):
        read_cameras(path)
    with pytest.raises(GeometryError, match="Cannot read"):
        read_cameras(tmp_path / "absent.json")


def test_whole_reconstruction_comes_back(tmp_path):
    save(tmp_path / "walk.npz", WALK)
    again = load(tmp_path / "walk.npz")
    np.testing.assert_array_equal(again.points.xyz_world, WALK.points.xyz_world)
    rows, pixels = again.observed_in(12)
    np.testing.assert_array_equal(rows, [2, 0])
    np.testing.assert_array_equal(pixels, [[5, 6], [9, 10]])
    assert again.unit == "m"
    assert len(again.observed_in(6)[0]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["walk.npz"]


def test_damaged_files_are_noticed(tmp_path):
    path = tmp_path / "walk.npz"
    save(path, WALK)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:300] + b"xxxx" + whole[304:]):
        path.write_bytes(content)
        with pytest.raises(GeometryError, match="Delete it"):
            load(path)
    np.savez(path, format=0)
    with pytest.raises(GeometryError, match="format 0"):
        load(path)


def test_nearest_posed_frame():
    assert WALK.nearest_posed(0.21).index == 12
    assert WALK.nearest_posed(0.2).index == 0  # equally far: the earlier one
    assert WALK.nearest_posed(9.0).index == 18
    assert WALK.nearest_posed(1.0, within_s=0.5).index == 18
    assert WALK.nearest_posed(1.0, within_s=0.3) is None


def test_frames_of_another_size_have_another_camera_and_other_pixels():
    """What a point's pixel is in the large frame, resizing gives too; a sideways stretch moves x alone."""
    pose, point = POSE, np.array([[0.3, -0.4, 2.0]])
    lens = Camera("PINHOLE", 640, 480, (500.0, 520.0, 310.0, 250.0))
    for camera in (WALK.camera, lens):
        pixel = camera.project(pose.to_cam(point))
        large = Reconstruction(camera, WALK.frames, "m", SparsePoints(point, *np.zeros((2, 1), int), pixel))
        small = large.resized(320, 240)
        assert (small.camera.width, small.camera.height, small.camera.model) == (320, 240, camera.model)
        np.testing.assert_allclose(small.points.pixel, pixel / 2)
        np.testing.assert_allclose(small.camera.project(pose.to_cam(point)), pixel / 2)
    wide = large.resized(1280, 480)
    np.testing.assert_allclose(wide.points.pixel, pixel * (2, 1))
    assert wide.camera.params == (1000.0, 520.0, 620.0, 250.0)
    assert WALK.camera.resized(1280, 480).focal[0] == 1.5 * WALK.camera.focal[0]  # one focal length: the mean
    assert Reconstruction(WALK.camera, (PosedFrame(0, 0.0, None),)).nearest_posed(0.0) is None


def test_observations_must_fit_together():
    with pytest.raises(GeometryError, match="Observations must be"):
        SparsePoints(np.zeros((1, 3)), np.array([0]), np.array([0, 1]), np.zeros((1, 2)))
    with pytest.raises(GeometryError, match=r"outside 0\.\.0"):
        SparsePoints(np.zeros((1, 3)), np.array([0]), np.array([1]), np.zeros((1, 2)))
    assert Reconstruction(WALK.camera, ()).observed_in(0)[0].shape == (0,)
