"""What solids wear: plain colours, bands and gradients, labels cut from photographs; and the light on them.

Letters: C solids, T side of a label in texels, R points, V views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer.packs import PHOTO_PX, Packs
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.solid_shapes import BODY, CAP, Shapes

FRONT, BACK, RIGHT, LEFT, TOP, BOTTOM = range(6)  # labels: +y, -y, +x, -x, +z, -z
LABELS = 6
LABEL_PX = 96
TRIES = 3  # crops drawn for each label; the one with most contrast is kept
PLAIN, BANDS, STAVES, GRADIENT, CHECKS = range(5)
PATTERN_WEIGHTS = (0.4, 0.25, 0.12, 0.13, 0.1)
BOXY = 0.5  # share of the half width that the core must have for labels to lie flat on faces
RIM = 0.9  # height over the half height above which what lies level is the rim, not a floor
INWARD = 0.02  # a normal that points to the axis by more than this is one of a cavity
STEEP = 0.7  # a normal's z above which a point belongs to top or bottom


@dataclass(frozen=True, eq=False)
class Skins:
    """Colours are in [0, 1]."""

    ground: Tensor  # (C, 3)
    second: Tensor  # (C, 3) other colour of the pattern
    cap: Tensor  # (C, 3)
    handle: Tensor  # (C, 3)
    inside: Tensor  # (C, 3) of a cavity
    pattern: Tensor  # (C,) int64
    bands: Tensor  # (C,) how many over the height or the round
    phase: Tensor  # (C,)
    labels: Tensor  # (C, 6, 3, T, T)
    printed: Tensor  # (C, 6) bool
    reach: Tensor  # (C, 3) half size of labels over their face; half angle and half height on a round wall
    gloss: Tensor  # (C,) strength of highlights
    hardness: Tensor  # (C,) exponent of highlights
    metal: Tensor  # (C,) share of the surroundings that are mirrored

    def take(self, which: slice) -> Skins:
        return Skins(*(getattr(self, field.name)[which] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Lights:
    """Of V views of C solids."""

    toward: Tensor  # (C, V, 3) unit vector to the main light
    strength: Tensor  # (C, V)
    ambient: Tensor  # (C, V)
    tint: Tensor  # (C, V, 3)

    def take(self, which: slice) -> Lights:
        return Lights(*(getattr(self, field.name)[which] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Hits:
    """Where rays meet solids."""

    points: Tensor  # (C, R, 3)
    normals: Tensor  # (C, R, 3)
    part: Tensor  # (C, R) int64
    open_share: Tensor  # (C, R) how much of the surroundings lights the point


def draw_skins(rng: RandomNumbers, packs: Packs, count: int) -> Skins:
    """Skins with labels from the packs' photos."""
    ground = draw_colours(rng, count)
    second = draw_colours(rng, count)
    apart = (second - ground).norm(dim=-1, keepdim=True) > 0.35
    second = torch.where(apart, second, (1 - ground) * 0.9 + 0.05 * ground)
    cap = torch.where(rng.chance(0.6, count, 1), draw_colours(rng, count), second)
    own = torch.where(rng.chance(0.5, count, 1), ground, cap)
    pale = torch.where(rng.chance(0.4, count, 1), 0.92, ground)
    weights = torch.tensor(PATTERN_WEIGHTS, device=ground.device)
    pattern = rng.choice(weights, count)
    printed = rng.chance(0.75, count, LABELS)
    printed[:, FRONT] |= pattern == PLAIN  # nothing is of one colour all over
    printed[:, [TOP, BOTTOM]] &= rng.chance(0.6, count, 1)
    full = rng.chance(0.5, count)
    return Skins(
        ground=ground,
        second=second,
        cap=cap,
        handle=own,
        inside=pale,
        pattern=pattern,
        bands=rng.uniform((1.0, 7.0), count).round(),
        phase=rng.uniform((0.0, 1.0), count),
        labels=draw_labels(rng, packs, count),
        printed=printed,
        reach=torch.stack(
            (
                torch.where(full, 1.0, rng.uniform((0.55, 0.9), count)),
                torch.where(full, math.pi / 2, rng.uniform((0.6, 1.4), count)),
                rng.uniform((0.35, 0.85), count),
            ),
            -1,
        ),
        gloss=rng.uniform((0.0, 1.0), count).square() * 0.7,
        hardness=rng.log_uniform((8.0, 120.0), count),
        metal=torch.where(rng.chance(0.12, count), rng.uniform((0.4, 0.8), count), 0.0),
    )


def draw_colours(rng: RandomNumbers, count: int) -> Tensor:
    """Colours (count, 3): strong ones, pale ones, greys and the browns of wood and card."""
    hue = rng.uniform((0.0, 1.0), count)
    strength = rng.uniform((0.25, 0.95), count)
    value = rng.uniform((0.25, 0.95), count)
    grey, brown = rng.chance(0.3, count), rng.chance(0.15, count)
    hue = torch.where(brown, 0.05 + 0.06 * hue, hue)
    strength = torch.where(grey, 0.12 * strength, torch.where(brown, 0.3 + 0.3 * strength, strength))
    value = torch.where(grey, rng.uniform((0.08, 0.97), count), value)
    ramp = (hue[:, None] * 6 - torch.tensor([3.0, 2.0, 4.0], device=hue.device)).abs()
    pure = torch.stack((ramp[:, 0] - 1, 2 - ramp[:, 1], 2 - ramp[:, 2]), -1).clamp(0, 1)
    return value[:, None] * (1 - strength[:, None] * (1 - pure))


