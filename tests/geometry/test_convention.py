"""A file of poses does not say how its matrices are meant; the images do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from box_world import CAMERA, walk
from egohieraloc.errors import GeometryError
from egohieraloc.geometry import convention
from egohieraloc.geometry.convention import _QUARTER, CONVENTIONS, checked, match_frames
from egohieraloc.geometry.given import OURS, FrameTable, GivenCameras, GivenView, matched
from egohieraloc.types import Frame

TABLE = FrameTable(np.arange(24) / 10)
MATCHES: dict = {}


@cache
def shots():
    return walk(24)


@pytest.fixture(autouse=True)
def match_once(monkeypatch):
    """The same images are matched once for all tests."""

    def matched_before(pairs):
        pairs = list(pairs)
        key = tuple((a.index, b.index, a.rgb.shape, a.rgb[:8, :8].tobytes()) for a, b in pairs)
        if key not in MATCHES:
            MATCHES[key] = match_frames(pairs)
        return MATCHES[key]

    monkeypatch.setattr(convention, "match_frames", matched_before)


def read(indices):
    return (shots()[i].frame for i in indices)


def given(convention, order=range(24)) -> GivenCameras:
    poses = [shots()[i].pose for i in order]
    views = tuple(GivenView(convention.matrix(pose), frame=i) for i, pose in enumerate(poses))
    return GivenCameras("the file", CAMERA, views, "m", convention)


@pytest.mark.parametrize("stated", CONVENTIONS, ids=str)
def test_right_poses_are_left_as_they_are(stated):
    right = given(stated)
    found, words = checked(right, TABLE, read)
    assert found is right
    assert "agree with the file" in words


@pytest.mark.parametrize("stated", CONVENTIONS, ids=str)
@pytest.mark.parametrize("meant", CONVENTIONS, ids=str)
def test_a_wrong_convention_is_corrected_with_a_word(stated, meant):
    if stated == meant:
        pytest.skip("it is right")
    found, words = checked(replace(given(meant), convention=stated), TABLE, read)
    assert found.convention == meant
    assert f"read as {meant}" in words
    assert f"Stated was {stated}" in words
    np.testing.assert_allclose(matched(found, TABLE).poses[7].cam_from_world, shots()[7].pose.cam_from_world)


def test_poses_of_another_walk_are_refused():
    other = given(OURS, [7 * i % 24 for i in range(24)])
    with pytest.raises(GeometryError, match="do not fit the video"):
        checked(other, TABLE, read)


@pytest.mark.parametrize("turns", [1, 3])
def test_a_phone_held_upright_has_turned_images(turns):
    """The poses are of the sensor, the images have been turned since."""

    def upright(indices):
        for i in indices:
            yield Frame(i, i / 10, np.ascontiguousarray(np.rot90(shots()[i].frame.rgb, -turns)))

    found, words = checked(given(OURS), TABLE, upright)
    assert f"turned by {90 * turns} degrees" in words
    assert (found.camera.width, found.camera.height) == (CAMERA.height, CAMERA.width)
    expected = np.linalg.matrix_power(_QUARTER, turns) @ shots()[5].pose.cam_from_world
    np.testing.assert_allclose(matched(found, TABLE).poses[5].cam_from_world, expected, atol=1e-12)


def test_images_without_texture_are_told():
    grey = (Frame(i, 0.0, np.full((240, 320, 3), 90, np.uint8)) for i in range(24))
    images = list(grey)
    found, words = checked(given(OURS), TABLE, lambda indices: (images[i] for i in indices))
    assert found.convention == OURS
    assert "could not be checked" in words
