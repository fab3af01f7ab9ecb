"""Queries with known answers in long composed videos, for validation and calibration.

The packs are split into two halves that share neither an object nor a photo. The video of a query is its own
clip inserted among all clips of the other half, so no other clip can show the object. A clip has T frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from egohieraloc.data.base import Track
from egohieraloc.inference.encoded import EncodedVideo, store_features
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.localize import Localizer
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs
from egohieraloc.types import Box, Frame, ResponseTrack, Rgb
from egohieraloc.video.letterbox import Letterbox

FPS = 5.0
BATCH = 4  # clips composed at a time

# Easier and more realistic than training clips. Scanned objects only, because masks of photos also show parts
# and surfaces that nobody would search for. The camera does not look away, so a clip has one appearance. The
# query shows the object with its surroundings; in the clip it is seen from a similar view, large enough and
# only moderately degraded.
AS_VIDEO = {
    "solids": 0,
    "clip_frames": 6,
    "sprite_share": 1.0,
    "leave_share": 0.0,
    "near_view_share": 1.0,
    "rotation_deg": 15.0,
    "any_rotation_share": 0.0,
    "size_px": (48.0, 240.0),
    "usual_size_px": (60.0, 180.0),
    "edge_share": 0.05,
    "max_covered": 0.35,
    "dark_share": 0.05,
    "motion_blur_px": (2.0, 10.0),
    "defocus_px": (0.5, 1.2),
    "noise": (0.0, 0.02),
    "low_resolution_share": 0.0,
    "compression": (0.3, 1.2),
    "crop_only_share": 0.0,
    "query_hand_share": 0.0,
    "query_blur_share": 0.1,
    "query_resolution_px": (120, 160),
    "query_compression": (0.2, 0.7),
}
VIDEO_CLIPS = update(ComposerConfig(), AS_VIDEO)


@dataclass(frozen=True, eq=False)
class ComposedQuery:
    """A query, the encoded video to search, and the true track in pixels of the clip's frames."""

    query: Query
    video: EncodedVideo
    truth: Track  # empty when the object is absent
    masks: NDArray[np.bool_]  # (frames of the track, h, w) at stride 4


@dataclass(frozen=True, eq=False)
class ComposedClip:
    """A query and a clip as images, with labels."""

    query: Query
    frames: tuple[Rgb, ...]  # T
    presence: NDArray[np.bool_]  # (T,)
    boxes_xyxy: NDArray[np.float64]  # (T, 4)
    masks: NDArray[np.bool_]  # (T, h, w)


Halves = tuple[list[ComposedClip], list[ComposedClip]]


def compose_queries(
    packs: Packs,
    predictor: Predictor,
    scratch: Path,
    *,
    clips: int,
    config: ComposerConfig = VIDEO_CLIPS,
    seed: int = 0,
) -> Iterator[ComposedQuery]:
    """One query per clip, half of them from each half of the packs. Features are stored in `scratch`."""
    halves = compose_halves(packs, predictor.device, clips=clips, config=config, seed=seed)
    return queries_of(halves, predictor, scratch, seed=seed)


def compose_halves(
    packs: Packs, device: torch.device, *, clips: int, config: ComposerConfig = VIDEO_CLIPS, seed: int = 0
) -> Halves:
    """Clips of both halves of the packs."""
    first, second = (
        list(_compose_clips(ClipComposer(half, config, device, 2 * seed + number), clips // 2))
        for number, half in enumerate(halved(packs))
    )
    return first, second


def queries_of(
    halves: Halves, predictor: Predictor, scratch: Path, *, seed: int = 0, share: tuple[int, int] = (0, 1)
) -> Iterator[ComposedQuery]:
    """Encode the clips, and make the query and video of each, or of every n-th from the k-th on (k, n)."""
    packed = [
        [predictor.encode([_letterbox(clip, predictor).apply(f) for f in clip.frames]) for clip in half]
        for half in halves
    ]
    order = np.random.default_rng(seed)
    first, step = share
    for side, half in enumerate(halves):
        for number, clip in enumerate(half):
            parts = list(packed[1 - side])
            place = int(order.integers(len(parts) + 1))
            if (side * len(halves[0]) + number - first) % step:
                continue
            parts.insert(place, packed[side][number])
            folder = scratch / f"query-{side}-{number}"
            shown = list(halves[1 - side])
            shown.insert(place, clip)
            video = _video(PackedFeatures.cat(parts), shown, folder, predictor)
            yield _composed_query(clip, place * len(clip.frames), video)


def answer_to(query: ComposedQuery, localizer: Localizer) -> tuple[Track, float]:
    """The track given as the answer, empty where there is none, and its score."""
    track = localizer.ask(query.query, query.video).track
    if not isinstance(track, ResponseTrack):
        return Track.empty(), track.score
    boxes = [p.box.xyxy for p in track.predictions]
    return Track.from_boxes([p.sample for p in track.predictions], boxes), track.score


def halved(packs: Packs) -> tuple[Packs, Packs]:
    """Two packs without a common object or photo; near duplicates stay together."""
    groups = torch.unique(packs.sprite_id, return_inverse=True)[1]

    def half(remainder: int) -> Packs:
        objects = groups % 2 == remainder
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


def _compose_clips(composer: ClipComposer, count: int) -> Iterator[ComposedClip]:
    for step in range(-(-count // BATCH)):
        batch = composer.batch(step, min(BATCH, count - step * BATCH))
        for number in range(len(batch)):
            yield clip_of(batch, number)


def clip_of(batch: ClipBatch, number: int) -> ComposedClip:
    """One clip of a batch in images."""
    return ComposedClip(
        query_of(batch.query[number], batch.query_box[number]),
        tuple(_image(frame) for frame in batch.frames[number]),
        batch.presence[number].cpu().numpy() > 0.5,
        batch.boxes[number].double().cpu().numpy(),
        batch.masks[number].cpu().numpy() >= 0.5,
    )


def query_of(image: torch.Tensor, box: torch.Tensor) -> Query:
    """From a composed image (3, S, S) and the box (4,) of its object."""
    return Query(_image(image), Box(*box.tolist()))


def _letterbox(clip: ComposedClip, predictor: Predictor) -> Letterbox:
    side = clip.frames[0].shape[0]
    return predictor.letterbox(side, side)


def _video(
    packed: PackedFeatures, clips: Sequence[ComposedClip], folder: Path, predictor: Predictor
) -> EncodedVideo:
    """Clips in a row as one video, whose frames can be read again."""
    letterbox, length = _letterbox(clips[0], predictor), len(clips[0].frames)
    video = store_features(packed, folder, letterbox, fps=FPS)

    def frames(numbers: Sequence[int]) -> Iterator[Frame]:
        return (Frame(k, k / FPS, clips[k // length].frames[k % length]) for k in numbers)

    return replace(video, pixels=frames)


def _composed_query(clip: ComposedClip, start: int, video: EncodedVideo) -> ComposedQuery:
    """The truth is the last run of frames that show the object."""
    shown = np.flatnonzero(clip.presence)
    breaks = np.flatnonzero(np.diff(shown) > 1)
    last = shown[breaks[-1] + 1 :] if breaks.size else shown
    return ComposedQuery(clip.query, video, Track(last + start, clip.boxes_xyxy[last]), clip.masks[last])


def _image(values: torch.Tensor) -> Rgb:
    """(3, H, W) in [0, 1] to (H, W, 3) uint8."""
    return (values.float() * 255).round().byte().permute(1, 2, 0).cpu().numpy()
