from __future__ import annotations

import cv2
import numpy as np
import pytest

from egohieraloc.video.sharpness import sharpness


def checks(cell: int = 40) -> np.ndarray:
    board = np.kron(np.indices((480 // cell, 640 // cell)).sum(0) % 2, np.ones((cell, cell)))
    return np.repeat((board * 255).astype(np.uint8)[..., None], 3, axis=2)


def test_blur_lowers_it_and_a_flat_image_has_none() -> None:
    scores = [sharpness(cv2.GaussianBlur(checks(), (0, 0), sigma)) for sigma in (1, 3, 9)]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.1 * scores[0]
    assert sharpness(np.full((50, 50, 3), 99, np.uint8)) == 0


def test_the_same_image_at_another_size_scores_alike() -> None:
    blurred = cv2.GaussianBlur(checks(), (0, 0), 3)
    double = cv2.resize(blurred, None, fx=2, fy=2, interpolation=cv2.INTER_LINEAR)
    assert sharpness(double) == pytest.approx(sharpness(blurred), rel=0.25)
    assert sharpness(np.zeros((1, 500, 3), np.uint8)) == 0
