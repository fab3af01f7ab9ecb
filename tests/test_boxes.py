"""Boxes by hand: intersection over union, and the tight box of a mask."""

from __future__ import annotations

import numpy as np
import pytest

from egohieraloc.boxes import iou_xyxy, mask_to_box
from egohieraloc.types import Box


@pytest.mark.parametrize(
    ("other", "iou"),
    [
        ((0, 0, 4, 2), 1.0),
        ((2, 0, 6, 2), 4 / 12),  # half of each
        ((1, 0, 3, 2), 4 / 8),  # inside
        ((4, 0, 8, 2), 0.0),  # they touch
        ((5, 5, 9, 9), 0.0),  # apart in both directions: the two gaps are no overlap
        ((2, 1, 2, 1), 0.0),  # an empty one
    ],
)
def test_intersection_over_union(other: tuple[float, ...], iou: float) -> None:
    box = np.array([0, 0, 4, 2])
    assert iou_xyxy(box, np.array(other)) == pytest.approx(iou)
    assert iou_xyxy(np.array(other), box) == pytest.approx(iou)


def test_two_empty_boxes_do_not_overlap_and_many_are_compared_at_once() -> None:
    assert iou_xyxy(np.zeros(4), np.zeros(4)) == 0
    boxes = np.array([[0, 0, 4, 2], [2, 0, 6, 2], [9, 9, 9, 9]], np.float32)
    table = iou_xyxy(boxes[:, None], boxes[None])
    np.testing.assert_allclose(table, [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 0]])


def test_the_box_of_a_mask_is_half_open() -> None:
    mask = np.zeros((6, 9), bool)
    mask[2, 3] = True
    assert mask_to_box(mask) == Box(3, 2, 4, 3)
    mask[4, 7] = True
    assert mask_to_box(mask) == Box(3, 2, 8, 5)
    assert mask_to_box(np.zeros((6, 9), bool)) is None
