"""An endless stream of training clips, made on the training device from packs resident there.

Each clip: a query image of a target, T frames of a scene seen by a moving camera, and the truth of what is
visible of the target in each. Labels are painted like colours, so whatever covers the target also covers its
mask. Letters: B clips, T frames, S query side, F frame side, N = B * T.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.config import ComposerConfig
from egohieraloc.training.composer.degrade import Codec
from egohieraloc.training.composer.dice import Dice, mixed_seed
from egohieraloc.training.composer.instances import Instances
from egohieraloc.training.composer.packs import Packs
from egohieraloc.training.composer.painting import (
    DISTRACTOR,
    TARGET,
    Backdrop,
    Layer,
    hang,
    overlay,
    paint,
    tolerable,
)
from egohieraloc.training.composer.query_view import QueryComposer
from egohieraloc.training.composer.render import LATTICE_PX, chain, tight_box, undistort, warp, window_points
from egohieraloc.training.composer.scene_layers import Props, draw_texture_from_scene, render
from egohieraloc.training.composer.sensor import record
from egohieraloc.training.composer.shapes import draw_blocks, draw_hands
from egohieraloc.training.composer.solids import with_solids
from egohieraloc.training.composer.staging import (
    Cast,
    draw_background,
    draw_cast,
    draw_rivals,
    draw_small_props,
    draw_target,
    look_away,
    texture_from_mosaic,
)
from egohieraloc.training.composer.virtual_camera import Cameras, draw_cameras

LARGE_WINDOW, SMALL_WINDOW = 3 / 4, 5 / 14  # of the canvas: room for the target, for a distractor
MASK_STRIDE = 4
BEFORE_THE_FIRST = -1  # the step at which objects are made


class Composer:
    """`batch(step, size)` depends on the packs, the settings, the seed and the step only."""

    def __init__(self, packs: Packs, config: ComposerConfig, device: torch.device | str, seed: int) -> None:
        self.config = config
        self._device = torch.device(device)
        self._seed = seed
        self.generator = torch.Generator(self._device)
        # Half precision is exact enough for 8-bit images; CPUs are slow at it.
        self._dtype = torch.float16 if self._device.type == "cuda" else torch.float32
        if config.solids:
            self.seed_for(BEFORE_THE_FIRST)
            packs = with_solids(packs, config.solids, self.generator)
        self._instances = Instances(
            packs, self._device, config.neighbours, config.twin_similarity, self._dtype
        )
        self._codec = Codec(self._device)
        self._query = QueryComposer(self._instances, config, self._codec)
        self._aspects, self._aspect_weights = torch.tensor(config.aspects, device=self._device).unbind(1)
        self._large, self._small = (
            LATTICE_PX * round(config.frame_px * share / LATTICE_PX) for share in (LARGE_WINDOW, SMALL_WINDOW)
        )

    def batch(self, step: int, size: int) -> ClipBatch:
        """Compose `size` clips."""
        self.seed_for(step)
        return self.next_batch(size)

    def cast(self, step: int, size: int) -> Cast:
        """Which objects the batch of this step shows, and from which sides."""
        self.seed_for(step)
        return draw_cast(Dice(self.generator), self.config, self._instances, size)

    def seed_for(self, step: int) -> None:
        """Make the next batch that of this step."""
        self.generator.manual_seed(mixed_seed(self._seed, step))

    @torch.no_grad()
    def next_batch(self, size: int) -> ClipBatch:
        """Compose `size` clips from where the generator stands. The work never waits for the device."""
        with torch.autocast(self._device.type, enabled=False):
            return self._compose(Dice(self.generator), size)

    def _compose(self, dice: Dice, size: int) -> ClipBatch:
        config, instances = self.config, self._instances
        cast = draw_cast(dice, config, instances, size)
        cameras = draw_cameras(dice, config, size, self._aspects, self._aspect_weights)
        target = draw_target(dice, config, instances, cast, cameras, self._large)
        cameras = look_away(dice, config, instances, cast, cameras, target)
        backdrop, mosaic_from_scene = draw_background(dice, config, instances, cast, target)
        shadow = dice.uniform(config.shadow, size).repeat_interleave(config.clip_frames)

        canvas = self._paint_background(backdrop, mosaic_from_scene, cameras)
        canvas, cover = self._paint_distractors(dice, canvas, cast, cameras, target, shadow)
        canvas = self._paint_rivals(dice, canvas, cast, cameras, target, shadow)
        canvas = self._paint_target(dice, canvas, cast, cameras, target, mosaic_from_scene, shadow)
        whole = canvas[:, TARGET].sum((1, 2), dtype=torch.float32)
        canvas = paint(canvas, tolerable(canvas, whole, cover, config.max_covered), shadow, None)
        canvas = self._paint_shapes(dice, canvas, whole, target)
        return self._finish(dice, canvas, cast, cameras, target)

    def _paint_background(self, backdrop: Backdrop, mosaic_from_scene: Tensor, cameras: Cameras) -> Tensor:
        """The empty scene: a canvas (N, 5, F, F) of colours and, still zero, labels."""
        side, (batch, frames) = self.config.frame_px, cameras.scene_from_view.shape[:2]
        points = window_points(torch.zeros(1, 2, device=self._device), side, side)
        points = undistort(points, cameras.lens).repeat_interleave(frames, 0)
        points = warp(chain(mosaic_from_scene[:, None], cameras.scene_from_view).flatten(0, 1), points)
        canvas = torch.zeros(batch * frames, 5, side, side, device=self._device, dtype=self._dtype)
        hang(canvas, self._instances.photos, backdrop, points)
        return canvas

    def _paint_distractors(
        self, dice: Dice, canvas: Tensor, cast: Cast, cameras: Cameras, target: Props, shadow: Tensor
    ) -> tuple[Tensor, Layer]:
        """Paint the small objects behind the target; also the layer that comes before it."""
        config, size = self.config, len(cast.target)
        props = draw_small_props(dice, config, self._instances, cast, cameras, target, self._small)
        maps = draw_texture_from_scene(dice, config, props, cameras)
        there = dice.chance(config.distractor_share, size, config.distractors)
        there = torch.cat((there, dice.chance(config.occluder_share, size, 1)), 1)
        *behind, before = render(config, props, cameras, maps, self._small, there)
        for number, layer in enumerate(behind):
            canvas = paint(canvas, layer, shadow, DISTRACTOR if number < config.similar else None)
        return canvas, before

    def _paint_rivals(
        self, dice: Dice, canvas: Tensor, cast: Cast, cameras: Cameras, target: Props, shadow: Tensor
    ) -> Tensor:
        """In some clips one more look-alike, of the target's size, beside it."""
        config = self.config
        chosen = dice.some(config.rival_share, len(cast.target))
        if len(chosen) == 0:
            return canvas
        cameras = cameras.of(chosen)
        rival, center, size = cast.rival[chosen], target.center[chosen], target.size[chosen]
        props = draw_rivals(dice, config, self._instances, rival, cameras, center, size, self._large)
        maps = draw_texture_from_scene(dice, config, props, cameras)
        layer = render(config, props, cameras, maps, self._large, torch.ones_like(size, dtype=torch.bool))[0]
        rows = _rows(chosen, config.clip_frames)
        return canvas.index_copy_(0, rows, paint(canvas[rows], layer, shadow[rows], DISTRACTOR))

    def _paint_target(
        self,
        dice: Dice,
        canvas: Tensor,
        cast: Cast,
        cameras: Cameras,
        target: Props,
        mosaic_from_scene: Tensor,
        shadow: Tensor,
    ) -> Tensor:
        config, (batch, frames) = self.config, cast.views.shape
        pasted = draw_texture_from_scene(dice, config, target, cameras)
        onto = texture_from_mosaic(target.patches).unflatten(0, (batch, 1, frames))
        placed = chain(onto, mosaic_from_scene[:, None, None])
        maps = torch.where(cast.in_place[:, None, None, None, None], placed, pasted)
        layer = render(config, target, cameras, maps, self._large, cast.visible[:, None])[0]
        label = torch.where(cast.absent, DISTRACTOR, TARGET).repeat_interleave(frames)
        return paint(canvas, layer, shadow, label, (~cast.in_place).repeat_interleave(frames))

    def _paint_shapes(self, dice: Dice, canvas: Tensor, whole: Tensor, target: Props) -> Tensor:
        """Plain shapes before some targets; hands with arms in some clips."""
        config, batch = self.config, len(target.size)
        frames, side = config.clip_frames, config.frame_px
        center, size = target.center[:, 0], target.size[:, 0] * (2 / side)
        chosen = dice.some(config.shape_share, batch)
        if len(chosen):
            path = center[chosen, None] + (target.path - target.path[:, :, :1])[chosen, 0]
            drawn = draw_blocks(dice, path, size[chosen], frames, side)
            canvas = overlay(canvas, _rows(chosen, frames), drawn, whole, config.max_covered)
        for share in (config.hand_share, config.second_hand_share):
            chosen = dice.some(share, batch)
            count = len(chosen)
            if count == 0:
                continue
            held = center[chosen] + dice.normal(0.3, count, 2) * size[chosen, None]
            on_target = dice.chance(config.hand_on_target_share, count)[:, None]
            reach = torch.where(on_target, held, dice.uniform((-0.9, 0.9), count, 2))
            drawn = draw_hands(dice, reach, frames, side)
            canvas = overlay(canvas, _rows(chosen, frames), drawn, whole, config.max_covered)
        return canvas

    def _finish(self, dice: Dice, canvas: Tensor, cast: Cast, cameras: Cameras, target: Props) -> ClipBatch:
        """Record the frames, measure what is visible, and make the queries."""
        config, (batch, frames) = self.config, cast.views.shape
        image, content = record(dice, config, self._codec, canvas[:, :3], cameras)
        labels = (canvas[:, 3:] * content).clamp_(0, 1)
        area = labels[:, 0].sum((1, 2), dtype=torch.float32)
        expected = target.patches.fill * target.size[:, 0].square().repeat_interleave(frames)
        present = area >= (expected * config.min_visible_share).clamp(min=config.min_visible_px)
        labels[:, 0] *= present[:, None, None]
        masks = nnf.avg_pool2d(labels, MASK_STRIDE).float().unflatten(0, (batch, frames))
        query = self._query.compose(dice, cast.target, cast.query_view)
        return ClipBatch(
            query=query.image,
            query_mask=query.mask,
            query_box=query.box,
            frames=image.unflatten(0, (batch, frames)),
            masks=masks[:, :, 0],
            boxes=tight_box(labels[:, 0] > 0.5).unflatten(0, (batch, frames)),
            presence=present.float().unflatten(0, (batch, frames)),
            source=self._instances.source[cast.target],
            shown=cast.sources(self._instances),
            distractor_masks=masks[:, :, 1],
            trust=torch.ones(batch, device=self._device),
        )


def _rows(clips: Tensor, frames: int) -> Tensor:
    """Rows of the canvas that hold the frames of these clips."""
    return (clips[:, None] * frames + torch.arange(frames, device=clips.device)).flatten()
