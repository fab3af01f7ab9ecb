"""Poses from the points of a map, on COLMAP's own synthetic scenes with known poses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import pytest

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.resection import image_name, position_of, resect_matched

FRAMES = 8
OUTSIDE = {1, 4, 6}  # positions of the frames that the map lacks
PAIRS = {(i, j) for i in range(FRAMES) for j in range(i + 1, FRAMES)}


@pytest.fixture
def scene(tmp_path: Path) -> tuple[Path, Any, dict[int, np.ndarray]]:
    """A database, a map without some of its frames, and the true poses of these."""
    pycolmap.set_random_seed(0)
    options = pycolmap.SyntheticDatasetOptions(
        num_rigs=1, num_cameras_per_rig=1, num_frames_per_rig=FRAMES, num_points3D=80
    )
    path = tmp_path / "database.db"
    with pycolmap.Database.open(path) as database:
        model = pycolmap.synthesize_dataset(options, database)
        for number, image_id in enumerate(sorted(model.images)):
            image = model.images[image_id]
            image.name = image_name(number)
            stored = database.read_image(image_id)
            stored.name = image.name
            database.update_image(stored)
    true = {}
    for image in model.images.values():
        if position_of(image) in OUTSIDE:
            true[position_of(image)] = image.cam_from_world().matrix()
            model.deregister_frame(image.frame_id)
    return path, model, true


def test_frames_outside_the_map_get_their_true_poses(scene: tuple[Path, Any, dict[int, np.ndarray]]) -> None:
    path, model, true = scene
    before = {key: image.cam_from_world().matrix() for key, image in model.images.items() if image.has_pose}
    found = resect_matched(path, model, PAIRS, SfmConfig())
    assert found.keys() == OUTSIDE
    for position, frame in found.items():
        np.testing.assert_allclose(frame.cam_from_world, true[position], atol=1e-6)
        xyz = np.array([model.points3D[point].xyz for point in frame.point_ids.tolist()])
        in_camera = xyz @ frame.cam_from_world[:, :3].T + frame.cam_from_world[:, 3]
        shown = np.array([model.cameras[1].img_from_cam(point) for point in in_camera])
        np.testing.assert_allclose(shown, frame.pixels, atol=1e-3)
    for key, pose in before.items():
        np.testing.assert_array_equal(model.images[key].cam_from_world().matrix(), pose)


def test_frames_that_show_too_little_of_the_map_are_left_out(
    scene: tuple[Path, Any, dict[int, np.ndarray]],
) -> None:
    path, model, _ = scene
    assert resect_matched(path, model, PAIRS, SfmConfig(min_inliers=1000)) == {}
    assert resect_matched(path, model, {(1, 4), (4, 6)}, SfmConfig()) == {}
