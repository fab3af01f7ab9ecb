"""Reference images in the catalogue: those of a saved object, or of a question."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Literal

import cv2
import numpy as np

from egohieraloc.errors import DataError
from egohieraloc.query import Query
from egohieraloc.types import Box, Bytes, Mask, Rgb

Owner = Literal["object_id", "question_id"]
LONG_SIDE_PX, LEAST_BOX_PX = 1024, 8  # of an image that is only shown, and of what is looked for in it


def write_views(db: sqlite3.Connection, query: Query, owner: Owner, number: int) -> None:
    """Add all views of a query to an object or a question."""
    for view in query.views:
        mask = None if view.mask is None else _to_png(view.mask.astype(np.uint8) * 255)
        image = _to_png(cv2.cvtColor(view.image, cv2.COLOR_RGB2BGR))
        db.execute(
            f"INSERT INTO views ({owner}, image, mask, x1, y1, x2, y2, seen_at_s) VALUES (?,?,?,?,?,?,?,?)",
            (number, image, mask, *view.box.xyxy, view.seen_at_s),
        )


def shrunk(query: Query) -> Query:
    """The same query with smaller images, enough to be shown."""
    return Query.of_views(*map(_shrunk, query.views))


def _shrunk(view: Query) -> Query:
    height, width = view.image.shape[:2]
    scale = max(LONG_SIDE_PX / max(height, width), LEAST_BOX_PX / min(view.box.width, view.box.height))
    if scale >= 1:
        return view
    size = round(width * scale), round(height * scale)
    mask = None
    if view.mask is not None:
        mask = cv2.resize(view.mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    image = np.asarray(cv2.resize(view.image, size, interpolation=cv2.INTER_AREA), np.uint8)
    box = scaled(view.box, size[0] / width, size[1] / height)
    return Query(image, box, mask if mask is not None and mask.any() else None, view.seen_at_s)


def scaled(box: Box, across: float, down: float) -> Box:
    """A box in an image that became so many times as wide and as high."""
    return Box(box.x1 * across, box.y1 * down, box.x2 * across, box.y2 * down)


def read_views(rows: Sequence[sqlite3.Row]) -> Query:
    """The query of all views that the rows hold."""
    return Query.of_views(*(_view(row) for row in rows))


def _view(row: sqlite3.Row) -> Query:
    mask: Mask | None = None if row["mask"] is None else _from_png(row["mask"], cv2.IMREAD_GRAYSCALE) >= 128
    image: Rgb = cv2.cvtColor(_from_png(row["image"], cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    return Query(image, Box(*(row[side] for side in ("x1", "y1", "x2", "y2"))), mask, row["seen_at_s"])


def _to_png(pixels: Bytes) -> bytes:
    return bytes(cv2.imencode(".png", pixels)[1].tobytes())


def _from_png(data: bytes, flags: int) -> Bytes:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if pixels is None:
        raise DataError("A reference image in the memory's catalogue is damaged. Save the object again.")
    return np.asarray(pixels, np.uint8)
