from __future__ import annotations

import cv2
import numpy as np
import pytest

from egohieraloc.video.sharpness import sharpest_per_window, sharpness


def checks(cell: int = 40) -> np.ndarray:
    board = np.kron(np.indices((480 // cell, 640 // cell)).sum(0) % 2, np.ones((cell, cell)))
    return np.repeat((board * 255).astype(np.uint8)[..., None], 3, axis=2)


def test_blur_lowers_it_and_a_flat_picture_has_none() -> None:
    scores = [sharpness(cv2.GaussianBlur(checks(), (0, 0), sigma)) for sigma in (1, 3, 9)]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.1 * scores[0]
    assert sharpness(np.full((50, 50, 3), 99, np.uint8)) == 0


def test_the_same_picture_at_another_size_scores_alike() -> None:
    blurred = cv2.GaussianBlur(checks(), (0, 0), 3)
    double = cv2.resize(blurred, None, fx=2, fy=2, interpolation=cv2.INTER_LINEAR)
    assert sharpness(double) == pytest.approx(sharpness(blurred), rel=0.25)
    assert sharpness(np.zeros((1, 500, 3), np.uint8)) == 0


def test_each_window_keeps_its_sharpest() -> None:
    scores = np.array([1, 5, 2, 9, 9, 8, 0.5])
    assert sharpest_per_window(scores, 3).tolist() == [1, 3, 6]
    assert sharpest_per_window(scores, 1).tolist() == list(range(7))
    assert sharpest_per_window(scores, 100).tolist() == [3]
    assert sharpest_per_window(np.array([]), 3).tolist() == []
    with pytest.raises(ValueError, match="at least one score, got 0"):
        sharpest_per_window(scores, 0)
