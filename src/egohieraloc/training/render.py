"""From homographies to pixels: warps, windows of a canvas, textures with mipmaps, painting over.

View coordinates: the canvas is [-1, 1] x [-1, 1]. A lens maps view to undistorted coordinates, the camera
those to the scene, a layer the scene to its texture, itself [-1, 1] x [-1, 1]: one resampling for all.
Letters: N samples, W window side, F canvas side, P texture side, C channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

LEVELS = 4


def matrix(rows: list[list[Tensor | float]], like: Tensor) -> Tensor:
    """Stack numbers and tensors of the shape of `like` into matrices (..., 3, 3)."""
    flat = [v if isinstance(v, Tensor) else torch.full_like(like, v) for row in rows for v in row]
    return torch.stack(flat, -1).unflatten(-1, (3, 3))


def translation(offset: Tensor) -> Tensor:
    """(..., 2) -> (..., 3, 3)."""
    x, y = offset.unbind(-1)
    return matrix([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]], x)


def rotation(angle: Tensor) -> Tensor:
    """Radians (...,) -> (..., 3, 3)."""
    c, s = angle.cos(), angle.sin()
    return matrix([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], c)


def scaling(scale: Tensor) -> Tensor:
    """(..., 2) -> (..., 3, 3)."""
    x, y = scale.unbind(-1)
    return matrix([[x, 0.0, 0.0], [0.0, y, 0.0], [0.0, 0.0, 1.0]], x)


def sheared(shear: Tensor) -> Tensor:
    """(...,) -> (..., 3, 3)."""
    return matrix([[1.0, shear, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], shear)


def projective(tilt: Tensor) -> Tensor:
    """Projective terms (..., 2) -> (..., 3, 3)."""
    x, y = tilt.unbind(-1)
    return matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [x, y, 1.0]], x)


def inverse(matrices: Tensor) -> Tensor:
    """Inverse of (..., 3, 3) by cofactors: unlike a solver, it never makes the host wait for the device."""
    a, b, c = matrices.unbind(-2)
    first = torch.linalg.cross(b, c)
    cofactors = torch.stack((first, torch.linalg.cross(c, a), torch.linalg.cross(a, b)), -1)
    return cofactors / (a * first).sum(-1)[..., None, None]


def warp(matrices: Tensor, points: Tensor) -> Tensor:
    """Homographies (N, 3, 3) on points (N, ..., 2)."""
    h = matrices.reshape(matrices.shape[0], 9, *([1] * (points.dim() - 2))).unbind(1)
    x, y = points.unbind(-1)
    depth = (h[6] * x + h[7] * y + h[8]).clamp(min=0.05)
    return torch.stack(((h[0] * x + h[1] * y + h[2]) / depth, (h[3] * x + h[4] * y + h[5]) / depth), -1)


def undistort(view: Tensor, lens: Tensor) -> Tensor:
    """Points (N, ..., 2) seen through a fisheye with coefficient (N,)."""
    k = lens.reshape(-1, *([1] * (view.dim() - 1)))
    return view * (1 + k * view.square().sum(-1, keepdim=True))


def distort(points: Tensor, lens: Tensor) -> Tensor:
    """The inverse of `undistort`, by Newton's method on the radius."""
    k = lens.reshape(-1, *([1] * (points.dim() - 1)))
    radius = points.norm(dim=-1, keepdim=True)
    r = radius.clamp(max=1.5)
    for _ in range(6):
        r = r - (r * (1 + k * r * r) - radius) / (1 + 3 * k * r * r)
    return points * r / radius.clamp(min=1e-6)


def window_points(origin: Tensor, window: int, canvas: int) -> Tensor:
    """View coordinates (N, W, W, 2) of the pixel centres of windows with top-left pixels (N, 2) x, y."""
    ramp = torch.arange(window, device=origin.device, dtype=torch.float32) + 0.5
    x = (origin[:, 0, None] + ramp) * (2 / canvas) - 1
    y = (origin[:, 1, None] + ramp) * (2 / canvas) - 1
    shape = (len(origin), window, window)
    return torch.stack((x[:, None, :].expand(shape), y[:, :, None].expand(shape)), -1)


def window_origin(center_view: Tensor, window: int, canvas: int) -> Tensor:
    """Top-left pixels (..., 2) of windows around points of the view, kept inside the canvas."""
    corner = ((center_view + 1) * (canvas / 2) - window / 2).round()
    return corner.clamp(0, canvas - window)


def mip_atlas(texture: Tensor) -> Tensor:
    """Lay a texture (N, C, P, P) and its halvings side by side: (N, C, P, 3P/2)."""
    count, channels, size, _ = texture.shape
    atlas = texture.new_zeros(count, channels, size, size * 3 // 2)
    atlas[..., :size] = texture
    top = 0
    for level in range(1, LEVELS):
        texture = nnf.avg_pool2d(texture, 2)
        side = size >> level
        atlas[..., top : top + side, size : size + side] = texture
        top += side
    return atlas


def mip_level(texels_per_pixel: Tensor) -> Tensor:
    return (texels_per_pixel.clamp(min=1e-3).log2() + 0.4).floor().clamp(0, LEVELS - 1)


def sample_atlas(atlas: Tensor, points: Tensor, level: Tensor) -> Tensor:
    """Read textures (N, C, P, 3P/2) at texture points (N, H, W, 2) on their level (N,): (N, C, H, W)."""
    size = atlas.shape[-2]
    side = size * torch.exp2(-level)
    left = torch.where(level > 0, float(size), 0.0)
    top = torch.where(level > 1, size * (1 - torch.exp2(1 - level)), 0.0)
    low, side_ = -1 + 1 / side, side[:, None, None] / 2
    inside = torch.maximum(torch.minimum(points, -low[:, None, None, None]), low[:, None, None, None])
    x = (inside[..., 0] + 1) * side_ + left[:, None, None]
    y = (inside[..., 1] + 1) * side_ + top[:, None, None]
    grid = torch.stack((x * (2 / (1.5 * size)) - 1, y * (2 / size) - 1), -1)
    return nnf.grid_sample(atlas, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def window_index(origin: Tensor, window: int, canvas: int) -> Tensor:
    """Flat canvas indices (N, W*W) of windows with top-left pixels (N, 2)."""
    ramp = torch.arange(window, device=origin.device)
    corner = origin.long()
    rows = (corner[:, 1, None] + ramp) * canvas
    return (rows[:, :, None] + (corner[:, 0, None] + ramp)[:, None, :]).flatten(1)


def tight_box(mask: Tensor) -> Tensor:
    """Half-open box (N, 4) xyxy of the true pixels of masks (N, H, W); zeros where there are none."""
    left, right = _first_last(mask.any(1))
    top, bottom = _first_last(mask.any(2))
    return torch.stack((left, top, right, bottom), -1).float()


def _first_last(line: Tensor) -> tuple[Tensor, Tensor]:
    count = line.shape[1]
    first = line.int().argmax(1)
    last = count - line.flip(1).int().argmax(1)
    some = line.any(1)
    return torch.where(some, first, 0), torch.where(some, last, 0)
