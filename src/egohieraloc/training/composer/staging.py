"""Who plays in a clip and where: the target or its stand-in, its place, the photos behind, its rivals.

Letters: B clips, T frames, L objects, V sides of a sprite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from egohieraloc.training.composer.config import ComposerConfig
from egohieraloc.training.composer.dice import Dice
from egohieraloc.training.composer.instances import PAD, Instances, Patches
from egohieraloc.training.composer.packs import PHOTO_PX
from egohieraloc.training.composer.painting import CELLS, MOSAIC_PX, Backdrop
from egohieraloc.training.composer.render import (
    chain,
    projective,
    rotation,
    scaling,
    sheared,
    translation,
    undistort,
)
from egohieraloc.training.composer.scene_layers import Props, draw_angle, fitting_size
from egohieraloc.training.composer.virtual_camera import Cameras

LEAVE_SCALE = 1.5  # canvas pixels per photo pixel
DISTRACTOR_PX = 140.0  # longer side of a distractor that does not follow the target's


@dataclass(frozen=True, eq=False)
class Cast:
    """What is asked for and what stands in its place."""

    target: Tensor  # (B,) what the query shows
    shown: Tensor  # (B,) itself, or a look-alike
    visible: Tensor  # (B,) bool: something stands there
    absent: Tensor  # (B,) bool: and it is not the target
    in_place: Tensor  # (B,) bool: `shown` is part of the background
    query_view: Tensor  # (B,)
    views: Tensor  # (B, T)
    small: Tensor  # (B, L) distractors, look-alikes first, and last one that may cover the target
    rival: Tensor  # (B,) a look-alike that may stand beside the target
    photos: Tensor  # (B, 9) the background

    def sources(self, instances: Instances) -> Tensor:
        """All that the clip may show (B, K), as numbers of `Instances.source`."""
        objects = torch.cat((self.shown[:, None], self.small, self.rival[:, None]), 1)
        return torch.cat((instances.source[objects], instances.source_of_photo(self.photos)), 1)


def random_instances(dice: Dice, config: ComposerConfig, instances: Instances, *shape: int) -> Tensor:
    sprites = instances.num_sprites
    photo = sprites + dice.below(instances.count - sprites, *shape)
    return torch.where(dice.chance(config.sprite_share, *shape), dice.below(sprites, *shape), photo)


def draw_look_alikes(dice: Dice, instances: Instances, target: Tensor, count: int) -> Tensor:
    """(B, count) instances that look like the targets (B,) and are not."""
    table = instances.look_alikes
    return table[target[:, None], dice.below(table.shape[1], len(target), count)]


def draw_light(dice: Dice, config: ComposerConfig, count: int) -> tuple[Tensor, Tensor]:
    """Gain (count, 3) and gamma (count,) of the light on pasted objects."""
    gain = dice.normal(config.layer_gain_log, count, 1) + dice.normal(config.tint_log / 2, count, 3)
    return gain.clamp(max=config.brightest_log).exp(), dice.normal(config.gamma_log / 2, count).exp()


def draw_cast(dice: Dice, config: ComposerConfig, instances: Instances, batch: int) -> Cast:
    target = random_instances(dice, config, instances, batch)
    absent = dice.chance(config.absent_share, batch)
    replaced = absent & dice.chance(config.look_alike_share, batch)
    look_alike = draw_look_alikes(dice, instances, target, 1)[:, 0]
    shown = torch.where(replaced, look_alike, target)
    visible = ~absent | replaced
    in_place = visible & ~instances.is_sprite(shown) & dice.chance(config.in_place_share, batch)
    query_view = dice.below(instances.num_views, batch)
    views = _draw_views(dice, config, instances, shown, query_view)
    look_alikes = draw_look_alikes(dice, instances, target, config.similar + 1)
    others = random_instances(dice, config, instances, batch, config.distractors + 1 - config.similar)
    small = torch.cat((look_alikes[:, 1:], others), 1)
    photos = dice.below(len(instances.photos), batch, CELLS * CELLS)
    photos = torch.where(_fixed_cell(in_place), instances.photo_of(shown)[:, None], photos)
    return Cast(target, shown, visible, absent, in_place, query_view, views, small, look_alikes[:, 0], photos)


def _fixed_cell(in_place: Tensor) -> Tensor:
    """Cells (B, 9) of the background that hold the photo of a target in place: the middle one."""
    middle = torch.arange(CELLS * CELLS, device=in_place.device) == CELLS * CELLS // 2
    return middle & in_place[:, None]


def _draw_views(
    dice: Dice, config: ComposerConfig, instances: Instances, shown: Tensor, query_view: Tensor
) -> Tensor:
    """Sides (B, T) of sprites, near to or far from the query's, that change slowly."""
    batch, count = len(shown), instances.num_views
    order = instances.view_order[shown.clamp(max=instances.num_sprites - 1)]  # (B, V, V)
    near = dice.below(max(1, round(count * config.near_sides)), batch)
    far = dice.below(max(1, round(count * config.far_sides)), batch)
    rank = torch.where(dice.chance(config.near_view_share, batch), near, far)
    rows = torch.arange(batch, device=shown.device)
    views = [order[rows, query_view, rank]]
    for _ in range(config.clip_frames - 1):
        turned = order[rows, views[-1], dice.below(min(3, count), batch)]
        views.append(torch.where(dice.chance(config.view_change_share, batch), turned, views[-1]))
    return torch.stack(views, 1)


