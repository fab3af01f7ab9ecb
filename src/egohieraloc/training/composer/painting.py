"""Painting a scene back to front: the background photos, then object layers. Labels are painted like colours.

Letters: B clips, T frames, N = B * T, W window side, F canvas side, P texture side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer.packs import PHOTO_PX
from egohieraloc.training.composer.render import LATTICE_PX, dense, read_atlas, window_index

try:  # Triton comes with torch for CUDA
    from egohieraloc.training.composer import fused
except ImportError:
    fused = None  # type: ignore[assignment]

TARGET, DISTRACTOR = 3, 4  # channels of a canvas after the three colours
CELLS = 3  # the background is a square of 3 x 3 photos
MOSAIC_PX = CELLS * PHOTO_PX
VOID = -9.0  # a point outside every texture, where it is transparent


@dataclass(frozen=True, eq=False)
class Backdrop:
    """Nine photos side by side, row by row, some of them mirrored."""

    photos: Tensor  # (B, 9) indices
    mirrored: Tensor  # (B, 9) bool

    def pixels(self, table: Tensor) -> Tensor:
        """The mosaic (B, 3, 768, 768) uint8, made of photos (P, 256, 256, 3)."""
        pixels = table[self.photos]  # (B, 9, 256, 256, 3)
        pixels = torch.where(self.mirrored[..., None, None, None], pixels.flip(3), pixels)
        mosaic: Tensor = pixels.unflatten(1, (CELLS, CELLS)).permute(0, 5, 1, 3, 2, 4)
        return mosaic.reshape(len(self.photos), 3, MOSAIC_PX, MOSAIC_PX)


@dataclass(frozen=True, eq=False)
class Layer:
    """One object of each clip, ready to paint: its texture, and the texture points that its windows show."""

    atlas: Tensor  # (M, 5, P, 3P/2) colour times alpha, alpha, shadow; each for N / M consecutive windows
    points: Tensor  # (N, K, K, 2) lattices of points of the atlas
    low: Tensor  # (M, 2) lowest coordinates of the mipmap level that is read; the texture is empty there
    high: Tensor  # (M, 2) highest coordinates of that level
    origin: Tensor  # (N, 2) top-left pixel of the window

    @property
    def window(self) -> int:
        """Its side W in pixels."""
        return LATTICE_PX * (self.points.shape[1] - 1)

    def where(self, shown: Tensor) -> Layer:
        """The layer, fully transparent in windows where `shown` (N,) is false."""
        return replace(self, points=torch.where(shown[:, None, None, None], self.points, VOID))

    def pixels(self, dtype: torch.dtype) -> Tensor:
        """The windows (N, 5, W, W)."""
        read = read_atlas(self.atlas, self.points, self.low, self.high)
        read = read.unflatten(2, (-1, self.window)).transpose(1, 2)
        return torch.empty(read.shape, dtype=dtype, device=read.device).copy_(read).flatten(0, 1)


def paint_background(canvas: Tensor, photos: Tensor, backdrop: Backdrop, points: Tensor) -> Tensor:
    """Paint the photos onto the canvas (N, 5, F, F); `points` (N, K, K, 2) are lattices of mosaic points."""
    if canvas.is_cuda and fused is not None:
        return fused.paint_background(canvas, photos, backdrop, points)
    batch, side = len(backdrop.photos), canvas.shape[-1]
    grid = dense(points).view(batch, -1, side, 2)
    mosaic = backdrop.pixels(photos).float()
    colour = nnf.grid_sample(mosaic, grid, padding_mode="reflection", align_corners=False)
    colour = colour.unflatten(2, (-1, side)).transpose(1, 2).flatten(0, 1)
    canvas[:, :3] = colour / 255
    return canvas


def paint(
    canvas: Tensor,
    layer: Layer,
    shadow: Tensor,
    label: Tensor | int | None,
    opaque: Tensor | None = None,
) -> Tensor:
    """Paint a layer over the canvas (N, 5, F, F): colours, and labels, which hide each other as colours do.

    `shadow` (N,) darkens what is underneath; `label` is the channel to set; where not `opaque` (N,), the
    object is already part of the background and only labels change.
    """
    if canvas.is_cuda and fused is not None:
        return fused.paint(canvas, layer, shadow, label, opaque)
    index = window_index(layer.origin, layer.window, canvas.shape[-1])[:, None].expand(-1, 5, -1)
    flat, pixels = canvas.flatten(2), layer.pixels(canvas.dtype).flatten(2)
    under = flat.gather(2, index)
    alpha = pixels[:, 3:4]
    kept = 1 - alpha
    dark = kept * (1 - pixels[:, 4:] * shadow.to(canvas.dtype)[:, None, None])
    colour = torch.addcmul(pixels[:, :3], under[:, :3], dark)
    if opaque is not None:
        colour = torch.where(opaque[:, None, None], colour, under[:, :3])
    labels = under[:, 3:] * kept
    if isinstance(label, int):
        labels[:, label - TARGET] += alpha[:, 0]
    elif label is not None:
        channel = torch.arange(TARGET, DISTRACTOR + 1, device=canvas.device)
        labels = labels + alpha * (channel == label[:, None])[..., None]
    return flat.scatter_(2, index, torch.cat((colour, labels), 1)).view_as(canvas)


def limit_occlusion(canvas: Tensor, whole: Tensor, layer: Layer, max_covered: float) -> Layer:
    """The layer, transparent where it would cover more than `max_covered` of the target's whole area (N,)."""
    index = window_index(layer.origin, layer.window, canvas.shape[-1])
    target = canvas[:, TARGET].flatten(1)
    alpha = layer.pixels(canvas.dtype)[:, 3].flatten(1)
    hidden = (target.gather(1, index) * alpha).sum(1, dtype=torch.float32)
    return layer.where(target.sum(1, dtype=torch.float32) - hidden >= (1 - max_covered) * whole)


def overlay(canvas: Tensor, rows: Tensor, drawn: Tensor, whole: Tensor, max_covered: float) -> Tensor:
    """Paint full images (n, 4, F, F) over rows of the canvas, unless they cover too much of the target."""
    under, drawn = canvas[rows], drawn.to(canvas.dtype)
    kept = 1 - drawn[:, 3:]
    left = (under[:, TARGET] * kept[:, 0]).sum((1, 2), dtype=torch.float32)
    keep = (left >= (1 - max_covered) * whole[rows])[:, None, None, None]
    laid = under * kept
    laid[:, :3] += drawn[:, :3]
    return canvas.index_copy_(0, rows, torch.where(keep, laid, under))
