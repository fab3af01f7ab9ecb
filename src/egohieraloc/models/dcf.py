"""Discriminative correlation filter in closed form (paper, Query-aware Module). Pure functions.

B queries, T frames for each, D channels, h w the query patch, H W the frame. All maths in float32 at least.

Departures from the paper: the filter is the joint multi-channel minimiser `X conj(Y) / (sum |X|^2 + lambda)`
of the stated objective (the printed one has the conjugation the wrong way round and treats channels apart),
and it is applied to a larger frame by linear correlation, so that a peak stands at the object's centre.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def gaussian_target(height: int, width: int, sigma: float, device: torch.device | None = None) -> Tensor:
    """Ideal response (h, w): a Gaussian of `sigma` cells with its peak 1 at the patch's centre cell."""
    y = torch.arange(height, device=device, dtype=torch.float32) - height // 2
    x = torch.arange(width, device=device, dtype=torch.float32) - width // 2
    return torch.exp(-(y[:, None] ** 2 + x[None, :] ** 2) / (2 * sigma**2))


def hann_window(height: int, width: int, device: torch.device | None = None) -> Tensor:
    """Separable window (h, w) that fades towards the patch's border and is nowhere zero."""
    rows = torch.hann_window(height + 2, periodic=False, device=device)[1:-1]
    columns = torch.hann_window(width + 2, periodic=False, device=device)[1:-1]
    return rows[:, None] * columns[None, :]


def solve_filter(patch: Tensor, target: Tensor, ridge: float) -> Tensor:
    """Filter (B, D, h, w) in patch coordinates, whose correlation with `patch` comes closest to `target`.

    Minimises sum |corr(patch, filter) - target|^2 + lambda |filter|^2 with lambda = ridge * mean energy.
    """
    spectrum = torch.fft.rfft2(_precise(patch))
    wanted = torch.fft.rfft2(_precise(target))
    energy = spectrum.abs().square().sum(1, keepdim=True)
    lam = ridge * energy.mean((1, 2, 3), keepdim=True) + 1e-8
    solution: Tensor = torch.fft.irfft2(spectrum * wanted.conj() / (energy + lam), s=patch.shape[-2:])
    # corr(x, f)(p) = sum_q x(q + p) f(q) peaks at the centre c, so f(q) meets the content at q + c.
    return solution.roll((patch.shape[-2] // 2, patch.shape[-1] // 2), (-2, -1))


def respond(features: Tensor, filters: Sequence[Tensor]) -> Tensor:
    """Responses (B*T, S, H, W) of frames (B*T, D, H, W) to S filters (B, D, h, w), high at the object."""
    height, width = features.shape[-2:]
    if len(filters[0]) == 1 and features.device.type == "cpu":
        return torch.cat([_respond_to_one(_precise(features), _precise(each)) for each in filters], 1)
    size = (height + max(f.shape[-2] for f in filters), width + max(f.shape[-1] for f in filters))
    spectrum = torch.fft.rfft2(_precise(features), s=size).unflatten(0, (len(filters[0]), -1))
    responses = []
    for each in filters:
        product = torch.einsum("btdhw,bdhw->bthw", spectrum, torch.fft.rfft2(_precise(each), s=size).conj())
        centred = torch.fft.irfft2(product, s=size).roll((each.shape[-2] // 2, each.shape[-1] // 2), (-2, -1))
        responses.append(centred[..., :height, :width].flatten(0, 1))
    return torch.stack(responses, 1)


def _respond_to_one(features: Tensor, one: Tensor) -> Tensor:
    """Responses (B, 1, H, W) to one filter (1, D, h, w), by adding up what each of its cells responds.

    Less than a third of the time that Fourier transforms of all channels take on a processor.
    """
    (height, width), (rows, columns) = features.shape[-2:], one.shape[-2:]
    with torch.autocast(features.device.type, enabled=False):
        parts = one[0].flip(-2, -1).flatten(1).T @ features.flatten(2)  # (B, hw, HW)
    parts = parts.view(-1, rows, columns, height, width)
    across = parts.new_zeros(len(parts), rows, height, width + columns - 1)
    for column in range(columns):
        across[..., column : column + width] += parts[:, :, column]
    whole = parts.new_zeros(len(parts), 1, height + rows - 1, width + columns - 1)
    for row in range(rows):
        whole[:, 0, row : row + height] += across[:, row]
    top, left = rows - 1 - rows // 2, columns - 1 - columns // 2
    return whole[..., top : top + height, left : left + width]


def _precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
