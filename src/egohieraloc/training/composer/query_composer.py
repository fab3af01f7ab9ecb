"""Composes queries: square windows around an object's box, 1.6 times its longer side, as cut at inference.

Letters: B clips, S query side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer import degrade
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.instances import PAD, Instances, Patches
from egohieraloc.training.composer.packs import PHOTO_PX
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.render import (
    chain,
    dense,
    inverse,
    mip_level,
    projective,
    rotation,
    sample_atlas,
    scaling,
    sheared,
    tight_box,
    translation,
    warp,
    window_points,
)
from egohieraloc.training.composer.scene_sampling import draw_light
from egohieraloc.training.composer.shapes import draw_hands

QUERY_CONTEXT = 1.6  # side of the window over the longer side of the box
QUERY_TEXTURE = 192
ROUGH_PX = 64
ROUGH_REACH = 1.4


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """Query windows with masks and boxes."""

    image: Tensor  # (B, 3, S, S)
    mask: Tensor  # (B, 1, S, S)
    box: Tensor  # (B, 4) in query pixels


class QueryComposer:
    """Renders queries: photo objects within their photo, sprites on a random photo."""

    def __init__(self, instances: Instances, config: ComposerConfig, codec: degrade.Codec) -> None:
        self._instances, self._config, self._codec = instances, config, codec

    def compose(self, rng: RandomNumbers, target: Tensor, view: Tensor) -> QueryBatch:
        """Queries for targets (B,); sprites are seen from views (B,)."""
        config, table, size = self._config, self._instances, len(target)
        light = draw_light(rng, config, size)
        patches = table.patches(target, view, QUERY_TEXTURE, *light)
        texture_from_view = self._draw_pose(rng, patches)
        center, longer, half = self._draw_box(rng, patches, texture_from_view)
        side = config.query_px
        points = window_points(torch.zeros(1, 2, device=target.device), side, side)
        points = points * (longer * QUERY_CONTEXT / 2)[:, None, None, None] + center[:, None, None]
        level = mip_level(patches.texels / (side / QUERY_CONTEXT)).expand(size)
        sample = sample_atlas(patches.atlas, warp(texture_from_view, points), level)
        background, inside = self._background(rng, target, points, patches, texture_from_view)
        alpha, shadow = sample[:, 3:4] * inside, sample[:, 4:]
        dark = shadow * rng.uniform(config.shadow, size)[:, None, None, None]
        pasted = sample[:, :3] + background * (1 - alpha) * (1 - dark)
        image = torch.where(table.is_sprite(target)[:, None, None, None], pasted, background)
        image, alpha = self._cover_with_hands(rng, image, alpha)
        image = self._degrade(rng, image) * inside  # the outside of the photo must stay black

        unit = side / (longer * QUERY_CONTEXT)  # pixels per view unit
        extent = half * unit[:, None]
        box = torch.cat((side / 2 - extent, side / 2 + extent), 1)
        ramp = torch.arange(side, device=target.device) + 0.5
        x_in = (ramp - side / 2).abs() <= extent[:, 0, None]
        y_in = (ramp - side / 2).abs() <= extent[:, 1, None]
        boxed = (y_in[:, :, None] & x_in[:, None, :])[:, None]
        shown = boxed | ~rng.chance(config.crop_only_share, size)[:, None, None, None]
        return QueryBatch(image=image * shown, mask=(alpha * shown).clamp(0, 1), box=box)

    def _draw_pose(self, rng: RandomNumbers, patches: Patches) -> Tensor:
        """Texture from view (B, 3, 3); the longer side of the object is about 1.25 view units."""
        config, size = self._config, len(patches.atlas)
        ratio = rng.normal(config.aspect_log / 2, size)
        stretch = (
            torch.stack((ratio.exp(), (-ratio).exp()), -1) * (2 / QUERY_CONTEXT / patches.longer)[:, None]
        )
        view_from_texture = chain(
            rotation(rng.normal(math.radians(config.query_rotation_deg) / 2, size)),
            sheared(rng.normal(config.shear / 2, size)),
            scaling(stretch),
            projective(rng.normal(config.perspective / 2, size, 2)),
        )
        return inverse(view_from_texture)

    def _draw_box(
        self, rng: RandomNumbers, patches: Patches, texture_from_view: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Centre (B, 2), longer side (B,) and half sides (B, 2) of the user's box, in view units."""
        config, size = self._config, len(patches.atlas)
        points = (
            window_points(torch.zeros(1, 2, device=patches.atlas.device), ROUGH_PX, ROUGH_PX) * ROUGH_REACH
        )
        points = warp(texture_from_view, points.expand(size, -1, -1, -1))
        level = mip_level(patches.texels / (ROUGH_PX / ROUGH_REACH / QUERY_CONTEXT))
        tight = tight_box(sample_atlas(patches.atlas, points, level)[:, 3] > 0.4)
        tight = (tight * (2 / ROUGH_PX) - 1) * ROUGH_REACH
        sides = (tight[:, 2:] - tight[:, :2]).clamp(min=0.1)
        loose = torch.where(rng.chance(config.loose_box_share, size), 1.0, 0.0)
        margin = rng.normal(config.box_jitter, size, 4)
        margin = margin + loose[:, None] * rng.uniform(config.loose_box, size, 4)
        margin = margin.clamp(-0.12, 0.3) * sides.repeat(1, 2)
        low, high = tight[:, :2] - margin[:, :2], tight[:, 2:] + margin[:, 2:]
        half = (high - low) / 2
        return (low + high) / 2, half.amax(-1) * 2, half

    def _background(
        self, rng: RandomNumbers, target: Tensor, points: Tensor, patches: Patches, texture_from_view: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The photo behind the object (B, 3, S, S), black outside it, and where it is (B, 1, S, S).

        A photo object keeps its own photo under the same warp; a sprite gets a random one.
        """
        table, size = self._instances, len(target)
        is_sprite = table.is_sprite(target)
        photo = torch.where(is_sprite, rng.integers(len(table.photos), size), table.photo_of(target))
        left, top, side = patches.photo_window.unbind(-1)
        # From the padded texture to photo pixels to coordinates of the photo.
        zoom = PAD * side / PHOTO_PX
        shift = torch.stack((left + side / 2, top + side / 2), -1) * (2 / PHOTO_PX) - 1
        own = chain(translation(shift), scaling(zoom[:, None].expand(-1, 2)), texture_from_view)
        share = rng.uniform((0.35, 1.0), size)
        spot = rng.uniform((-1.0, 1.0), size, 2) * (1.1 - share)[:, None]
        other = chain(translation(spot), scaling(share[:, None].expand(-1, 2)))
        grid = warp(torch.where(is_sprite[:, None, None], other, own), points)
        grid = dense(grid)
        pixels = table.photos[photo].permute(0, 3, 1, 2).float() / 255
        inside = (grid.abs().amax(-1) <= 1)[:, None]
        return nnf.grid_sample(pixels, grid, padding_mode="border", align_corners=False) * inside, inside

    def _cover_with_hands(self, rng: RandomNumbers, image: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        chosen = rng.subset(self._config.query_hand_share, len(image))
        if len(chosen) == 0:
            return image, alpha
        reach = rng.uniform((-0.9, 0.9), len(chosen), 2)
        hands = draw_hands(rng, reach, 1, image.shape[-1])
        old = alpha[chosen]
        left = old * (1 - hands[:, 3:])
        keep = (left.sum((1, 2, 3)) > (1 - self._config.max_covered / 2) * old.sum((1, 2, 3))).float()
        hands = hands * keep[:, None, None, None]
        painted = hands[:, :3] + image[chosen] * (1 - hands[:, 3:])
        return image.index_copy(0, chosen, painted), alpha.index_copy(0, chosen, old * (1 - hands[:, 3:]))

    def _degrade(self, rng: RandomNumbers, image: Tensor) -> Tensor:
        """Colour, blur, resolution, noise and compression, drawn independently of those of the frames."""
        config, size, side = self._config, len(image), image.shape[-1]
        chosen = rng.subset(config.query_blur_share, size)
        if len(chosen):
            drift = rng.normal(0.05, len(chosen), 2)
            image = image.index_copy(0, chosen, degrade.motion_blur(image[chosen], drift, drift[:, 0] * 0))
        gain = rng.normal(config.exposure_log, size, 1) + rng.normal(config.tint_log, size, 3)
        image = degrade.grade(
            image,
            gain.clamp(max=config.brightest_log).exp(),
            rng.normal(config.gamma_log, size).exp(),
            rng.normal(config.contrast_log, size).exp(),
            rng.uniform(config.saturation, size),
        )
        order = rng.subset(1.0, size)
        count = round(size * config.query_resolution_share)
        for place, pixels in enumerate((*config.query_resolution_px, side)):
            some = order[place * count :] if pixels == side else order[place * count : (place + 1) * count]
            if len(some) == 0:
                continue
            small = degrade.downscale(image[some], pixels) if pixels < side else image[some]
            strength = rng.log_uniform(config.query_compression, len(some))
            compressed = self._codec(small, strength)
            keep = rng.chance(config.query_compression_share, len(some))[:, None, None, None]
            small = torch.where(keep, compressed, small)
            image = image.index_copy(0, some, degrade.upscale(small, side) if pixels < side else small)
        noise = rng.uniform(config.noise, size)[:, None, None, None]
        return (image + rng.normal(1.0, *image.shape) * noise).clamp(0, 1)
