"""Tracker mode (appendix "VQL-to-VOT Transfer"): a box in one frame, an answer for every other.

The box's interior is the first mask, or what a mask provider (SAM) makes of it; with `propagate_above` the
mask of each frame is passed on to the next. A lost object is searched for with the original template and
with the last good one, and found again by either. Forward and backward are the same walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice

import numpy as np

from egohieraloc.config import TrackerConfig
from egohieraloc.errors import VideoError
from egohieraloc.inference.chunks import CHUNK, STRETCH
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Decoded, Predictor, PreparedQuery, SearchTemplate
from egohieraloc.inference.propagation import passed_on
from egohieraloc.models.qam import QamState
from egohieraloc.query import Query
from egohieraloc.types import Box, Frame, FramePrediction, Ints, Mask, Rgb
from egohieraloc.video.reader import Video

BACKWARD_FRAMES = 32  # frames decoded at a time when walking backwards


@dataclass(frozen=True, eq=False)
class EncodedSample:
    """One frame of a walk: its features, and its image for when it becomes a template."""

    index: int  # in the file
    time_s: float
    packed: PackedFeatures  # of this one frame
    image: Callable[[], Frame]


@dataclass(frozen=True, eq=False)
class _Template:
    query: PreparedQuery
    state: QamState


def follow(
    predictor: Predictor, shown: Frame, box: Box, samples: Iterable[EncodedSample], config: TrackerConfig
) -> Iterator[FramePrediction]:
    """Search one sample after the other for what `box` shows in the frame `shown`; an answer for each."""
    height, width = shown.rgb.shape[:2]
    letterbox = predictor.letterbox(width, height)
    original = _template(predictor, shown, box)
    updated: _Template | None = None
    shown_before: SearchTemplate | None = None
    for number, sample in enumerate(samples):
        answers: list[Decoded] = []
        templates: list[_Template] = []
        for each in (original, updated):
            if each is not None:
                wanted = each.query.beside(shown_before)
                (answer,), state = predictor.decode(wanted, sample.packed, each.state)
                answers.append(answer)
                templates.append(_Template(each.query, state))
        original, updated = templates[0], templates[1] if len(templates) > 1 else None
        best = max(answers, key=lambda a: a.score)
        shown_before = passed_on(predictor, sample.packed, best, config.propagate_above)
        found = letterbox.box_from_canvas(best.box).clipped(width, height)
        cells, mask_box = letterbox.mask_to_frame(best.mask)
        yield FramePrediction(sample.index, number, sample.time_s, best.score, found, cells >= 128, mask_box)
        due = config.template_update and (number + 1) % config.update_every == 0
        if due and best.score >= config.update_score and min(found.width, found.height) >= config.min_side_px:
            with suppress(VideoError):  # a damaged frame is no template
                updated = _template(predictor, sample.image(), found)


def stored_samples(video: Video, encoded: EncodedVideo, samples: Iterable[int]) -> Iterator[EncodedSample]:
    """Samples of an encoded video in any order; images are decoded only when asked for."""
    for _, group in groupby(samples, key=lambda sample: sample // STRETCH):
        stretch = list(group)
        packed = encoded.pick(stretch)
        for place, sample in enumerate(stretch):
            index = int(encoded.frame_index[sample])
            image = partial(video.frame, index)
            yield EncodedSample(index, float(encoded.time_s[sample]), packed[place : place + 1], image)


def encoded_samples(predictor: Predictor, video: Video, indices: Ints) -> Iterator[EncodedSample]:
    """Frames by number, which rise or fall throughout, encoded some at a time: each core takes one."""
    frames = _walk(video, indices)
    while some := list(islice(frames, CHUNK)):
        sides = [frame.rgb.shape[:2] for frame in some]
        packed = predictor.encode(
            [predictor.letterbox(w, h).apply(f.rgb) for f, (h, w) in zip(some, sides, strict=True)]
        )
        for place, frame in enumerate(some):
            features = packed[place : place + 1]
            yield EncodedSample(frame.index, frame.time_s, features, partial(_itself, frame))


def _itself(frame: Frame) -> Frame:
    return frame


def _template(predictor: Predictor, frame: Frame, box: Box) -> _Template:
    """A template from a frame, the box's interior being the mask unless a provider makes one."""
    mask = _interior(box, frame.rgb) if predictor.provider is None else None
    query = predictor.prepare(Query(frame.rgb, box, mask, frame.time_s))
    return _Template(query, predictor.start(query))


def _interior(box: Box, rgb: Rgb) -> Mask:
    height, width = rgb.shape[:2]
    mask = np.zeros((height, width), bool)
    x1, y1, x2, y2 = (round(v) for v in box.clipped(width, height).xyxy)
    mask[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] = True
    return mask


def _walk(video: Video, indices: Ints) -> Iterator[Frame]:
    """Frames in the given order, which rises or falls throughout; falling ones are decoded block by block."""
    if len(indices) < 2 or indices[-1] > indices[0]:
        yield from video.frames(indices)
        return
    for start in range(0, len(indices), BACKWARD_FRAMES):
        block = np.flip(indices[start : start + BACKWARD_FRAMES])
        yield from reversed(list(video.frames(block)))
