"""Clips cut from footage: a query, T consecutive frames with and without the object, and their labels.

A clip is a function of the seed, the step and its index in the batch. S query side, F frame side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from egohieraloc.boxes import mask_to_box
from egohieraloc.config import NetworkConfig
from egohieraloc.data.base import Ints
from egohieraloc.errors import QueryError, VideoError
from egohieraloc.inference.query_window import QueryWindow, cut_window
from egohieraloc.query import Query
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.footage.footage import AnnotatedFrame, Footage, FootageConfig, FootageObject
from egohieraloc.types import Box, Mask, Rgb
from egohieraloc.video.letterbox import Letterbox

MASK_STRIDE = 4
ATTEMPTS = 5  # at drawing a clip without damaged frames
LOCATION_ATTEMPTS = 20  # at drawing an object from another location


class FootageClips:
    """Clips of one data set, or of two: then the second has `visor_share` of every batch, evenly spread."""

    def __init__(
        self,
        footage: Sequence[Footage],
        config: FootageConfig,
        network: NetworkConfig,
        *,
        batch: int,
        seed: int,
    ) -> None:
        self._footage, self._config, self._network = tuple(footage), config, network
        self._batch, self._seed = batch, seed
        identities = [target.identity for part in footage for target in part.objects]
        self._source = {name: number for number, name in enumerate(dict.fromkeys(identities))}

    def __getitem__(self, key: tuple[int, int]) -> ClipBatch:
        """The clip at (step, index in the batch), as a batch of one. Images and masks are still uint8."""
        for attempt in range(ATTEMPTS):
            try:
                return self._clip(np.random.default_rng([self._seed, *key, attempt]), *key)
            except (VideoError, QueryError) as error:
                problem = error
        raise problem

    def _clip(self, rng: np.random.Generator, step: int, index: int) -> ClipBatch:
        footage = self._footage[self._data_set(step * self._batch + index)]
        target = footage.objects[int(rng.integers(len(footage.objects)))]
        shown, frames = self._draw_frames(rng, footage, target)
        unique, order = np.unique(frames, return_inverse=True)
        annotated = footage.annotated_frames(shown, unique)
        if shown is not target:
            annotated = [AnnotatedFrame(frame.image) for frame in annotated]
        query = self._draw_query(rng, footage, target, frames)
        most = self._config.brightness
        clip_gain, query_gain = rng.uniform(1 - most, 1 + most, 2)
        return _as_batch(
            query,
            [_on_canvas(annotated[k], self._network.input_size, clip_gain) for k in order],
            query_gain,
            source=self._source[target.identity],
            trust=footage.trust,
        )

    def _data_set(self, number: int) -> int:
        """Index of the data set that a clip is from, by the clip's number over all steps."""
        share = self._config.visor_share if len(self._footage) > 1 else 0.0
        return math.floor((number + 1) * share) - math.floor(number * share)

    def _draw_frames(
        self, rng: np.random.Generator, footage: Footage, target: FootageObject
    ) -> tuple[FootageObject, Ints]:
        """T frames, and the object whose clip they are from.

        It is the target, or, if the target should be absent and never is, an object from another location.
        """
        absent = rng.random() < self._config.absent_share
        found = windows(target, self._config.clip_frames, absent=absent)
        if len(found) == 0:
            drawn = (footage.objects[k] for k in rng.integers(len(footage.objects), size=LOCATION_ATTEMPTS))
            target = next((other for other in drawn if other.location != target.location), target)
            found = windows(target, self._config.clip_frames, absent=False)
        return target, found[rng.integers(len(found))]

    def _draw_query(
        self, rng: np.random.Generator, footage: Footage, target: FootageObject, frames: Ints
    ) -> QueryWindow:
        """The annotated crop, or one from the track, if possible from a frame not in the clip; rotated."""
        track = np.setdiff1d(target.boxes.frames, frames)
        if len(track) == 0:
            track = target.boxes.frames
        frame = track[rng.integers(len(track))]
        if target.crop_frame is not None and rng.random() >= self._config.replaced_share:
            frame = target.crop_frame
        most, network = self._config.query_rotation_deg, self._network
        annotated = footage.annotated_frames(target, np.array([frame]))[0]
        query = rotated_query(annotated, rng.uniform(-most, most), network.query_window)
        return cut_window(query, share=network.query_window, size=network.query_sizes[0])


