import numpy as np
import pytest

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.check import drop_unreliable_poses
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.geometry.selection import (
    attaching_pairs,
    laplacian_variance,
    sequential_pairs,
    sharpest_per_window,
    sharpest_run,
    similar_pairs,
    vlad,
)


def test_blur_is_seen():
    generator = np.random.default_rng(0)
    image = generator.integers(0, 255, (60, 80, 3), np.uint8)
    blurred = (image.astype(float).reshape(30, 2, 40, 2, 3).mean((1, 3))).astype(np.uint8)
    assert laplacian_variance(image) > 2 * laplacian_variance(blurred)
    assert laplacian_variance(np.full((60, 80, 3), 90, np.uint8)) == 0


def test_sharpest_frames_stay_evenly_spread():
    values = [1, 9, 2, 3, 3, 8, 7, 1, 1]
    assert sharpest_per_window(values, 3) == [1, 5, 6]
    assert sharpest_per_window(values, 20) == list(range(9))


def test_sharpest_run_is_one_stretch_without_a_blurred_part():
    values = [9, 9, 0, 0, 9, 5, 5, 5, 5, 0, 9]
    assert sharpest_run(values, 4) == [4, 5, 6, 7]
    assert sharpest_run(values, 50) == list(range(11))


def test_sequential_pairs_reach_the_overlap_with_few_pairs():
    steps = {j - i for i, j in sequential_pairs(100, 15)}
    assert steps == {1, 2, 3, 4, 6, 8, 11, 15}
    assert all(0 <= i < j < 100 for i, j in sequential_pairs(100, 15))
    assert sequential_pairs(2, 15) == {(0, 1)}
    assert sequential_pairs(1, 15) == set()


def test_loops_join_what_looks_alike_and_is_apart_in_time():
    angle = np.concatenate([np.linspace(0, 3, 20), np.linspace(3, 0, 20)])  # there and back
    described = np.column_stack([np.cos(angle), np.sin(angle)]) * np.linspace(1, 9, 40)[:, None]
    everyone = range(40)
    pairs = similar_pairs(described, everyone, everyone, neighbours=1, min_gap=5)
    assert {(i, 39 - i) for i in range(15)} <= pairs
    assert all(j - i > 5 for i, j in pairs)
    assert len(similar_pairs(described, range(0, 40, 4), everyone, neighbours=1, min_gap=5)) <= 10
    assert similar_pairs(described[:4], range(4), range(4), neighbours=3, min_gap=5) == set()
    assert similar_pairs(described, [30], range(10), neighbours=2) == {(9, 30), (8, 30)}


def test_other_frames_are_tied_to_the_map_around_them():
    near = attaching_pairs([0, 10, 20, 30], [12, 40], neighbours=1)
    assert near == {(10, 12), (12, 20), (30, 40), (12, 40)}
    wide = attaching_pairs(range(0, 100, 10), [42], neighbours=2)
    assert wide == {(30, 42), (40, 42), (42, 50), (42, 60)}


def test_vlad_tells_places_apart():
    generator = np.random.default_rng(0)
    places = generator.integers(0, 255, (3, 200, 128))
    views = [
        np.clip(places[k][generator.permutation(200)[:150]] + generator.integers(-9, 9, (150, 128)), 0, 255)
        for k in (0, 1, 2, 0, 1, 2)
    ]
    described = vlad([view.astype(np.uint8) for view in views])
    similar = described @ described.T
    np.testing.assert_allclose(np.diag(similar), 1)
    np.fill_diagonal(similar, -1)
    assert similar.argmax(1).tolist() == [3, 4, 5, 0, 1, 2]
    empty = vlad([views[0].astype(np.uint8), np.empty((0, 128), np.uint8)])
    assert (empty[1] == 0).all()


CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))


def two_parts(bridge: int, shift_px: float = 0.0) -> Reconstruction:
    """Ten frames that see points 0..99, six that see 100..199, and `bridge` points seen by all."""
    generator = np.random.default_rng(0)
    points = generator.uniform((-1, -1, 3), (1, 1, 5), (200, 3))
    frames, rows = [], []
    for i in range(16):
        pose = CameraPose(np.column_stack([np.eye(3), [0.02 * i, 0, 0]]))
        frames.append(PosedFrame(i, i / 5, pose))
        seen = range(100) if i < 10 else [*range(100, 200), *range(bridge)]
        pixels = CAMERA.project(pose.to_cam(points[list(seen)])) + (shift_px if i == 3 else 0)
        rows += [(i, point, *pixel) for point, pixel in zip(seen, pixels, strict=True)]
    table = np.array(rows)
    sparse = SparsePoints(points, table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])
    return Reconstruction(CAMERA, tuple(frames), "sfm", sparse)


def test_a_sound_map_keeps_all_poses():
    assert drop_unreliable_poses(two_parts(bridge=40)).num_posed == 16


def test_parts_that_share_few_points_are_cut():
    cut = drop_unreliable_poses(two_parts(bridge=5))
    assert sorted(cut.poses) == list(range(10))
    assert len(cut.frames) == 16
    assert set(cut.points.frame) == set(range(10))


def test_frames_that_miss_their_points_or_have_few_lose_their_pose():
    assert (
        3 in drop_unreliable_poses(two_parts(bridge=40, shift_px=2.5)).poses
    )  # 3.5 px in all: 4 are allowed
    assert 3 not in drop_unreliable_poses(two_parts(bridge=40, shift_px=3)).poses
    assert drop_unreliable_poses(two_parts(bridge=40), SfmConfig(min_inliers=120)).num_posed == 6
    nothing = drop_unreliable_poses(two_parts(bridge=40), SfmConfig(min_inliers=1000))
    assert nothing.num_posed == 0


@pytest.mark.parametrize("empty", [SparsePoints()])
def test_a_map_without_points_is_not_drop_unreliable_poses(empty):
    world = Reconstruction(CAMERA, (PosedFrame(0, 0.0, CameraPose(np.eye(3, 4))),), "sfm", empty)
    assert drop_unreliable_poses(world).num_posed == 0
