"""A place in space that may be wrong says so: moving objects, leaping paths, cameras that stand still."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.check import MatchedPair, contradicted, drop_unreliable_poses, leaps, weak_links
from egohieraloc.geometry.doubts import parallax_deg
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.types import Box, DepthMap, DepthUnit, FramePrediction, Localization3D

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
WALL = 5.0  # depth of the scene


def path(*, step: float = 0.1, count: int = 30, leap: float = 0.0, at: int = 15) -> Reconstruction:
    """A camera that walks along x, five frames a second, before a wall of points."""
    centers = np.array([[step * i + (leap if i >= at else 0.0), 0.0, 0.0] for i in range(count)])
    poses = [CameraPose(np.column_stack([np.eye(3), -center])) for center in centers]
    frames = tuple(PosedFrame(i, i / 5, pose) for i, pose in enumerate(poses))
    x, y = np.meshgrid(np.linspace(-3, 6, 19), np.linspace(-2, 2, 9))
    xyz = np.column_stack([x.ravel(), y.ravel(), np.full(x.size, WALL)])
    seen = []
    for i, pose in enumerate(poses):
        pixels = CAMERA.project(pose.to_cam(xyz))
        inside = ((pixels > 0) & (pixels < (640, 480))).all(1)
        seen += [(i, row, *pixels[row]) for row in np.flatnonzero(inside)]
    table = np.array(seen)
    points = SparsePoints(xyz, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])
    return Reconstruction(CAMERA, frames, "sfm", points)


def seen(world: Reconstruction, positions: np.ndarray, half_px: float = 30.0) -> list[FramePrediction]:
    """Boxes around an object that is at positions[i] in frame i; it hides what is behind it."""
    found = []
    for i, position in enumerate(positions):
        x, y = CAMERA.project(world.poses[i].to_cam(position))[0]
        box = Box(x - half_px, y - half_px, x + half_px, y + half_px)
        found.append(FramePrediction(i, i, i / 5, 0.9, box))
    return found


def hidden(world: Reconstruction, track: list[FramePrediction]) -> Reconstruction:
    """Without the points behind the object."""
    points, keep = world.points, np.ones(len(world.points.frame), bool)
    for p in track:
        inside = (np.abs(points.pixel - p.box.center) < (p.box.width / 2 + 1, p.box.height / 2 + 1)).all(1)
        keep &= ~((points.frame == p.frame_index) & inside)
    return replace(
        world,
        points=SparsePoints(points.xyz_world, points.frame[keep], points.point[keep], points.pixel[keep]),
    )


def asked(world: Reconstruction, track: list[FramePrediction], **options: object) -> Localization3D:
    answer = place(track, hidden(world, track), query_time_s=world.frames[-1].time_s, **options)  # type: ignore[arg-type]
    assert isinstance(answer, Localization3D), answer
    return answer


def in_hand(count: int) -> np.ndarray:
    """Carried along half a metre before a camera of `path`, and moved about."""
    i = np.arange(count)
    return np.column_stack([0.1 * i + 0.2 * np.sin(i / 2), 0.1 * np.cos(i / 2), np.full(count, 1.2)])


def test_a_resting_object_before_a_sound_path_has_no_doubts() -> None:
    target = np.array([1.0, 0.2, 3.0])
    answer = asked(path(), seen(path(), np.tile(target, (20, 1))))
    assert answer.doubts == ()
    assert np.linalg.norm(answer.point_world - target) < min(0.05, answer.uncertainty)


def test_an_object_in_a_hand_is_placed_by_its_last_view_and_flagged() -> None:
    positions = in_hand(20)
    answer = asked(path(), seen(path(), positions))
    assert any("moves against the scene" in doubt for doubt in answer.doubts)
    assert [view.frame_index for view in answer.views] == [19]
    off = np.linalg.norm(answer.point_world - positions[-1])
    assert off < answer.uncertainty < 2 * WALL
    ray = positions[-1] - path().poses[19].center_world
    assert parallax_deg(path().poses[19].center_world, np.array([positions[-1], answer.point_world])) < 1
    assert np.linalg.norm(ray) < np.linalg.norm(answer.point_world - path().poses[19].center_world)


def test_its_own_depth_map_places_it_exactly() -> None:
    positions = in_hand(20)
    maps = {i: DepthMap(np.full((12, 16), 1.2, np.float32), DepthUnit.SFM) for i in range(20)}
    answer = asked(path(), seen(path(), positions), depth=maps)
    assert any("moves against the scene" in doubt for doubt in answer.doubts)
    assert np.linalg.norm(answer.point_world - positions[-1]) < 0.15


def test_an_object_that_was_put_down_is_where_it_was_put() -> None:
    """Moved for most of the track, so that the views together point nowhere; then it rests."""
    rest = np.array([2.6, 0.3, 3.0])
    positions = np.vstack([in_hand(18), np.tile(rest, (10, 1))])
    answer = asked(path(), seen(path(), positions))
    assert np.linalg.norm(answer.point_world - rest) < max(0.3, answer.uncertainty)
    if answer.doubts:
        assert "was moved" in answer.doubts[0]


def test_a_leap_between_the_object_and_the_query_time_is_told() -> None:
    world = path(leap=8.0)
    assert leaps(world) == [pytest.approx(3.0)]
    target = np.tile([1.0, 0.2, 3.0], (10, 1))
    assert "the camera path leaps at 0:03.0" in asked(world, seen(world, target)).doubts
    early = place(seen(world, target), hidden(world, seen(world, target)), query_time_s=2.0)
    assert isinstance(early, Localization3D)
    assert early.doubts == ()  # what comes after the query time does not matter


@pytest.mark.parametrize("step", [0.02, 0.3])
def test_a_walk_has_no_leaps_at_any_speed_or_scale(step: float) -> None:
    """Up to 1.5 m/s before a wall at 5 m; and the same in any unit."""
    world = path(step=step)
    assert leaps(world) == []
    big = replace(
        world,
        frames=tuple(
            replace(f, pose=CameraPose(np.column_stack([np.eye(3), 70 * f.pose.cam_from_world[:, 3]])))
            for f in world.frames
            if f.pose is not None
        ),
        points=replace(world.points, xyz_world=70 * world.points.xyz_world),
    )
    assert leaps(big) == []


def test_a_sudden_jump_is_a_leap_also_without_points() -> None:
    world = replace(path(leap=8.0), points=SparsePoints())
    assert leaps(world) == [pytest.approx(3.0)]
    assert leaps(replace(path(), points=SparsePoints())) == []


def test_a_camera_that_stands_still_does_not_know_distances() -> None:
    world = path(step=0.0005)
    points = np.tile([0.0, 0.0, WALL], (20, 1))
    answer = place(
        seen(world, points, half_px=120), world, query_time_s=5.8
    )  # the wall's points give it a depth
    assert isinstance(answer, Localization3D)
    assert any("hardly moved" in doubt for doubt in answer.doubts)


def test_a_lens_that_nobody_wears_is_told() -> None:
    """What turns on the spot explains the same images with any focal length."""
    world, target = path(), np.tile([1.0, 0.2, 3.0], (20, 1))
    narrow = replace(world, camera=Camera("PINHOLE", 640, 480, (1000.0, 1000.0, 320.0, 240.0)))
    answer = place(seen(world, target), narrow, query_time_s=3.0)
    assert isinstance(answer, Localization3D)
    assert any("measured as 35 degrees wide" in doubt for doubt in answer.doubts)
    given = place(seen(world, target), replace(narrow, points=SparsePoints()), query_time_s=3.0)
    assert not any("lens" in doubt for doubt in getattr(given, "doubts", ()))  # a user's own cameras


def test_a_path_that_hangs_by_few_points_is_told() -> None:
    world, target = path(), np.tile([1.0, 0.2, 3.0], (10, 1))
    assert weak_links(world) == []
    points = world.points
    kept = (points.frame < 15) == (points.point < 90)  # the second half sees other points
    cut = replace(
        world,
        points=SparsePoints(points.xyz_world, points.frame[kept], points.point[kept], points.pixel[kept]),
    )
    assert weak_links(cut) == [pytest.approx(3.0)]
    assert "the camera path hangs by few points at 0:03.0" in asked(cut, seen(world, target)).doubts


def test_parallax_is_the_largest_angle() -> None:
    assert parallax_deg(np.zeros(3), np.array([[0, 0, 1.0], [1, 0, 1], [0, 0, 5]])) == pytest.approx(45)


def pairs(world: Reconstruction, moved: set[int]) -> list[MatchedPair]:
    """What neighbouring frames really see, when those in `moved` stood elsewhere than the path says."""
    true = {
        i: CameraPose(
            np.column_stack([np.eye(3), -(pose.center_world + ([0, 1.5, 0] if i in moved else [0, 0, 0]))])
        )
        for i, pose in world.poses.items()
    }
    xyz = world.points.xyz_world + np.random.default_rng(0).normal(0, 1, world.points.xyz_world.shape)
    look = {i: CAMERA.project(pose.to_cam(xyz)) for i, pose in true.items()}
    return [MatchedPair(i, i + step, look[i], look[i + step]) for step in (1, 2) for i in range(30 - step)]


def test_matches_contradict_a_wrong_pose_and_no_other() -> None:
    world = path()
    assert contradicted(world, pairs(world, set()), 4.0) == set()
    assert contradicted(world, pairs(world, {12}), 4.0) == {12}
    kept = drop_unreliable_poses(world, matches=pairs(world, {12}))
    assert set(world.poses) - set(kept.poses) == {12}
