"""Objects laid into a scene: their maps, and the windows of the canvas they fall into.

Letters: B clips, L objects of a clip, T frames, N = B * T, W window side, F canvas side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from egohieraloc.training.composer.config import ComposerConfig
from egohieraloc.training.composer.dice import Dice
from egohieraloc.training.composer.instances import Patches
from egohieraloc.training.composer.painting import Layer
from egohieraloc.training.composer.render import (
    chain,
    distort,
    inverse,
    mip_level,
    on_level,
    projective,
    rotation,
    scaling,
    sheared,
    translation,
    undistort,
    warp,
    window_origin,
    window_points,
)
from egohieraloc.training.composer.virtual_camera import Cameras

SLACK = 1.15  # room that stretch, tilt and lens may need in a window


@dataclass(frozen=True, eq=False)
class Props:
    """L objects in each clip, one texture each or, of a turning one, one for each frame."""

    patches: Patches  # of B * L or, when L is 1, of B * T views
    center: Tensor  # (B, L, 2) view coordinates when the camera looks straight
    path: Tensor  # (B, L, T, 2) in the scene
    size: Tensor  # (B, L) longer side in canvas pixels


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
    textures = len(props.patches.atlas)
    level = mip_level(
        props.patches.texels / props.size.flatten().repeat_interleave(textures // (batch * layers))
    )
    points, low, high = on_level(points, level, props.patches.atlas.shape[-2])
    apart = [v.unflatten(0, (batch, layers, -1)) for v in (props.patches.atlas, points, low, high)]
    apart.append(origin)
    return [
        Layer(*(v[:, k].flatten(0, 1) for v in apart)).where(shown[:, k].repeat_interleave(frames))
        for k in range(layers)
    ]