def draw_labels(rng: RandomNumbers, packs: Packs, count: int) -> Tensor:
    """Labels (count, 6, 3, T, T): crops of photos, some above lines of writing."""
    total, device = count * LABELS, rng.uniform((0, 1), 1).device
    photo = rng.integers(len(packs.photos), total * TRIES)
    side = rng.log_uniform((56.0, 220.0), total * TRIES)
    corner = rng.uniform((0.0, 1.0), total * TRIES, 2) * (PHOTO_PX - side)[:, None]
    ramp = (torch.arange(LABEL_PX, device=device) + 0.5) / LABEL_PX
    xy = (corner[:, :, None] + side[:, None, None] * ramp).long()
    crops = []
    for some in torch.arange(total * TRIES, device=device).split(2048):
        source = packs.photos.device
        x, y = xy[some].to(source).unbind(1)
        crops.append(
            packs.photos[photo[some].to(source)[:, None, None], y[:, :, None], x[:, None, :]].to(device)
        )
    pixels = torch.cat(crops).unflatten(0, (total, TRIES)).permute(0, 1, 4, 2, 3)
    contrast = pixels[..., ::4, ::4].float().std((2, 3, 4))
    best = pixels[torch.arange(total, device=device), contrast.argmax(1)].float() / 255
    return _with_writing(rng, best).view(count, LABELS, 3, LABEL_PX, LABEL_PX)


