"""Composes training clips on the training device from packs of photos and sprites that are kept there.

Each clip has a query image of a target, T frames of a scene seen by a moving camera, and labels for what is
visible of the target in each frame. Labels are painted like colours, so whatever covers the target also
covers its mask. Letters: B clips, T frames, S query side, F side of the square that is painted, N = B * T.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.degrade import Codec
from egohieraloc.training.composer.instances import Instances
from egohieraloc.training.composer.packs import Packs
from egohieraloc.training.composer.painting import (
    DISTRACTOR,
    TARGET,
    Layer,
    limit_occlusion,
    overlay,
    paint,
    paint_background,
)
from egohieraloc.training.composer.query_composer import QueryBatch, QueryComposer
from egohieraloc.training.composer.random_numbers import RandomNumbers, mixed_seed
from egohieraloc.training.composer.render import chain, tight_box, undistort, warp, window_points
from egohieraloc.training.composer.scene_layers import PlacedObjects, draw_texture_from_scene, render
from egohieraloc.training.composer.scene_sampling import (
    ChosenObjects,
    Scene,
    SceneSampler,
    texture_from_mosaic,
)
from egohieraloc.training.composer.sensor import record
from egohieraloc.training.composer.shapes import draw_blocks, draw_hands
from egohieraloc.training.composer.solids import with_solids
from egohieraloc.video.canvas import Size

MASK_STRIDE = 4
BEFORE_THE_FIRST = -1  # the step whose seed the solids are drawn with


class ClipComposer:
    """`batch(step, size)` depends only on the packs, the settings, the seed and the step."""

    def __init__(
        self,
        objects: Packs | Instances,
        config: ComposerConfig,
        device: torch.device | str,
        seed: int,
        *,
        canvas: Size | None = None,
    ) -> None:
        """canvas: width and height of the frames, the middle of the painted square; None for all of it."""
        self.config = config
        self._canvas = canvas or (config.frame_px, config.frame_px)
        self._device = torch.device(device)
        self._seed = seed
        self.generator = torch.Generator(self._device)
        # Half precision is exact enough for 8-bit images, but slow on CPUs.
        self._dtype = torch.float16 if self._device.type == "cuda" else torch.float32
        self._instances = objects if isinstance(objects, Instances) else self._kept(objects)
        self._rng = RandomNumbers(self.generator)
        self._sampler = SceneSampler(self._rng, config, self._instances)
        self._codec = Codec(self._device)
        self._query = QueryComposer(self._instances, config, self._codec)

    def _kept(self, packs: Packs) -> Instances:
        """The objects of the packs, and those made in 3D, on the device."""
        config = self.config
        if config.solids:
            self.seed_for(BEFORE_THE_FIRST)
            packs = with_solids(packs, config.solids, self.generator)
        return Instances(packs, self._device, config.neighbours, config.twin_similarity, self._dtype)

    def reshaped(self, config: ComposerConfig, canvas: Size) -> ClipComposer:
        """A composer of the same objects, kept once for both, with another canvas and settings of scenes."""
        return ClipComposer(self._instances, config, self._device, self._seed, canvas=canvas)

    def batch(self, step: int, size: int) -> ClipBatch:
        """Compose `size` clips."""
        self.seed_for(step)
        return self.next_batch(size)

    def chosen_objects(self, step: int, size: int) -> ChosenObjects:
        """The objects that the batch of this step shows, and their views."""
        self.seed_for(step)
        return self._sampler.draw_scene(size).objects

    @torch.no_grad()
    def queries(self, step: int, target: Tensor, view: Tensor) -> QueryBatch:
        """Queries alone, of targets (B,) seen from views (B,)."""
        self.seed_for(step)
        return self._query.compose(self._rng, target, view)

    def seed_for(self, step: int) -> None:
        """Seed the generator so that the next batch is the one of this step."""
        self.generator.manual_seed(mixed_seed(self._seed, step))

    @torch.no_grad()
    def next_batch(self, size: int) -> ClipBatch:
        """Compose `size` clips from the generator's current state, without ever waiting for the device."""
        with torch.autocast(self._device.type, enabled=False):
            return self._compose(size)

    def _compose(self, size: int) -> ClipBatch:
        scene = self._sampler.draw_scene(size)
        canvas = self._paint_background(scene)
        canvas, occluder = self._paint_distractors(canvas, scene)
        canvas = self._paint_rivals(canvas, scene)
        canvas = self._paint_target(canvas, scene)
        whole = canvas[:, TARGET].sum((1, 2), dtype=torch.float32)
        occluder = limit_occlusion(canvas, whole, occluder, self.config.max_covered)
        canvas = paint(canvas, occluder, scene.shadow, None)
        canvas = self._paint_shapes(canvas, whole, scene.target)
        return self._finish(canvas, scene)

    def _paint_background(self, scene: Scene) -> Tensor:
        """A canvas (N, 5, F, F) with the colours of the empty scene; its labels are still zero."""
        side, cameras = self.config.frame_px, scene.cameras
        batch, frames = cameras.scene_from_view.shape[:2]
        points = window_points(torch.zeros(1, 2, device=self._device), side, side)
        points = undistort(points, cameras.lens).repeat_interleave(frames, 0)
        points = warp(chain(scene.mosaic_from_scene[:, None], cameras.scene_from_view).flatten(0, 1), points)
        canvas = torch.zeros(batch * frames, 5, side, side, device=self._device, dtype=self._dtype)
        paint_background(canvas, self._instances.photos, scene.backdrop, points)
        return canvas

    def _paint_distractors(self, canvas: Tensor, scene: Scene) -> tuple[Tensor, Layer]:
        """Paint the small objects behind the target; also the layer of the one in front of it."""
        rng, config, size = self._rng, self.config, len(scene.objects.target)
        placed = self._sampler.place_distractors(scene)
        maps = draw_texture_from_scene(rng, config, placed, scene.cameras)
        shown = rng.chance(config.distractor_share, size, config.distractors)
        shown = torch.cat((shown, rng.chance(config.occluder_share, size, 1)), 1)
        *behind, occluder = render(config, placed, scene.cameras, maps, config.small_window_px, shown)
        for number, layer in enumerate(behind):
            canvas = paint(canvas, layer, scene.shadow, DISTRACTOR if number < config.similar else None)
        return canvas, occluder

    def _paint_rivals(self, canvas: Tensor, scene: Scene) -> Tensor:
        """In some clips, paint one more look-alike next to the target, of about its size."""
        config = self.config
        clips = self._rng.subset(config.rival_share, len(scene.objects.target))
        if len(clips) == 0:
            return canvas
        cameras = scene.cameras.of(clips)
        placed = self._sampler.place_rivals(scene, clips)
        maps = draw_texture_from_scene(self._rng, config, placed, cameras)
        shown = torch.ones_like(placed.size, dtype=torch.bool)
        layer = render(config, placed, cameras, maps, config.large_window_px, shown)[0]
        rows = _rows(clips, config.clip_frames)
        return canvas.index_copy_(0, rows, paint(canvas[rows], layer, scene.shadow[rows], DISTRACTOR))

    def _paint_target(self, canvas: Tensor, scene: Scene) -> Tensor:
        """Paint the target, or its look-alike; where it is in place, only its label."""
        config, objects, target = self.config, scene.objects, scene.target
        batch, frames = objects.views.shape
        pasted = draw_texture_from_scene(self._rng, config, target, scene.cameras)
        onto = texture_from_mosaic(target.patches).unflatten(0, (batch, 1, frames))
        in_place = chain(onto, scene.mosaic_from_scene[:, None, None])
        maps = torch.where(objects.in_place[:, None, None, None, None], in_place, pasted)
        shown = objects.visible[:, None]
        layer = render(config, target, scene.cameras, maps, config.large_window_px, shown)[0]
        label = torch.where(objects.absent, DISTRACTOR, TARGET).repeat_interleave(frames)
        return paint(canvas, layer, scene.shadow, label, (~objects.in_place).repeat_interleave(frames))

    def _paint_shapes(self, canvas: Tensor, whole: Tensor, target: PlacedObjects) -> Tensor:
        """Plain shapes in front of some targets; hands with arms in some clips."""
        rng, config, batch = self._rng, self.config, len(target.size)
        frames, side = config.clip_frames, config.frame_px
        center, size = target.center[:, 0], target.size[:, 0] * (2 / side)
        chosen = rng.subset(config.shape_share, batch)
        if len(chosen):
            path = center[chosen, None] + (target.path - target.path[:, :, :1])[chosen, 0]
            drawn = draw_blocks(rng, path, size[chosen], frames, side)
            canvas = overlay(canvas, _rows(chosen, frames), drawn, whole, config.max_covered)
        for share in (config.hand_share, config.second_hand_share):
            chosen = rng.subset(share, batch)
            count = len(chosen)
            if count == 0:
                continue
            on_target = center[chosen] + rng.normal(0.3, count, 2) * size[chosen, None]
            holds = rng.chance(config.hand_on_target_share, count)[:, None]
            reach = torch.where(holds, on_target, rng.uniform((-0.9, 0.9), count, 2))
            drawn = draw_hands(rng, reach, frames, side)
            canvas = overlay(canvas, _rows(chosen, frames), drawn, whole, config.max_covered)
        return canvas

    def _finish(self, canvas: Tensor, scene: Scene) -> ClipBatch:
        """Simulate the camera, derive the labels from what is visible, and compose the queries."""
        config, objects, target = self.config, scene.objects, scene.target
        batch, frames = objects.views.shape
        image, content = record(self._rng, config, self._codec, canvas[:, :3], scene.cameras)
        labels = (canvas[:, 3:] * content).clamp_(0, 1)
        image, labels = (_middle(part, self._canvas) for part in (image, labels))
        area = labels[:, 0].sum((1, 2), dtype=torch.float32)
        expected = target.patches.fill * target.size[:, 0].square().repeat_interleave(frames)
        present = area >= (expected * config.min_visible_share).clamp(min=config.min_visible_px)
        labels[:, 0] *= present[:, None, None]
        masks = nnf.avg_pool2d(labels, MASK_STRIDE).float().unflatten(0, (batch, frames))
        query = self._query.compose(self._rng, objects.target, objects.query_view)
        return ClipBatch(
            query=query.image,
            query_mask=query.mask,
            query_box=query.box,
            frames=image.unflatten(0, (batch, frames)),
            masks=masks[:, :, 0],
            boxes=tight_box(labels[:, 0] > 0.5).unflatten(0, (batch, frames)),
            presence=present.float().unflatten(0, (batch, frames)),
            source=self._instances.source[objects.target],
            shown=objects.sources(self._instances),
            distractor_masks=masks[:, :, 1],
            trust=torch.ones(batch, device=self._device),
        )


def _rows(clips: Tensor, frames: int) -> Tensor:
    """Rows of the canvas that hold the frames of these clips."""
    return (clips[:, None] * frames + torch.arange(frames, device=clips.device)).flatten()


def _middle(images: Tensor, canvas: Size) -> Tensor:
    """The middle of square images (N, C, F, F), as wide and high as the canvas."""
    width, height = canvas
    left, top = (images.shape[-1] - width) // 2, (images.shape[-2] - height) // 2
    return images[..., top : top + height, left : left + width].contiguous()
