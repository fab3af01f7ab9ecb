"""One object through an appearance: where a frame shows two that look alike, the boxes stay with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import cv2
import numpy as np

from egohieraloc.inference.mask_box import box_from_mask
from egohieraloc.inference.predict import MASK_STRIDE, Decoded
from egohieraloc.inference.temporal import Interval
from egohieraloc.types import Box

MARGIN = 0.5  # an object moves at most so many of its own sides between two samples
SPECK = 0.1  # of the area where the object was: a smaller part of a mask is no object


def steady(decoded: Mapping[int, Decoded], interval: Interval) -> dict[int, Decoded]:
    """The samples of an interval whose box was on another object, corrected.

    The walk begins at the surest sample and goes both ways. A sample whose box lies elsewhere than that
    before is corrected where its mask has a part near that one; where it has none, the object has moved.
    """
    known = [sample for sample in range(interval[0], interval[1] + 1) if sample in decoded]
    if not known:
        return {}
    start = known.index(max(known, key=lambda sample: decoded[sample].score))
    corrected: dict[int, Decoded] = {}
    for walk in (known[start + 1 :], known[:start][::-1]):
        last = decoded[known[start]].box
        for sample in walk:
            seen = decoded[sample]
            if not _near(seen.box, last):
                other = _part_near(seen, last)
                if other is not None:
                    corrected[sample] = seen = other
            last = seen.box
    return corrected


def _near(box: Box, last: Box) -> bool:
    reach_x, reach_y = MARGIN * last.width, MARGIN * last.height
    return (
        box.x1 < last.x2 + reach_x
        and last.x1 - reach_x < box.x2
        and box.y1 < last.y2 + reach_y
        and last.y1 - reach_y < box.y2
    )


def _part_near(seen: Decoded, last: Box) -> Decoded | None:
    """The part of the mask nearest to where the object was, if there is one."""
    _, labels = cv2.connectedComponents((seen.mask >= 128).astype(np.uint8))
    best: tuple[float, Decoded] | None = None
    for number in range(1, labels.max() + 1):
        mask = np.where(labels == number, seen.mask, 0).astype(np.uint8)
        tight = box_from_mask(mask / np.float32(255))
        if tight is None:
            continue
        box = Box(*(v * MASK_STRIDE for v in tight.xyxy))
        if box.area < SPECK * last.area:
            continue
        away = float(np.hypot(*np.subtract(box.center, last.center)))
        if _near(box, last) and (best is None or away < best[0]):
            best = away, replace(seen, box=box, mask=mask)
    return best[1] if best else None