def _with_writing(rng: RandomNumbers, image: Tensor) -> Tensor:
    """On some of the images (n, 3, T, T) the lower part is a field with lines of letters."""
    count = len(image)
    paper, ink = draw_colours(rng, count), draw_colours(rng, count)
    ink = torch.where(
        (paper - ink).norm(dim=-1, keepdim=True) > 0.4, ink, (paper.mean(-1, keepdim=True) < 0.5).float()
    )
    letters = nnf.interpolate(rng.chance(0.5, count, 1, 24, 16).float(), size=(LABEL_PX, LABEL_PX))
    row = torch.arange(LABEL_PX, device=image.device)
    lines = (row % (LABEL_PX // 6) < LABEL_PX // 10).float()[:, None]
    inked = letters * lines
    field = paper[:, :, None, None] * (1 - inked) + ink[:, :, None, None] * inked
    start = torch.where(rng.chance(0.5, count), rng.uniform((0.25, 0.8), count), 1.0)
    below = row[:, None] / LABEL_PX >= start[:, None, None, None]
    return torch.where(below, field, image)


def draw_lights(rng: RandomNumbers, count: int, views: int) -> Lights:
    """A lamp somewhere above, other for each view."""
    around = rng.uniform((0.0, 2 * math.pi), count, views)
    height = rng.uniform((0.3, 1.0), count, views)
    flat = (1 - height.square()).sqrt()
    ambient = rng.uniform((0.45, 0.75), count, views)
    gain = rng.uniform((0.85, 1.1), count, views)
    return Lights(
        toward=torch.stack((flat * around.cos(), flat * around.sin(), height), -1),
        strength=(1.15 - ambient) * gain,
        ambient=ambient * gain,
        tint=rng.normal(0.03, count, views, 3).exp(),
    )


def shade(skins: Skins, shapes: Shapes, lights: Lights, hits: Hits, rays: Tensor) -> Tensor:
    """Colours (C, R, 3) in [0, 1] of hits seen along unit rays (C, R, 3); R is V times what a view has."""
    colour = paint(skins, shapes, hits)
    each = hits.points.shape[1] // lights.strength.shape[1]
    toward, tint = (value.repeat_interleave(each, 1) for value in (lights.toward, lights.tint))
    strength, ambient = (
        value.repeat_interleave(each, 1)[..., None] for value in (lights.strength, lights.ambient)
    )
    normals, sky = hits.normals, 0.75 + 0.25 * hits.normals[..., 2:]
    facing = (normals * toward).sum(-1, keepdim=True)
    lit = (
        ambient * sky * hits.open_share[..., None]
        + strength * facing.clamp(min=0) * hits.open_share[..., None]
    )
    mirrored = rays - 2 * (rays * normals).sum(-1, keepdim=True) * normals
    room = 0.55 + 0.45 * torch.sin(5 * mirrored[..., 2:] + 2 * mirrored[..., :1])
    metal = skins.metal[:, None, None]
    colour = colour * (1 - metal) + metal * room * (0.5 + 0.5 * colour)
    shine = (mirrored * toward).sum(-1, keepdim=True).clamp(min=0) ** skins.hardness[:, None, None]
    glare = (skins.gloss[:, None, None] + 0.4 * metal) * shine * (facing > 0)
    return ((colour * lit + glare) * tint).clamp(0, 1)


@dataclass(frozen=True, eq=False)
class _Surface:
    """Where on their bodies points lie: -1 to 1 from side to side. Each (C, R)."""

    x: Tensor
    y: Tensor
    z: Tensor
    turn: Tensor  # radians round the axis, 0 in front
    normals: Tensor  # (C, R, 3)
    boxy: Tensor  # (C, 1) bool: labels lie flat on faces

    @classmethod
    def of(cls, hits: Hits, shapes: Shapes) -> _Surface:
        low, high = shapes.body[..., 1].amin(1), shapes.body[..., 1].amax(1)
        half = shapes.core + shapes.body[..., 0].amax(1, keepdim=True)
        x, y, z = hits.points.unbind(-1)
        x, y = x / half[:, :1], y / (half[:, 1:] * shapes.squeeze[:, None])
        z = (2 * z - (low + high)[:, None]) / (high - low)[:, None]
        boxy = (shapes.core / half).amin(1, keepdim=True) > BOXY
        return cls(x, y, z, torch.atan2(x, y), hits.normals, boxy)

    @property
    def level(self) -> Tensor:
        return self.normals[..., 2].abs() > STEEP


def paint(skins: Skins, shapes: Shapes, hits: Hits) -> Tensor:
    """Colours (C, R, 3) without light."""
    surface = _Surface.of(hits, shapes)
    hollow, normals = shapes.hollow[:, None], hits.normals
    inward = hollow & ((normals[..., :2] * hits.points[..., :2]).sum(-1) < -INWARD)
    floor = hollow & (normals[..., 2] > STEEP) & (surface.z < RIM)
    face, s, t = _place_on_labels(skins, surface)
    labelled = _is_labelled(skins, face, s, t) & ~(inward & ~surface.level)
    label = _label_colour(skins, face, s, t)
    body = torch.where((inward | floor)[..., None], skins.inside[:, None], _pattern(skins, surface))
    body = torch.where(labelled[..., None], label, body)
    cap = torch.where((labelled & (face == TOP))[..., None], label, skins.cap[:, None])
    part = hits.part[..., None]
    return torch.where(part == BODY, body, torch.where(part == CAP, cap, skins.handle[:, None]))


def _pattern(skins: Skins, surface: _Surface) -> Tensor:
    """Colours (C, R, 3) of walls."""
    bands, phase, kind = skins.bands[:, None], skins.phase[:, None], skins.pattern[:, None]
    height = (surface.z + 1) / 2
    level = (height * bands + phase) % 1 < 0.5
    upright = (surface.turn / (2 * math.pi) * (bands + 2) + phase) % 1 < 0.5
    share = torch.where(kind == BANDS, level.float(), 0.0)
    share = torch.where(kind == STAVES, upright.float(), share)
    share = torch.where(kind == GRADIENT, height.clamp(0, 1), share)
    share = torch.where(kind == CHECKS, (level ^ upright).float(), share)[..., None]
    return skins.ground[:, None] * (1 - share) + skins.second[:, None] * share


def _place_on_labels(skins: Skins, surface: _Surface) -> tuple[Tensor, Tensor, Tensor]:
    """Which label a point may lie under (C, R), and where: right and down, from -1 to 1 on the label."""
    x, y, turn, boxy, level = surface.x, surface.y, surface.turn, surface.boxy, surface.level
    flat_reach, turn_reach, height_reach = skins.reach[:, :, None].unbind(1)
    sideways = surface.normals[..., 0].abs() > surface.normals[..., 1].abs()
    flat = torch.where(sideways, torch.where(x > 0, RIGHT, LEFT), torch.where(y > 0, FRONT, BACK))
    across = torch.where(sideways, torch.where(x > 0, y, -y), torch.where(y > 0, -x, x)) / flat_reach
    behind = turn.abs() > math.pi / 2
    wrapped = torch.where(behind, math.pi * turn.sign() - turn, -turn) / turn_reach
    face = torch.where(boxy, flat, torch.where(behind, BACK, FRONT))
    s = torch.where(boxy, across, wrapped)
    t = -surface.z / torch.where(boxy, flat_reach, height_reach)
    end = torch.where(surface.normals[..., 2] > 0, TOP, BOTTOM)
    return (
        torch.where(level, end, face),
        torch.where(level, -x / flat_reach, s),
        torch.where(level, y / flat_reach, t),
    )


def _is_labelled(skins: Skins, face: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """Whether a point is under a label (C, R)."""
    return skins.printed.gather(1, face) & (s.abs() <= 1) & (t.abs() <= 1)


def _label_colour(skins: Skins, face: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """(C, R, 3); labels are read from one strip, never from their neighbours."""
    size = skins.labels.shape[-1]
    strip = skins.labels.transpose(1, 2).flatten(2, 3)  # (C, 3, 6 T, T)
    inset = 1 - 1 / size
    row = (face + (t.clamp(-inset, inset) + 1) / 2) * (2 / LABELS) - 1
    grid = torch.stack((s.clamp(-inset, inset), row), -1)[:, None]
    return nnf.grid_sample(strip, grid, align_corners=False)[:, :, 0].transpose(1, 2)
