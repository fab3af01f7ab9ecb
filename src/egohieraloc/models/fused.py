"""Triton kernels of the Query-aware Module for CUDA: one launch where `qam.py` needs hundreds.

One program labels one frame; one program follows one run through its frames. Shapes as in `qam.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from egohieraloc.config import QamConfig

if TYPE_CHECKING:
    from egohieraloc.models.qam import QamState

FIGURES = 7  # candidate x and y, peak, semi-axes a and b, drift x and y: what one frame decides


def connected_components(mask: Tensor) -> Tensor:
    """`qam.connected_components`."""
    count, height, width = mask.shape
    labels = torch.empty(mask.shape, device=mask.device, dtype=torch.int32)
    block = triton.next_power_of_2(height * width)
    _components[(count,)](mask.to(torch.int8).contiguous(), labels, height, width, block=block)
    return labels.long()


def advance(
    state: QamState, response: Tensor, labels: Tensor, score: Tensor, config: QamConfig
) -> tuple[Tensor, Tensor]:
    """`qam._advance` through all frames: figures (B, T, 7) and who is followed after the last frame (B,).

    response, labels: (B*T, H, W); score: (B*T, HW).
    """
    runs, (_, height, width) = len(state.following), response.shape
    times = len(response) // runs
    figures = response.new_empty(runs, times, FIGURES)
    following = torch.empty(runs, device=response.device, dtype=torch.int8)
    _advance[(runs,)](
        response.contiguous(),
        labels.to(torch.int32).contiguous(),
        score.contiguous(),
        torch.cat([state.position, state.drift, state.semi_axes], 1),
        state.following.to(torch.int8),
        figures,
        following,
        times,
        height,
        width,
        config.decay,
        config.smoothing,
        config.ellipse_weight,
        config.lost_below,
        ellipse=config.ellipse,
        multi_peak=config.multi_peak,
        rows=triton.next_power_of_2(height),
        columns=triton.next_power_of_2(width),
    )
    return figures, following.bool()


@triton.jit
def _components(mask, labels, height, width, block: tl.constexpr):
    area = height * width
    cell = tl.arange(0, block)
    x, y = cell % width, cell // width
    frame = labels + tl.program_id(0) * area
    inside = tl.load(mask + tl.program_id(0) * area + cell, mask=cell < area, other=0) != 0
    label = tl.where(inside, cell + 1, 0)
    changed = 1
    while changed > 0:
        tl.store(frame + cell, label, mask=cell < area)
        tl.debug_barrier()
        highest = label
        for dy in tl.static_range(-1, 2):
            for dx in tl.static_range(-1, 2):
                near = inside & (x + dx >= 0) & (x + dx < width) & (y + dy >= 0) & (y + dy < height)
                highest = tl.maximum(highest, tl.load(frame + cell + dy * width + dx, mask=near, other=0))
        tl.debug_barrier()
        tl.store(frame + cell, highest, mask=cell < area)
        tl.debug_barrier()
        # A label names a cell of its own component, whose label may be higher by now.
        highest = tl.maximum(highest, tl.load(frame + highest - 1, mask=inside, other=0))
        tl.debug_barrier()
        changed = tl.max((highest != label).to(tl.int32), 0)
        label = highest


@triton.jit
def _advance(
    response,
    labels,
    scores,
    before,
    followed,
    figures,
    following_after,
    times,
    height,
    width,
    decay,
    smoothing,
    ellipse_weight,
    lost_below,
    ellipse: tl.constexpr,
    multi_peak: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    run = tl.program_id(0)
    y, x = tl.arange(0, rows)[:, None], tl.arange(0, columns)[None, :]
    on_grid = (y < height) & (x < width)
    cell = y * width + x
    state = before + run * 6
    px, py = tl.load(state), tl.load(state + 1)
    dx, dy = tl.load(state + 2), tl.load(state + 3)
    a, b = tl.load(state + 4), tl.load(state + 5)
    following = tl.load(followed + run).to(tl.int32)
    for time in range(times):
        row = (run * times + time) * height * width
        value = tl.load(response + row + cell, mask=on_grid, other=-float("inf"))
        label = tl.load(labels + row + cell, mask=on_grid, other=0)
        score = tl.load(scores + row + cell, mask=on_grid, other=-float("inf"))
        if ellipse:
            distance_x, distance_y = (x - (px + dx)) / a, (y - (py + dy)) / b
            distance = tl.sqrt(distance_x * distance_x + distance_y * distance_y)
            prior = tl.exp(-ellipse_weight * distance / 2)
            score = tl.where((score > -float("inf")) & (following > 0), score * prior, score)
        best = _first_highest(value, cell)
        if multi_peak:
            ranked = _first_highest(score, cell)
            best = tl.where(tl.max(tl.max(score, 1), 0) > -float("inf"), ranked, best)
        chosen = on_grid & (cell == best)
        peak = tl.sum(tl.sum(tl.where(chosen, value, 0.0), 1), 0)
        own = tl.sum(tl.sum(tl.where(chosen, label, 0), 1), 0)
        member = ((label == own) & (own > 0)).to(tl.int32)
        extent_x = tl.maximum(tl.sum(tl.max(member, 0), 0), 1).to(tl.float32)
        extent_y = tl.maximum(tl.sum(tl.max(member, 1), 0), 1).to(tl.float32)
        cx, cy = (best % width).to(tl.float32), (best // width).to(tl.float32)
        found = (peak >= lost_below).to(tl.int32)
        went_on = found * following > 0
        dx = tl.where(went_on, decay * dx + (1 - decay) * (cx - px), 0.0)
        dy = tl.where(went_on, decay * dy + (1 - decay) * (cy - py), 0.0)
        a = tl.where(found > 0, tl.maximum(smoothing * a + (1 - smoothing) * extent_x / 2, 0.5), a)
        b = tl.where(found > 0, tl.maximum(smoothing * b + (1 - smoothing) * extent_y / 2, 0.5), b)
        px, py, following = cx, cy, found
        out = figures + (run * times + time) * 7
        tl.store(out, cx)
        tl.store(out + 1, cy)
        tl.store(out + 2, peak)
        tl.store(out + 3, a)
        tl.store(out + 4, b)
        tl.store(out + 5, dx)
        tl.store(out + 6, dy)
    tl.store(following_after + run, following.to(tl.int8))


@triton.jit
def _first_highest(values, cell):
    highest = tl.max(tl.max(values, 1), 0)
    return tl.min(tl.min(tl.where(values == highest, cell, 2147483647), 1), 0)
