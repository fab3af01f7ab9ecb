"""Contact sheets of training clips: queries, frames and labels side by side."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from egohieraloc.files import atomic_path
from egohieraloc.images import write_image
from egohieraloc.training.batches import ClipBatch
from egohieraloc.types import Rgb

TILE_PX = 224
OVERVIEW_QUALITY = 85
TRUTH, BOX, ABSENT = (0, 255, 0), (255, 220, 0), (255, 40, 40)


def contact_sheet(batch: ClipBatch) -> Rgb:
    """One row per clip: query with its box, query mask, then each frame with the true box and outline.

    A green bar above a frame means that the target is present, a red one that it is absent.
    """
    rows = [_row(batch, clip) for clip in range(len(batch.query))]
    return np.concatenate(rows)


def write_contact_sheet(folder: str | Path, batch: ClipBatch) -> None:
    """Write `contact_sheet.png` at full size and an overview of it, `contact_sheet.jpg`."""
    sheet = contact_sheet(batch)
    write_image(Path(folder) / "contact_sheet.png", sheet)
    with atomic_path(Path(folder) / "contact_sheet.jpg") as temporary:
        bgr = cv2.cvtColor(overview(sheet), cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(temporary), bgr, [cv2.IMWRITE_JPEG_QUALITY, OVERVIEW_QUALITY])


def overview(sheet: Rgb) -> Rgb:
    """The sheet in two columns at half size."""
    height, width = sheet.shape[:2]
    middle = -(-(height // (2 * TILE_PX)) // 2) * 2 * TILE_PX  # whole rows
    rest = np.zeros((middle, width, 3), np.uint8)
    rest[: height - middle] = sheet[middle:]
    columns = np.concatenate([sheet[:middle], rest], 1)
    small: Rgb = cv2.resize(columns, (width, middle // 2), interpolation=cv2.INTER_AREA)
    return small


def _row(batch: ClipBatch, clip: int) -> Rgb:
    query = _pixels(batch.query[clip])
    scale = TILE_PX / query.shape[0]
    query = cv2.resize(query, (TILE_PX, TILE_PX), interpolation=cv2.INTER_AREA)
    x1, y1, x2, y2 = (int(v) for v in (batch.query_box[clip] * scale).round().tolist())
    cv2.rectangle(query, (x1, y1), (x2 - 1, y2 - 1), BOX, 1)
    mask = _pixels(batch.query_mask[clip].expand(3, -1, -1))
    tiles = [query, cv2.resize(mask, (TILE_PX, TILE_PX), interpolation=cv2.INTER_AREA)]
    for time in range(batch.frames.shape[1]):
        frame = _pixels(batch.frames[clip, time])
        present = bool(batch.presence[clip, time] > 0.5)
        _draw_truth(frame, batch.masks[clip, time].cpu().numpy(), batch.boxes[clip, time].tolist(), present)
        tiles.append(_on_tile(frame))
    left = np.concatenate(tiles[:2])
    return np.concatenate([left, *tiles[2:]], 1)


def _on_tile(frame: Rgb) -> Rgb:
    """A frame of any shape on a square of two tiles, black beside it."""
    scale = 2 * TILE_PX / max(frame.shape[:2])
    height, width = (round(side * scale) for side in frame.shape[:2])
    tile = np.zeros((2 * TILE_PX, 2 * TILE_PX, 3), np.uint8)
    tile[:height, :width] = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)
    return tile


def _draw_truth(frame: Rgb, mask: NDArray[np.float32], box: list[float], present: bool) -> None:
    height, width = frame.shape[:2]
    solid = (cv2.resize(mask, (width, height)) > 0.5).astype(np.uint8)
    outlines, _ = cv2.findContours(solid, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(frame, outlines, -1, TRUTH, 1)
    if present:
        x1, y1, x2, y2 = (int(v) for v in box)
        cv2.rectangle(frame, (x1, y1), (x2 - 1, y2 - 1), BOX, 1)
    frame[:4] = TRUTH if present else ABSENT


def _pixels(image: torch.Tensor) -> Rgb:
    """(3, H, W) in [0, 1] to RGB."""
    array = image.permute(1, 2, 0).float().cpu().numpy()
    return np.ascontiguousarray((array * 255).round().clip(0, 255).astype(np.uint8))
