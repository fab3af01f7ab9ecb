"""Queries as they should not be: blurred, small, behind a hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np

from egohieraloc.query import Query
from egohieraloc.types import Box

SMALL_PX = 20
BLUR_SHARE = 0.08  # standard deviation of the blur, of the box's longer side
HAND_SHARE = 0.5  # of the box's width and height that the hand covers, from a corner
SKIN = (198, 146, 118)


def longer_side(query: Query) -> float:
    box = query.box
    return max(box.x2 - box.x1, box.y2 - box.y1)


def blurred(query: Query) -> Query:
    return replace(query, image=cv2.GaussianBlur(query.image, (0, 0), BLUR_SHARE * longer_side(query)))


def small(query: Query) -> Query:
    """The object is 20 pixels long."""
    height, width = query.image.shape[:2]
    scale = min(1.0, SMALL_PX / longer_side(query))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    factors = np.tile(np.array(size) / (width, height), 2)
    box = Box(*(np.array(query.box.xyxy) * factors).tolist())
    return replace(query, image=cv2.resize(query.image, size, interpolation=cv2.INTER_AREA), box=box)


def behind_hand(query: Query) -> Query:
    """Four fingers reach from the right over the lower right of the box."""
    image, box = query.image.copy(), query.box
    width, height = box.x2 - box.x1, box.y2 - box.y1
    left, top = box.x1 + (1 - HAND_SHARE) * width, box.y1 + (1 - HAND_SHARE) * height
    thick = HAND_SHARE * height / 4
    for finger in range(4):
        y = top + (finger + 0.5) * thick
        tip = round(left + 0.1 * width * abs(finger - 1.5)), round(y)
        shade = tuple(int(v * (1 - 0.06 * finger)) for v in SKIN)
        cv2.line(image, tip, (image.shape[1], round(y + thick)), shade, max(1, round(thick)), cv2.LINE_AA)
    return replace(query, image=image)


DEGRADED: dict[str, Callable[[Query], Query]] = {
    "as it is": lambda query: query,
    "blurred": blurred,
    "20 pixels": small,
    "behind a hand": behind_hand,
    "all three": lambda query: small(blurred(behind_hand(query))),
}
