"""Objects placed in a scene, and how they become layers: texture maps, and windows of the canvas to draw in.

Letters: B clips, L objects of a clip, T frames, N = B * T, W window side, F canvas side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.instances import Patches
from egohieraloc.training.composer.painting import Layer
from egohieraloc.training.composer.random_numbers import RandomNumbers
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

SLACK = 1.15  # margin that stretch, tilt and lens may need in a window


@dataclass(frozen=True, eq=False)
class PlacedObjects:
    """L objects in each clip with one texture each; if L is 1, it may have one texture per frame."""

    patches: Patches  # B * L or, when L is 1, B * T textures
    center: Tensor  # (B, L, 2) in view coordinates, before the camera moves
    path: Tensor  # (B, L, T, 2) in scene coordinates
    size: Tensor  # (B, L) longer side in canvas pixels


def draw_angle(rng: RandomNumbers, config: ComposerConfig, *shape: int) -> Tensor:
    usual = rng.normal(math.radians(config.rotation_deg) / 2, *shape)
    any_angle = rng.uniform((-math.pi, math.pi), *shape)
    return torch.where(rng.chance(config.any_rotation_share, *shape), any_angle, usual)


def fitting_size(size: Tensor, patches: Patches, cameras: Cameras, window: int) -> Tensor:
    """Sizes (B, L), limited so that the objects fit into a window at any angle."""
    bulk = (patches.extent.norm(dim=-1) / patches.longer).unflatten(0, (len(size), -1))
    bulk = bulk if size.shape == bulk.shape else bulk.amax(1, keepdim=True)
    return torch.minimum(size, window / (bulk * cameras.zoom[:, None] * SLACK))


def draw_texture_from_scene(
    rng: RandomNumbers, config: ComposerConfig, placed: PlacedObjects, cameras: Cameras
) -> Tensor:
    """Maps (B, L, T, 3, 3). An object keeps its orientation over the clip."""
    batch, layers = placed.path.shape[:2]
    count = batch * layers
    bend = 1 + cameras.lens[:, None] * placed.center.square().sum(-1)
    length = placed.size * bend * (2 / config.frame_px)  # in scene units, which the lens shows smaller
    scale = length.reshape(count, 1) / placed.patches.longer.reshape(count, -1)
    ratio = rng.normal(config.aspect_log / 2, count)
    stretch = torch.stack((ratio, -ratio), -1).exp()
    shaped = chain(
        rotation(draw_angle(rng, config, count))[:, None],
        sheared(rng.normal(config.shear, count))[:, None],
        scaling(stretch[:, None] * scale[..., None]),
        projective(rng.normal(config.perspective, count, 2))[:, None],
    )
    return inverse(chain(translation(placed.path), shaped.unflatten(0, (batch, layers))))


def render(
    config: ComposerConfig,
    placed: PlacedObjects,
    cameras: Cameras,
    texture_from_scene: Tensor,
    window: int,
    shown: Tensor,
) -> list[Layer]:
    """Each of the L objects as a layer; transparent in clips where `shown` (B, L) is false."""
    batch, layers, frames = placed.path.shape[:3]
    view_from_scene = inverse(cameras.scene_from_view)
    spots = warp(view_from_scene.flatten(0, 1), placed.path.transpose(1, 2).flatten(0, 1))  # (N, L, 2)
    # Windows of objects far outside are clamped to the border of the canvas, where they show nothing.
    view = distort(spots.clamp(-4, 4), cameras.lens.repeat_interleave(frames))
    origin = window_origin(view, window, config.frame_px).unflatten(0, (batch, frames)).transpose(1, 2)
    points = window_points(origin.reshape(-1, 2), window, config.frame_px)
    points = undistort(points, cameras.lens.repeat_interleave(layers * frames))
    points = warp(chain(texture_from_scene, cameras.scene_from_view[:, None]).reshape(-1, 3, 3), points)
    textures = len(placed.patches.atlas)
    level = mip_level(
        placed.patches.texels / placed.size.flatten().repeat_interleave(textures // (batch * layers))
    )
    points, low, high = on_level(points, level, placed.patches.atlas.shape[-2])
    apart = [v.unflatten(0, (batch, layers, -1)) for v in (placed.patches.atlas, points, low, high)]
    apart.append(origin)
    return [
        Layer(*(v[:, k].flatten(0, 1) for v in apart)).where(shown[:, k].repeat_interleave(frames))
        for k in range(layers)
    ]
