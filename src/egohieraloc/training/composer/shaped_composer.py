"""Batches of one shape each, whose frames have no black borders: a composer for every aspect."""

from __future__ import annotations

import random
from fractions import Fraction

import torch

from egohieraloc.settings import update
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs
from egohieraloc.training.composer.random_numbers import mixed_seed
from egohieraloc.video.canvas import Size, canvas_for

LARGEST_TERM = 100  # of an aspect as a fraction


class ShapedComposer:
    """`batch(step, size)`, its shape too, depends only on the packs, the settings, the seed and the step.

    With `borders` there is one shape, the square. Otherwise each aspect has a composer of its own; all show
    the same objects, which are kept once, and a step takes one of them with the aspects' shares.
    """

    def __init__(self, packs: Packs, config: ComposerConfig, device: torch.device | str, seed: int) -> None:
        self.device = torch.device(device)
        self._seed = seed
        if config.borders:
            self.composers = [ClipComposer(packs, config, device, seed)]
            self._shares = [1.0]
            return
        shapes = [shaped(config, aspect) for aspect, _ in config.aspects]
        first = ClipComposer(packs, shapes[0][0], device, seed, canvas=shapes[0][1])
        self.composers = [first, *(first.reshaped(*shape) for shape in shapes[1:])]
        self._shares = [share for _, share in config.aspects]

    def number(self, step: int) -> int:
        """Which of the composers makes the batch of this step."""
        chance = random.Random(mixed_seed(self._seed, step))
        return chance.choices(range(len(self.composers)), self._shares)[0]

    def batch(self, step: int, size: int) -> ClipBatch:
        """Compose `size` clips."""
        return self.composers[self.number(step)].batch(step, size)


def shaped(config: ComposerConfig, aspect: float) -> tuple[ComposerConfig, Size]:
    """Settings for frames of one aspect, and the canvas of these frames, a part of the painted square.

    The given `frame_px` is the side of a square image. Square canvases show what edited videos show: images
    of any aspect with bars beside them, and round ones.
    """
    fraction = Fraction(aspect).limit_denominator(LARGEST_TERM)
    canvas, _ = canvas_for(fraction.numerator, fraction.denominator, config.frame_px)
    if canvas[0] == canvas[1]:
        return config, canvas
    rectangles = {"fisheye_share": config.fisheye_share - config.circle_share, "circle_share": 0.0}
    return update(config, {"frame_px": max(canvas), "aspects": ((aspect, 1.0),)} | rectangles), canvas
