"""VISOR as footage: real masks of the objects in kitchens, sparse or dense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from egohieraloc.boxes import mask_to_box
from egohieraloc.data.base import Ints, Track
from egohieraloc.data.visor import DENSE_SIZE, SPARSE_SIZE, VisorFrame, read_visor
from egohieraloc.errors import DataError
from egohieraloc.images import read_image
from egohieraloc.training.footage.footage import FootageObject, View, large_enough
from egohieraloc.types import Mask

FIRST_BODY_CLASS = 300  # beyond the nouns of EPIC-KITCHENS come hands, gloves and feet
GAP = 10  # video frames between two that are used: dense annotations come 50 or 60 times a second


class VisorFootage:
    """All annotated objects with an image: `<images>/<video>/<name>`. Frames are counted over all videos."""

    trust = 1.0

    def __init__(self, annotations: Path, images: Path, *, dense: bool) -> None:
        files = sorted(annotations.glob("*.json"))
        if not files:
            raise DataError(f"{annotations} holds no *.json. Give the folder of VISOR's annotations.")
        self.objects: list[FootageObject] = []
        self._frames: list[VisorFrame] = []
        self._images = images
        size = DENSE_SIZE if dense else SPARSE_SIZE
        for file in files:
            frames = self._with_images(read_visor(file, dense=dense))
            for _, stretch in groupby(frames, key=lambda frame: (frame.video, frame.subsequence)):
                start = len(self._frames)
                self._frames += _spread(stretch)
                self.objects += self._objects(range(start, len(self._frames)), size)
        if not self.objects:
            raise DataError(f"No object of {annotations} has an image <video>/<name> in {images}.")

    def _with_images(self, frames: Iterable[VisorFrame]) -> Iterator[VisorFrame]:
        there: dict[str, set[str]] = {}
        for frame in frames:
            if frame.video not in there:
                folder = self._images / frame.video
                there[frame.video] = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
            if frame.name in there[frame.video]:
                yield frame

    def _objects(self, stretch: range, size: tuple[int, int]) -> Iterator[FootageObject]:
        """An object goes by its name; in the frames of a stretch that do not name it, it is not seen."""
        found: dict[str, list[tuple[int, tuple[float, float, float, float]]]] = {}
        for place in stretch:
            for name, extent in _extents(self._frames[place], size).items():
                found.setdefault(name, []).append((place, extent))
        for name, boxes in found.items():
            track = large_enough(Track.from_boxes([place for place, _ in boxes], [box for _, box in boxes]))
            too_small = {place for place, _ in boxes} - set(track.frames.tolist())
            if len(track):
                frame = self._frames[stretch[0]]
                yield FootageObject(
                    name=f"{frame.video} {frame.subsequence} {name}",
                    same=f"{frame.video}: {name}",
                    place=frame.video.split("_")[0],  # the participant, who has one kitchen
                    key=name,
                    boxes=track,
                    width=size[0],
                    height=size[1],
                    known=np.array([place for place in stretch if place not in too_small]),
                )

    def views(self, target: FootageObject, frames: Ints) -> list[View]:
        return [self._view(target, self._frames[int(frame)]) for frame in frames]

    def _view(self, target: FootageObject, frame: VisorFrame) -> View:
        image = read_image(self._images / frame.video / frame.name)
        mask = _mask(frame, target.key, *image.shape[:2])
        box = mask_to_box(mask)
        return View(image, box, mask) if box else View(image)


def _spread(frames: Iterable[VisorFrame]) -> list[VisorFrame]:
    """Frames in order, none too close to the one before."""
    kept: list[VisorFrame] = []
    for frame in sorted(frames, key=lambda frame: frame.frame_index or 0):
        number, last = frame.frame_index, kept[-1].frame_index if kept else None
        if number is None or last is None or number - last >= GAP:
            kept.append(frame)
    return kept


def _extents(frame: VisorFrame, size: tuple[int, int]) -> dict[str, tuple[float, float, float, float]]:
    """The box round all polygons of each name, cut off at the image's border."""
    corners: dict[str, list[np.ndarray]] = {}
    for target in frame.objects:
        if target.class_id is None or target.class_id < FIRST_BODY_CLASS:
            corners.setdefault(target.name, []).extend(target.polygons)
    extents = {}
    for name, polygons in corners.items():
        if polygons:
            points = np.clip(np.concatenate(polygons), 0, size)
            extents[name] = (*points.min(0).tolist(), *points.max(0).tolist())
    return extents


def _mask(frame: VisorFrame, name: str, height: int, width: int) -> Mask:
    mask = np.zeros((height, width), bool)
    for target in frame.objects:
        if target.name == name:
            mask |= target.mask(width=width, height=height)
    return mask
