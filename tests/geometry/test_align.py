import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.align import (
    Sim3,
    align,
    align_to_positions,
    down_direction,
    fit_sim3,
    read_positions,
    scale_by_camera_height,
    scale_by_length,
)
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
TRUTH = Sim3(
    2.5, Rotation.from_euler("xyz", [20, -70, 110], degrees=True).as_matrix(), np.array([1.0, -4, 7])
)


def random_walk(count: int = 12) -> Reconstruction:
    generator = np.random.default_rng(0)
    rotations = Rotation.random(count, random_state=1).as_matrix()
    frames = tuple(
        PosedFrame(10 * i, i / 5, CameraPose.from_rotation(rotations[i], generator.normal(size=3)))
        for i in range(count)
    )
    frames += (PosedFrame(10 * count, count / 5, None),)
    points = generator.normal(size=(30, 3))
    return Reconstruction(CAMERA, frames, "sfm", SparsePoints(points))


def level_walk(yaw_deg: np.ndarray, pitch_deg: float = 20.0) -> Reconstruction:
    """Cameras 1 unit above a floor at y = 0.5 (y down), looking around and down."""
    poses = [
        Rotation.from_euler("YX", [yaw, -pitch_deg], degrees=True).as_matrix().T for yaw in yaw_deg
    ]  # world_from_cam transposed
    frames = tuple(
        PosedFrame(i, i / 5, CameraPose.from_rotation(r, -r @ np.array([0.1 * i, -0.5, 0.0])))
        for i, r in enumerate(poses)
    )
    generator = np.random.default_rng(0)
    floor = generator.uniform((-3, 0.5, -3), (3, 0.5, 3), (200, 3))
    objects = generator.uniform((-3, -1, -3), (3, 0.5, 3), (200, 3))
    return Reconstruction(CAMERA, frames, "sfm", SparsePoints(np.concatenate([floor, objects])))


def test_sim3_is_recovered_exactly():
    source = np.random.default_rng(0).normal(size=(5, 3))
    fitted = fit_sim3(source, TRUTH.points(source))
    assert fitted.scale == pytest.approx(2.5)
    np.testing.assert_allclose(fitted.rotation, TRUTH.rotation, atol=1e-12)
    np.testing.assert_allclose(fitted.translation, TRUTH.translation, atol=1e-12)


def test_the_inverse_leads_back():
    points = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(TRUTH.inverse().points(TRUTH.points(points)), points, atol=1e-12)
    np.testing.assert_allclose(TRUTH.points(TRUTH.inverse().points(points)), points, atol=1e-12)


def test_never_a_mirror():
    source = np.random.default_rng(0).normal(size=(8, 3))
    assert np.linalg.det(fit_sim3(source, source * [1, 1, -1]).rotation) == pytest.approx(1)


def test_outliers_do_not_count():
    generator = np.random.default_rng(3)
    source = generator.normal(size=(30, 3))
    target = TRUTH.points(source)
    wrong = generator.choice(30, 12, replace=False)
    target[wrong] += generator.normal(size=(12, 3)) * 20
    found = align(source, target, max_error=0.1)
    assert found.target_from_source.scale == pytest.approx(2.5)
    assert found.rmse < 1e-9
    assert set(np.flatnonzero(~found.inliers)) == set(wrong)


def test_reconstruction_moves_as_a_whole_and_becomes_metric():
    walk = random_walk()
    known = {frame.index: TRUTH.points(frame.pose.center_world) for frame in walk.frames if frame.pose}
    moved, found = align_to_positions(walk, {**known, 999: [0, 0, 0]}, max_error=0.1)
    assert moved.unit == "m"
    assert moved.frames[-1].pose is None
    assert found.inliers.sum() == 12
    np.testing.assert_allclose(moved.points.xyz_world, TRUTH.points(walk.points.xyz_world), atol=1e-9)
    for index, pose in walk.poses.items():
        np.testing.assert_allclose(moved.poses[index].center_world, known[index], atol=1e-9)
        # The image is the same: points in the camera differ by the scale only.
        before = pose.to_cam(walk.points.xyz_world)
        np.testing.assert_allclose(moved.poses[index].to_cam(moved.points.xyz_world), 2.5 * before, atol=1e-9)


def test_too_few_or_useless_references_say_so():
    line = np.outer(np.arange(6.0), [1, 2, 3])
    with pytest.raises(GeometryError, match="at least 5 cameras"):
        align(np.zeros((4, 3)), np.zeros((4, 3)), max_error=1)
    with pytest.raises(GeometryError, match="one line"):
        fit_sim3(line, line)
    with pytest.raises(GeometryError, match="at least 3 pairs"):
        fit_sim3(line[:2], line[:2])
    with pytest.raises(GeometryError, match="0 of 6 known positions agree"):
        align(line, line, max_error=1)
    noise = np.random.default_rng(0).normal(size=(8, 3))
    with pytest.raises(GeometryError, match=r"of 8 known positions agree within 0\.001"):
        align(noise, noise[::-1] ** 2, max_error=1e-3)


def test_reference_file(tmp_path):
    path = tmp_path / "geo.txt"
    path.write_text("# name x y z\ngeo_0.jpg 1 2.5 -3\n\ngeo_1.jpg 0 0 1e-3 # a render\n")
    positions = read_positions(path)
    np.testing.assert_array_equal(positions["geo_0.jpg"], [1, 2.5, -3])
    assert list(positions) == ["geo_0.jpg", "geo_1.jpg"]
    path.write_text("geo_0.jpg 1 2\n")
    with pytest.raises(GeometryError, match="line 1: wanted 'name x y z'"):
        read_positions(path)
    with pytest.raises(GeometryError, match="Cannot read"):
        read_positions(tmp_path / "absent.txt")


def test_scale_from_a_length_and_from_the_camera_height():
    walk = level_walk(np.linspace(0, 300, 12))
    assert scale_by_length(walk, [0, 0, 0], [0, 0, 2], 3.0).points.xyz_world == pytest.approx(
        1.5 * walk.points.xyz_world
    )
    with pytest.raises(GeometryError, match="positive"):
        scale_by_length(walk, [0, 0, 0], [0, 0, 0], 3.0)
    scaled = scale_by_camera_height(walk, 1.6)
    assert scaled.unit == "m"
    assert scaled.points.xyz_world == pytest.approx(1.6 * walk.points.xyz_world, rel=0.02)
    with pytest.raises(GeometryError, match="positive height"):
        scale_by_camera_height(walk, 0.0)
    ceiling = Reconstruction(CAMERA, walk.frames, "sfm", SparsePoints(np.tile([[0, -2.0, 0]], (30, 1))))
    with pytest.raises(GeometryError, match="floor was not seen"):
        scale_by_camera_height(ceiling, 1.6)


def test_down_is_found_although_the_camera_looks_down():
    around = list(level_walk(np.linspace(0, 300, 12)).poses.values())
    np.testing.assert_allclose(down_direction(around), [0, 1, 0], atol=1e-6)
    one_way = list(level_walk(np.zeros(5)).poses.values())  # then the camera's own down is all there is
    np.testing.assert_allclose(down_direction(one_way), one_way[0].rotation[1], atol=1e-6)
