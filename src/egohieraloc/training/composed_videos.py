"""Questions with a known answer about long composed videos, as in real use: one clip shows the thing, if any.

The packs are cut into two halves that share neither an object nor a photo. The video of a question is its own
clip somewhere among all clips of the other half, so no other clip can show the thing. T frames a clip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from egohieraloc.data.base import Track
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.search import EncodedVideo, store_features
from egohieraloc.query import Query
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer import Composer
from egohieraloc.training.composer_config import ComposerConfig
from egohieraloc.training.packs import Packs
from egohieraloc.types import Box, Rgb

FPS = 5.0
BATCH = 4  # clips composed at a time

# Scanned objects only: masks of photos also show parts and surfaces nobody would ask for. The camera does
# not look away, so that a clip holds one appearance, and a query comes with its surroundings.
VIDEO_CLIPS = ComposerConfig(clip_frames=6, sprite_share=1.0, leave_share=0.0, crop_only_share=0.0)


@dataclass(frozen=True, eq=False)
class Question:
    """A query, the encoded video to search, and the truth on the network's canvas."""

    query: Query
    video: EncodedVideo
    truth: Track  # without frames when the thing is absent
    masks: NDArray[np.bool_]  # (frames of the track, h, w) at stride 4


@dataclass(frozen=True, eq=False)
class _Clip:
    query: Query
    packed: PackedFeatures
    presence: NDArray[np.bool_]  # (T,)
    boxes_xyxy: NDArray[np.float64]  # (T, 4)
    masks: NDArray[np.bool_]  # (T, h, w)


def compose_questions(
    packs: Packs,
    predictor: Predictor,
    scratch: Path,
    *,
    clips: int,
    config: ComposerConfig = VIDEO_CLIPS,
    seed: int = 0,
) -> Iterator[Question]:
    """As many questions as clips, half of them from each half of the packs. `scratch` holds the features."""
    halves = []
    for number, half in enumerate(halved(packs)):
        composer = Composer(half, config, predictor.device, 2 * seed + number)
        halves.append(list(_compose_clips(composer, predictor, clips // 2)))
    order = np.random.default_rng(seed)
    for side, (own, others) in enumerate((halves, halves[::-1])):
        for number, clip in enumerate(own):
            parts = list(others)
            place = int(order.integers(len(parts) + 1))
            parts.insert(place, clip)
            packed = PackedFeatures.cat([part.packed for part in parts])
            folder = scratch / f"question-{side}-{number}"
            start = place * config.clip_frames
            yield _question(clip, start, store_features(packed, folder, fps=FPS))


def halved(packs: Packs) -> tuple[Packs, Packs]:
    """Two packs without a common object or photo; objects that are hardly told apart stay together."""
    kinds = torch.unique(packs.sprite_id, return_inverse=True)[1]

    def half(remainder: int) -> Packs:
        objects = kinds % 2 == remainder
        masks = packs.mask_photo % 2 == remainder
        return replace(
            packs,
            photos=packs.photos[remainder::2],
            mask_crops=packs.mask_crops[masks],
            mask_photo=packs.mask_photo[masks] // 2,
            mask_box=packs.mask_box[masks],
            sprites=packs.sprites[objects],
            sprite_direction=packs.sprite_direction[objects],
            sprite_id=packs.sprite_id[objects],
        )

    return half(0), half(1)


def _compose_clips(composer: Composer, predictor: Predictor, count: int) -> Iterator[_Clip]:
    for step in range(-(-count // BATCH)):
        batch = composer.batch(step, min(BATCH, count - step * BATCH))
        for number in range(len(batch.query)):
            yield _clip(batch, number, predictor)


def _clip(batch: ClipBatch, number: int, predictor: Predictor) -> _Clip:
    frames = [_picture(frame) for frame in batch.frames[number]]
    index = np.arange(len(frames))
    return _Clip(
        Query(_picture(batch.query[number]), Box(*batch.query_box[number].tolist())),
        predictor.encode(frames, index, index / FPS),
        batch.presence[number].cpu().numpy() > 0.5,
        batch.boxes[number].double().cpu().numpy(),
        batch.masks[number].cpu().numpy() >= 0.5,
    )


def _question(clip: _Clip, start: int, video: EncodedVideo) -> Question:
    """The truth is the last stretch of the clip that shows the thing."""
    there = np.flatnonzero(clip.presence)
    breaks = np.flatnonzero(np.diff(there) > 1)
    last = there[breaks[-1] + 1 :] if breaks.size else there
    return Question(clip.query, video, Track(last + start, clip.boxes_xyxy[last]), clip.masks[last])


def _picture(values: torch.Tensor) -> Rgb:
    """(3, H, W) in [0, 1] to (H, W, 3) bytes."""
    return (values.float() * 255).round().byte().permute(1, 2, 0).cpu().numpy()
