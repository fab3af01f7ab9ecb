"""Following held-out objects in composed clips from their first box: what propagation and renewal are worth.

    python benchmarks/tracking.py --data DIR [--model FILE|NAME] [--clips 60] [--frames 24] [--device cuda]

The camera moves, objects turn, and half of them leave the image for a while. A clip is encoded once and
followed under every row's settings. IoU is the mean over the frames that show the object, in percent, with
95 % bootstrap intervals over clips, beside the difference to the first row clip by clip.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from egohieraloc.boxes import iou_xyxy
from egohieraloc.inference.tracker import EncodedSample, follow
from egohieraloc.localize import Localizer
from egohieraloc.settings import override, update
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import BATCH, VIDEO_CLIPS, ComposedClip, clip_of
from egohieraloc.training.composer.packs import Packs, read_packs
from egohieraloc.types import Box, Floats, Frame
from options import answer_options, localizer_of
from refusal import bootstrapped

FPS = 5.0
ROWS = {
    "first box, renewed": (),
    "first box alone": ("template_update=false",),
    "mask propagation": ("propagate_above=0.7",),
    "propagation alone": ("propagate_above=0.7", "template_update=false"),
}


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--frames", type=int, default=24)
    options = parser.parse_args()
    packs = read_packs(options.data, split="heldout")
    with tempfile.TemporaryDirectory() as scratch:
        localizer = localizer_of(options, Path(scratch))
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    for clip in composed(packs, localizer, options.clips, options.frames):
        samples = encoded(localizer, clip)
        for name, words in ROWS.items():
            found[name].append(mean_iou(localizer, clip, samples, words))
    rng, first = np.random.default_rng(0), np.array(next(iter(found.values())))
    print(f"{len(first)} clips of {options.frames} frames\n{'':22}{'IoU %':>24}{'minus the first row':>24}")
    for name, values in found.items():
        ious: Floats = 100 * np.array(values)
        difference = bootstrapped(ious - 100 * first, rng)
        print(f"{name:22}{bootstrapped(ious, rng)!s:>24}{difference!s:>24}")


def composed(packs: Packs, localizer: Localizer, count: int, frames: int) -> Iterator[ComposedClip]:
    """Clips that show the object in their first frame and later."""
    config = update(VIDEO_CLIPS, {"clip_frames": frames, "absent_share": 0.0, "leave_share": 0.5})
    composer = ClipComposer(packs, config, localizer.predictor.device, 0)
    given, step = 0, 0
    while given < count:
        batch = composer.batch(step, BATCH)
        step += 1
        for number in range(min(len(batch), count - given)):
            clip = clip_of(batch, number)
            if clip.presence[0] and clip.presence[1:].any():
                given += 1
                yield clip


def encoded(localizer: Localizer, clip: ComposedClip) -> list[EncodedSample]:
    predictor = localizer.predictor
    height, width = clip.frames[0].shape[:2]
    letterbox = predictor.letterbox(width, height)
    packed = predictor.encode([letterbox.apply(rgb) for rgb in clip.frames])
    return [
        EncodedSample(k, k / FPS, packed[k : k + 1], partial(Frame, k, k / FPS, rgb))
        for k, rgb in enumerate(clip.frames)
    ]


def mean_iou(
    localizer: Localizer, clip: ComposedClip, samples: Sequence[EncodedSample], words: Sequence[str]
) -> float:
    box, config = Box(*clip.boxes_xyxy[0].tolist()), override(localizer.config.tracker, words)
    walk = list(follow(localizer.predictor, samples[0].image(), box, samples[1:], config))
    boxes = np.array([prediction.box.xyxy for prediction in walk])
    shown = clip.presence[1:]
    return float(iou_xyxy(boxes[shown], clip.boxes_xyxy[1:][shown]).mean())


if __name__ == "__main__":
    main()
