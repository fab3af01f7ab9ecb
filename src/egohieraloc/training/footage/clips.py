"""Clips cut from footage: a query, T consecutive frames with and without the object, and the truth.

A clip is a function of the seed, the step and its place in the batch. S query side, F frame side.
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
from egohieraloc.training.footage.footage import Footage, FootageConfig, FootageObject, View
from egohieraloc.types import Box, Mask, Rgb
from egohieraloc.video.letterbox import Letterbox

MASK_STRIDE = 4
ATTEMPTS = 5  # when frames are damaged
ELSEWHERE = 20  # draws in which an object of another place should have come up


class FootageClips:
    """One data set as clips, or two: then the second has `visor_share` of every batch, evenly spread."""

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
        same = [target.same for part in footage for target in part.objects]
        self._number = {name: number for number, name in enumerate(dict.fromkeys(same))}

    def __getitem__(self, place: tuple[int, int]) -> ClipBatch:
        """The clip at (step, place in the batch), as a batch of one. Images and masks are still bytes."""
        for attempt in range(ATTEMPTS):
            try:
                return self._clip(np.random.default_rng([self._seed, *place, attempt]), *place)
            except (VideoError, QueryError) as error:
                problem = error
        raise problem

    def _clip(self, rng: np.random.Generator, step: int, index: int) -> ClipBatch:
        footage = self._footage[self._which(step * self._batch + index)]
        target = footage.objects[int(rng.integers(len(footage.objects)))]
        shown, frames = self._draw_frames(rng, footage, target)
        unique, order = np.unique(frames, return_inverse=True)
        seen = footage.views(shown, unique)
        views = [seen[k] if shown is target else View(seen[k].image) for k in order]
        query = self._draw_query(rng, footage, target, frames)
        most = self._config.brightness
        clip_gain, query_gain = rng.uniform(1 - most, 1 + most, 2)
        return _packed(
            query,
            [_on_canvas(view, self._network.input_size, clip_gain) for view in views],
            query_gain,
            source=self._number[target.same],
            trust=footage.trust,
        )

    def _which(self, number: int) -> int:
        """The data set of a clip, by its number over all steps."""
        share = self._config.visor_share if len(self._footage) > 1 else 0.0
        return math.floor((number + 1) * share) - math.floor(number * share)

    def _draw_frames(
        self, rng: np.random.Generator, footage: Footage, target: FootageObject
    ) -> tuple[FootageObject, Ints]:
        """T frames, and of which object they are: where this one is never absent, of one in another place."""
        absent = rng.random() < self._config.absent_share
        found = windows(target, self._config.clip_frames, absent=absent)
        if len(found) == 0:
            drawn = (footage.objects[k] for k in rng.integers(len(footage.objects), size=ELSEWHERE))
            target = next((other for other in drawn if other.place != target.place), target)
            found = windows(target, self._config.clip_frames, absent=False)
        return target, found[rng.integers(len(found))]

    def _draw_query(
        self, rng: np.random.Generator, footage: Footage, target: FootageObject, frames: Ints
    ) -> QueryWindow:
        """The annotated crop or one of the track, if possible not of a frame of the clip; turned."""
        track = np.setdiff1d(target.boxes.frames, frames)
        if len(track) == 0:
            track = target.boxes.frames
        frame = track[rng.integers(len(track))]
        if target.crop_frame is not None and rng.random() >= self._config.replaced_share:
            frame = target.crop_frame
        most, network = self._config.query_rotation_deg, self._network
        view = footage.views(target, np.array([frame]))[0]
        query = turned(view, rng.uniform(-most, most), network.query_window)
        return cut_window(query, share=network.query_window, size=network.query_sizes[0])


def windows(target: FootageObject, length: int, *, absent: bool) -> Ints:
    """Runs (W, length) of known frames that show the object, or that do not; short ones repeat their last."""
    known = target.known
    if len(known) < length:
        known = np.concatenate([known, np.repeat(known[-1:], length - len(known))])
    runs = sliding_window_view(known, length)
    return runs[np.isin(runs, target.boxes.frames).any(1) != absent]


def turned(view: View, angle_deg: float, share: float) -> Query:
    """The object turned about its middle, with as much round it as a query window of `share` may show."""
    if view.box is None or view.mask is None:
        raise QueryError("A frame that should show its object does not: its mask is empty.")
    side = math.ceil(share * math.hypot(view.box.width, view.box.height)) + 2
    cos, sin = math.cos(math.radians(angle_deg)), math.sin(math.radians(angle_deg))
    rotation = np.array([[cos, -sin], [sin, cos]])
    # Pixel centres are at halves, OpenCV's at integers.
    shift = rotation @ (0.5 - np.array(view.box.center)) + side / 2 - 0.5
    transform = np.column_stack([rotation, shift])

    def turn(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return cv2.warpAffine(pixels, transform, (side, side), flags=cv2.INTER_LINEAR)

    mask = turn(view.mask.astype(np.uint8) * 255) > 127
    box = mask_to_box(mask)
    if box is None:
        raise QueryError("An object is too small to be turned.")
    return Query(turn(view.image), box, mask)


def _on_canvas(view: View, size: int, gain: float) -> tuple[Rgb, NDArray[np.uint8], Box | None]:
    """The image (F, F, 3), the mask (F/4, F/4) in bytes and the box on the network's canvas."""
    height, width = view.image.shape[:2]
    letterbox = Letterbox(width, height, size)
    cells = size // MASK_STRIDE
    image = brightened(letterbox.apply(view.image), gain)
    if view.mask is None or view.box is None:
        return image, np.zeros((cells, cells), np.uint8), None
    mask = cv2.resize(_bytes(view.mask), letterbox.content_size, interpolation=cv2.INTER_AREA)
    canvas = np.zeros((size, size), np.uint8)
    (left, top), (wide, high) = letterbox.offset, letterbox.content_size
    canvas[top : top + high, left : left + wide] = mask
    coarse = cv2.resize(canvas, (cells, cells), interpolation=cv2.INTER_AREA)
    return image, coarse, letterbox.box_to_canvas(view.box.clipped(width, height))


def brightened(image: Rgb, gain: float) -> Rgb:
    return cv2.convertScaleAbs(image, alpha=gain)


def _packed(
    query: QueryWindow,
    frames: Sequence[tuple[Rgb, NDArray[np.uint8], Box | None]],
    query_gain: float,
    *,
    source: int,
    trust: float,
) -> ClipBatch:
    """A batch of one."""
    assert query.mask is not None  # every view of an object has one
    images, masks, boxes = zip(*frames, strict=True)
    corners = [box.xyxy if box else (0.0, 0.0, 0.0, 0.0) for box in boxes]
    mask_bytes = torch.from_numpy(np.stack(masks))[None]
    return ClipBatch(
        query=_channels_first(brightened(query.rgb, query_gain))[None],
        query_mask=torch.from_numpy(_bytes(query.mask))[None, None],
        query_box=torch.from_numpy(query.box * query.rgb.shape[0]).float()[None],
        frames=torch.stack([_channels_first(image) for image in images])[None],
        masks=mask_bytes,
        boxes=torch.tensor([corners]),
        presence=torch.tensor([[float(box is not None) for box in boxes]]),
        source=torch.tensor([source]),
        shown=torch.tensor([[source]]),
        distractor_masks=torch.zeros_like(mask_bytes),
        trust=torch.tensor([trust]),
    )


def _channels_first(image: Rgb) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1).contiguous()


def _bytes(mask: Mask) -> NDArray[np.uint8]:
    return mask.astype(np.uint8) * np.uint8(255)
