"""Points followed from image to image."""

from __future__ import annotations

import cv2
import numpy as np

from egohieraloc.geometry.following import follow


def texture(seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).uniform(0, 255, (300, 400))
    smooth = cv2.GaussianBlur(noise, (0, 0), 4)
    return cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def test_points_are_found_where_they_went_and_lost_where_they_leave():
    whole = texture()
    before, after = whole[:, :320], whole[:, 23 : 320 + 23]
    pixels = np.array([[100.5, 80.5], [200.25, 150.75], [10.5, 100.5]])
    found = follow(before, after, pixels)
    np.testing.assert_allclose(found[:2], pixels[:2] - [23, 0], atol=0.1)
    assert np.isnan(found[2]).all()
    assert follow(before, after, np.empty((0, 2))).shape == (0, 2)


def test_a_guess_lets_points_move_far():
    whole = texture()
    before, after = whole[:, :240], whole[:, 140:380]
    pixels = np.array([[190.5, 80.5], [205.5, 150.5], [185.5, 200.5]])
    found = follow(before, after, pixels, pixels - [138, 2])
    np.testing.assert_allclose(found, pixels - [140, 0], atol=0.1)
    assert np.isnan(follow(before, after, pixels)).any()


def test_points_without_a_counterpart_are_lost():
    pixels = np.random.default_rng(0).uniform(50, 250, (40, 2))
    found = follow(texture(0), texture(1), pixels)
    assert np.isnan(found[:, 0]).mean() > 0.5
