"""All objects a clip can show, kept on one device: scanned objects (sprites) and objects in photos.

Instances are numbered: first the O sprites, then the M masks of photos. Letters: N samples, P texture side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer.appearance import (
    COLOUR_BINS,
    DESCRIPTOR_PX,
    descriptor,
    filled,
    nearest_others,
    usable_masks,
)
from egohieraloc.training.composer.packs import MASK_PX, PHOTO_PX, SPRITE_PX, Packs
from egohieraloc.training.composer.render import mip_atlas

PAD = 1.25  # size of a texture over that of the cut-out, leaving room for its shadow


@dataclass(frozen=True, eq=False)
class Patches:
    """Textures of N views of instances. Lengths are in texture units: a texture is 2 wide."""

    atlas: Tensor  # (N, 5, P, 3P/2): colour times alpha, alpha, shadow; with mipmaps
    extent: Tensor  # (N, 2) width and height of the object
    texels: Tensor  # (N,) longer side of the object in texels
    fill: Tensor  # (N,) mask area over the square of the longer side
    photo_window: Tensor  # (N, 3) left, top, side in photo pixels of the unpadded texture

    @property
    def longer(self) -> Tensor:
        return self.extent.amax(-1)


class Instances:
    """The packs on a device; knows the look-alikes of each instance and makes textures of given ones."""

    def __init__(
        self,
        packs: Packs,
        device: torch.device,
        neighbours: int,
        twin_similarity: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._dtype = dtype  # of the textures
        usable = usable_masks(packs)
        self.photos = packs.photos.to(device)
        self.mask_crops = packs.mask_crops[usable].to(device)
        self.mask_photo = packs.mask_photo[usable].to(device)
        self.mask_box = packs.mask_box[usable].to(device)
        self.sprites = packs.sprites.to(device)
        self._small_sprites = torch.cat([_halved(chunk) for chunk in self.sprites.split(16)])
        self.num_sprites, self.num_views = self.sprites.shape[:2]
        self.count = self.num_sprites + len(self.mask_photo)
        # For each view of a sprite, all its views from the nearest (itself) to the farthest: (O, V, V).
        direction = packs.sprite_direction.to(device)
        self.view_order = torch.einsum("ovc,owc->ovw", direction, direction).argsort(-1, descending=True)
        self._sprite_extent, self._sprite_area = self._measure_sprites()
        self._mask_area = filled(self.mask_crops)
        # Near-duplicate scanned objects share a source, and so do all objects of a photo.
        self._first_photo = int(packs.sprite_id.max()) + 1
        self.source = torch.cat((packs.sprite_id.to(device), self.source_of_photo(self.mask_photo)))
        features = torch.cat((self._describe_sprites(), self._describe_masks()))
        self.look_alikes = nearest_others(
            features, self.source, self.num_sprites, neighbours, twin_similarity
        )

    def is_sprite(self, instance: Tensor) -> Tensor:
        return instance < self.num_sprites

    def photo_of(self, instance: Tensor) -> Tensor:
        """The photo an instance comes from; for a sprite an arbitrary one."""
        return self.mask_photo[(instance - self.num_sprites).clamp(min=0)]

    def source_of_photo(self, photo: Tensor) -> Tensor:
        """The value in `source` of all objects of a photo."""
        return self._first_photo + photo

    def box_of(self, instance: Tensor) -> Tensor:
        """Box (N, 4) in its photo; meaningless for a sprite."""
        return self.mask_box[(instance - self.num_sprites).clamp(min=0)]

    def patches(self, instance: Tensor, view: Tensor, size: int, gain: Tensor, gamma: Tensor) -> Patches:
        """Textures of `size` texels, before padding, in light of gain (N, 3) and gamma (N,)."""
        is_sprite = self.is_sprite(instance)
        sprite_rgba, sprite_extent, sprite_area = self._sprite_textures(instance, view, size)
        photo_rgba, window, photo_extent, photo_area = self._photo_textures(instance, size)
        rgba = torch.where(is_sprite[:, None, None, None], sprite_rgba, photo_rgba)
        extent = torch.where(is_sprite[:, None], sprite_extent, photo_extent)
        gamma, gain = gamma.to(rgba.dtype)[:, None, None, None], gain.to(rgba.dtype)[:, :, None, None]
        colour = rgba[:, :3].clamp(min=1e-3) ** gamma * gain
        alpha = rgba[:, 3:]
        texture = torch.cat((colour.clamp(max=1.0) * alpha, alpha), 1)
        margin = round(size * (PAD - 1) / 2)
        texture = nnf.pad(texture, (margin, margin, margin, margin))
        texture = torch.cat((texture, _shadow(texture[:, 3:])), 1)
        longer = extent.amax(-1)
        return Patches(
            atlas=mip_atlas(texture),
            extent=extent * (2 / (size + 2 * margin)),
            texels=longer,
            fill=torch.where(is_sprite, sprite_area, photo_area) / longer.square(),
            photo_window=window,
        )

    def _sprite_textures(self, instance: Tensor, view: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        index = instance.clamp(max=self.num_sprites - 1)
        pixels = self.sprites if size == SPRITE_PX else self._small_sprites
        rgba = pixels[index, view].permute(0, 3, 1, 2).to(self._dtype) / 255
        scale = size / SPRITE_PX
        return rgba, self._sprite_extent[index, view] * scale, self._sprite_area[index, view] * scale**2

    def _photo_textures(self, instance: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Crops of photos at their own resolution; subsampled where the object is larger than the texture."""
        mask = (instance - self.num_sprites).clamp(min=0)
        box = self.mask_box[mask]
        sides = box[:, 2:] - box[:, :2]
        step = ((sides.amax(-1) + 4) / size).clamp(min=1.0)
        corner = ((box[:, :2] + box[:, 2:]) / 2 - (step * size / 2)[:, None]).round()
        ramp = torch.arange(size, device=box.device) + 0.5
        xy = corner[:, :, None] + (step[:, None] * ramp)[:, None, :]  # (N, 2, P)
        pixel = xy.floor().long().clamp(0, PHOTO_PX - 1)
        photo = self.mask_photo[mask][:, None, None]
        colour = self.photos[photo, pixel[:, 1, :, None], pixel[:, 0, None, :]].permute(0, 3, 1, 2)
        colour = colour.to(self._dtype) / 255
        local = (xy - box[:, :2, None]) / sides[:, :, None] * 2 - 1
        shape = (len(mask), size, size)
        grid = torch.stack((local[:, 0, None, :].expand(shape), local[:, 1, :, None].expand(shape)), -1)
        crop = self.mask_crops[mask][:, None].to(self._dtype) / 255
        alpha = nnf.grid_sample(crop, grid.to(self._dtype), padding_mode="zeros", align_corners=False)
        window = torch.cat((corner, (step * size)[:, None]), 1)
        area = self._mask_area[mask] * (sides / step[:, None]).prod(-1)
        return torch.cat((colour, alpha), 1), window, sides / step[:, None], area

    def _measure_sprites(self) -> tuple[Tensor, Tensor]:
        """Width and height (O, V, 2) and mask area (O, V) in pixels."""
        extents, areas = [], []
        for chunk in self.sprites.split(64):
            solid = chunk[..., 3] > 127
            extents.append(torch.stack((solid.any(2).sum(-1), solid.any(3).sum(-1)), -1).float().clamp(min=2))
            areas.append(solid.sum((2, 3)).float())
        return torch.cat(extents), torch.cat(areas)

    def _describe_masks(self) -> Tensor:
        chunks = []
        stride = MASK_PX // DESCRIPTOR_PX
        ramp = (torch.arange(DESCRIPTOR_PX, device=self.mask_box.device) + 0.5) / DESCRIPTOR_PX
        for index in torch.arange(len(self.mask_box), device=self.mask_box.device).split(4096):
            box = self.mask_box[index]
            xy = box[:, :2, None] + (box[:, 2:] - box[:, :2])[:, :, None] * ramp
            x, y = xy.long().clamp(0, PHOTO_PX - 1).unbind(1)
            colour = self.photos[self.mask_photo[index][:, None, None], y[:, :, None], x[:, None, :]]
            solid = self.mask_crops[index][:, stride // 2 :: stride, stride // 2 :: stride] > 127
            sides = box[:, 2:] - box[:, :2]
            chunks.append(descriptor(colour.flatten(1, 2), solid.flatten(1), sides, self._mask_area[index]))
        return torch.cat(chunks)

    def _describe_sprites(self) -> Tensor:
        stride = SPRITE_PX // DESCRIPTOR_PX
        chunks = []
        for index in torch.arange(self.num_sprites, device=self.sprites.device).split(64):
            small = self.sprites[index][:, :, stride // 2 :: stride, stride // 2 :: stride].flatten(0, 1)
            extent, area = self._sprite_extent[index].flatten(0, 1), self._sprite_area[index].flatten()
            described = descriptor(
                small[..., :3].flatten(1, 2), small[..., 3].flatten(1) > 127, extent, area / extent.prod(-1)
            )
            chunks.append(described.unflatten(0, (len(index), self.num_views)).mean(1))
        features = torch.cat(chunks)
        bins = COLOUR_BINS**3
        return torch.cat((nnf.normalize(features[:, :bins], dim=1), features[:, bins:]), 1)


def _halved(sprites: Tensor) -> Tensor:
    """Sprites (n, V, H, H, 4) at half their size; colours are averaged with their alpha as weight."""
    rgba = sprites.flatten(0, 1).permute(0, 3, 1, 2).float()
    alpha = rgba[:, 3:]
    colour = nnf.avg_pool2d(rgba[:, :3] * alpha, 2)
    alpha = nnf.avg_pool2d(alpha, 2)
    small = torch.cat((colour / alpha.clamp(min=1), alpha), 1).round().to(torch.uint8)
    halved: Tensor = small.permute(0, 2, 3, 1).unflatten(0, sprites.shape[:2])
    return halved


def _shadow(alpha: Tensor) -> Tensor:
    """A soft shadow (N, 1, P, P) of alpha, slightly below the object."""
    size = alpha.shape[-1]
    coarse = nnf.avg_pool2d(alpha, size // 30)
    coarse = nnf.avg_pool2d(coarse, 3, stride=1, padding=1)
    soft = nnf.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
    return soft.roll(size // 24, dims=2)