def windows(target: FootageObject, length: int, *, absent: bool) -> Ints:
    """Runs (W, length) of labelled frames: with the object in some of them or, if `absent`, in none.

    If there are fewer than `length` frames, the last one is repeated.
    """
    frames = target.labelled
    if len(frames) < length:
        frames = np.concatenate([frames, np.repeat(frames[-1:], length - len(frames))])
    runs = sliding_window_view(frames, length)
    chosen: Ints = runs[np.isin(runs, target.boxes.frames).any(1) != absent]
    return chosen


def rotated_query(annotated: AnnotatedFrame, angle_deg: float, share: float) -> Query:
    """The object rotated about its centre, with the surroundings that a query window of `share` may show."""
    if annotated.box is None or annotated.mask is None:
        raise QueryError("A frame annotated with an object does not show it: the mask is empty.")
    side = math.ceil(share * math.hypot(annotated.box.width, annotated.box.height)) + 2
    cos, sin = math.cos(math.radians(angle_deg)), math.sin(math.radians(angle_deg))
    rotation = np.array([[cos, -sin], [sin, cos]])
    # Our pixel centres are at half-integers, OpenCV's at integers.
    shift = rotation @ (0.5 - np.array(annotated.box.center)) + side / 2 - 0.5
    transform = np.column_stack([rotation, shift])

    def rotate(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        rotated: NDArray[np.uint8] = cv2.warpAffine(pixels, transform, (side, side), flags=cv2.INTER_LINEAR)
        return rotated

    mask = rotate(annotated.mask.astype(np.uint8) * 255) > 127
    box = mask_to_box(mask)
    if box is None:
        raise QueryError("An object is too small to be rotated.")
    return Query(rotate(annotated.image), box, mask)


def _on_canvas(
    annotated: AnnotatedFrame, size: int, gain: float
) -> tuple[Rgb, NDArray[np.uint8], Box | None]:
    """Image (F, F, 3), mask (F/4, F/4) from 0 to 255, and box on the network's canvas."""
    height, width = annotated.image.shape[:2]
    letterbox = Letterbox(width, height, size, square=True)
    cells = size // MASK_STRIDE
    image = brightened(letterbox.apply(annotated.image), gain)
    if annotated.mask is None or annotated.box is None:
        return image, np.zeros((cells, cells), np.uint8), None
    mask = cv2.resize(_as_uint8(annotated.mask), letterbox.content_size, interpolation=cv2.INTER_AREA)
    canvas = np.zeros((size, size), np.uint8)
    (left, top), (wide, high) = letterbox.offset, letterbox.content_size
    canvas[top : top + high, left : left + wide] = mask
    coarse = cv2.resize(canvas, (cells, cells), interpolation=cv2.INTER_AREA)
    return image, coarse, letterbox.box_to_canvas(annotated.box.clipped(width, height))


def brightened(image: Rgb, gain: float) -> Rgb:
    scaled: Rgb = cv2.convertScaleAbs(image, alpha=gain)
    return scaled


def _as_batch(
    query: QueryWindow,
    frames: Sequence[tuple[Rgb, NDArray[np.uint8], Box | None]],
    query_gain: float,
    *,
    source: int,
    trust: float,
) -> ClipBatch:
    """A batch of one clip."""
    assert query.mask is not None  # annotated frames that show the object have one
    images, masks, boxes = zip(*frames, strict=True)
    corners = [box.xyxy if box else (0.0, 0.0, 0.0, 0.0) for box in boxes]
    mask_values = torch.from_numpy(np.stack(masks))[None]
    return ClipBatch(
        query=_channels_first(brightened(query.rgb, query_gain))[None],
        query_mask=torch.from_numpy(_as_uint8(query.mask))[None, None],
        query_box=torch.from_numpy(query.box * query.rgb.shape[0]).float()[None],
        frames=torch.stack([_channels_first(image) for image in images])[None],
        masks=mask_values,
        boxes=torch.tensor([corners]),
        presence=torch.tensor([[float(box is not None) for box in boxes]]),
        source=torch.tensor([source]),
        shown=torch.tensor([[source]]),
        distractor_masks=torch.zeros_like(mask_values),
        trust=torch.tensor([trust]),
    )


def _channels_first(image: Rgb) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1).contiguous()


def _as_uint8(mask: Mask) -> NDArray[np.uint8]:
    return mask.astype(np.uint8) * np.uint8(255)
