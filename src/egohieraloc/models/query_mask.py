"""The query's foreground: where it comes from, how far it is trusted and what follows (appendix on fallback).

It is a mask the user gives, one by SAM (`sam.py`) or any other function of the query, or one by the built-in
head here, which needs no download.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from egohieraloc.config import NeckConfig, QueryMaskConfig
from egohieraloc.models.blocks import conv_bn_relu, resize
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.ram import MaskDecoder
from egohieraloc.query import Query
from egohieraloc.types import Mask

MaskProvider = Callable[[Query], tuple[Mask, float]]  # the object's pixels in the query image, and quality
SHARE_MARGIN = 0.02  # keeps the logit of a share finite


class QueryMaskHead(nn.Module):
    """The built-in provider: foreground and its own quality from the query window's features and the box."""

    def __init__(self, neck: NeckConfig, width: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            conv_bn_relu(neck.match + neck.context + 1, width, 3), conv_bn_relu(width, width, 3)
        )
        self.decoder = MaskDecoder(neck, width)
        self.quality = nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, 1))

    def forward(self, features: FrameFeatures, box_map: Tensor) -> tuple[Tensor, Tensor]:
        """Mask logits (B, H/4, W/4) and quality logits (B,). box_map: (B, 1, H/16, W/16), 1 in the box."""
        context = features.context
        parts = [features.match.to(context.dtype), resize(context, features.match), box_map.to(context.dtype)]
        cells = self.enter(torch.cat(parts, 1))
        weight = box_map.to(cells.dtype)
        pooled = (cells * weight).sum((2, 3)) / weight.sum((2, 3)).clamp(min=1e-3)
        return self.decoder(cells, features.fine8, features.fine4), self.quality(pooled)[:, 0].float()


def segmenter_quality(logit: float, mask: NDArray[np.float32], config: QueryMaskConfig) -> float:
    """The IoU to be expected of the built-in head's mask (h, w) in [0, 1], by its own logit and the mask."""
    value = config.slope * logit + config.steadiness * steadiness(mask) + config.offset
    return 0.5 * (1 + math.tanh(value / 2))  # the sigmoid, without overflow


def steadiness(mask: NDArray[np.float32]) -> float:
    """How little of a mask (h, w) in [0, 1] depends on where it is cut: the logit of the share of its cells
    above 0.1 that are also above 0.9. Blurred and half hidden objects have wide, unsure edges."""
    share = float((mask > 0.9).sum() / max(1, (mask > 0.1).sum()))
    clipped = min(max(share, SHARE_MARGIN), 1 - SHARE_MARGIN)
    return math.log(clipped / (1 - clipped))


def fallback_level(quality: float, config: QueryMaskConfig) -> Literal[0, 1, 2]:
    """0: trusted, 1: used softly, 2: not used. `config.fallback` forces the paper's ablations."""
    if config.fallback == "none" or quality >= config.trusted:
        return 0
    if config.fallback == "level1":
        return 1
    if config.fallback == "level2":
        return 2
    return 1 if quality >= config.doubtful else 2


def token_sets(coverage: Tensor, inside: Tensor, quality: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Foreground and background weights (B, N) of the query's tokens; weight 0 means no member.

    coverage: (B, N) share of each token's cell under the mask; inside: (B, N) bool, cells of the query's box,
    never none; cells outside the box count as background at levels 0 and 1. quality: (B,); level: (B,) int.
    At least one cell is foreground: the best covered one, or the box where the mask is empty.
    """
    best = coverage == coverage.amax(1, keepdim=True)
    member = (coverage >= 0.5) | (best & (coverage > 0))
    member = torch.where(member.any(1, keepdim=True), member, inside)
    hard = member.float()
    soft = torch.where(member, 1.0, (1 - quality)[:, None] * inside.float())
    level = level[:, None]
    foreground = torch.where(level == 0, hard, torch.where(level == 1, soft, inside.float()))
    background = torch.where(level == 2, torch.zeros_like(hard), 1 - hard)
    return foreground, background
