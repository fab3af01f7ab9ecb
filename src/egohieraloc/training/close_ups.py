"""Close-ups of frames, as a second look sees them: of the object, or of what is most similar to it.

B queries, one close-up each; F the side of a frame, which is a square; H, W the grid of stride-16 cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.training.batches import ClipBatch

ROUND_OBJECT = (2.5, 6.0)  # side of a close-up of the object, in longer sides of its box
ROUND_PEAK = (0.16, 0.64)  # side of any other, as a share of the frame's
SMALLEST = 0.1  # of both, as a share of the frame's side
OFF_CENTRE = 0.5  # how far the object lies from the middle at most, in sides of its box
SHOWN = 0.25  # share of the object's mask in a close-up that shows it
CHANCES = 4  # random numbers for each


@dataclass(frozen=True, eq=False)
class CloseUps:
    """One image for each query, with its labels; boxes are xyxy in pixels of a frame of this size."""

    images: Tensor  # (B, 3, F, F)
    masks: Tensor  # (B, F/4, F/4)
    distractor_masks: Tensor  # (B, F/4, F/4)
    boxes: Tensor  # (B, 4)
    presence: Tensor  # (B,)
    is_own: Tensor  # (B,) bool: of the query's own clip


@torch.no_grad()
def take_close_ups(batch: ClipBatch, clip: Tensor, peak: Tensor, chance: Tensor) -> CloseUps:
    """From the first frames of clips (B,), which may be the queries' own.

    peak: (B, 2) in [0, 1] of that frame, the place most similar to the query; chance: (B, CHANCES) uniform.
    Those of the own clip are taken round the object where it can be seen, all others round the peak.
    """
    size = batch.frames.shape[-1]
    own = torch.arange(len(clip), device=clip.device) == clip
    on_object = own & (batch.presence[:, 0] > 0.5)
    box = batch.boxes[:, 0] / size
    sides = box[:, 2:] - box[:, :2]
    away = (chance[:, :2] - 0.5) * 2 * OFF_CENTRE
    center = torch.where(on_object[:, None], (box[:, :2] + box[:, 2:]) / 2 + away * sides, peak)
    round_object = sides.amax(1) * _log_uniform(chance[:, 2], ROUND_OBJECT)
    side = torch.where(on_object, round_object, _log_uniform(chance[:, 3], ROUND_PEAK)).clamp(SMALLEST, 1)
    low = torch.minimum((center - side[:, None] / 2).clamp(min=0), 1 - side[:, None])

    frames = magnified(batch.frames[clip, 0], low, side)
    shown = batch.masks[:, 0] * own[:, None, None]
    masks = magnified(torch.stack([shown, batch.distractor_masks[clip, 0]], 1), low, side)
    visible = masks[:, 0].sum((1, 2)) * side.square()
    present = (visible >= SHOWN * shown.sum((1, 2))) & (shown.amax((1, 2)) > 0)
    presence = present.to(batch.presence.dtype)
    inside = ((box.view(-1, 2, 2) - low[:, None]) / side[:, None, None]).clamp(0, 1).flatten(1)
    return CloseUps(
        frames,
        masks[:, 0] * presence[:, None, None],
        masks[:, 1] * own[:, None, None],  # another clip's look-alikes are none of this query
        inside * size * presence[:, None],
        presence,
        own,
    )


def magnified(maps: Tensor, low: Tensor, side: Tensor) -> Tensor:
    """Squares of maps (B, C, S, S), scaled to S; corner `low` (B, 2) and `side` (B,) are in [0, 1]."""
    ramp = (torch.arange(maps.shape[-1], device=maps.device) + 0.5) / maps.shape[-1]
    x, y = (2 * (low[:, :, None] + side[:, None, None] * ramp) - 1).unbind(1)
    grid = torch.stack([x[:, None, :].expand(-1, len(ramp), -1), y[:, :, None].expand(-1, -1, len(ramp))], -1)
    read = F.grid_sample(maps.float(), grid, padding_mode="border", align_corners=False)
    return read.to(maps.dtype)


def _log_uniform(chance: Tensor, span: tuple[float, float]) -> Tensor:
    low, high = math.log(span[0]), math.log(span[1])
    return (low + (high - low) * chance).exp()
