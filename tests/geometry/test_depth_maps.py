import cv2
import numpy as np
import pytest

from egohieraloc.config import DepthConfig
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.depth import (
    depth_at,
    fit_affine_disparity,
    fit_to_points,
    in_one_unit,
    read_depth_folder,
    scale_by_depth,
)
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.types import DepthMap, DepthUnit

CAMERA = Camera("PINHOLE", 40, 30, (30.0, 30.0, 20.0, 15.0))
POSE = CameraPose(np.eye(3, 4))


def wall_world(points_in_second: int = 0) -> tuple[Reconstruction, np.ndarray]:
    """A slanted wall seen by three still cameras; depth of every pixel of the image (30, 40)."""
    x, y = np.meshgrid(np.arange(40) + 0.5, np.arange(30) + 0.5)
    depth = 2 + x / 20
    pixels = np.column_stack([x.ravel(), y.ravel()])[::13]
    points = CAMERA.back_project(pixels, depth.ravel()[::13])
    frames = (
        PosedFrame(0, 0.0, POSE),
        PosedFrame(1, 0.5, POSE),
        PosedFrame(2, 5.0, POSE),
        PosedFrame(3, 0.1, None),
    )
    rows = np.arange(len(points))
    seen = np.concatenate([rows, rows[:points_in_second]])
    frame = np.repeat([0, 1], [len(rows), points_in_second])
    return Reconstruction(CAMERA, frames, "sfm", SparsePoints(points, frame, seen, pixels[seen])), depth


def test_affine_disparity_from_30_points_with_40_percent_outliers():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        values = generator.uniform(0.1, 5, 30)
        depth = 1 / (0.35 * values + 0.08)
        depth[generator.choice(30, 12, replace=False)] *= generator.uniform(1.5, 4, 12) ** generator.choice(
            [-1, 1], 12
        )
        fit = fit_affine_disparity(values, depth)
        assert fit is not None
        assert (fit.scale, fit.shift) == (pytest.approx(0.35, abs=1e-9), pytest.approx(0.08, abs=1e-9))
        assert fit.inlier_share >= 0.6
        np.testing.assert_allclose(fit.depth([1.0]), 1 / 0.43)


def test_fit_survives_noise_and_many_points():
    generator = np.random.default_rng(0)
    values = generator.uniform(0.1, 5, 500)
    depth = 1 / (0.35 * values + 0.08) * generator.normal(1, 0.01, 500)
    fit = fit_affine_disparity(values, depth)
    assert fit is not None
    assert fit.scale == pytest.approx(0.35, rel=0.01)
    assert fit.inlier_share > 0.99


def test_no_fit_is_none_not_a_guess():
    generator = np.random.default_rng(0)
    values = generator.uniform(0.1, 5, 40)
    assert fit_affine_disparity(values[:19], 1 / values[:19]) is None  # too few
    assert fit_affine_disparity(values, values) is None  # depth, not inverse depth
    assert fit_affine_disparity(np.ones(40), values) is None  # a flat map
    assert fit_affine_disparity(values, generator.uniform(0.1, 100, 40)) is None  # nothing in common
    assert fit_affine_disparity(values, -values) is None  # behind the camera
    assert fit_affine_disparity(values, 1 / values, DepthConfig(min_points=41)) is None


def test_a_fit_that_few_points_support_is_refused():
    generator = np.random.default_rng(0)
    values = generator.uniform(0.1, 5, 100)
    depth = np.where(np.arange(100) < 20, 1 / (0.35 * values + 0.08), generator.uniform(0.1, 100, 100))
    assert fit_affine_disparity(values, depth) is None
    found = fit_affine_disparity(values, depth, DepthConfig(min_inlier_share=0.1))
    assert found is not None
    assert found.scale == pytest.approx(0.35, rel=0.05)


def test_inverse_depth_below_zero_is_unknown():
    fit = fit_affine_disparity(np.arange(30.0), 1 / (0.1 * np.arange(30.0) + 0.5))
    assert fit is not None
    assert np.isnan(fit.depth([-6.0])).all()


def test_relative_maps_get_the_scale_of_the_map():
    world, depth = wall_world()
    relative = DepthMap(((1 / depth - 0.05) / 0.2).astype(np.float32), DepthUnit.RELATIVE)
    fitted = fit_to_points({0: relative, 1: relative, 2: relative, 3: relative, 99: relative}, world)
    assert fitted[0].unit is DepthUnit.SFM
    np.testing.assert_allclose(fitted[0].values, depth, rtol=1e-4)
    np.testing.assert_allclose(fitted[1].values, depth, rtol=1e-4)  # no points: its neighbour's fit
    assert set(fitted) == {0, 1, 3}  # 2 is too far in time, 99 is not a frame of the video
    metric = Reconstruction(world.camera, world.frames, "m", world.points)
    assert fit_to_points({0: relative}, metric)[0].unit is DepthUnit.METRIC