def draw_target(
    dice: Dice, config: ComposerConfig, instances: Instances, cast: Cast, cameras: Cameras, window: int
) -> Props:
    """The target or its stand-in: L = 1, with a texture for each frame."""
    batch, frames = cast.views.shape
    light = (value.repeat_interleave(frames, 0) for value in draw_light(dice, config, batch))
    shown = cast.shown.repeat_interleave(frames)
    patches = instances.patches(shown, cast.views.flatten(), window_texture(window, config), *light)

    usual = dice.log_uniform(config.usual_size_px, batch)
    size = (
        torch.where(
            dice.chance(config.usual_size_share, batch), usual, dice.log_uniform(config.size_px, batch)
        )
        * config.unit
    )
    photo_px = _longer_side(instances.box_of(cast.shown))
    low, high = (photo_px * scale * config.unit for scale in config.in_place_scale)
    native = size.clamp(low, high)
    size = fitting_size(torch.where(cast.in_place, native, size)[:, None], patches, cameras, window)

    spot = dice.uniform((-0.85, 0.85), batch, 2)
    beyond = spot.sign() * dice.uniform((0.85, 1.05), batch, 2)
    at_edge = dice.chance(config.edge_share / 2, batch, 2)
    spot = torch.where(at_edge, beyond, spot) * cameras.half
    reach = 0.9 * cameras.circle / spot.norm(dim=-1).clamp(min=1e-3)
    spot = (spot * reach.clamp(max=1)[:, None])[:, None]
    moving = (dice.chance(config.moving_share, batch) & ~cast.in_place)[:, None, None]
    steps = dice.normal(config.motion / math.sqrt(2), batch, frames, 2) * moving
    path = undistort(spot, cameras.lens) + steps
    return Props(patches=patches, center=spot, path=path[:, None], size=size)


def window_texture(window: int, config: ComposerConfig) -> int:
    """Texels of the textures for a window: as many as a scanned object has, or half of them."""
    return 192 if window * 2 > config.frame_px else 96


def look_away(
    dice: Dice, config: ComposerConfig, instances: Instances, cast: Cast, cameras: Cameras, target: Props
) -> Cameras:
    """In some frames the camera turns so far that the target's place leaves the view.

    Not where the photo of a target in place is shown so small that its mirror image would come into view.
    """
    batch, frames = cameras.scene_from_view.shape[:2]
    scale = target.size[:, 0] / _longer_side(instances.box_of(cast.shown)) / config.unit
    free = ~cast.in_place | (scale >= LEAVE_SCALE)
    away = (free & dice.chance(config.leave_share, batch))[:, None]
    away = away & dice.chance(config.leave_frame_share, batch, frames)
    place = target.path[:, 0].mean(1)
    heading = -place / place.norm(dim=-1, keepdim=True).clamp(min=1e-3)
    shift = (heading * dice.uniform((1.3, 1.8), batch, 1))[:, None] * away[..., None]
    return replace(cameras, scene_from_view=chain(translation(shift), cameras.scene_from_view))


