"""Objects laid into a scene: their maps, their windows of the canvas, and painting them over it.

Letters: B clips, L objects of a clip, T frames, N = B * T, W window side, F canvas side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from egohieraloc.training.camera import Cameras
from egohieraloc.training.composer_config import ComposerConfig
from egohieraloc.training.dice import Dice
from egohieraloc.training.instances import Patches
from egohieraloc.training.render import (
    chain,
    distort,
    inverse,
    mip_level,
    projective,
    rotation,
    sample_atlas,
    scaling,
    sheared,
    translation,
    undistort,
    warp,
    window_index,
    window_origin,
    window_points,
)

TARGET, DISTRACTOR = 3, 4  # channels of a canvas after the three colours
EMPTY_CORNER = -1.0  # of every texture
SLACK = 1.15  # room that stretch, tilt and lens may need in a window


@dataclass(frozen=True, eq=False)
class Props:
    """L objects in each clip, one texture each or, of a turning one, one for each frame."""

    patches: Patches  # of B * L or, when L is 1, of B * T views
    center: Tensor  # (B, L, 2) view coordinates when the camera looks straight
    path: Tensor  # (B, L, T, 2) in the scene
    size: Tensor  # (B, L) longer side in canvas pixels


@dataclass(frozen=True, eq=False)
class Layer:
    """One object of each clip, ready to paint."""

    pixels: Tensor  # (N, 5, W, W) colour times alpha, alpha, shadow
    origin: Tensor  # (N, 2) top-left pixel of the window


def draw_angle(dice: Dice, config: ComposerConfig, *shape: int) -> Tensor:
    usual = dice.normal(math.radians(config.rotation_deg) / 2, *shape)
    any_angle = dice.uniform((-math.pi, math.pi), *shape)
    return torch.where(dice.chance(config.any_rotation_share, *shape), any_angle, usual)


def fitting_size(size: Tensor, patches: Patches, cameras: Cameras, window: int) -> Tensor:
    """Sizes (B, L) made no larger than what a window holds at any angle."""
    bulk = (patches.extent.norm(dim=-1) / patches.longer).unflatten(0, (len(size), -1))
    bulk = bulk if size.shape == bulk.shape else bulk.amax(1, keepdim=True)
    return torch.minimum(size, window / (bulk * cameras.zoom[:, None] * SLACK))


def draw_texture_from_scene(dice: Dice, config: ComposerConfig, props: Props, cameras: Cameras) -> Tensor:
    """Maps (B, L, T, 3, 3). An object keeps its attitude over the clip."""
    batch, layers = props.path.shape[:2]
    count = batch * layers
    bend = 1 + cameras.lens[:, None] * props.center.square().sum(-1)
    length = props.size * bend * (2 / config.frame_px)  # so long it must be in the scene to be seen that size
    scale = length.reshape(count, 1) / props.patches.longer.reshape(count, -1)
    ratio = dice.normal(config.aspect_log / 2, count)
    stretch = torch.stack((ratio, -ratio), -1).exp()
    shaped = chain(
        rotation(draw_angle(dice, config, count))[:, None],
        sheared(dice.normal(config.shear, count))[:, None],
        scaling(stretch[:, None] * scale[..., None]),
        projective(dice.normal(config.perspective, count, 2))[:, None],
    )
    return inverse(chain(translation(props.path), shaped.unflatten(0, (batch, layers))))


def render(
    config: ComposerConfig,
    props: Props,
    cameras: Cameras,
    texture_from_scene: Tensor,
    window: int,
    shown: Tensor,
    dtype: torch.dtype,
) -> list[Layer]:
    """Each of the L props as a layer of its own; void in clips where `shown` (B, L) is false."""
    batch, layers, frames = props.path.shape[:3]
    view_from_scene = inverse(cameras.scene_from_view)
    spots = warp(view_from_scene.flatten(0, 1), props.path.transpose(1, 2).flatten(0, 1))  # (N, L, 2)
    # Objects far outside end at the border of the canvas, where their window shows nothing of them.
    view = distort(spots.clamp(-4, 4), cameras.lens.repeat_interleave(frames))
    origin = window_origin(view, window, config.frame_px).unflatten(0, (batch, frames)).transpose(1, 2)
    points = window_points(origin.reshape(-1, 2), window, config.frame_px)
    points = undistort(points, cameras.lens.repeat_interleave(layers * frames))
    points = warp(chain(texture_from_scene, cameras.scene_from_view[:, None]).reshape(-1, 3, 3), points)
    there = shown.flatten().repeat_interleave(frames)[:, None, None, None]
    points = torch.where(there, points, EMPTY_CORNER)
    textures = len(props.patches.atlas)
    level = mip_level(
        props.patches.texels / props.size.flatten().repeat_interleave(textures // (batch * layers))
    )
    sampled = sample_atlas(props.patches.atlas, points, level).unflatten(2, (-1, window)).transpose(1, 2)
    pixels = torch.empty(sampled.shape, dtype=dtype, device=sampled.device).copy_(sampled)
    pixels = pixels.view(batch, layers, frames, 5, window, window)
    return [Layer(pixels[:, k].flatten(0, 1), origin[:, k].flatten(0, 1)) for k in range(layers)]


def paint(
    canvas: Tensor,
    layer: Layer,
    shadow: Tensor,
    label: Tensor | int | None,
    opaque: Tensor | None = None,
) -> Tensor:
    """Lay a layer over the canvas (N, 5, F, F): colours, and labels that hide each other as colours do.

    `shadow` (N,) darkens what lies under; `label` is the channel that is set; where not `opaque` (N,), the
    object is part of the background and only labels change.
    """
    index = window_index(layer.origin, layer.pixels.shape[-1], canvas.shape[-1])[:, None].expand(-1, 5, -1)
    flat, pixels = canvas.flatten(2), layer.pixels.flatten(2)
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


def tolerable(canvas: Tensor, whole: Tensor, layer: Layer, max_covered: float) -> Layer:
    """The layer, void where it would leave too little of the target's whole area (N,)."""
    index = window_index(layer.origin, layer.pixels.shape[-1], canvas.shape[-1])
    target = canvas[:, TARGET].flatten(1)
    hidden = (target.gather(1, index) * layer.pixels[:, 3].flatten(1)).sum(1, dtype=torch.float32)
    left = target.sum(1, dtype=torch.float32) - hidden
    keep = left >= (1 - max_covered) * whole
    return Layer(layer.pixels * keep[:, None, None, None], layer.origin)


def overlay(canvas: Tensor, rows: Tensor, drawn: Tensor, whole: Tensor, max_covered: float) -> Tensor:
    """Lay whole pictures (n, 4, F, F) over some rows of the canvas, where that hides not too much."""
    under, drawn = canvas[rows], drawn.to(canvas.dtype)
    kept = 1 - drawn[:, 3:]
    left = (under[:, TARGET] * kept[:, 0]).sum((1, 2), dtype=torch.float32)
    keep = (left >= (1 - max_covered) * whole[rows])[:, None, None, None]
    laid = under * kept
    laid[:, :3] += drawn[:, :3]
    return canvas.index_copy_(0, rows, torch.where(keep, laid, under))