def test_maps_with_a_unit_pass_and_nothing_fits_nothing():
    world, depth = wall_world()
    metric = DepthMap(depth.astype(np.float32), DepthUnit.METRIC)
    assert fit_to_points({0: metric}, world)[0] is metric
    flat = DepthMap(np.ones((3, 4), np.float32), DepthUnit.RELATIVE)
    assert fit_to_points({0: flat}, world) == {}


def test_relative_depth_cannot_be_back_projected():
    relative = DepthMap(np.ones((3, 4), np.float32), DepthUnit.RELATIVE)
    with pytest.raises(GeometryError, match="Relative depth has no scale"):
        depth_at(relative, [[1, 1]], 4, 3)
    with pytest.raises(ValueError, match="shape"):
        DepthMap(np.ones(3, np.float32), DepthUnit.SFM)


def test_a_map_is_read_under_the_pixel_at_any_resolution():
    depth = DepthMap(np.array([[1, 2], [3, 0], [np.inf, 4]], np.float32), DepthUnit.METRIC)
    pixels = [[0.5, 0.5], [99.5, 0.5], [0.5, 100.0], [60, 90], [60, 50], [1, 140], [-1, 5], [5, 150.0]]
    np.testing.assert_array_equal(
        depth_at(depth, pixels, 100, 150), [1, 2, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan]
    )
    np.testing.assert_array_equal(depth_at(depth, [[10, 60], [70, 140]], 100, 150), [3, 4])


def test_a_folder_of_maps(tmp_path):
    cv2.imwrite(str(tmp_path / "000006.png"), np.array([[1500, 0]], np.uint16))
    np.save(tmp_path / "12.npy", np.array([[2.5]]))
    (tmp_path / "notes.txt").write_text("not a map")
    found = read_depth_folder(tmp_path, [0, 6, 12])
    assert sorted(found) == [6, 12]
    assert found[6].unit is DepthUnit.METRIC
    np.testing.assert_array_equal(found[6].values, np.float32([[1.5, 0]]))
    np.testing.assert_array_equal(found[12].values, np.float32([[2.5]]))


def test_bad_maps_say_what_is_wanted(tmp_path):
    cv2.imwrite(str(tmp_path / "1.png"), np.zeros((2, 2), np.uint8))
    (tmp_path / "2.png").write_bytes(b"")
    (tmp_path / "3.npy").write_bytes(b"")
    np.save(tmp_path / "4.npy", np.zeros(3))
    for index in (1, 2, 3, 4):
        with pytest.raises(GeometryError, match=r"16-bit PNG in millimetres, or EXR or \.npy"):
            read_depth_folder(tmp_path, [index])
    with pytest.raises(GeometryError, match="Cannot read depth maps"):
        read_depth_folder(tmp_path / "absent", [0])


def test_metric_depth_makes_the_path_metric():
    world, depth = wall_world()
    maps = {0: DepthMap((2.5 * depth).astype(np.float32), DepthUnit.METRIC)}
    scaled = scale_by_depth(world, maps)
    assert scaled.unit == "m"
    np.testing.assert_allclose(scaled.points.xyz_world, 2.5 * world.points.xyz_world, rtol=1e-5)
    with pytest.raises(GeometryError, match="needs 20 points"):
        scale_by_depth(world, {1: maps[0]})
    with pytest.raises(GeometryError, match="needs 20 points"):
        scale_by_depth(world, {0: DepthMap(maps[0].values, DepthUnit.RELATIVE)})


def test_path_and_maps_are_made_to_agree():
    world, depth = wall_world()
    metric = DepthMap((3 * depth).astype(np.float32), DepthUnit.METRIC)
    path, maps = in_one_unit(world, {0: metric})
    assert path.unit == "m"
    assert maps[0] is metric
    np.testing.assert_allclose(path.points.xyz_world, 3 * world.points.xyz_world, rtol=1e-5)
    relative = DepthMap(((1 / depth - 0.05) / 0.2).astype(np.float32), DepthUnit.RELATIVE)
    path, maps = in_one_unit(world, {0: relative})
    assert path is world
    assert maps[0].unit is DepthUnit.SFM
    assert in_one_unit(world, {0: relative}, DepthConfig(min_points=10_000))[1] == {}
    known = Reconstruction(world.camera, world.frames, "m", world.points)
    assert in_one_unit(known, {0: metric})[0] is known  # a path in metres stays as it is
