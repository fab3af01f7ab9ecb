"""The query: a square window round the object's box, 1.6 times its longer side, as inference cuts it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer import degrade
from egohieraloc.training.composer.config import ComposerConfig
from egohieraloc.training.composer.dice import Dice
from egohieraloc.training.composer.instances import PAD, Instances, Patches
from egohieraloc.training.composer.packs import PHOTO_PX
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
from egohieraloc.training.composer.shapes import draw_hands
from egohieraloc.training.composer.staging import draw_light

QUERY_CONTEXT = 1.6  # side of the window over the longer side of the box
QUERY_TEXTURE = 192
ROUGH_PX = 64
ROUGH_REACH = 1.4


@dataclass(frozen=True, eq=False)
class QueryView:
    image: Tensor  # (B, 3, S, S)
    mask: Tensor  # (B, 1, S, S)
    box: Tensor  # (B, 4) in query pixels


class QueryComposer:
    """Renders queries: photo objects in their photo, sprites on a photo."""

    def __init__(self, instances: Instances, config: ComposerConfig, codec: degrade.Codec) -> None:
        self._instances, self._config, self._codec = instances, config, codec

    def compose(self, dice: Dice, target: Tensor, view: Tensor) -> QueryView:
        """Queries of targets (B,), sprites seen from sides (B,)."""
        config, table, size = self._config, self._instances, len(target)
        light = draw_light(dice, config, size)
        patches = table.patches(target, view, QUERY_TEXTURE, *light)
        texture_from_view = self._draw_attitude(dice, patches)
        center, longer, half = self._draw_box(dice, patches, texture_from_view)
        side = config.query_px
        points = window_points(torch.zeros(1, 2, device=target.device), side, side)
        points = points * (longer * QUERY_CONTEXT / 2)[:, None, None, None] + center[:, None, None]
        level = mip_level(patches.texels / (side / QUERY_CONTEXT)).expand(size)
        sample = sample_atlas(patches.atlas, warp(texture_from_view, points), level)
        background, inside = self._background(dice, target, points, patches, texture_from_view)
        alpha, shadow = sample[:, 3:4] * inside, sample[:, 4:]
        dark = shadow * dice.uniform(config.shadow, size)[:, None, None, None]
        pasted = sample[:, :3] + background * (1 - alpha) * (1 - dark)
        image = torch.where(table.is_sprite(target)[:, None, None, None], pasted, background)
        image, alpha = self._cover_with_hands(dice, image, alpha)
        image = self._wear(dice, image) * inside  # wear must not lift the black outside the image

        unit = side / (longer * QUERY_CONTEXT)  # pixels per view unit
        extent = half * unit[:, None]
        box = torch.cat((side / 2 - extent, side / 2 + extent), 1)
        ramp = torch.arange(side, device=target.device) + 0.5
        x_in = (ramp - side / 2).abs() <= extent[:, 0, None]
        y_in = (ramp - side / 2).abs() <= extent[:, 1, None]
        boxed = (y_in[:, :, None] & x_in[:, None, :])[:, None]
        shown = boxed | ~dice.chance(config.crop_only_share, size)[:, None, None, None]
        return QueryView(image=image * shown, mask=(alpha * shown).clamp(0, 1), box=box)

    def _draw_attitude(self, dice: Dice, patches: Patches) -> Tensor:
        """Texture from view (B, 3, 3); the longer side is about 1.25 long in the view."""
        config, size = self._config, len(patches.atlas)
        ratio = dice.normal(config.aspect_log / 2, size)
        stretch = (
            torch.stack((ratio.exp(), (-ratio).exp()), -1) * (2 / QUERY_CONTEXT / patches.longer)[:, None]
        )
        view_from_texture = chain(
            rotation(dice.normal(math.radians(config.query_rotation_deg) / 2, size)),
            sheared(dice.normal(config.shear / 2, size)),
            scaling(stretch),
            projective(dice.normal(config.perspective / 2, size, 2)),
        )
        return inverse(view_from_texture)

    def _draw_box(
        self, dice: Dice, patches: Patches, texture_from_view: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Centre (B, 2), longer side (B,) and half sides (B, 2), view units, of the box a user draws."""
        config, size = self._config, len(patches.atlas)
        points = (
            window_points(torch.zeros(1, 2, device=patches.atlas.device), ROUGH_PX, ROUGH_PX) * ROUGH_REACH
        )
        points = warp(texture_from_view, points.expand(size, -1, -1, -1))
        level = mip_level(patches.texels / (ROUGH_PX / ROUGH_REACH / QUERY_CONTEXT))
        tight = tight_box(sample_atlas(patches.atlas, points, level)[:, 3] > 0.4)
        tight = (tight * (2 / ROUGH_PX) - 1) * ROUGH_REACH
        sides = (tight[:, 2:] - tight[:, :2]).clamp(min=0.1)
        loose = torch.where(dice.chance(config.loose_box_share, size), 1.0, 0.0)
        margin = dice.normal(config.box_jitter, size, 4)
        margin = margin + loose[:, None] * dice.uniform(config.loose_box, size, 4)
        margin = margin.clamp(-0.12, 0.3) * sides.repeat(1, 2)
        low, high = tight[:, :2] - margin[:, :2], tight[:, 2:] + margin[:, 2:]
        half = (high - low) / 2
        return (low + high) / 2, half.amax(-1) * 2, half

    def _background(
        self, dice: Dice, target: Tensor, points: Tensor, patches: Patches, texture_from_view: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The photo behind (B, 3, S, S) and where it is (B, 1, S, S).

        It is the object's own under the same warp, or any under a sprite; black outside.
        """
        table, size = self._instances, len(target)
        is_sprite = table.is_sprite(target)
        photo = torch.where(is_sprite, dice.below(len(table.photos), size), table.photo_of(target))
        left, top, side = patches.photo_window.unbind(-1)
        # Padded texture to photo pixels to the photo as a texture.
        zoom = PAD * side / PHOTO_PX
        shift = torch.stack((left + side / 2, top + side / 2), -1) * (2 / PHOTO_PX) - 1
        own = chain(translation(shift), scaling(zoom[:, None].expand(-1, 2)), texture_from_view)
        share = dice.uniform((0.35, 1.0), size)
        spot = dice.uniform((-1.0, 1.0), size, 2) * (1.1 - share)[:, None]
        other = chain(translation(spot), scaling(share[:, None].expand(-1, 2)))
        grid = warp(torch.where(is_sprite[:, None, None], other, own), points)
        grid = dense(grid)
        pixels = table.photos[photo].permute(0, 3, 1, 2).float() / 255
        inside = (grid.abs().amax(-1) <= 1)[:, None]
        return nnf.grid_sample(pixels, grid, padding_mode="border", align_corners=False) * inside, inside

    def _cover_with_hands(self, dice: Dice, image: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        chosen = dice.some(self._config.query_hand_share, len(image))
        if len(chosen) == 0:
            return image, alpha
        reach = dice.uniform((-0.9, 0.9), len(chosen), 2)
        hands = draw_hands(dice, reach, 1, image.shape[-1])
        old = alpha[chosen]
        left = old * (1 - hands[:, 3:])
        keep = (left.sum((1, 2, 3)) > (1 - self._config.max_covered / 2) * old.sum((1, 2, 3))).float()
        hands = hands * keep[:, None, None, None]
        painted = hands[:, :3] + image[chosen] * (1 - hands[:, 3:])
        return image.index_copy(0, chosen, painted), alpha.index_copy(0, chosen, old * (1 - hands[:, 3:]))

    def _wear(self, dice: Dice, image: Tensor) -> Tensor:
        """Colour, blur, resolution, noise and compression, drawn apart from those of the frames."""
        config, size, side = self._config, len(image), image.shape[-1]
        chosen = dice.some(config.query_blur_share, size)
        if len(chosen):
            drift = dice.normal(0.05, len(chosen), 2)
            image = image.index_copy(0, chosen, degrade.smear(image[chosen], drift, drift[:, 0] * 0))
        gain = dice.normal(config.exposure_log, size, 1) + dice.normal(config.tint_log, size, 3)
        image = degrade.grade(
            image,
            gain.clamp(max=config.brightest_log).exp(),
            dice.normal(config.gamma_log, size).exp(),
            dice.normal(config.contrast_log, size).exp(),
            dice.uniform(config.saturation, size),
        )
        order = dice.some(1.0, size)
        count = round(size * config.query_resolution_share)
        for place, pixels in enumerate((*config.query_resolution_px, side)):
            some = order[place * count :] if pixels == side else order[place * count : (place + 1) * count]
            if len(some) == 0:
                continue
            small = degrade.coarse(image[some], pixels) if pixels < side else image[some]
            strength = dice.log_uniform(config.query_compression, len(some))
            worn = self._codec(small, strength)
            keep = dice.chance(config.query_compression_share, len(some))[:, None, None, None]
            small = torch.where(keep, worn, small)
            image = image.index_copy(0, some, degrade.enlarged(small, side) if pixels < side else small)
        noise = dice.uniform(config.noise, size)[:, None, None, None]
        return (image + dice.normal(1.0, *image.shape) * noise).clamp(0, 1)
