"""An endless stream of training clips, made on the training device from packs resident there.

Each clip: a query picture of a target, T frames of a scene seen by a moving camera, and the truth of what is
visible of the target in each. Labels are painted like colours, so whatever covers the target also covers its
mask. Letters: B clips, T frames, S query side, F frame side, L small layers, N = B * T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training import degrade
from egohieraloc.training.camera import Cameras, draw_cameras
from egohieraloc.training.composer_config import ComposerConfig
from egohieraloc.training.dice import Dice
from egohieraloc.training.instances import PAD, Instances, Patches
from egohieraloc.training.packs import PHOTO_PX, Packs
from egohieraloc.training.query_view import QueryComposer
from egohieraloc.training.render import (
    distort,
    inverse,
    mip_level,
    projective,
    rotation,
    sample_atlas,
    scaling,
    sheared,
    tight_box,
    translation,
    undistort,
    warp,
    window_index,
    window_origin,
    window_points,
)
from egohieraloc.training.sensor import record
from egohieraloc.training.shapes import draw_blocks, draw_hands

CELLS = 3  # the background is a square of 3 x 3 photos
PHOTO_COUNTS = (1, 2, 3, 4, 6, 9)
LARGE_WINDOW, SMALL_WINDOW = 3 / 4, 5 / 14  # of the canvas: room for the target, for a distractor
LARGE_TEXTURE, SMALL_TEXTURE = 192, 96
TARGET, DISTRACTOR = 3, 4  # channels of the canvas after the three colours
MASK_STRIDE = 4


@dataclass(frozen=True, eq=False)
class ClipBatch:
    """Composed clips with their truth. Pictures are in [0, 1]; boxes are xyxy in pixels, half-open."""

    query: Tensor  # (B, 3, S, S)
    query_mask: Tensor  # (B, 1, S, S) in [0, 1]
    query_box: Tensor  # (B, 4) what a user would draw
    frames: Tensor  # (B, T, 3, F, F)
    masks: Tensor  # (B, T, F/4, F/4) share of each cell that shows the target
    boxes: Tensor  # (B, T, 4) of the visible part; zeros where absent
    presence: Tensor  # (B, T) 0 or 1
    source: Tensor  # (B,) int64; equal for the same object
    distractor_masks: Tensor  # (B, T, F/4, F/4) look-alikes of the target


@dataclass(frozen=True, eq=False)
class _Cast:
    target: Tensor  # (B,) what the query shows
    shown: Tensor  # (B,) what stands in its place: itself, or a look-alike
    visible: Tensor  # (B,) bool: something stands there
    absent: Tensor  # (B,) bool
    in_place: Tensor  # (B,) bool: `shown` is part of the background
    query_view: Tensor  # (B,)
    views: Tensor  # (B, T)


@dataclass(frozen=True, eq=False)
class _Place:
    """Where and how large the target is."""

    center: Tensor  # (B, 2) view coordinates when the camera looks straight
    scene: Tensor  # (B, 2) the same in the scene
    size: Tensor  # (B,) longer side in canvas pixels
    path: Tensor  # (B, T, 2) scene


class Composer:
    """`batch(step, size)` depends on the packs, the settings, the seed and the step only."""

    def __init__(self, packs: Packs, config: ComposerConfig, device: torch.device | str, seed: int) -> None:
        self.config = config
        self._device = torch.device(device)
        self._seed = seed
        # Half precision is exact enough for 8-bit pictures; CPUs are slow at it.
        self._dtype = torch.float16 if self._device.type == "cuda" else torch.float32
        self._instances = Instances(packs, self._device, config.neighbours, config.twin_similarity)
        self._codec = degrade.Codec(self._device)
        self._query = QueryComposer(self._instances, config, self._codec)
        self._aspects, self._aspect_weights = torch.tensor(config.aspects, device=self._device).unbind(1)
        self._count_weights = torch.tensor(config.photos_per_scene, device=self._device)
        self._counts = torch.tensor(PHOTO_COUNTS, device=self._device)

    @torch.no_grad()
    def batch(self, step: int, size: int) -> ClipBatch:
        """Compose `size` clips."""
        config, dice = self.config, Dice(self._device, self._seed, step)
        cast = self._draw_cast(dice, size)
        cameras = draw_cameras(dice, config, size, self._aspects, self._aspect_weights)
        light = self._draw_light(dice, size)
        views = cast.views.flatten()
        shown = cast.shown.repeat_interleave(config.clip_frames)
        patches = self._instances.patches(shown, views, LARGE_TEXTURE, *self._per_frame(light))
        place = self._draw_place(dice, cast, cameras, patches)
        cameras = self._look_away(dice, cameras, place)
        background, mosaic_from_scene = self._draw_background(dice, cast, cameras, place)

        canvas = self._paint_background(background, mosaic_from_scene, cameras)
        small, small_origin = self._small_layers(dice, cast, cameras, place)
        shadow = dice.uniform(config.shadow, size).repeat_interleave(config.clip_frames)
        similar = self._similar_flags
        for layer in range(config.distractors):
            label = DISTRACTOR if similar[layer] else None
            canvas = self._paint(canvas, small[layer], small_origin[layer], shadow, label)
        canvas = self._paint_rival(dice, canvas, cast, cameras, place, shadow)
        canvas = self._paint_target(dice, canvas, cast, cameras, place, patches, mosaic_from_scene, shadow)
        whole = canvas[:, TARGET].sum((1, 2), dtype=torch.float32)
        canvas = self._paint(canvas, self._tolerable(canvas, whole, small[-1], small_origin[-1]), small_origin[-1], shadow, None)
        canvas = self._cover_with_shapes(dice, canvas, whole, place)
        return self._finish(dice, canvas, cast, cameras, place, patches)

    @property
    def _similar_flags(self) -> list[bool]:
        count = self.config.distractors
        return [layer < round(count * self.config.similar_share) for layer in range(count)]

    def _per_frame(self, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(value.repeat_interleave(self.config.clip_frames, 0) for value in values)

    def _random_instances(self, dice: Dice, *shape: int) -> Tensor:
        table = self._instances
        sprite = dice.below(table.num_sprites, *shape)
        photo = table.num_sprites + dice.below(table.count - table.num_sprites, *shape)
        return torch.where(dice.chance(self.config.sprite_share, *shape), sprite, photo)

    def _look_alike(self, dice: Dice, instance: Tensor, *shape: int) -> Tensor:
        """Look-alikes (B, *shape) of instances (B,)."""
        table = self._instances.look_alikes
        pick = dice.below(table.shape[1], len(instance), *shape)
        return table[instance.reshape(-1, *([1] * len(shape))), pick]

    def _draw_cast(self, dice: Dice, size: int) -> _Cast:
        config, table = self.config, self._instances
        target = self._random_instances(dice, size)
        absent = dice.chance(config.absent_share, size)
        replaced = absent & dice.chance(config.look_alike_share, size)
        shown = torch.where(replaced, self._look_alike(dice, target), target)
        views, count = [], table.num_views
        order = table.view_order[shown.clamp(max=table.num_sprites - 1)]  # (B, V, V)
        query_view = dice.below(count, size)
        near = dice.below(min(5, count), size)
        rank = torch.where(dice.chance(config.near_view_share, size), near, dice.below(count, size))
        rows = torch.arange(size, device=self._device)
        view = order[rows, query_view, rank]
        for _ in range(config.clip_frames):
            views.append(view)
            turned = order[rows, view, dice.below(min(3, count), size)]
            view = torch.where(dice.chance(config.view_change_share, size), turned, view)
        return _Cast(
            target=target,
            shown=shown,
            visible=~absent | replaced,
            absent=absent,
            in_place=(~absent | replaced) & ~table.is_sprite(shown) & dice.chance(config.in_place_share, size),
            query_view=query_view,
            views=torch.stack(views, 1),
        )

    def _draw_light(self, dice: Dice, count: int) -> tuple[Tensor, Tensor]:
        """Gain (N, 3) and gamma (N,) of the light on pasted things."""
        config = self.config
        gain = dice.normal(config.layer_gain_log, count, 1) + dice.normal(config.tint_log / 2, count, 3)
        return gain.exp(), dice.normal(config.gamma_log / 2, count).exp()

    def _draw_place(self, dice: Dice, cast: _Cast, cameras: Cameras, patches: Patches) -> _Place:
        config, size = self.config, len(cast.target)
        frames = config.clip_frames
        usual = dice.chance(config.usual_size_share, size)
        wanted = torch.where(
            usual, dice.log_uniform(config.usual_size_px, size), dice.log_uniform(config.size_px, size)
        )
        box = self._instances.box_of(cast.shown)
        photo_px = (box[:, 2:] - box[:, :2]).amax(-1)
        native = wanted.clamp(photo_px * config.in_place_scale[0], photo_px * config.in_place_scale[1])
        wanted = torch.where(cast.in_place, native, wanted)
        bulk = (patches.extent.norm(dim=-1) / patches.longer).unflatten(0, (size, frames)).amax(1)
        room = self._window(LARGE_WINDOW) / (bulk * cameras.zoom * 1.15)
        wanted = torch.minimum(wanted, room)

        near_edge = dice.chance(config.edge_share, size)[:, None]
        spot = dice.uniform((-0.85, 0.85), size, 2)
        beyond = spot.sign() * dice.uniform((0.85, 1.05), size, 2)
        axis = dice.chance(0.5, size)[:, None] ^ torch.tensor([False, True], device=self._device)
        spot = torch.where(near_edge & axis, beyond, spot) * cameras.half
        far = spot.norm(dim=-1, keepdim=True)
        spot = spot * (0.9 * cameras.circle[:, None] / far.clamp(min=1e-3)).clamp(max=1)
        scene = undistort(spot, cameras.lens)
        moving = (dice.chance(config.moving_share, size) & ~cast.in_place)[:, None, None]
        steps = dice.normal(config.motion / math.sqrt(2), size, frames, 2) * moving
        return _Place(center=spot, scene=scene, size=wanted, path=scene[:, None] + steps)

    def _look_away(self, dice: Dice, cameras: Cameras, place: _Place) -> Cameras:
        """In some frames the camera turns so far that the target's place leaves the view."""
        config, size = self.config, len(place.size)
        away = dice.chance(config.leave_share, size)[:, None]
        away = away & dice.chance(config.leave_frame_share, size, config.clip_frames)
        heading = -place.scene / place.scene.norm(dim=-1, keepdim=True).clamp(min=1e-3)
        far = heading * dice.uniform((1.3, 1.8), size, 1)
        shift = torch.where(away[..., None], far[:, None], 0.0)
        path = translation(shift) @ cameras.scene_from_view
        return Cameras(
            half=cameras.half,
            circle=cameras.circle,
            lens=cameras.lens,
            scene_from_view=path,
            zoom=cameras.zoom,
            drift=cameras.drift,
            swing=cameras.swing,
        )

    def _draw_background(
        self, dice: Dice, cast: _Cast, cameras: Cameras, place: _Place
    ) -> tuple[Tensor, Tensor]:
        """Nine photos side by side (B, 3, 768, 768) and the map from the scene onto them (B, 3, 3)."""
        config, table, size = self.config, self._instances, len(cast.target)
        cells = CELLS * CELLS
        distinct = self._counts[dice.choice(self._count_weights, size)][:, None]
        pool = dice.below(len(table.photos), size, cells)
        which = dice.below(1 << 20, size, cells) % distinct
        photos = pool.gather(1, which)
        middle = torch.arange(cells, device=self._device) == cells // 2
        photos = torch.where(middle & cast.in_place[:, None], table.photo_of(cast.shown)[:, None], photos)
        pixels = table.photos[photos]  # (B, 9, 256, 256, 3)
        flipped = dice.chance(0.5, size, cells) & ~(middle & cast.in_place[:, None])
        pixels = torch.where(flipped[..., None, None, None], pixels.flip(3), pixels)
        side = CELLS * PHOTO_PX
        mosaic = pixels.unflatten(1, (CELLS, CELLS)).permute(0, 5, 1, 3, 2, 4).reshape(size, 3, side, side)

        box = table.box_of(cast.shown)
        photo_px = (box[:, 2:] - box[:, :2]).amax(-1)
        scale = torch.where(
            cast.in_place, place.size / photo_px, dice.log_uniform(config.photo_scale, size)
        )
        shrink = config.frame_px / (side * scale)  # mosaic units per scene unit
        slack = (1 - 1.2 * shrink).clamp(min=0.0)[:, None]
        anywhere = dice.uniform((-1.0, 1.0), size, 2) * slack
        on_object = ((box[:, :2] + box[:, 2:]) / 2 - PHOTO_PX / 2) * (2 / side)
        spot = torch.where(cast.in_place[:, None], on_object, anywhere)
        hinge = torch.where(cast.in_place[:, None], place.scene, 0.0)
        stretch = dice.normal(config.cell_aspect_log, size)
        stretched = torch.stack((stretch.exp(), (-stretch).exp()), -1) * shrink[:, None]
        mosaic_from_scene = (
            translation(spot)
            @ scaling(stretched)
            @ sheared(dice.normal(config.shear, size))
            @ rotation(self._draw_angle(dice, size))
            @ projective(dice.normal(config.perspective / 2, size, 2))
            @ translation(-hinge)
        )
        return mosaic, mosaic_from_scene

    def _draw_angle(self, dice: Dice, *shape: int) -> Tensor:
        usual = dice.normal(math.radians(self.config.rotation_deg) / 2, *shape)
        any_angle = dice.uniform((-math.pi, math.pi), *shape)
        return torch.where(dice.chance(self.config.any_rotation_share, *shape), any_angle, usual)

    def _window(self, share: float) -> int:
        return 2 * round(self.config.frame_px * share / 2)

    def _paint_background(self, mosaic: Tensor, mosaic_from_scene: Tensor, cameras: Cameras) -> Tensor:
        """The empty scene: a canvas (N, 5, F, F) of colours and, still zero, labels."""
        config, (size, frames) = self.config, cameras.scene_from_view.shape[:2]
        origin = torch.zeros(1, 2, device=self._device)
        points = undistort(window_points(origin, config.frame_px, config.frame_px), cameras.lens)
        points = points.repeat_interleave(frames, 0)
        points = warp((mosaic_from_scene[:, None] @ cameras.scene_from_view).flatten(0, 1), points)
        grid = points.reshape(size, frames * config.frame_px, config.frame_px, 2)
        image = mosaic.float().div_(255)
        colour = nnf.grid_sample(image, grid, padding_mode="reflection", align_corners=False)
        colour = colour.unflatten(2, (frames, config.frame_px)).transpose(1, 2).flatten(0, 1)
        canvas = torch.zeros(
            size * frames, 5, config.frame_px, config.frame_px, device=self._device, dtype=self._dtype
        )
        canvas[:, :3] = colour
        return canvas

    def _texture_from_scene(self, dice: Dice, center: Tensor, scale: Tensor) -> Tensor:
        """Maps (N, K, 3, 3) for objects at scene points (N, K, 2) with scene units per texture unit (N, K).

        An object keeps its attitude over its K frames.
        """
        config, count = self.config, len(center)
        ratio = dice.normal(config.aspect_log / 2, count)
        stretch = torch.stack((ratio.exp(), (-ratio).exp()), -1)
        attitude = rotation(self._draw_angle(dice, count)) @ sheared(dice.normal(config.shear, count))
        relief = projective(dice.normal(config.perspective, count, 2))
        sized = scaling(stretch[:, None] * scale[..., None])
        return inverse(translation(center) @ attitude[:, None] @ sized @ relief[:, None])

    def _scene_length(self, size_px: Tensor, center_view: Tensor, lens: Tensor) -> Tensor:
        """Scene length that a lens shows `size_px` canvas pixels long at a point of the view."""
        bend = 1 + lens * center_view.square().sum(-1)
        return size_px * bend * (2 / self.config.frame_px)

    def _origins(self, scene: Tensor, cameras: Cameras, window: int) -> Tensor:
        """Top-left pixels (B, T, 2) of windows round scene points (B, T, 2)."""
        view = warp(inverse(cameras.scene_from_view).flatten(0, 1), scene.flatten(0, 1)[:, None])[:, 0]
        lens = cameras.lens.repeat_interleave(scene.shape[1])
        # Points behind the camera or far outside end at the border of the canvas.
        view = distort(view.clamp(-4, 4), lens).unflatten(0, scene.shape[:2])
        return window_origin(view, window, self.config.frame_px)

    def _small_layers(
        self, dice: Dice, cast: _Cast, cameras: Cameras, place: _Place
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Distractors and, last, an occluder: windows (N, 5, W, W) and their origins (N, 2), each a list."""
        config, table = self.config, self._instances
        size, frames = cameras.scene_from_view.shape[:2]
        layers = config.distractors + 1
        similar = round(config.distractors * config.similar_share)
        look_alike = self._look_alike(dice, cast.target, similar)
        instance = torch.cat((look_alike, self._random_instances(dice, size, layers - similar)), 1)
        view = dice.below(table.num_views, size, layers)
        light = self._draw_light(dice, size * layers)
        patches = table.patches(instance.flatten(), view.flatten(), SMALL_TEXTURE, *light)

        last = torch.arange(layers, device=self._device) == layers - 1
        beside = dice.chance(config.beside_share, size, layers)
        own = dice.log_uniform((config.size_px[0], 140.0), size, layers)
        like = place.size[:, None] * dice.log_uniform((0.6, 1.4), size, layers)
        wanted = torch.where(last, place.size[:, None] * dice.uniform((0.5, 1.0), size, layers), own)
        wanted = torch.where(beside & ~last, like, wanted)
        bulk = (patches.extent.norm(dim=-1) / patches.longer).unflatten(0, (size, layers))
        window = self._window(SMALL_WINDOW)
        wanted = torch.minimum(wanted, window / (bulk * cameras.zoom[:, None] * 1.15))

        angle = dice.uniform((0.0, 2 * math.pi), size, layers)
        heading = torch.stack((angle.cos(), angle.sin()), -1)
        gap = (place.size[:, None] + wanted) / 2 * dice.uniform((0.8, 1.5), size, layers)
        gap = torch.where(last, place.size[:, None] * dice.uniform((0.25, 0.6), size, layers), gap)
        close = place.center[:, None] + heading * gap[..., None] * (2 / config.frame_px)
        anywhere = dice.uniform((-1.0, 1.0), size, layers, 2) * cameras.half[:, None]
        center = torch.where((beside | last)[..., None], close, anywhere)
        scene = undistort(center, cameras.lens)
        # An occluder follows the target, the others stay.
        follow = (place.path - place.scene[:, None])[:, None] * last[:, None, None]
        path = scene[:, :, None] + follow  # (B, L, T, 2)
        lens = cameras.lens.repeat_interleave(layers)
        length = self._scene_length(wanted.flatten(), center.flatten(0, 1), lens)
        scale = (length / patches.longer)[:, None].expand(-1, frames)
        matrices = self._texture_from_scene(dice, path.flatten(0, 1), scale).unflatten(0, (size, layers))
        origin = torch.stack([self._origins(path[:, k], cameras, window) for k in range(layers)], 1)
        samples = self._sample(patches, matrices, origin, cameras, mip_level(patches.texels / wanted.flatten()))
        share = torch.where(last, config.occluder_share, config.distractor_share)
        there = dice.uniform((0.0, 1.0), size, layers) < share
        samples = samples * there[:, :, None, None, None, None]
        flat = samples.transpose(0, 1).flatten(1, 2), origin.transpose(0, 1).flatten(1, 2)
        return list(flat[0].unbind(0)), list(flat[1].unbind(0))

    def _sample(
        self, patches: Patches, texture_from_scene: Tensor, origin: Tensor, cameras: Cameras, level: Tensor
    ) -> Tensor:
        """Windows (B, L, T, 5, W, W) of L textures per clip; matrices (B, L, T, 3, 3), origins (B, L, T, 2)."""
        size, layers, frames = origin.shape[:3]
        window = self._window(SMALL_WINDOW if layers > 1 else LARGE_WINDOW)
        points = window_points(origin.reshape(-1, 2), window, self.config.frame_px)
        points = undistort(points, cameras.lens.repeat_interleave(layers * frames))
        matrices = texture_from_scene @ cameras.scene_from_view[:, None]
        points = warp(matrices.reshape(-1, 3, 3), points)
        per_texture = size * layers * frames // len(patches.atlas)
        points = points.reshape(len(patches.atlas), per_texture * window, window, 2)
        samples = sample_atlas(patches.atlas, points, level).to(self._dtype)
        samples = samples.unflatten(2, (per_texture, window)).transpose(1, 2)
        return samples.reshape(size, layers, frames, 5, window, window)

    def _paint_rival(
        self, dice: Dice, canvas: Tensor, cast: _Cast, cameras: Cameras, place: _Place, shadow: Tensor
    ) -> Tensor:
        """In some clips one more look-alike, of the target's size, beside it."""
        config, table, size = self.config, self._instances, len(cast.target)
        chosen = dice.some(config.rival_share, size)
        count, frames = len(chosen), config.clip_frames
        if count == 0:
            return canvas
        instance = self._look_alike(dice, cast.target)[chosen]
        view = dice.below(table.num_views, count)
        patches = table.patches(instance, view, LARGE_TEXTURE, *self._draw_light(dice, count))
        picked = _pick(cameras, chosen)
        window = self._window(LARGE_WINDOW)
        wanted = place.size[chosen] * dice.log_uniform((0.7, 1.4), count)
        wanted = torch.minimum(
            wanted, window / (patches.extent.norm(dim=-1) / patches.longer * picked.zoom * 1.15)
        )
        angle = dice.uniform((0.0, 2 * math.pi), count)
        heading = torch.stack((angle.cos(), angle.sin()), -1)
        gap = (place.size[chosen] + wanted) / config.frame_px * dice.uniform((0.9, 1.5), count)
        center = place.center[chosen] + heading * gap[:, None]
        path = undistort(center, picked.lens)[:, None].expand(-1, frames, -1)
        length = self._scene_length(wanted, center, picked.lens)
        scale = (length / patches.longer)[:, None].expand(-1, frames)
        matrices = self._texture_from_scene(dice, path, scale)[:, None]
        origin = self._origins(path, picked, window)[:, None]
        level = mip_level(patches.texels / wanted)
        samples = self._sample(patches, matrices, origin, picked, level).flatten(0, 2)
        rows = _rows(chosen, frames)
        painted = self._paint(canvas[rows], samples, origin.flatten(0, 2), shadow[rows], DISTRACTOR)
        return canvas.index_copy(0, rows, painted)

    def _paint_target(
        self,
        dice: Dice,
        canvas: Tensor,
        cast: _Cast,
        cameras: Cameras,
        place: _Place,
        patches: Patches,
        mosaic_from_scene: Tensor,
        shadow: Tensor,
    ) -> Tensor:
        config, (size, frames) = self.config, cameras.scene_from_view.shape[:2]
        length = self._scene_length(place.size, place.center, cameras.lens)
        scale = length[:, None] / patches.longer.unflatten(0, (size, frames))
        pasted = self._texture_from_scene(dice, place.path, scale)
        left, top, side = patches.photo_window.unflatten(0, (size, frames)).unbind(-1)
        # Mosaic to photo pixels of the middle cell to the padded texture.
        zoom = 2 * CELLS * PHOTO_PX / 2 / side / PAD
        corner = torch.stack((left, top), -1)
        shift = ((PHOTO_PX / 2 - corner) * (2 / side)[..., None] - 1) / PAD
        texture_from_mosaic = translation(shift) @ scaling(zoom[..., None].expand(-1, -1, 2))
        placed = texture_from_mosaic @ mosaic_from_scene[:, None]
        matrices = torch.where(cast.in_place[:, None, None, None], placed, pasted)[:, None]
        origin = self._origins(place.path, cameras, self._window(LARGE_WINDOW))[:, None]
        level = mip_level(patches.texels / place.size.repeat_interleave(frames))
        samples = self._sample(patches, matrices, origin, cameras, level).flatten(0, 2)
        samples = samples * cast.visible.repeat_interleave(frames)[:, None, None, None]
        opaque = (~cast.in_place).repeat_interleave(frames)
        label = torch.where(cast.absent, DISTRACTOR, TARGET).repeat_interleave(frames)
        return self._paint(canvas, samples, origin.flatten(0, 2), shadow, label, opaque)

    def _paint(
        self,
        canvas: Tensor,
        sample: Tensor,
        origin: Tensor,
        shadow: Tensor,
        label: Tensor | int | None,
        opaque: Tensor | None = None,
    ) -> Tensor:
        """Lay windows (N, 5, W, W) over the canvas (N, 5, F, F). Where not opaque, only labels change."""
        index = window_index(origin, sample.shape[-1], self.config.frame_px)[:, None].expand(-1, 5, -1)
        flat, layer = canvas.flatten(2), sample.flatten(2)
        under = flat.gather(2, index)
        alpha, dark = layer[:, 3:4], layer[:, 4:]
        dark = dark * shadow.to(self._dtype)[:, None, None]
        colour = layer[:, :3] + under[:, :3] * (1 - alpha) * (1 - dark)
        if opaque is not None:
            colour = torch.where(opaque[:, None, None], colour, under[:, :3])
        labels = under[:, 3:] * (1 - alpha)
        if label is not None:
            channel = torch.arange(TARGET, DISTRACTOR + 1, device=canvas.device)
            which = channel == (label[:, None] if isinstance(label, Tensor) else label)
            labels = labels + alpha * which.expand(len(canvas), 2)[..., None]
        return flat.scatter(2, index, torch.cat((colour, labels), 1)).view_as(canvas)

    def _tolerable(self, canvas: Tensor, whole: Tensor, sample: Tensor, origin: Tensor) -> Tensor:
        """The covering windows (N, C, W, W), made void where they would hide too much of the target."""
        index = window_index(origin, sample.shape[-1], self.config.frame_px)
        under = canvas[:, TARGET].flatten(1).gather(1, index)
        hidden = (under * sample[:, 3].flatten(1)).sum(1, dtype=torch.float32)
        left = canvas[:, TARGET].sum((1, 2), dtype=torch.float32) - hidden
        return sample * (left >= (1 - self.config.max_covered) * whole)[:, None, None, None]

    def _cover_with_shapes(self, dice: Dice, canvas: Tensor, whole: Tensor, place: _Place) -> Tensor:
        config, size = self.config, len(place.size)
        frames, side = config.clip_frames, config.frame_px
        chosen = dice.some(config.shape_share, size)
        if len(chosen):
            center = place.center[chosen, None] + (place.path - place.scene[:, None])[chosen]
            drawn = draw_blocks(dice, center, place.size[chosen] * (2 / side), frames, side)
            canvas = self._overlay(canvas, whole, drawn, _rows(chosen, frames))
        chosen = dice.some(config.hand_share, size)
        if len(chosen):
            count = len(chosen)
            anywhere = dice.uniform((-0.9, 0.9), count, 2)
            held = place.center[chosen] + dice.normal(0.6, count, 2) * place.size[chosen, None] / side
            reach = torch.where(dice.chance(config.hand_on_target_share, count)[:, None], held, anywhere)
            drawn = draw_hands(dice, reach, frames, side)
            canvas = self._overlay(canvas, whole, drawn, _rows(chosen, frames))
        return canvas

    def _overlay(self, canvas: Tensor, whole: Tensor, drawn: Tensor, rows: Tensor) -> Tensor:
        """Lay whole pictures (n, 4, F, F) over some rows of the canvas."""
        under = canvas[rows]
        drawn = self._tolerable(under, whole[rows], drawn.to(self._dtype), drawn.new_zeros(len(rows), 2))
        alpha = drawn[:, 3:]
        colour = drawn[:, :3] + under[:, :3] * (1 - alpha)
        return canvas.index_copy(0, rows, torch.cat((colour, under[:, 3:] * (1 - alpha)), 1))

    def _finish(
        self, dice: Dice, canvas: Tensor, cast: _Cast, cameras: Cameras, place: _Place, patches: Patches
    ) -> ClipBatch:
        config, size, frames = self.config, len(cast.target), self.config.clip_frames
        image, content = record(dice, config, self._codec, canvas[:, :3], cameras)
        labels = (canvas[:, 3:] * content).clamp(0, 1)
        area = labels[:, 0].sum((1, 2), dtype=torch.float32)
        expected = patches.fill * place.size.square().repeat_interleave(frames)
        enough = area >= (expected * config.min_visible_share).clamp(min=config.min_visible_px)
        target = labels[:, 0] * enough[:, None, None]
        query = self._query.compose(dice, cast.target, cast.query_view)
        masks = nnf.avg_pool2d(torch.stack((target, labels[:, 1]), 1), MASK_STRIDE).unflatten(0, (size, frames))
        return ClipBatch(
            query=query.image,
            query_mask=query.mask,
            query_box=query.box,
            frames=image.unflatten(0, (size, frames)),
            masks=masks[:, :, 0].float(),
            boxes=tight_box(target > 0.5).unflatten(0, (size, frames)),
            presence=enough.float().unflatten(0, (size, frames)),
            source=self._instances.source[cast.target],
            distractor_masks=masks[:, :, 1].float(),
        )


def _rows(clips: Tensor, frames: int) -> Tensor:
    """Rows of the canvas that hold the frames of these clips."""
    return (clips[:, None] * frames + torch.arange(frames, device=clips.device)).flatten()


def _pick(cameras: Cameras, clips: Tensor) -> Cameras:
    return Cameras(**{name: value[clips] for name, value in vars(cameras).items()})
