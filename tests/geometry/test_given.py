"""Poses of another program find their frames: by number, by name, by time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.convention import CONVENTIONS
from egohieraloc.geometry.given import (
    OURS,
    TRAJECTORY,
    FrameTable,
    GivenCameras,
    GivenView,
    fitted_to,
    gaps,
    matched,
)
from egohieraloc.geometry.interpolate import MAX_GAP_S, TOLERANCE_S, TimedPath
from egohieraloc.geometry.reconstruction import SparsePoints

LENS = Camera("PINHOLE", 64, 48, (60.0, 60.0, 32.0, 24.0))
TABLE = FrameTable(np.arange(5) / 5, ("a.png", "b.png", "c.png", "10.png", "e.png"))
numbers = st.floats(-3, 3)


def pose_at(i: float) -> CameraPose:
    return CameraPose.from_rotation(Rotation.from_rotvec([0.1 * i, 0.3, -0.05 * i]).as_matrix(), [i, -i, 2.0])


def cameras(*views: GivenView, convention=OURS, points=None) -> GivenCameras:
    return GivenCameras("the test", LENS, views, "m", convention, points or SparsePoints())


@given(turn=st.tuples(numbers, numbers, numbers), shift=st.tuples(numbers, numbers, numbers))
def test_a_convention_is_read_as_it_is_written(turn, shift):
    pose = CameraPose.from_rotation(Rotation.from_rotvec(turn).as_matrix(), shift)
    for convention in CONVENTIONS:
        back = convention.pose(convention.matrix(pose))
        np.testing.assert_allclose(back.cam_from_world, pose.cam_from_world, atol=1e-9)
    np.testing.assert_allclose(TRAJECTORY.matrix(pose)[:3, 3], pose.center_world, atol=1e-9)
    looking = CONVENTIONS[1].matrix(pose)[:3, :3] @ [0, 0, -1]  # OpenGL looks along -z, with y up
    np.testing.assert_allclose(looking, pose.rays_world([0, 0, 1.0]), atol=1e-9)
    np.testing.assert_allclose(
        CONVENTIONS[1].matrix(pose)[:3, :3] @ [0, 1.0, 0], pose.rays_world([0, -1.0, 0]), atol=1e-9
    )


def test_names_are_those_of_the_images_with_or_without_folder_and_ending():
    views = [
        GivenView(OURS.matrix(pose_at(i)), name=n) for i, n in enumerate(("images/b.png", "d.png", "10"))
    ]
    found = matched(cameras(*views), TABLE)
    assert list(found.poses) == [1, 3]
    np.testing.assert_allclose(found.poses[3].cam_from_world, pose_at(2).cam_from_world)
    assert len(found.frames) == 5
    assert found.frames[3].time_s == pytest.approx(0.6)


def test_of_a_video_names_are_frame_numbers():
    views = [
        GivenView(OURS.matrix(pose_at(i)), name=n) for i, n in enumerate(("000003.jpg", "frame_1", "77"))
    ]
    assert list(matched(cameras(*views), FrameTable(np.arange(5) / 5)).poses) == [3]


def test_points_go_with_their_frames():
    points = SparsePoints(
        np.eye(3), np.array([0, 1, 2, 2]), np.array([0, 1, 2, 0]), np.arange(8.0).reshape(4, 2)
    )
    views = [GivenView(OURS.matrix(pose_at(i)), name=n) for i, n in enumerate(("b.png", "gone.png", "a.png"))]
    found = matched(cameras(*views, points=points), TABLE)
    assert found.points.frame.tolist() == [1, 0, 0]
    assert found.observed_in(0)[0].tolist() == [2, 0]


def test_nothing_that_belongs_is_an_error_with_the_remedy():
    with pytest.raises(GeometryError, match=r"images such as a\.png"):
        matched(cameras(GivenView(np.eye(4), name="other.png")), TABLE)
    with pytest.raises(GeometryError, match="frame numbers from 0 to 4"):
        matched(cameras(GivenView(np.eye(4), name="other.png")), FrameTable(np.arange(5) / 5))
    with pytest.raises(GeometryError, match=r"from 100\.000 to 100\.000 s.*--time-offset"):
        matched(cameras(GivenView(np.eye(4), time_s=100.0)), TABLE)
    with pytest.raises(GeometryError, match="no camera pose in the test"):
        cameras()


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e9])
def test_images_called_by_their_time_are_matched_by_it(unit):
    start = 1_403_636_579
    names = tuple(
        f"{round((start + i / 5) * unit)}.png" if unit > 1 else f"{start + i / 5:.3f}.png" for i in range(5)
    )
    views = [GivenView(TRAJECTORY.matrix(pose_at(i)), time_s=start + i / 5) for i in range(1, 4)]
    found = matched(cameras(*views, convention=TRAJECTORY), FrameTable(np.arange(5.0), names))
    assert list(found.poses) == [1, 2, 3]
    np.testing.assert_allclose(found.poses[2].cam_from_world, pose_at(2).cam_from_world, atol=1e-5)


@settings(deadline=None)
@given(
    time_s=st.floats(0, 2),
    turn=st.tuples(numbers, numbers, numbers),
    speed=st.tuples(numbers, numbers, numbers),
)
def test_an_even_motion_is_interpolated_exactly(time_s, turn, speed):
    times_s = np.arange(0, 2.05, 0.1)
    body = Rotation.from_rotvec(np.outer(times_s, turn))
    matrices = np.tile(np.eye(4), (len(times_s), 1, 1))
    matrices[:, :3, :3], matrices[:, :3, 3] = body.as_matrix(), np.outer(times_s, speed)
    shuffled = np.random.default_rng(0).permutation(len(times_s))
    found, known = TimedPath.sorted(times_s[shuffled], matrices[shuffled]).at(np.array([time_s]))
    assert known.all()
    np.testing.assert_allclose(found[0, :3, 3], np.multiply(time_s, speed), atol=1e-9)
    expected = Rotation.from_rotvec(np.multiply(time_s, turn)).as_matrix()
    np.testing.assert_allclose(found[0, :3, :3], expected, atol=1e-7)


def test_the_error_of_an_interpolated_turn_is_bounded_and_none_of_an_even_one():
    """A head that turns as 30 degrees times sin(4 t), known ten times a second."""
    times_s, wanted_s = np.arange(0, 3.01, 0.1), np.linspace(0.2, 2.8, 301)

    def path_of(angle) -> TimedPath:
        matrices = np.tile(np.eye(4), (len(times_s), 1, 1))
        matrices[:, :3, :3] = Rotation.from_euler("y", angle(times_s)[:, None]).as_matrix()
        return TimedPath.sorted(times_s, matrices)

    swing = path_of(lambda t: np.radians(30) * np.sin(4 * t))
    truth = Rotation.from_euler("y", np.radians(30) * np.sin(4 * wanted_s)[:, None])
    found = Rotation.from_matrix(swing.at(wanted_s)[0][:, :3, :3])
    off, told = (truth.inv() * found).magnitude(), swing.turn_errors_rad(wanted_s)
    assert (off <= 1.1 * told + 1e-3).all()
    assert told.max() < 3 * off.max()
    assert off.max() > 5e-3
    np.testing.assert_allclose(path_of(lambda t: 0.7 * t).turn_errors_rad(wanted_s), 0, atol=1e-9)
    np.testing.assert_allclose(swing.turn_errors_rad(times_s), 0, atol=1e-9)
    after = path_of(lambda t: 0.7 * t).turn_errors_rad(np.array([3.01]))
    np.testing.assert_allclose(after, 0.007, atol=1e-6)
    views = [GivenView(matrix, time_s=t) for t, matrix in zip(times_s, swing.at(times_s)[0], strict=True)]
    posed = matched(cameras(*views, convention=TRAJECTORY), FrameTable(wanted_s))
    np.testing.assert_allclose([pose.turn_error_rad for pose in posed.poses.values()], told)


def test_gaps_are_not_bridged_and_told():
    times_s = np.array([0.0, 0.1, 0.2, 0.2 + MAX_GAP_S + 0.15, 0.7])
    matrices = np.tile(np.eye(4), (5, 1, 1))
    path = TimedPath.sorted(times_s, matrices)
    wanted = [-0.01, -TOLERANCE_S - 0.01, 0.05, 0.2 + TOLERANCE_S / 2, 0.4, 0.65, 0.71, 0.8]
    assert path.at(np.array(wanted))[1].tolist() == [True, False, True, True, False, True, True, False]
    assert TimedPath.sorted(times_s[:1], matrices[:1]).at(np.array([0.01, 0.5]))[1].tolist() == [True, False]
    views = [GivenView(TRAJECTORY.matrix(pose_at(0)), time_s=t) for t in times_s]
    found = matched(cameras(*views, convention=TRAJECTORY), FrameTable(np.arange(0, 1.01, 0.05)))
    assert gaps(found) == "8 of 21 frames have a camera pose; none for 0.3 s from 0.2 s on"
    assert gaps(found.at_frames(np.arange(5))) == "5 of 5 frames have a camera pose"


def test_a_lens_for_another_size_fits_only_the_same_shape():
    assert fitted_to(LENS, 640, 480).params == (600.0, 600.0, 320.0, 240.0)
    assert fitted_to(LENS, 64, 48) is LENS
    with pytest.raises(GeometryError, match=r"64x48, the video has 48x64"):
        fitted_to(LENS, 48, 64)


def test_samples_are_taken_where_all_are_known():
    found = matched(cameras(GivenView(OURS.matrix(pose_at(0)), frame=2)), FrameTable(np.arange(5) / 5))
    assert [frame.index for frame in found.at_frames(np.array([0, 2, 4])).frames] == [0, 2, 4]
    assert found.at_frames(np.array([0, 7])) is found
