"""Boxes as arrays: intersection over union, and the tight box of a mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from egohieraloc.types import Box, Floats, Mask


def intersection_xyxy(a: NDArray[np.floating], b: NDArray[np.floating]) -> Floats:
    """Area of the intersection of boxes (..., 4) with (..., 4), broadcast."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    size = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    area: Floats = np.clip(size, 0, None).prod(-1)
    return area


def iou_xyxy(a: NDArray[np.floating], b: NDArray[np.floating]) -> Floats:
    """Intersection over union of boxes (..., 4) against (..., 4), broadcast; 0 where both are empty."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    intersection = intersection_xyxy(a, b)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - intersection
    iou: Floats = np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)
    return iou


def mask_to_box(mask: Mask) -> Box | None:
    """The tight half-open box of the true pixels, or None when there are none."""
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    if columns.size == 0:
        return None
    return Box(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
