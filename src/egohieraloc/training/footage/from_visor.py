"""VISOR as footage: objects in kitchens with real masks, from the sparse or the dense annotations."""

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
from egohieraloc.training.footage.footage import AnnotatedFrame, FootageObject, drop_small_boxes
from egohieraloc.types import Floats, Mask

FIRST_BODY_CLASS = 300  # after the nouns of EPIC-KITCHENS: hands, gloves and feet
MIN_FRAME_GAP = 10  # video frames between two that are used; dense annotations have 50 or 60 per second


class VisorFootage:
    """All annotated objects with images `<images>/<video>/<name>`. Frames are numbered over all videos."""

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
                self._frames += _thinned(stretch)
                self.objects += self._objects(range(start, len(self._frames)), size)
        if not self.objects:
            raise DataError(f"No object of {annotations} has an image <video>/<name> in {images}.")

    def _with_images(self, frames: Iterable[VisorFrame]) -> Iterator[VisorFrame]:
        names: dict[str, set[str]] = {}
        for frame in frames:
            if frame.video not in names:
                folder = self._images / frame.video
                names[frame.video] = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
            if frame.name in names[frame.video]:
                yield frame

    def _objects(self, stretch: range, size: tuple[int, int]) -> Iterator[FootageObject]:
        """Objects are told apart by name. A frame without the name is not labelled: annotators name what is
        handled, so the object may be in view all the same. Frames of other kitchens do not show it.
        """
        found: dict[str, list[tuple[int, tuple[float, float, float, float]]]] = {}
        for number in stretch:
            for name, box in _boxes(self._frames[number], size).items():
                found.setdefault(name, []).append((number, box))
        for name, boxes in found.items():
            numbers = [number for number, _ in boxes]
            track = drop_small_boxes(Track.from_boxes(numbers, [box for _, box in boxes]))
            if len(track):
                frame = self._frames[stretch[0]]
                yield FootageObject(
                    name=f"{frame.video} {frame.subsequence} {name}",
                    identity=f"{frame.video}: {name}",
                    location=frame.video.split("_")[0],  # the participant, who has one kitchen
                    key=name,
                    boxes=track,
                    width=size[0],
                    height=size[1],
                    labelled=track.frames,
                )

    def annotated_frames(self, target: FootageObject, frames: Ints) -> list[AnnotatedFrame]:
        return [self._annotated(target, self._frames[int(frame)]) for frame in frames]

    def _annotated(self, target: FootageObject, frame: VisorFrame) -> AnnotatedFrame:
        image = read_image(self._images / frame.video / frame.name)
        mask = _mask(frame, target.key, *image.shape[:2])
        box = mask_to_box(mask)
        return AnnotatedFrame(image, box, mask) if box else AnnotatedFrame(image)


def _thinned(frames: Iterable[VisorFrame]) -> list[VisorFrame]:
    """The frames in order, without those too close to the one before."""
    kept: list[VisorFrame] = []
    for frame in sorted(frames, key=lambda frame: frame.frame_index or 0):
        number, last = frame.frame_index, kept[-1].frame_index if kept else None
        if number is None or last is None or number - last >= MIN_FRAME_GAP:
            kept.append(frame)
    return kept


def _boxes(frame: VisorFrame, size: tuple[int, int]) -> dict[str, tuple[float, float, float, float]]:
    """The box around all polygons of each name, clipped to the image."""
    found: dict[str, list[Floats]] = {}
    for annotated in frame.objects:
        if annotated.class_id is None or annotated.class_id < FIRST_BODY_CLASS:
            found.setdefault(annotated.name, []).extend(annotated.polygons)
    boxes = {}
    for name, polygons in found.items():
        if polygons:
            points = np.clip(np.concatenate(polygons), 0, size)
            boxes[name] = (*points.min(0).tolist(), *points.max(0).tolist())
    return boxes


def _mask(frame: VisorFrame, name: str, height: int, width: int) -> Mask:
    mask = np.zeros((height, width), bool)
    for annotated in frame.objects:
        if annotated.name == name:
            mask |= annotated.mask(width=width, height=height)
    return mask
