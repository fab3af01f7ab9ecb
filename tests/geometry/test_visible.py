"""Points of a map that a frame sees: in front, in the image, not behind others."""

import numpy as np

from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.geometry.visible import visible, with_visible_points

CAMERA = Camera("PINHOLE", 96, 96, (80.0, 80.0, 48.0, 48.0))
POSE = CameraPose(np.eye(3, 4))


def grid(depth: float, half: float) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(-half, half, 41), np.linspace(-half, half, 41))
    return np.column_stack([x.ravel(), y.ravel(), np.full(x.size, depth)])


def test_a_near_wall_hides_the_far_one_behind_it():
    near, far = grid(2.0, 0.5), grid(4.0, 2.0)
    behind = np.array([[0.0, 0.0, -2.0], [9.0, 0.0, 2.0]])  # at the back, and outside the image
    rows, pixels = visible(np.vstack([near, far, behind]), CAMERA, POSE)
    shown = np.zeros(len(near) + len(far) + 2, bool)
    shown[rows] = True
    assert shown[: len(near)].all()
    covered = (np.abs(far[:, :2]) < 0.9).all(1)  # twice as far away: the near wall covers one metre of it
    beside = (np.abs(far[:, :2]) > 1.25).any(1)
    assert not shown[len(near) : -2][covered].any()
    assert shown[len(near) : -2][beside].all()
    assert not shown[-2:].any()
    np.testing.assert_allclose(pixels, CAMERA.project(np.vstack([near, far, behind])[rows]))


def test_only_maps_that_do_not_say_what_was_seen_are_completed():
    frames = (PosedFrame(4, 0.0, POSE), PosedFrame(5, 0.2, None))
    bare = Reconstruction(CAMERA, frames, "m", SparsePoints(grid(2.0, 0.5)))
    seen = with_visible_points(bare, [4, 5])
    assert set(seen.points.frame.tolist()) == {4}
    assert len(seen.points.frame) == 41 * 41
    assert with_visible_points(seen, [4]) is seen
    assert with_visible_points(bare, [5]) is bare
