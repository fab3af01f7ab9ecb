"""The query: an image of an object, where in the image it is, and when it was seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from egohieraloc.errors import QueryError
from egohieraloc.images import read_image, read_mask
from egohieraloc.types import Box, Frame, Mask, Rgb

MIN_SIDE_PX = 2.0
MAX_VIEWS = 16  # of one query: each costs time in every sample that is searched closely


class HasFrames(Protocol):
    """What `Query.from_frame` and `from_time` need of a video."""

    def frame(self, index: int) -> Frame: ...

    def frame_at(self, time_s: float) -> Frame: ...


def parse_box(text: str) -> Box:
    """A box from `x,y,w,h`."""
    try:
        x, y, width, height = (float(part) for part in text.split(","))
        return Box.from_xywh(x, y, width, height)
    except ValueError as error:
        raise QueryError(f"A box is written x,y,w,h in pixels, got '{text}' ({error}).") from error


@dataclass(frozen=True, eq=False)
class Query:
    """An object in an image. `image` is a whole frame (its surroundings help) or only the crop.

    `Query.of_views` joins several images of one object into one query.
    """

    image: Rgb  # (H, W, 3)
    box: Box  # the object in `image`; the whole image when only a crop is given
    mask: Mask | None = None  # (H, W), the object's pixels where the user knows them
    seen_at_s: float | None = None  # when the crop was seen; when one asks is another value
    others: tuple[Query, ...] = ()  # further views of the same object, each without others of its own

    def __repr__(self) -> str:
        height, width = self.image.shape[:2]
        more = "" if self.seen_at_s is None else f", seen at {self.seen_at_s:.1f} s"
        more += f", {len(self.others)} more views" if self.others else ""
        return f"Query({width}x{height}, {self.box}{more})"

    def __post_init__(self) -> None:
        image = self.image
        if not (isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 3):
            raise QueryError(f"A query image must have shape (H, W, 3), got {np.shape(image)}.")
        if image.dtype != np.uint8:
            raise QueryError(f"A query image must be 8-bit RGB (uint8), got {image.dtype}.")
        if self.seen_at_s is not None and not math.isfinite(self.seen_at_s):
            raise QueryError(f"The time a query was seen must be a number of seconds, got {self.seen_at_s}.")
        height, width = image.shape[:2]
        given, inside = self.box, self.box.clipped(width, height)
        if min(inside.width, inside.height) < MIN_SIDE_PX:
            raise QueryError(
                f"A query needs 2 pixels either way, but of the box {','.join(f'{v:g}' for v in given.xywh)} "
                f"(x,y,w,h) only {inside.width:g}x{inside.height:g} lie in the image ({width}x{height})."
            )
        object.__setattr__(self, "box", inside)
        if self.mask is not None:
            if self.mask.shape != image.shape[:2] or self.mask.dtype != np.bool_:
                raise QueryError(
                    f"A query mask must be boolean of shape {image.shape[:2]}, "
                    f"got {self.mask.dtype} of {self.mask.shape}."
                )
            if not self.mask.any():
                raise QueryError("The query mask is empty: mark the object's pixels, or give no mask.")
        if len(self.others) >= MAX_VIEWS:
            raise QueryError(f"A query has at most {MAX_VIEWS} views, got {len(self.others) + 1}.")
        if any(view.others for view in self.others):
            raise QueryError("A further view has views of its own. Join all of them with Query.of_views.")

    @classmethod
    def of_views(cls, *views: Query) -> Query:
        """Several views of one object as one query; where only one can be shown, it is the first."""
        if not views:
            raise QueryError("A query needs at least one view of the object.")
        first, *others = (alone for view in views for alone in view.views)
        return replace(first, others=tuple(others))

    @classmethod
    def from_image(
        cls,
        image: Rgb | str | Path,
        *,
        box: Box | None = None,
        mask: Mask | str | Path | None = None,
        seen_at_s: float | None = None,
    ) -> Query:
        """From an image or its path: a crop, or with `box` a frame and where the object is in it."""
        pixels = read_image(image) if isinstance(image, str | Path) else image
        if pixels.size == 0:
            raise QueryError(f"The query image is empty: its shape is {pixels.shape}.")
        region = read_mask(mask) if isinstance(mask, str | Path) else mask
        return cls(pixels, box or Box(0, 0, pixels.shape[1], pixels.shape[0]), region, seen_at_s)

    @classmethod
    def from_frame(cls, video: HasFrames, *, index: int, box: Box, mask: Mask | None = None) -> Query:
        """From a frame of a video, by its number in the file."""
        frame = video.frame(index)
        return cls(frame.rgb, box, mask, frame.time_s)

    @classmethod
    def from_time(cls, video: HasFrames, *, time_s: float, box: Box, mask: Mask | None = None) -> Query:
        """From the frame shown at a moment of a video."""
        frame = video.frame_at(time_s)
        return cls(frame.rgb, box, mask, frame.time_s)

    @property
    def views(self) -> tuple[Query, ...]:
        """All views of the object, each as a query of its own."""
        return (replace(self, others=()), *self.others)

    @property
    def has_surroundings(self) -> bool:
        """Whether the image shows more than the object's box."""
        return bool(self.box.area < 0.95 * self.image.shape[0] * self.image.shape[1])

    @property
    def crop(self) -> Rgb:
        x1, y1, x2, y2 = (round(v) for v in self.box.xyxy)
        return self.image[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)]
