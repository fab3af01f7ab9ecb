"""Queries as they should not be: blurred, small, behind a hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np

from egohieraloc.query import Query
from egohieraloc.types import Box, Mask, Rgb

SMALL_PX = 20
THIN_PX = 4
BLUR_SHARE = 0.08  # standard deviation of the blur, of the box's longer side
HAND_SHARE = 0.5  # of the box's width and height that the hand covers, from a corner
SKIN = (198, 146, 118)


def blurred(query: Query, share: float = BLUR_SHARE) -> Query:
    blur = share * max(query.box.width, query.box.height)
    return replace(query, image=cv2.GaussianBlur(query.image, (0, 0), blur).astype(np.uint8))


def small(query: Query, side_px: float = SMALL_PX) -> Query:
    """The object's longer side is so many pixels long; of a thin one the shorter side is THIN_PX long."""
    height, width = query.image.shape[:2]
    shorter, longer = sorted((query.box.width, query.box.height))
    scale = min(1.0, max(side_px / longer, THIN_PX / shorter))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    factors = np.tile(np.array(size) / (width, height), 2)
    box = Box(*(np.array(query.box.xyxy) * factors).tolist())
    image = cv2.resize(query.image, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    return replace(query, image=image, box=box)


def behind_hand(query: Query) -> Query:
    """Four fingers reach from the right over the lower right of the box."""
    return replace(query, image=_with_fingers(query.image.copy(), query.box, SKIN))


def hand_over(query: Query) -> Mask:
    """The pixels that the hand covers."""
    blank = np.zeros(query.image.shape, np.uint8)
    return np.asarray(_with_fingers(blank, query.box, (255, 255, 255)).any(-1))


def _with_fingers(image: Rgb, box: Box, colour: tuple[int, int, int]) -> Rgb:
    left, top = box.x1 + (1 - HAND_SHARE) * box.width, box.y1 + (1 - HAND_SHARE) * box.height
    thick = HAND_SHARE * box.height / 4
    for finger in range(4):
        y = top + (finger + 0.5) * thick
        tip = round(left + 0.1 * box.width * abs(finger - 1.5)), round(y)
        shade = tuple(int(v * (1 - 0.06 * finger)) for v in colour)
        cv2.line(image, tip, (image.shape[1], round(y + thick)), shade, max(1, round(thick)), cv2.LINE_AA)
    return image


def _all_three(query: Query) -> Query:
    return small(blurred(behind_hand(query)))


def _worse(query: Query) -> Query:
    return small(blurred(behind_hand(query), 2 * BLUR_SHARE), SMALL_PX / 2)


DEGRADED: dict[str, Callable[[Query], Query]] = {
    "as it is": lambda query: query,
    "blurred": blurred,
    "20 pixels": small,
    "behind a hand": behind_hand,
    "all three": _all_three,
    "worse": _worse,  # behind a hand, twice as blurred and half as large
}
WITH_HAND = frozenset({"behind a hand", "all three", "worse"})
