from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egohieraloc.inference.mask_box import (
    _ellipse_span,
    box_from_mask,
    heaviest_component,
)
from egohieraloc.types import Box


def agreement(mask: np.ndarray, x1: int, y1: int, x2: int, y2: int, weight: float = 0.25) -> float:
    inside = mask[y1:y2, x1:x2].sum()
    return inside / (weight * ((y2 - y1) * (x2 - x1) - inside) + mask.sum())


def best_agreement(mask: np.ndarray) -> float:
    height, width = mask.shape
    return max(
        agreement(mask, x1, y1, x2, y2)
        for x1 in range(width)
        for x2 in range(x1 + 1, width + 1)
        for y1 in range(height)
        for y2 in range(y1 + 1, height + 1)
    )


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 12), st.integers(1, 12), st.floats(0.51, 1))
def test_a_rectangle_is_its_own_box(x: int, y: int, width: int, height: int, probability: float) -> None:
    mask = np.zeros((112, 112))
    mask[y : y + height, x : x + width] = probability
    assert box_from_mask(mask) == Box(x, y, x + width, y + height)


@pytest.mark.parametrize(
    ("a", "b", "angle"), [(30, 12, 0), (12, 30, 0), (8, 8, 0), (30, 12, 90), (40, 30, 30)]
)
def test_an_ellipse_is_boxed_to_a_cell(a: int, b: int, angle: int) -> None:
    mask = np.zeros((112, 112), np.float32)
    cv2.ellipse(mask, (56, 50), (a, b), angle, 0, 360, 1.0, -1)
    turn = np.deg2rad(angle)
    reach_x, reach_y = (
        np.hypot(a * np.cos(turn), b * np.sin(turn)),
        np.hypot(a * np.sin(turn), b * np.cos(turn)),
    )
    box = box_from_mask(mask)
    wanted = (56.5 - reach_x, 50.5 - reach_y, 56.5 + reach_x, 50.5 + reach_y)
    assert box.xyxy == pytest.approx(wanted, abs=1.6 if angle % 90 == 0 else 0.07 * 2 * a)


def test_the_search_begins_with_the_ellipse_itself() -> None:
    mask = np.zeros((41, 81), np.uint8)
    cv2.ellipse(mask, (40, 20), (40, 20), 0, 0, 360, 1, -1)
    assert _ellipse_span(mask > 0) == ((0, 41), (0, 81))
    assert _ellipse_span(np.ones((1, 1), bool)) == ((0, 1), (0, 1))


def test_the_search_finds_the_best_box_of_ragged_shapes() -> None:
    """It climbs, so it may stop at a lower top: rarely, and hardly lower."""
    shares = []
    for seed in range(60):
        noise = cv2.GaussianBlur(np.random.default_rng(seed).random((11, 13)), (0, 0), 0.8 + seed / 30)
        probability = (noise - noise.min()) / (noise.max() - noise.min())
        mask, (left, top) = heaviest_component(probability, 0.5)
        x1, y1, x2, y2 = (int(v) for v in box_from_mask(probability).xyxy)
        found = agreement(mask, x1 - left, y1 - top, x2 - left, y2 - top)
        shares.append(found / best_agreement(mask))
    assert min(shares) > 0.98
    assert np.mean(np.array(shares) > 1 - 1e-9) >= 0.95


def test_a_thin_spur_is_left_out() -> None:
    mask = np.zeros((60, 60))
    mask[20:40, 20:40] = 0.9
    mask[30, 40:58] = 0.9
    assert box_from_mask(mask) == Box(20, 20, 40, 40)
    assert box_from_mask(mask, background_weight=0.0) == Box(20, 20, 58, 40)


def test_one_cell_and_none() -> None:
    mask = np.zeros((9, 9))
    assert box_from_mask(mask) is None
    mask[:] = 0.5
    assert box_from_mask(mask) is None
    mask[3, 5] = 0.6
    assert box_from_mask(mask) == Box(5, 3, 6, 4)
    assert box_from_mask(np.ones((4, 6))) == Box(0, 0, 6, 4)
    assert box_from_mask(mask, threshold=0.7) is None


def test_the_sure_component_beats_a_larger_faint_one() -> None:
    mask = np.zeros((40, 40))
    mask[2:12, 2:12] = 0.98  # mass 98
    mask[20:32, 20:33] = 0.6  # mass 93.6, more cells
    assert box_from_mask(mask) == Box(2, 2, 12, 12)
    mask[20:32, 20:33] = 0.7
    assert box_from_mask(mask) == Box(20, 20, 33, 32)


def test_corners_touch() -> None:
    mask = np.zeros((20, 20))
    mask[4:8, 4:8] = mask[8:12, 8:12] = 1
    assert box_from_mask(mask) == Box(4, 4, 12, 12)
