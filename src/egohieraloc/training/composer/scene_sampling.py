"""What a clip shows, drawn at random: target, distractors and background, their positions and sizes.

Letters: B clips, T frames, L objects, V views of a sprite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.instances import PAD, Instances, Patches
from egohieraloc.training.composer.packs import PHOTO_PX
from egohieraloc.training.composer.painting import CELLS, MOSAIC_PX, Backdrop
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.render import (
    chain,
    projective,
    rotation,
    scaling,
    sheared,
    translation,
    undistort,
)
from egohieraloc.training.composer.scene_layers import PlacedObjects, draw_angle, fitting_size
from egohieraloc.training.composer.virtual_camera import Cameras, draw_cameras

LEAVE_SCALE = 1.5  # canvas pixels per photo pixel
DISTRACTOR_PX = 140.0  # longest side of a distractor whose size is independent of the target's


@dataclass(frozen=True, eq=False)
class ChosenObjects:
    """The instances that appear in each clip, as indices into `Instances`."""

    target: Tensor  # (B,) the object of the query
    shown: Tensor  # (B,) the target itself, or a look-alike that replaces it
    visible: Tensor  # (B,) bool: `shown` appears in the clip
    absent: Tensor  # (B,) bool: the target does not appear
    in_place: Tensor  # (B,) bool: `shown` is part of the background photo
    query_view: Tensor  # (B,)
    views: Tensor  # (B, T)
    small: Tensor  # (B, L) distractors, look-alikes first; the last one is the occluder
    rival: Tensor  # (B,) a look-alike of the target's size that may appear next to it
    photos: Tensor  # (B, 9) the background

    def sources(self, instances: Instances) -> Tensor:
        """Sources (B, K) of everything the clip may show, as in `Instances.source`."""
        objects = torch.cat((self.shown[:, None], self.small, self.rival[:, None]), 1)
        return torch.cat((instances.source[objects], instances.source_of_photo(self.photos)), 1)


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that is decided before the first object is painted."""

    objects: ChosenObjects
    cameras: Cameras
    target: PlacedObjects
    backdrop: Backdrop
    mosaic_from_scene: Tensor  # (B, 3, 3)
    shadow: Tensor  # (B * T,) darkness of contact shadows


def draw_light(rng: RandomNumbers, config: ComposerConfig, count: int) -> tuple[Tensor, Tensor]:
    """Gain (count, 3) and gamma (count,) of the light on pasted objects."""
    gain = rng.normal(config.layer_gain_log, count, 1) + rng.normal(config.tint_log / 2, count, 3)
    return gain.clamp(max=config.brightest_log).exp(), rng.normal(config.gamma_log / 2, count).exp()


