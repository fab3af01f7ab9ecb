"""The square window round the query's box that the network looks at."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from egohieraloc.query import Query
from egohieraloc.types import Box, Bytes, Floats, Mask, Rgb


@dataclass(frozen=True, eq=False)
class QueryWindow:
    """A query as a square image: black where the original has nothing."""

    rgb: Rgb  # (S, S, 3)
    box: Floats  # (4,) xyxy in [0, 1] of the window
    visible: Mask  # (S, S) where the original image is
    mask: Mask | None  # (S, S) the object's pixels, where the user gave them
    region: Box  # what the window covers, in pixels of the query image


def cut_window(query: Query, *, share: float, size: int) -> QueryWindow:
    """Cut the window of side `share` times the longer side of the query's box, centred on it."""
    box = query.box
    side = share * max(box.width, box.height)
    center_x, center_y = box.center
    region = Box(center_x - side / 2, center_y - side / 2, center_x + side / 2, center_y + side / 2)
    scale = size / side
    # Pixel centres are at halves; OpenCV's at integers, hence the shift by half a pixel on both sides.
    offset = (-np.array([region.x1, region.y1]) + 0.5) * scale - 0.5
    to_window = np.array([[scale, 0, offset[0]], [0, scale, offset[1]]])

    def placed(pixels: Bytes) -> Bytes:
        transform = to_window
        if scale < 1:  # shrinking: average first, so that nothing flickers
            pixels, transform = _shrink(pixels, to_window, scale)
        return np.asarray(cv2.warpAffine(pixels, transform, (size, size), flags=cv2.INTER_LINEAR), np.uint8)

    def placed_mask(mask: Mask) -> Mask:
        return placed(mask.astype(np.uint8) * 255) > 127

    return QueryWindow(
        placed(query.image),
        (np.array(box.xyxy) - np.array([region.x1, region.y1] * 2)) / side,
        placed_mask(np.ones(query.image.shape[:2], bool)),
        None if query.mask is None else placed_mask(query.mask),
        region,
    )


def _shrink(image: Bytes, to_window: Floats, scale: float) -> tuple[Bytes, Floats]:
    """The image averaged down to about the window's resolution, and the transform that is left."""
    height, width = image.shape[:2]
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    factor = np.array([small[0] / width, small[1] / height])
    reduced = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    rest = to_window[:, :2] / factor
    # x_window = A x + t with x = (x_small + .5) / factor - .5
    shift = to_window[:, 2] + to_window[:, :2] @ (0.5 / factor - 0.5)
    return reduced, np.column_stack([rest, shift])
