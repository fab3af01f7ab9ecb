"""What instances look like: which masks make good targets, and which objects are easily confused.

Letters: M masks, N instances, K sampled pixels, D the length of a descriptor.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.errors import DataError
from egohieraloc.training.composer.packs import MASK_PX, PHOTO_PX, Packs

USABLE_LONGER_PX = (16.0, 200.0)  # of a mask in its photo
USABLE_SHORTER_PX = 9.0
USABLE_RATIO = 5.0  # longer over shorter side
USABLE_FILL = 0.3  # mask area over box area
USABLE_MARGIN_PX = 2.0  # a mask closer to the border of its photo is cut off there
USABLE_AFFINITY = 0.75  # of its colours with those around it; above, it is a surface rather than an object
SURROUND = 1.5  # side of the surrounding region, in box sides
SURROUND_PX = 32
FINE_BINS = 6

DESCRIPTOR_PX = 24
COLOUR_BINS = 4
ASPECT_WEIGHT = 0.5
FILL_WEIGHT = 0.5
CHUNK = 4096


def usable_masks(packs: Packs) -> Tensor:
    """Indices of masks that make good targets: not tiny, thin or cut off, and of distinctive colours."""
    sides = packs.mask_box[:, 2:] - packs.mask_box[:, :2]
    longer, shorter = sides.amax(-1), sides.amin(-1)
    fits = (longer >= USABLE_LONGER_PX[0]) & (longer <= USABLE_LONGER_PX[1])
    compact = (shorter >= USABLE_SHORTER_PX) & (longer <= USABLE_RATIO * shorter)
    whole = (packs.mask_box[:, :2].amin(-1) >= USABLE_MARGIN_PX) & (
        packs.mask_box[:, 2:].amax(-1) <= PHOTO_PX - USABLE_MARGIN_PX
    )
    shaped = (fits & compact & whole & (filled(packs.mask_crops) >= USABLE_FILL)).nonzero()[:, 0]
    affinity = [surround_affinity(packs, index) for index in shaped.split(CHUNK)]
    usable = shaped[torch.cat(affinity) <= USABLE_AFFINITY] if affinity else shaped
    if len(usable) == 0:
        raise DataError("No mask of the packs is of a usable size and shape.")
    return usable


def filled(crops: Tensor) -> Tensor:
    """Share (M,) of each box that its mask covers."""
    return torch.cat([chunk.float().mean((1, 2)) / 255 for chunk in crops.split(CHUNK)])


def surround_affinity(packs: Packs, index: Tensor) -> Tensor:
    """Bhattacharyya coefficient between the colours of the masks at `index` and of their surroundings."""
    box = packs.mask_box[index]
    ramp = (
        (torch.arange(SURROUND_PX, device=box.device) + 0.5) / SURROUND_PX - 0.5
    ) * SURROUND + 0.5  # in box sides
    x, y = (box[:, :2, None] + (box[:, 2:] - box[:, :2])[:, :, None] * ramp).unbind(1)
    in_photo = ((x >= 0) & (x < PHOTO_PX))[:, None, :] & ((y >= 0) & (y < PHOTO_PX))[:, :, None]
    column, row = (v.long().clamp(0, PHOTO_PX - 1) for v in (x, y))
    colour = packs.photos[packs.mask_photo[index][:, None, None], row[:, :, None], column[:, None, :]]
    cell = (ramp * MASK_PX).long().clamp(0, MASK_PX - 1)
    in_box = (ramp >= 0) & (ramp < 1)
    mask = (packs.mask_crops[index][:, cell][:, :, cell] > 127) & in_box[:, None] & in_box
    inner, outer = (
        histogram(colour.flatten(1, 2), solid.flatten(1), FINE_BINS) for solid in (mask, ~mask & in_photo)
    )
    return (inner * outer).sum(1)


def histogram(colour: Tensor, solid: Tensor, bins: int) -> Tensor:
    """Square root, of unit length, of the colour histogram (N, bins^3) of the solid pixels of (N, K, 3)."""
    level = (colour.long() * bins) // 256
    index = (level[..., 0] * bins + level[..., 1]) * bins + level[..., 2]
    counts = torch.zeros(len(colour), bins**3, device=colour.device)
    return nnf.normalize(counts.scatter_add_(1, index, solid.float()).sqrt(), dim=1)


def descriptor(colour: Tensor, solid: Tensor, sides: Tensor, fill: Tensor) -> Tensor:
    """Descriptors (N, D): colours of pixels (N, K, 3), log aspect ratio of sides (N, 2), and fill (N,)."""
    ratio = (sides[:, 0] / sides[:, 1]).log() * ASPECT_WEIGHT
    colours = histogram(colour, solid, COLOUR_BINS)
    return torch.cat((colours, ratio[:, None], fill[:, None] * FILL_WEIGHT), 1)


def nearest_others(
    features: Tensor, group: Tensor, num_sprites: int, count: int, twin_similarity: float
) -> Tensor:
    """The `count` most similar instances (N, count) of other groups, by descriptors (N, D) and groups (N,).

    Objects of two photos that look almost equal may be the same product, so they are not used as negatives.
    """
    norms = features.square().sum(-1) / 2
    everyone = torch.arange(len(group), device=group.device)
    of_photo = everyone >= num_sprites
    nearest = []
    for chunk in everyone.split(CHUNK // 2):
        score = features[chunk] @ features.T - norms[chunk, None] - norms
        twins = (score > twin_similarity - 1) & of_photo[chunk, None] & of_photo
        score = score.masked_fill((group[chunk, None] == group) | twins, -torch.inf)
        top = score.topk(min(count, len(group)), dim=1)
        # A sprite always finds photo objects and vice versa, so the first one is always valid.
        nearest.append(torch.where(top.values.isfinite(), top.indices, top.indices[:, :1]))
    return torch.cat(nearest)
