"""Fit an image onto the network's canvas without changing its shape, and the exact way back.

Coordinates follow the half-pixel rule, so a point moves by one scale and one offset per axis. The scales are
those of the resized image, whose sides are whole pixels: they may differ from each other by a rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.types import Box, Floats, Rgb
from egohieraloc.video.canvas import Size, canvas_for

Cell = TypeVar("Cell", bound=np.generic)


@dataclass(frozen=True)
class Letterbox:
    """An image of width x height, centred on a canvas that is black where the image is not: the smallest that
    holds it, or with `square` size x size; see canvas.py."""

    width: int
    height: int
    size: int = 448
    square: bool = False  # the canvas is size x size, for images of different shapes side by side

    def __post_init__(self) -> None:
        if min(self.width, self.height, self.size) < 1:
            raise ValueError(f"Sizes must be at least 1 pixel, got {self.width}x{self.height}, {self.size}")

    @property
    def frame_size(self) -> Size:
        """Width and height of the image."""
        return self.width, self.height

    @cached_property
    def _sizes(self) -> tuple[Size, Size]:
        if not self.square:
            return canvas_for(self.width, self.height, self.size)
        scale = self.size / max(self.width, self.height)
        content = max(1, round(self.width * scale)), max(1, round(self.height * scale))
        return (self.size, self.size), content

    @property
    def canvas_size(self) -> Size:
        """Width and height of the canvas."""
        return self._sizes[0]

    @property
    def content_size(self) -> Size:
        """Width and height of the image on the canvas, in whole pixels."""
        return self._sizes[1]

    @property
    def offset(self) -> tuple[int, int]:
        """Where the image begins on the canvas."""
        (canvas_width, canvas_height), (width, height) = self._sizes
        return (canvas_width - width) // 2, (canvas_height - height) // 2

    @property
    def content(self) -> Box:
        """The part of the canvas that the image covers."""
        return Box.from_xywh(*self.offset, *self.content_size)

    @property
    def scale(self) -> tuple[float, float]:
        """Canvas pixels per image pixel, in x and y."""
        width, height = self.content_size
        return width / self.width, height / self.height

    def apply(self, rgb: Rgb) -> Rgb:
        """(height, width, 3), or an image that has its size on the canvas already, on the canvas."""
        (width, height), (left, top) = self.content_size, self.offset
        if rgb.shape[:2] not in ((self.height, self.width), (height, width)):
            raise ValueError(
                f"This letterbox is for {self.width}x{self.height}, got {rgb.shape[1]}x{rgb.shape[0]}"
            )
        if rgb.shape[:2] != (height, width):
            shrinks = width < self.width or height < self.height
            way = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
            rgb = cv2.resize(rgb, (width, height), interpolation=way)
        canvas_width, canvas_height = self.canvas_size
        canvas = np.zeros((canvas_height, canvas_width, 3), np.uint8)
        canvas[top : top + height, left : left + width] = rgb
        return canvas

    def points_to_canvas(self, points: NDArray[np.floating]) -> Floats:
        """Points (..., 2) of the image on the canvas."""
        return np.asarray(points, np.float64) * self.content_size / (self.width, self.height) + self.offset

    def points_from_canvas(self, points: NDArray[np.floating]) -> Floats:
        """Points (..., 2) of the canvas in the image; what lies on the border comes out outside."""
        return (np.asarray(points, np.float64) - self.offset) * (self.width, self.height) / self.content_size

    def box_to_canvas(self, box: Box) -> Box:
        return Box(*self.points_to_canvas(np.array(box.xyxy).reshape(2, 2)).ravel().tolist())

    def box_from_canvas(self, box: Box) -> Box:
        return Box(*self.points_from_canvas(np.array(box.xyxy).reshape(2, 2)).ravel().tolist())

    def mask_to_frame(self, mask: NDArray[Cell]) -> tuple[NDArray[Cell], Box]:
        """Crop a grid that covers the canvas to the cells that touch the image.

        Returns the cells and the box they cover in pixels of the image: the image itself, or up to one
        cell more on a side where the image ends inside a cell.
        """
        rows, columns = mask.shape
        (x, y), (width, height) = self.offset, self.content_size
        canvas_width, canvas_height = self.canvas_size
        left, top = x * columns // canvas_width, y * rows // canvas_height
        right = -(-(x + width) * columns // canvas_width)
        bottom = -(-(y + height) * rows // canvas_height)
        cell_x, cell_y = canvas_width / columns, canvas_height / rows
        covered = Box(left * cell_x, top * cell_y, right * cell_x, bottom * cell_y)
        return mask[top:bottom, left:right], self.box_from_canvas(covered)
