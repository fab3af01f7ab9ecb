"""A second look: the best appearances of a question, read again from the video and seen from close by.

The first look sees whole frames at the network's input size, in which a small object covers a cell or two.
The second cuts squares out of the original frames, a few times as wide as what was found, and decodes them
with the same query. It says again how sure the network is, and where the object ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from egohieraloc.errors import VideoError
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.temporal import Interval
from egohieraloc.types import Box, Rgb
from egohieraloc.video.letterbox import Letterbox

CLOSER = 1.2  # a square that is not magnified by this much more than the frame was shows nothing new
SURE = 0.5  # boxes and masks of a second look that scores lower are not taken
SMALLEST = 1e-6  # keeps logits finite
APART = 2  # samples that lie at least so far from each other show more than one moment


@dataclass(frozen=True, eq=False)
class SecondLook:
    """What the close views of one appearance say."""

    logit: float | None  # that they show the object: the mean over the squares; None where nothing is closer
    decoded: Mapping[int, Decoded]  # by sample, on the canvas of the first look


@dataclass(frozen=True)
class Square:
    """A part of a frame, in pixels."""

    left: int
    top: int
    side: int

    @classmethod
    def round(cls, box: Box, share: float, width: int, height: int) -> Square:
        """The square round a box, `share` times its longer side wide, inside the frame where it can be."""
        side = int(np.clip(round(share * max(box.width, box.height)), 32, max(width, height)))
        x, y = box.center

        def corner(middle: float, length: int) -> int:
            free = length - side
            return round(min(max(middle - side / 2, 0), free)) if free >= 0 else free // 2

        return cls(corner(x, width), corner(y, height), side)

    def cut(self, rgb: Rgb, size: int) -> Rgb:
        """The part of the image, scaled to size x size; black where there is none."""
        height, width = rgb.shape[:2]
        part = np.zeros((self.side, self.side, 3), np.uint8)
        x1, y1 = max(self.left, 0), max(self.top, 0)
        x2, y2 = min(self.left + self.side, width), min(self.top + self.side, height)
        part[y1 - self.top : y2 - self.top, x1 - self.left : x2 - self.left] = rgb[y1:y2, x1:x2]
        shrinks = size < self.side
        way = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(part, (size, size), interpolation=way), np.uint8)

    def onto_canvas(self, seen: Decoded, letterbox: Letterbox) -> Decoded:
        """What was seen in the square, which had a canvas of its own, on the canvas of the whole frame."""
        cell = letterbox.size / seen.mask.shape[0]  # as large on both
        per_pixel = self.side / letterbox.size
        corners = np.array(seen.box.xyxy).reshape(2, 2) * per_pixel + (self.left, self.top)
        box = Box(*letterbox.points_to_canvas(corners).ravel().tolist())
        spread = per_pixel * np.array(letterbox.scale)  # canvas cells per cell of the square
        origin = letterbox.points_to_canvas(np.array([self.left, self.top])) / cell
        shift = origin + spread / 2 - 0.5
        matrix = np.array([[spread[0], 0, shift[0]], [0, spread[1], shift[1]]])
        columns, rows = (round(side / cell) for side in letterbox.canvas_size)
        return replace(seen, box=box, mask=cv2.warpAffine(seen.mask, matrix, (columns, rows)))


@dataclass(frozen=True)
class _View:
    """A square to be looked at."""

    appearance: int
    sample: int
    square: Square


def look_again(
    search: QuerySearch, decoded: Mapping[int, Decoded], appearances: Sequence[Interval]
) -> list[SecondLook] | None:
    """A second look at each appearance; None where the video's frames cannot be read.

    An appearance that already fills its frames, or whose frames are damaged, has no closer view.
    """
    views = _views(search, decoded, appearances)
    try:
        frames = search.video.frames({view.sample for view in views}) if views else {}
    except (VideoError, OSError):
        return None
    views = [view for view in views if view.sample in frames]
    size = search.predictor.config.input_size
    crops = [view.square.cut(frames[view.sample].rgb, size) for view in views]
    seen = search.predictor.decode_images(search.query, crops)
    looks = []
    for number in range(len(appearances)):
        own = [(v, s) for v, s in zip(views, seen, strict=True) if v.appearance == number]
        if not own:
            looks.append(SecondLook(None, {}))
            continue
        closer = {}
        for view, answer in sorted(own, key=lambda pair: pair[1].score):  # the best of a sample comes last
            if answer.score >= SURE:
                letterbox = search.video.letterbox_at(view.sample)
                placed, before = view.square.onto_canvas(answer, letterbox), decoded[view.sample]
                closer[view.sample] = replace(placed, score=before.score, maps=before.maps)
        looks.append(SecondLook(float(np.mean([logit(answer.score) for _, answer in own])), closer))
    return looks


def _views(
    search: QuerySearch, decoded: Mapping[int, Decoded], appearances: Sequence[Interval]
) -> list[_View]:
    config, views = search.config, []
    for number, interval in enumerate(appearances):
        for sample in best_samples(decoded, interval, config.look_frames):
            letterbox = search.video.letterbox_at(sample)
            widest = search.predictor.config.input_size / min(letterbox.scale) / CLOSER
            box = letterbox.box_from_canvas(decoded[sample].box)
            for share in config.look_shares:
                square = Square.round(box, share, *letterbox.frame_size)
                if square.side <= widest:
                    views.append(_View(number, sample, square))
    return views


def best_samples(decoded: Mapping[int, Decoded], interval: Interval, count: int) -> list[int]:
    """The decoded samples of an interval that score highest, some way apart."""
    known = [sample for sample in range(interval[0], interval[1] + 1) if sample in decoded]
    chosen: list[int] = []
    for sample in sorted(known, key=lambda s: -decoded[s].score):
        if len(chosen) < count and all(abs(sample - other) >= APART for other in chosen):
            chosen.append(sample)
    return chosen


def logit(score: float) -> float:
    clipped = min(max(score, SMALLEST), 1 - SMALLEST)
    return math.log(clipped / (1 - clipped))