def draw_background(
    dice: Dice, config: ComposerConfig, instances: Instances, cast: Cast, target: Props
) -> tuple[Backdrop, Tensor]:
    """Nine photos side by side and the map from the scene onto them (B, 3, 3).

    Of a target in place the photo is the middle one, and the map brings the target to its place.
    """
    batch = len(cast.target)
    mirrored = dice.chance(0.5, batch, CELLS * CELLS) & ~_fixed_cell(cast.in_place)
    box = instances.box_of(cast.shown)
    one = dice.chance(config.one_photo_share, batch)
    scale = (
        torch.where(
            one, dice.log_uniform(config.one_photo_scale, batch), dice.log_uniform(config.photo_scale, batch)
        )
        * config.unit
    )
    scale = torch.where(cast.in_place, target.size[:, 0] / _longer_side(box), scale)
    shrink = config.frame_px / (MOSAIC_PX * scale)  # mosaic units per scene unit
    slack = torch.where(one, 0.08, (1 - 1.2 * shrink).clamp(min=0.0))[:, None]
    on_object = ((box[:, :2] + box[:, 2:]) / 2 - PHOTO_PX / 2) * (2 / MOSAIC_PX)
    at = cast.in_place[:, None]
    spot = torch.where(at, on_object, dice.uniform((-1.0, 1.0), batch, 2) * slack)
    hinge = torch.where(at, target.path[:, 0, 0], 0.0)
    stretch = dice.normal(config.photo_aspect_log / 2, batch)
    stretch = torch.stack((stretch, -stretch), -1).exp() * shrink[:, None]
    return Backdrop(cast.photos, mirrored), chain(
        translation(spot),
        scaling(stretch),
        sheared(dice.normal(config.shear, batch)),
        rotation(draw_angle(dice, config, batch)),
        projective(dice.normal(config.perspective / 2, batch, 2)),
        translation(-hinge),
    )


def texture_from_mosaic(patches: Patches) -> Tensor:
    """Maps (N, 3, 3) from the mosaic to the textures of objects of its middle photo."""
    left, top, side = patches.photo_window.unbind(-1)
    corner = torch.stack((left, top), -1)
    zoom = (MOSAIC_PX / PAD) / side
    shift = ((PHOTO_PX / 2 - corner) * (2 / side)[:, None] - 1) / PAD
    return chain(translation(shift), scaling(zoom[:, None].expand(-1, 2)))


def draw_small_props(
    dice: Dice,
    config: ComposerConfig,
    instances: Instances,
    cast: Cast,
    cameras: Cameras,
    target: Props,
    window: int,
) -> Props:
    """The small objects of the clip; the last of the L may cover the target."""
    (batch, layers), frames = cast.small.shape, config.clip_frames
    instance = cast.small.flatten()
    view = dice.below(instances.num_views, batch * layers)
    light = draw_light(dice, config, batch * layers)
    patches = instances.patches(instance, view, window_texture(window, config), *light)

    covers = torch.arange(layers, device=instance.device) == layers - 1
    beside = dice.chance(config.beside_share, batch, layers) | covers
    own = dice.log_uniform((config.size_px[0], DISTRACTOR_PX), batch, layers) * config.unit
    size = torch.where(beside, target.size * dice.log_uniform((0.55, 1.4), batch, layers), own)
    size = fitting_size(size, patches, cameras, window)
    gap = (target.size + size) / 2 * dice.uniform((0.8, 1.5), batch, layers)
    gap = torch.where(covers, target.size * dice.uniform((0.25, 0.6), batch, layers), gap)
    near = target.center + _headings(dice, batch, layers) * gap[..., None] * (2 / config.frame_px)
    anywhere = dice.uniform((-1.0, 1.0), batch, layers, 2) * cameras.half[:, None]
    center = torch.where(beside[..., None], near, anywhere)
    scene = undistort(center, cameras.lens)
    follow = (target.path - target.path[:, :, :1]) * covers[:, None, None]
    path = scene[:, :, None].expand(-1, -1, frames, -1) + follow
    return Props(patches=patches, center=center, path=path, size=size)


def draw_rivals(
    dice: Dice,
    config: ComposerConfig,
    instances: Instances,
    rival: Tensor,
    cameras: Cameras,
    center: Tensor,
    size: Tensor,
    window: int,
) -> Props:
    """Rivals (n,) beside targets at centers (n, 1, 2), of about their size (n, 1)."""
    count = len(rival)
    view = dice.below(instances.num_views, count)
    light = draw_light(dice, config, count)
    patches = instances.patches(rival, view, window_texture(window, config), *light)
    own = fitting_size(size * dice.log_uniform((0.7, 1.4), count, 1), patches, cameras, window)
    gap = (size + own) / config.frame_px * dice.uniform((0.9, 1.5), count, 1)
    spot = center + _headings(dice, count, 1) * gap[..., None]
    path = undistort(spot, cameras.lens)[:, :, None].expand(-1, -1, config.clip_frames, -1)
    return Props(patches=patches, center=spot, path=path, size=own)


def _headings(dice: Dice, *shape: int) -> Tensor:
    angle = dice.uniform((0.0, 2 * math.pi), *shape)
    return torch.stack((angle.cos(), angle.sin()), -1)


def _longer_side(box: Tensor) -> Tensor:
    return (box[:, 2:] - box[:, :2]).amax(-1)