class SceneSampler:
    """Draws scenes of instances."""

    def __init__(self, rng: RandomNumbers, config: ComposerConfig, instances: Instances) -> None:
        self._rng, self._config, self._instances = rng, config, instances
        aspects = torch.tensor(config.aspects, device=instances.photos.device)
        self._aspects, self._aspect_weights = aspects.unbind(1)

    def draw_scene(self, batch: int) -> Scene:
        rng, config = self._rng, self._config
        objects = self._choose_objects(batch)
        cameras = draw_cameras(rng, config, batch, self._aspects, self._aspect_weights)
        target = self._place_target(objects, cameras)
        cameras = self._look_away(objects, cameras, target)
        backdrop, mosaic_from_scene = self._draw_background(objects, target)
        shadow = rng.uniform(config.shadow, batch).repeat_interleave(config.clip_frames)
        return Scene(objects, cameras, target, backdrop, mosaic_from_scene, shadow)

    def place_distractors(self, scene: Scene) -> PlacedObjects:
        """The small objects of each clip; the last of the L may cover the target."""
        rng, config, cameras, target = self._rng, self._config, scene.cameras, scene.target
        (batch, layers), frames = scene.objects.small.shape, config.clip_frames
        patches = self._random_patches(scene.objects.small.flatten(), config.small_window_px)

        covers = torch.arange(layers, device=target.size.device) == layers - 1
        beside = rng.chance(config.beside_share, batch, layers) | covers
        own = rng.log_uniform((config.size_px[0], DISTRACTOR_PX), batch, layers) * config.unit
        size = torch.where(beside, target.size * rng.log_uniform((0.55, 1.4), batch, layers), own)
        size = fitting_size(size, patches, cameras, config.small_window_px)
        gap = (target.size + size) / 2 * rng.uniform((0.8, 1.5), batch, layers)
        gap = torch.where(covers, target.size * rng.uniform((0.25, 0.6), batch, layers), gap)
        near = target.center + self._directions(batch, layers) * gap[..., None] * (2 / config.frame_px)
        anywhere = rng.uniform((-1.0, 1.0), batch, layers, 2) * cameras.half[:, None]
        center = torch.where(beside[..., None], near, anywhere)
        scene_center = undistort(center, cameras.lens)
        follow = (target.path - target.path[:, :, :1]) * covers[:, None, None]
        path = scene_center[:, :, None].expand(-1, -1, frames, -1) + follow
        return PlacedObjects(patches=patches, center=center, path=path, size=size)

    def place_rivals(self, scene: Scene, clips: Tensor) -> PlacedObjects:
        """Look-alikes next to the targets of some clips (n,), of about their size."""
        rng, config, cameras, count = self._rng, self._config, scene.cameras.of(clips), len(clips)
        center, size = scene.target.center[clips], scene.target.size[clips]
        patches = self._random_patches(scene.objects.rival[clips], config.large_window_px)
        own = size * rng.log_uniform((0.7, 1.4), count, 1)
        own = fitting_size(own, patches, cameras, config.large_window_px)
        gap = (size + own) / config.frame_px * rng.uniform((0.9, 1.5), count, 1)
        spot = center + self._directions(count, 1) * gap[..., None]
        path = undistort(spot, cameras.lens)[:, :, None].expand(-1, -1, config.clip_frames, -1)
        return PlacedObjects(patches=patches, center=spot, path=path, size=own)

    def _choose_objects(self, batch: int) -> ChosenObjects:
        rng, config, instances = self._rng, self._config, self._instances
        target = self._random_instances(batch)
        absent = rng.chance(config.absent_share, batch)
        replaced = absent & rng.chance(config.look_alike_share, batch)
        look_alike = self._look_alikes(target, 1)[:, 0]
        shown = torch.where(replaced, look_alike, target)
        visible = ~absent | replaced
        in_place = visible & ~instances.is_sprite(shown) & rng.chance(config.in_place_share, batch)
        query_view = rng.integers(instances.num_views, batch)
        views = self._draw_views(shown, query_view)
        look_alikes = self._look_alikes(target, config.similar + 1)
        others = self._random_instances(batch, config.distractors + 1 - config.similar)
        photos = rng.integers(len(instances.photos), batch, CELLS * CELLS)
        return ChosenObjects(
            target=target,
            shown=shown,
            visible=visible,
            absent=absent,
            in_place=in_place,
            query_view=query_view,
            views=views,
            small=torch.cat((look_alikes[:, 1:], others), 1),
            rival=look_alikes[:, 0],
            photos=torch.where(_fixed_cell(in_place), instances.photo_of(shown)[:, None], photos),
        )

    def _random_instances(self, *shape: int) -> Tensor:
        rng, instances = self._rng, self._instances
        sprites = instances.num_sprites
        photo = sprites + rng.integers(instances.count - sprites, *shape)
        is_sprite = rng.chance(self._config.sprite_share, *shape)
        return torch.where(is_sprite, rng.integers(sprites, *shape), photo)

    def _look_alikes(self, target: Tensor, count: int) -> Tensor:
        """(B, count) other instances that look like the targets (B,)."""
        table = self._instances.look_alikes
        return table[target[:, None], self._rng.integers(table.shape[1], len(target), count)]

    def _draw_views(self, shown: Tensor, query_view: Tensor) -> Tensor:
        """Views (B, T) of sprites, near to or far from the query's view; they change slowly."""
        rng, config, instances = self._rng, self._config, self._instances
        batch, count = len(shown), instances.num_views
        order = instances.view_order[shown.clamp(max=instances.num_sprites - 1)]  # (B, V, V)
        near = rng.integers(max(1, round(count * config.near_sides)), batch)
        far = rng.integers(max(1, round(count * config.far_sides)), batch)
        rank = torch.where(rng.chance(config.near_view_share, batch), near, far)
        rows = torch.arange(batch, device=shown.device)
        views = [order[rows, query_view, rank]]
        for _ in range(config.clip_frames - 1):
            turned = order[rows, views[-1], rng.integers(min(3, count), batch)]
            views.append(torch.where(rng.chance(config.view_change_share, batch), turned, views[-1]))
        return torch.stack(views, 1)

    def _random_patches(self, instance: Tensor, window: int) -> Patches:
        """Textures of instances (N,), each from a random view in random light."""
        view = self._rng.integers(self._instances.num_views, len(instance))
        light = draw_light(self._rng, self._config, len(instance))
        return self._instances.patches(instance, view, _texture_px(window, self._config), *light)

    def _place_target(self, objects: ChosenObjects, cameras: Cameras) -> PlacedObjects:
        """The target or the look-alike that replaces it: L = 1, with a texture for each frame."""
        rng, config, instances = self._rng, self._config, self._instances
        batch, frames = objects.views.shape
        window = config.large_window_px
        light = (value.repeat_interleave(frames, 0) for value in draw_light(rng, config, batch))
        shown = objects.shown.repeat_interleave(frames)
        patches = instances.patches(shown, objects.views.flatten(), _texture_px(window, config), *light)

        usual = rng.log_uniform(config.usual_size_px, batch)
        is_usual = rng.chance(config.usual_size_share, batch)
        size = torch.where(is_usual, usual, rng.log_uniform(config.size_px, batch)) * config.unit
        photo_px = _longer_side(instances.box_of(objects.shown))
        low, high = (photo_px * scale * config.unit for scale in config.in_place_scale)
        native = size.clamp(low, high)
        size = fitting_size(torch.where(objects.in_place, native, size)[:, None], patches, cameras, window)

        spot = rng.uniform((-0.85, 0.85), batch, 2)
        beyond = spot.sign() * rng.uniform((0.85, 1.05), batch, 2)
        at_edge = rng.chance(config.edge_share / 2, batch, 2)
        spot = torch.where(at_edge, beyond, spot) * cameras.half
        reach = 0.9 * cameras.circle / spot.norm(dim=-1).clamp(min=1e-3)
        spot = (spot * reach.clamp(max=1)[:, None])[:, None]
        moving = (rng.chance(config.moving_share, batch) & ~objects.in_place)[:, None, None]
        steps = rng.normal(config.motion / math.sqrt(2), batch, frames, 2) * moving
        path = undistort(spot, cameras.lens) + steps
        return PlacedObjects(patches=patches, center=spot, path=path[:, None], size=size)

    def _look_away(self, objects: ChosenObjects, cameras: Cameras, target: PlacedObjects) -> Cameras:
        """In some frames the camera turns so far that the target's place leaves the view.

        Not where a photo that contains the target is shown so small that its mirror image would become
        visible.
        """
        rng, config = self._rng, self._config
        batch, frames = cameras.scene_from_view.shape[:2]
        scale = target.size[:, 0] / _longer_side(self._instances.box_of(objects.shown)) / config.unit
        free = ~objects.in_place | (scale >= LEAVE_SCALE)
        away = (free & rng.chance(config.leave_share, batch))[:, None]
        away = away & rng.chance(config.leave_frame_share, batch, frames)
        place = target.path[:, 0].mean(1)
        heading = -place / place.norm(dim=-1, keepdim=True).clamp(min=1e-3)
        shift = (heading * rng.uniform((1.3, 1.8), batch, 1))[:, None] * away[..., None]
        return replace(cameras, scene_from_view=chain(translation(shift), cameras.scene_from_view))

    def _draw_background(self, objects: ChosenObjects, target: PlacedObjects) -> tuple[Backdrop, Tensor]:
        """Nine photos side by side, and the map from the scene onto them (B, 3, 3).

        The photo of a target in place is the middle one, and the map puts the target where it was placed.
        """
        rng, config, batch = self._rng, self._config, len(objects.target)
        mirrored = rng.chance(0.5, batch, CELLS * CELLS) & ~_fixed_cell(objects.in_place)
        box = self._instances.box_of(objects.shown)
        one = rng.chance(config.one_photo_share, batch)
        one_scale = rng.log_uniform(config.one_photo_scale, batch)
        scale = torch.where(one, one_scale, rng.log_uniform(config.photo_scale, batch)) * config.unit
        scale = torch.where(objects.in_place, target.size[:, 0] / _longer_side(box), scale)
        shrink = config.frame_px / (MOSAIC_PX * scale)  # mosaic units per scene unit
        slack = torch.where(one, 0.08, (1 - 1.2 * shrink).clamp(min=0.0))[:, None]
        on_object = ((box[:, :2] + box[:, 2:]) / 2 - PHOTO_PX / 2) * (2 / MOSAIC_PX)
        in_place = objects.in_place[:, None]
        spot = torch.where(in_place, on_object, rng.uniform((-1.0, 1.0), batch, 2) * slack)
        anchor = torch.where(in_place, target.path[:, 0, 0], 0.0)
        stretch = rng.normal(config.photo_aspect_log / 2, batch)
        stretch = torch.stack((stretch, -stretch), -1).exp() * shrink[:, None]
        return Backdrop(objects.photos, mirrored), chain(
            translation(spot),
            scaling(stretch),
            sheared(rng.normal(config.shear, batch)),
            rotation(draw_angle(rng, config, batch)),
            projective(rng.normal(config.perspective / 2, batch, 2)),
            translation(-anchor),
        )

    def _directions(self, *shape: int) -> Tensor:
        angle = self._rng.uniform((0.0, 2 * math.pi), *shape)
        return torch.stack((angle.cos(), angle.sin()), -1)


def texture_from_mosaic(patches: Patches) -> Tensor:
    """Maps (N, 3, 3) from the mosaic to the textures of objects of its middle photo."""
    left, top, side = patches.photo_window.unbind(-1)
    corner = torch.stack((left, top), -1)
    zoom = (MOSAIC_PX / PAD) / side
    shift = ((PHOTO_PX / 2 - corner) * (2 / side)[:, None] - 1) / PAD
    return chain(translation(shift), scaling(zoom[:, None].expand(-1, 2)))


def _texture_px(window: int, config: ComposerConfig) -> int:
    """Side of the textures for a window: that of a sprite, or half of it for small windows."""
    return 192 if window * 2 > config.frame_px else 96


def _fixed_cell(in_place: Tensor) -> Tensor:
    """Cells (B, 9) of the background that hold the photo of a target in place: the middle one."""
    middle = torch.arange(CELLS * CELLS, device=in_place.device) == CELLS * CELLS // 2
    return middle & in_place[:, None]


def _longer_side(box: Tensor) -> Tensor:
    return (box[:, 2:] - box[:, :2]).amax(-1)
