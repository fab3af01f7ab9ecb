"""The 3D view: up is up, the ellipsoid is two standard deviations, nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from egohieraloc.geometry.camera import CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, SparsePoints
from egohieraloc.report.scene import Scene, leveling, scene_of, uncertainty_axes
from egohieraloc.result_json import MAX_POINTS
from egohieraloc.types import NotLocalized
from made_up import SAMPLES, cameras, poses, result


@pytest.mark.parametrize("seed", range(4))
def test_leveling_undoes_any_turn_of_the_world(seed: int) -> None:
    turned_from_world = Rotation.random(random_state=seed).as_matrix()
    turned = np.array([np.column_stack([pose[:, :3] @ turned_from_world.T, pose[:, 3]]) for pose in poses()])
    level = leveling(turned)
    np.testing.assert_allclose(level @ level.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(level) == pytest.approx(1)
    np.testing.assert_allclose(level @ turned_from_world @ [0, 0, 1], [0, 0, 1], atol=1e-12)


def test_leveling_without_a_clear_up() -> None:
    upside = np.diag([1.0, -1, -1])
    both = np.array([np.column_stack([np.eye(3), np.zeros(3)]), np.column_stack([upside, np.zeros(3)])])
    np.testing.assert_array_equal(leveling(both), np.eye(3))
    np.testing.assert_array_equal(leveling(np.empty((0, 3, 4))), np.eye(3))
    # Every head looks elsewhere and the first along the mean "up".
    tipped = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    first = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
    many = np.array(
        [
            np.column_stack([m, np.zeros(3)])
            for m in (first, tipped, Rotation.from_euler("x", 180, degrees=True).as_matrix() @ first)
        ]
    )
    assert np.isfinite(leveling(many)).all()


def test_axes_hold_95_of_100_cases() -> None:
    turn = Rotation.from_euler("xyz", [0.3, -0.5, 1.1]).as_matrix()
    axes = uncertainty_axes(turn @ np.diag([0.01, 0.04, 0.09]) @ turn.T)
    factor = np.sqrt(chi2.ppf(0.95, 3))
    np.testing.assert_allclose(np.linalg.norm(axes, axis=1), factor * np.array([0.1, 0.2, 0.3]), rtol=1e-4)
    np.testing.assert_allclose(
        np.abs(axes / np.linalg.norm(axes, axis=1, keepdims=True)), np.abs(turn.T), atol=1e-9
    )
    np.testing.assert_array_equal(uncertainty_axes(-np.eye(3)), np.zeros((3, 3)))


def scene(true_point_world: np.ndarray | None = None, **changes: Any) -> Scene:
    found = scene_of(result(**changes), true_point_world)
    assert found is not None
    return found


def test_scene_keeps_distances_and_ties_views_to_cameras() -> None:
    shown = scene(np.array([0.5, 2, 1.0]))
    assert shown.place is not None
    assert shown.true_point is not None
    path, point = np.array(shown.path), np.array(shown.place.point)
    np.testing.assert_allclose(np.linalg.norm(path[11] - point), np.linalg.norm([0.6, 2, 0.7]), atol=1e-3)
    np.testing.assert_allclose(np.array(shown.true_point) - point, [0, 0, 0.1], atol=1e-3)
    np.testing.assert_allclose(shown.forward[0], [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(path.mean(0), 0, atol=1e-4)
    assert shown.path_frames == list(range(0, 36, 3))
    assert shown.place.query_camera == 11
    assert [view.camera for view in shown.views] == [8, 9, 10]
    assert (shown.views[0].reprojection, shown.views[0].baseline) == (0.7, 0.6)
    assert (shown.unit, shown.words) == (
        "m",
        "From the camera at the query time it is 2.2 m (± 0.6 m), in front of you, to your left and below.",
    )


def test_nobody_asked_for_space() -> None:
    assert scene_of(result(place=None, cameras=None)) is None


def test_a_view_without_a_pose_has_no_camera() -> None:
    elsewhere = tuple(PosedFrame(1000 + i, i / 5, CameraPose(pose)) for i, pose in enumerate(poses()))
    shown = scene(cameras=cameras(frames=elsewhere))
    assert shown.place is not None
    assert shown.place.query_camera is None
    assert {view.camera for view in shown.views} == {None}


def test_not_localized_still_shows_the_path() -> None:
    shown = scene(place=NotLocalized("too little motion", 3, 12))
    assert (shown.place, shown.views) == (None, [])
    assert shown.words == "No place in space: too little motion."
    assert (shown.posed_frames, shown.num_frames, len(shown.path)) == (3, 12, SAMPLES)
    assert scene(place=NotLocalized("no poses"), cameras=None).path == []


def test_map_points_are_thinned_and_rid_of_outliers() -> None:
    points = np.random.default_rng(0).normal(size=(3 * MAX_POINTS, 3))
    points[::100] *= 1e6
    shown = np.array(scene(cameras=cameras(points=SparsePoints(points))).map_points)
    assert MAX_POINTS / 2 < len(shown) <= MAX_POINTS
    assert np.abs(shown).max() < 20
    assert scene(cameras=cameras(points=SparsePoints())).map_points == []
