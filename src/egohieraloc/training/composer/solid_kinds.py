"""Shapes of kitchen objects, drawn at random: cartons, cans, jars, bottles, mugs, bowls, pans, tubs, blobs.

Letters: n solids of a kind, N samples of a wall, K corners of a profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.solid_shapes import Shapes

WALL_SAMPLES = 20
CORNERS = 2 * WALL_SAMPLES + 3
NOWHERE = -1.0  # width of a handle that is not there
EDGE = 0.04  # of the height: what a bevel or a lip takes


def draw_shapes(rng: RandomNumbers, count: int) -> Shapes:
    """`count` solids, evenly over the kinds."""
    kinds = [draw(rng, len(range(place, count, len(KINDS)))) for place, draw in enumerate(KINDS)]
    return Shapes(*(torch.cat([getattr(some, field.name) for some in kinds]) for field in fields(Shapes)))


def carton(rng: RandomNumbers, count: int) -> Shapes:
    """A box with an edge hardly rounded; some with a screw cap on top."""
    sides = rng.log_uniform((0.3, 1.0), count, 3)
    width, depth, height = (sides * (0.9 / sides.amax(-1, keepdim=True))).unbind(-1)
    edge = rng.log_uniform((0.012, 0.06), count)
    capped = rng.chance(0.25, count) & (height > 0.6) & (depth > 0.25)
    height = torch.where(capped, height * 0.85, height)
    body = closed(_level(edge) * _bevel(edge), _upright(height))
    radius = torch.minimum(rng.uniform((0.1, 0.25), count), depth * 0.7)
    cap = lid(radius, height - 0.01, rng.uniform((0.08, 0.16), count))
    core = torch.stack((width - edge, depth - edge), -1)
    return replace(_plain(body), core=core, cap=cap, has_cap=capped)


def can(rng: RandomNumbers, count: int) -> Shapes:
    """A cylinder with a rim at either end, high or flat."""
    radius, height = _sized(rng.log_uniform((0.28, 1.4), count))
    groove = rng.uniform((0.0, 0.06), count)
    share = _share(radius)
    rims = ((share - 0.5).abs() > 0.5 - 1.5 * EDGE).float()
    wall = radius[:, None] * (1 - groove[:, None] * (1 - rims)) * _bevel(0.03 + 0 * radius)
    return _plain(closed(wall, _upright(height)))


def jar(rng: RandomNumbers, count: int) -> Shapes:
    """A body with a slight neck under a wide lid; a few square ones."""
    radius, height = _sized(rng.log_uniform((0.45, 1.1), count))
    height = height * 0.85
    neck = rng.uniform((0.72, 0.97), count)
    low = rng.uniform((0.7, 0.85), count)
    share = _share(radius)
    wall = radius[:, None] * (1 + (neck - 1)[:, None] * smoothstep(share, low, low + 0.12))
    wall = wall * (1 - 0.15 * (1 - smoothstep(share, 0 * low, 0 * low + 0.12)))
    corner = torch.where(rng.chance(0.3, count), rng.uniform((0.2, 0.45), count), 0.0) * radius * neck
    cap = lid(
        (radius * neck - 0.2 * corner) * rng.uniform((1.0, 1.1), count),
        height - 0.01,
        rng.uniform((0.1, 0.26), count),
    )
    body = closed(wall - corner[:, None], _upright(height))
    return _capped(replace(_plain(body), core=corner[:, None].expand(-1, 2)), cap)


def bottle(rng: RandomNumbers, count: int) -> Shapes:
    """Shoulder and neck, a cap, sometimes a waist; some with a handle."""
    radius, height = _sized(rng.log_uniform((0.24, 0.5), count))
    height = height * 0.9
    neck = rng.uniform((0.28, 0.5), count)
    low = rng.uniform((0.4, 0.72), count)
    share = _share(radius)
    wall = 1 + (neck - 1)[:, None] * smoothstep(share, low, low + rng.uniform((0.12, 0.25), count))
    middle = low * rng.uniform((0.4, 0.7), count)
    waist = rng.uniform((-0.08, 0.22), count)
    wall = wall * (1 - waist[:, None] * (1 - ((share - middle[:, None]).abs() / 0.22).clamp(max=1)).square())
    wall = radius[:, None] * wall * (1 - 0.12 * (1 - smoothstep(share, 0 * low, 0 * low + 0.07)))
    cap = lid(
        radius * neck * rng.uniform((1.05, 1.35), count), height - 0.02, rng.uniform((0.1, 0.22), count)
    )
    held = rng.chance(0.2, count)
    ring = _ring(rng, wall[:, WALL_SAMPLES // 3], height, held)
    body = _capped(_plain(closed(wall, _upright(height))), cap)
    return replace(body, ring=ring, wall=0.4 * radius, squeeze=_squeeze(rng, count, 0.25))


def mug(rng: RandomNumbers, count: int) -> Shapes:
    """A hollow cylinder with a handle."""
    radius, height = _sized(rng.uniform((0.7, 1.15), count))
    radius, height = radius * 0.8, height * 0.8
    thick = rng.uniform((0.05, 0.09), count)
    flare = rng.uniform((-0.35, 0.35), count) * thick
    wall = radius[:, None] + flare[:, None] * _share(radius)
    wall = wall * (1 - 0.12 * (1 - smoothstep(_share(radius), 0 * flare, 0 * flare + 0.1)))
    body = hollow(wall, _upright(height), thick)
    ring = _ring(rng, radius, height, torch.ones_like(radius, dtype=torch.bool))
    return replace(_plain(body), ring=ring, wall=radius - 0.6 * thick)


def bowl(rng: RandomNumbers, count: int) -> Shapes:
    """From a plate to a deep bowl."""
    height = rng.log_uniform((0.1, 0.6), count)
    rim = 0.9 + 0 * height
    base = rim * rng.uniform((0.3, 0.6), count)
    bend = rng.uniform((0.35, 0.9), count)
    wall = base[:, None] + (rim - base)[:, None] * _share(rim) ** bend[:, None]
    return _plain(hollow(wall, _upright(height), rng.uniform((0.035, 0.06), count)))


def pan(rng: RandomNumbers, count: int) -> Shapes:
    """A pot with two ears, or a pan with a bar to hold it by."""
    radius = rng.uniform((0.5, 0.7), count)
    height = radius * rng.log_uniform((0.18, 0.8), count)
    thick = rng.uniform((0.04, 0.06), count)
    body = hollow(radius[:, None] + 0 * _share(radius), _upright(height), thick)
    ears = rng.chance(0.4, count)
    width = rng.uniform((0.035, 0.05), count)
    ring = torch.stack(
        (radius, height * 0.4, 0.17 + 0 * radius, 1 + 0 * radius, torch.where(ears, width, NOWHERE)), -1
    )
    reach, rise = rng.uniform((0.6, 1.1), count), rng.uniform((0.0, 0.25), count)
    width = torch.where(ears, NOWHERE, rng.uniform((0.04, 0.09), count))
    bar = torch.stack((radius, height * 0.5, radius + reach, height * 0.5 + rise, width), -1)
    return replace(_plain(body), ring=ring, bar=bar, wall=radius - 0.6 * thick, two_rings=ears)


def tub(rng: RandomNumbers, count: int) -> Shapes:
    """An open box with slanting walls: trays, crates, storage boxes."""
    height = rng.log_uniform((0.15, 0.7), count)
    corner = rng.uniform((0.08, 0.2), count, 1)
    wall = corner + rng.uniform((0.0, 0.12), count, 1) * _share(height)
    thick = rng.uniform((0.03, 0.05), count)
    sides = torch.stack((rng.uniform((0.5, 0.7), count), rng.uniform((0.25, 0.6), count)), -1)
    return replace(_plain(hollow(wall, _upright(height), thick)), core=sides)


def blob(rng: RandomNumbers, count: int) -> Shapes:
    """Superquadrics, from pillows to spindles, some with a knob or a bar: toys, fruit, brushes, soap."""
    radius, height = _sized(rng.log_uniform((0.35, 1.8), count))
    height = height * 0.85
    exponent = rng.uniform((0.25, 1.25), count)[:, None]
    angle = (_share(radius) - 0.5) * math.pi
    corner = torch.where(rng.chance(0.5, count), rng.uniform((0.1, 0.6), count), 0.0) * radius
    wall = (radius - corner)[:, None] * angle.cos().clamp(min=1e-4) ** exponent
    rows = height[:, None] * angle.sin().sign() * angle.sin().abs().clamp(min=1e-4) ** exponent
    cap = lid(rng.uniform((0.08, 0.2), count), height - 0.04, rng.uniform((0.08, 0.2), count))
    long = torch.where(rng.chance(0.3, count), rng.uniform((0.04, 0.1), count), NOWHERE)
    bar = torch.stack((0.5 * radius, 0 * radius, radius + 0.8, rng.uniform((-0.2, 0.3), count), long), -1)
    return replace(
        _plain(closed(wall, rows)),
        core=corner[:, None] * rng.uniform((0.3, 1.0), count, 2),
        cap=cap,
        has_cap=rng.chance(0.35, count),
        bar=bar,
        squeeze=_squeeze(rng, count, 0.6),
    )


KINDS: tuple[Callable[[RandomNumbers, int], Shapes], ...] = (
    carton,
    can,
    jar,
    bottle,
    mug,
    bowl,
    pan,
    tub,
    blob,
    carton,
    jar,
    bottle,
    mug,
)


def closed(radius: Tensor, height: Tensor) -> Tensor:
    """Profiles (n, K, 2) of full solids with walls of radius and height (n, N), from below."""
    corners = torch.stack((radius, height), -1)
    ends = corners[:, [0, -1]] * torch.tensor([0.0, 1.0], device=corners.device)
    missing = CORNERS - WALL_SAMPLES - 2
    return torch.cat((ends[:, :1], corners, ends[:, 1:].expand(-1, 1 + missing, -1)), 1)


def hollow(radius: Tensor, height: Tensor, thick: Tensor) -> Tensor:
    """Profiles (n, K, 2) of vessels open above, with walls and floor as thick as `thick` (n,)."""
    inner = (radius - thick[:, None]).clamp(min=0.01)
    floor = height[:, :1] + thick[:, None]
    within = torch.stack((inner, torch.maximum(height, floor)), -1).flip(1)
    bottom = torch.stack((0 * floor, height[:, :1]), -1)
    middle = torch.stack((0 * floor, floor), -1)
    outer = torch.stack((radius, height), -1)
    return torch.cat((bottom, outer, within, middle.expand(-1, CORNERS - 2 * WALL_SAMPLES - 1, -1)), 1)


def lid(radius: Tensor, bottom: Tensor, high: Tensor) -> Tensor:
    """Profiles (n, K, 2) of caps that stand on `bottom` (n,)."""
    rows = bottom[:, None] + high[:, None] * _share(radius)
    return closed(radius[:, None] * _bevel(0.08 + 0 * radius), rows)


def smoothstep(share: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """From 0 at `low` (n,) to 1 at `high` (n,) of shares (n, N)."""
    t = ((share - low[:, None]) / (high - low)[:, None]).clamp(0, 1)
    return t * t * (3 - 2 * t)


def _plain(body: Tensor) -> Shapes:
    """Bodies (n, K, 2) round the axis, without cap and handles."""
    zero = torch.zeros(len(body), device=body.device)
    nothing = torch.full((len(body), 5), NOWHERE, device=body.device)
    return Shapes(
        body=body,
        core=torch.stack((zero, zero), -1),
        squeeze=zero + 1,
        cap=body,
        has_cap=zero > 0,
        ring=nothing,
        wall=zero,
        two_rings=zero > 0,
        bar=nothing,
    )


def _capped(shapes: Shapes, cap: Tensor) -> Shapes:
    return replace(shapes, cap=cap, has_cap=torch.ones_like(shapes.has_cap))


def _ring(rng: RandomNumbers, radius: Tensor, height: Tensor, there: Tensor) -> Tensor:
    """Handles (n, 5) on the side of bodies."""
    count = len(radius)
    width = rng.uniform((0.045, 0.085), count)
    stretch = rng.uniform((1.0, 1.5), count)
    size = torch.minimum(height * rng.uniform((0.5, 0.68), count) / stretch, radius * 0.75)
    middle = rng.uniform((-0.1, 0.12), count) * height
    return torch.stack((radius, middle, size, stretch, torch.where(there, width, NOWHERE)), -1)


def _squeeze(rng: RandomNumbers, count: int, share: float) -> Tensor:
    return torch.where(rng.chance(share, count), rng.uniform((0.6, 0.95), count), 1.0)


def _sized(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Radius and half height of this ratio (n,), the larger of them 0.9."""
    return 0.9 * ratio.clamp(max=1), 0.9 / ratio.clamp(min=1)


def _share(like: Tensor) -> Tensor:
    """Shares of the height (n, N), from 0 below to 1 above."""
    return torch.linspace(0, 1, WALL_SAMPLES, device=like.device).expand(len(like), -1)


def _upright(height: Tensor) -> Tensor:
    return height[:, None] * (2 * _share(height) - 1)


def _level(radius: Tensor) -> Tensor:
    return radius[:, None].expand(-1, WALL_SAMPLES)


def _bevel(depth: Tensor) -> Tensor:
    """Factors (n, N) of the radius: smaller at both ends, so that edges catch the light."""
    end = torch.zeros(WALL_SAMPLES, device=depth.device)
    end[0] = end[-1] = 1.0
    return 1 - depth[:, None] * end
