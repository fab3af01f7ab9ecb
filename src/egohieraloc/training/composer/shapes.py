"""Occluders that are drawn rather than pasted: hands with arms, rectangles and ellipses.

The results are colour times alpha, and alpha, (N, 4, H, H) for N frames. Positions are view coordinates.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer.random_numbers import RandomNumbers

FINGERS = 5
SKIN = ((0.36, 0.23, 0.16), (0.95, 0.76, 0.65))  # darkest and lightest
SKIN_LIGHT = (0.85, 1.1)


def draw_hands(rng: RandomNumbers, reach: Tensor, frames: int, side: int) -> Tensor:
    """Arms that enter from the border and end in a hand near `reach` (N, 2), one per clip.

    Returns (N * frames, 4, side, side). Drawn at half resolution, as skin has no sharp texture.
    """
    count = len(reach)
    segments, radii = _arm(rng, reach)
    drift = rng.normal(0.04, count, frames, 1, 1, 2)
    segments = (segments[:, None] + drift).flatten(0, 1)  # (N T, S, 2 ends, 2)
    radii = radii.repeat_interleave(frames, 0)
    gaps, radius, along = _capsules(_points(side // 2, reach.device), segments, radii)
    distance, nearest = gaps.min(1)
    depth = (-distance / radius.gather(1, nearest[:, None])[:, 0]).clamp(0, 1)
    alpha = (0.5 - distance * side / 5).clamp(0, 1)
    shade = 0.62 + 0.38 * (depth * (2 - depth)).sqrt()

    tone = rng.uniform((0.0, 1.0), count, 1)
    skin = torch.cat([dark + (light - dark) * tone for dark, light in zip(*SKIN, strict=True)], 1)
    skin = skin * rng.uniform(SKIN_LIGHT, count, 1) + rng.normal(0.03, count, 3)
    sleeve = rng.uniform((0.02, 0.8), count, 3)
    sleeve_end = torch.where(rng.chance(0.5, count), rng.uniform((0.2, 0.9), count), -1.0)
    skin, sleeve = (c.repeat_interleave(frames, 0)[:, :, None, None] for c in (skin, sleeve))
    covered = (along[:, 0] < sleeve_end.repeat_interleave(frames)[:, None, None]) & (nearest == 0)
    colour = torch.where(covered[:, None], sleeve, skin) * shade[:, None]
    mottle = nnf.interpolate(
        rng.normal(0.04, count * frames, 1, 12, 12), size=alpha.shape[-2:], mode="bilinear"
    )
    drawn = torch.cat(((colour + mottle).clamp(0, 1) * alpha[:, None], alpha[:, None]), 1)
    return nnf.interpolate(drawn, scale_factor=2, mode="bilinear", align_corners=False)


def draw_blocks(rng: RandomNumbers, center: Tensor, size: Tensor, frames: int, side: int) -> Tensor:
    """A rectangle or an ellipse at the edge of a target of centre (N, T, 2) and size (N,), in view units."""
    count = len(size)
    angle = rng.uniform((0.0, 2 * math.pi), count)
    direction = torch.stack((angle.cos(), angle.sin()), -1)
    middle = center + (direction * (size * rng.uniform((0.2, 0.6), count))[:, None])[:, None]
    middle = (middle + rng.normal(0.02, count, frames, 2)).flatten(0, 1)
    half = size[:, None] * rng.log_uniform((0.12, 0.5), count, 2)
    tilt = rng.uniform((0.0, math.pi), count).repeat_interleave(frames)
    half = half.repeat_interleave(frames, 0)
    offset = _points(side // 2, center.device) - middle[:, None, None]
    c, s = tilt.cos()[:, None, None], tilt.sin()[:, None, None]
    u = (c * offset[..., 0] + s * offset[..., 1]) / half[:, 0, None, None]
    v = (c * offset[..., 1] - s * offset[..., 0]) / half[:, 1, None, None]
    is_box = rng.chance(0.5, count).repeat_interleave(frames)[:, None, None]
    radius = torch.where(is_box, torch.maximum(u.abs(), v.abs()), (u * u + v * v).sqrt())
    alpha = ((1 - radius) * half.amin(1)[:, None, None] * side / 5 + 0.5).clamp(0, 1)[:, None]
    colours = rng.uniform((0.02, 0.95), count, 2, 3).repeat_interleave(frames, 0)[..., None, None]
    blend = (u.clamp(-1, 1) * 0.5 + 0.5)[:, None]
    colour = colours[:, 0] + (colours[:, 1] - colours[:, 0]) * blend * 0.5
    drawn = torch.cat((colour * alpha, alpha), 1)
    return nnf.interpolate(drawn, scale_factor=2, mode="bilinear", align_corners=False)


def _arm(rng: RandomNumbers, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Segments (N, 2 + fingers, 2 ends, 2) and radii (N, 2 + fingers, 2 ends) of forearm, palm, fingers."""
    count = len(reach)
    scale = rng.log_uniform((0.75, 1.6), count)
    # The wearer's arms come from below, other people's from the sides, few from above.
    heading = rng.normal(0.7, count) + math.pi / 2
    heading = torch.where(rng.chance(0.2, count), rng.uniform((0.0, 2 * math.pi), count), heading)
    toward = -torch.stack((heading.cos(), heading.sin()), -1)  # from the body to the hand
    span = (scale * rng.uniform((0.13, 0.24), count))[:, None]  # length of the palm
    wrist = reach - toward * span * 1.6
    elbow = wrist - toward * 2.5
    palm_end = wrist + toward * span
    hand = torch.where(rng.chance(0.5, count), 1.0, -1.0)[:, None]  # left or right
    across = torch.stack((-toward[:, 1], toward[:, 0]), -1) * hand

    # The first finger is the thumb: it starts further back and points sideways.
    number = torch.arange(FINGERS, device=reach.device)
    thumb = number == 0
    lift = torch.where(thumb, 0.3, 0.85)[:, None] * span[:, None]
    place = torch.where(thumb, -1.2, (number - 2) / 2)[:, None] * (0.42 * span[:, None])
    start = wrist[:, None] + toward[:, None] * lift + across[:, None] * place
    fan = rng.uniform((0.08, 0.3), count, 1) * (number - 2.5)
    angle = (rng.normal(0.25, count, 1) + torch.where(thumb, -0.9, fan))[..., None]
    length = rng.uniform((0.5, 1.1), count, FINGERS)[..., None] * span[:, None]
    end = start + (toward[:, None] * angle.cos() + across[:, None] * angle.sin()) * length

    first = torch.stack((elbow, wrist), 1)
    ends = torch.stack((wrist, palm_end), 1)
    segments = torch.stack((torch.cat((first, start), 1), torch.cat((ends, end), 1)), 2)
    thick = torch.arange(2 + FINGERS, device=reach.device)
    near = torch.where(thick == 0, 1.2, torch.where(thick == 1, 0.45, 0.17))
    far = torch.where(thick == 0, 0.42, torch.where(thick == 1, 0.5, 0.12))
    return segments, torch.stack((near, far), -1) * span[:, :, None]


def _capsules(points: Tensor, ends: Tensor, radii: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distance to S tapered capsules (N, S, 2, 2), their radius and the position along: (N, S, H, H)."""
    start, axis = ends[:, :, 0], ends[:, :, 1] - ends[:, :, 0]
    x, y = (points[..., k] - start[:, :, None, None, k] for k in range(2))
    u, v = (axis[:, :, None, None, k] for k in range(2))
    along = ((x * u + y * v) / (u * u + v * v).clamp(min=1e-6)).clamp_(0, 1)
    gap = torch.hypot(x - along * u, y - along * v)
    low, high = (radii[:, :, None, None, k] for k in range(2))
    radius = low + (high - low) * along
    return gap - radius, radius, along


def _points(side: int, device: torch.device) -> Tensor:
    ramp = (torch.arange(side, device=device) + 0.5) * (2 / side) - 1
    return torch.stack((ramp[None, :].expand(side, side), ramp[:, None].expand(side, side)), -1)
