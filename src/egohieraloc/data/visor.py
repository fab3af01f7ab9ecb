"""VISOR: polygons of hands and objects in EPIC-Kitchens. Sparse files at 1920x1080, dense ones at 854x480."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from egohieraloc.data.base import reading
from egohieraloc.data.stream import stream_object
from egohieraloc.types import Floats, Mask

SPARSE_SIZE = (1920, 1080)
DENSE_SIZE = (854, 480)


@dataclass(frozen=True, eq=False)
class VisorObject:
    """One object in one frame."""

    uid: str
    name: str
    class_id: int | None
    exhaustive: str  # y, n or inconclusive: whether all objects of this class are marked
    in_contact_with: str | None  # hands: the uid of the object they hold
    on_which_hand: tuple[str, ...]  # gloves
    polygons: tuple[Floats, ...]  # each (N, 2), pixels
    width: int
    height: int

    def mask(self, *, width: int | None = None, height: int | None = None) -> Mask:
        """Its pixels, at the file's own size or another."""
        width, height = width or self.width, height or self.height
        scale = np.array([width / self.width, height / self.height])
        canvas = np.zeros((height, width), np.uint8)
        corners = [np.rint(polygon * scale).astype(np.int32) for polygon in self.polygons]
        cv2.fillPoly(canvas, corners, 1)
        return canvas.astype(bool)


@dataclass(frozen=True, eq=False)
class VisorFrame:
    """One annotated frame of a video."""

    video: str
    subsequence: str
    name: str
    frame_index: int | None  # from names like P01_01_frame_0000000123.jpg
    interpolated: bool  # dense files: made between two annotated frames
    objects: tuple[VisorObject, ...]


def read_visor(path: str | Path, *, dense: bool = False) -> Iterator[VisorFrame]:
    """Frames in the order of the file, one at a time: dense files are large."""
    size = DENSE_SIZE if dense else SPARSE_SIZE
    for member, item in stream_object(path, array="video_annotations"):
        if member != "video_annotations":
            continue
        with reading(str(path)):
            image = item["image"]
            name = image["name"]
        with reading(f"{path}: frame {name}"):
            number = re.search(r"frame_(\d+)", name)
            yield VisorFrame(
                video=image.get("video") or name.split("_frame_")[0],
                subsequence=image.get("subsequence") or "",
                name=name,
                frame_index=int(number[1]) if number else None,
                interpolated=str(item.get("type", 0)) == "1",
                objects=tuple(_object(o, size, f"{path}: frame {name}") for o in item["annotations"]),
            )


def _object(item: dict[str, Any], size: tuple[int, int], where: str) -> VisorObject:
    with reading(f"{where}, object {item.get('id') or item.get('name')}"):
        class_id, hands = item.get("class_id"), item.get("on_which_hand") or ()
        return VisorObject(
            uid=str(item.get("id") or ""),
            name=item["name"],
            class_id=None if class_id is None else int(class_id),
            exhaustive=item.get("exhaustive") or "",
            in_contact_with=item.get("in_contact_object"),
            on_which_hand=(hands,) if isinstance(hands, str) else tuple(hands),
            polygons=tuple(np.array(p, np.float64).reshape(-1, 2) for p in item["segments"] if p),
            width=size[0],
            height=size[1],
        )
