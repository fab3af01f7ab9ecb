"""Objects without end beside the scanned ones: solids made in three dimensions and ray-cast from many sides.

Letters: C solids of a chunk, V views, S pixels of a side, R rays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as nnf
from torch import Tensor

from egohieraloc.training.composer.packs import SPRITE_PX, Packs
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.solid_kinds import draw_shapes
from egohieraloc.training.composer.solid_shapes import Shapes
from egohieraloc.training.composer.solid_skins import Hits, Lights, Skins, draw_lights, draw_skins, shade

MARGIN_PX = 4  # round the object, as round the scanned ones
FINER = 2  # rays along each side of a pixel
ELEVATION_DEG = (-5.0, 75.0)
ROLL_DEG = 15.0
DISTANCE = (2.2, 3.5)  # of the camera, in bounding radii
STEPS = 96
CLOSE_ENOUGH = 0.002  # bounding radii: a third of a pixel
THIN_OUT_EVERY = 8  # steps
OPENNESS_REACH = (0.08, 0.3)  # how far from a point it is looked for what hides it from the light
CHUNK_RAYS = (1_000_000, 40_000_000)  # at a time on a CPU, on a GPU


@dataclass(frozen=True, eq=False)
class Views:
    """Cameras that look at solids, each of which fills its image up to a margin."""

    direction: Tensor  # (C, V, 3) unit vector from the solid to the camera
    position: Tensor  # (C, V, 3)
    right_down_ahead: Tensor  # (C, V, 3, 3) unit vectors
    window: Tensor  # (C, V, 3) centre, right and down, and half side of the image at distance 1
    center: Tensor  # (C, 3) of the solid
    radius: Tensor  # (C,) of the ball that holds it

    def take(self, which: slice) -> Views:
        return Views(*(getattr(self, field.name)[which] for field in fields(self)))


def with_solids(packs: Packs, count: int, generator: torch.Generator) -> Packs:
    """The packs with so many solids beside the scanned objects, on the generator's device.

    They are seen from as many sides as the scanned objects and depend on the generator's state only.
    """
    device, views = generator.device, packs.sprites.shape[1]
    rng = RandomNumbers(generator)
    shapes, skins = draw_shapes(rng, count), draw_skins(rng, packs, count)
    cameras, lights = draw_views(rng, shapes, views), draw_lights(rng, count, views)
    first = int(packs.sprite_id.max()) + 1
    return replace(
        packs,
        sprites=torch.cat((packs.sprites.to(device), render(shapes, skins, cameras, lights))),
        sprite_direction=torch.cat((packs.sprite_direction.to(device), cameras.direction)),
        sprite_id=torch.cat((packs.sprite_id.to(device), first + torch.arange(count, device=device))),
    )


def draw_views(rng: RandomNumbers, shapes: Shapes, views: int) -> Views:
    """All round at many heights, like the scanned objects."""
    count = len(shapes.core)
    turn = rng.uniform((0.0, 1.0), count, 1) + rng.uniform((-0.3, 0.3), count, views) / views
    azimuth = 2 * math.pi * (turn + torch.arange(views, device=turn.device) / views)
    rank = rng.uniform((0.0, 1.0), count, views).argsort(-1)
    low, high = (math.radians(angle) for angle in ELEVATION_DEG)
    elevation = low + (high - low) * (rank + rng.uniform((0.0, 1.0), count, views)) / views
    flat = elevation.cos()
    direction = torch.stack((flat * azimuth.cos(), flat * azimuth.sin(), elevation.sin()), -1)
    roll = rng.uniform((-math.radians(ROLL_DEG), math.radians(ROLL_DEG)), count, views)
    return aim(shapes, direction, roll, rng.uniform(DISTANCE, count, views))


def aim(shapes: Shapes, direction: Tensor, roll: Tensor, distance: Tensor) -> Views:
    """Views from directions (C, V, 3), rolled by (C, V) and so many radii (C, V) away."""
    outline = shapes.outline()
    center = (outline.amin(1) + outline.amax(1)) / 2
    radius = (outline - center[:, None]).norm(dim=-1).amax(1)
    position = center[:, None] + direction * (distance * radius[:, None])[..., None]
    up = torch.tensor([0.0, 0.0, 1.0], device=direction.device).expand_as(direction)
    right = nnf.normalize(torch.linalg.cross(-direction, up), dim=-1)
    down = torch.linalg.cross(-direction, right)
    cos, sin = roll.cos()[..., None], roll.sin()[..., None]
    frame = torch.stack((cos * right + sin * down, cos * down - sin * right, -direction), -2)
    seen = torch.einsum("cvij,cvpj->cvpi", frame, outline[:, None] - position[:, :, None])
    seen = seen[..., :2] / seen[..., 2:]
    low, high = seen.amin(2), seen.amax(2)
    half = (high - low).amax(-1, keepdim=True) / 2 * (SPRITE_PX / (SPRITE_PX - 2 * MARGIN_PX))
    return Views(direction, position, frame, torch.cat(((low + high) / 2, half), -1), center, radius)


@torch.no_grad()
def render(shapes: Shapes, skins: Skins, cameras: Views, lights: Lights, side: int = SPRITE_PX) -> Tensor:
    """RGBA images (C, V, side, side, 4) uint8; alpha is the mask, 0 or 255."""
    count, views = cameras.direction.shape[:2]
    size = CHUNK_RAYS[cameras.direction.device.type == "cuda"] // (views * (side * FINER) ** 2)
    chunks = [slice(start, start + max(1, size)) for start in range(0, count, max(1, size))]
    return torch.cat(
        [
            _render(shapes.take(chunk), skins.take(chunk), cameras.take(chunk), lights.take(chunk), side)
            for chunk in chunks
        ]
    )


def _render(shapes: Shapes, skins: Skins, cameras: Views, lights: Lights, side: int) -> Tensor:
    count, views = cameras.direction.shape[:2]
    origin, rays = _rays(cameras, side * FINER)
    depth = trace(shapes, origin, rays, cameras)
    hit = depth.isfinite()
    points = origin + rays * torch.where(hit, depth, 0.0)[..., None]
    hits = _look(shapes, points, cameras.radius)
    colour = shade(skins, shapes, lights, hits, rays) * hit[..., None]
    rgba = torch.cat((colour, hit[..., None]), -1).view(count * views, side * FINER, side * FINER, 4)
    rgba = nnf.avg_pool2d(rgba.permute(0, 3, 1, 2), FINER)
    alpha = rgba[:, 3:]
    solid = alpha >= 0.5
    pixels = torch.cat((rgba[:, :3] / alpha.clamp(min=1e-3), torch.ones_like(alpha)), 1) * solid
    pixels = (pixels * 255).round().to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).reshape(count, views, side, side, 4)


def _rays(cameras: Views, side: int) -> tuple[Tensor, Tensor]:
    """Origins and unit directions (C, V * side * side, 3)."""
    ramp = (torch.arange(side, device=cameras.radius.device) + 0.5) * (2 / side) - 1
    x = cameras.window[..., :1] + cameras.window[..., 2:] * ramp
    y = cameras.window[..., 1:2] + cameras.window[..., 2:] * ramp
    right, down, ahead = (axis[:, :, None, None] for axis in cameras.right_down_ahead.unbind(2))
    rays = ahead + x[:, :, None, :, None] * right + y[:, :, :, None, None] * down
    rays = nnf.normalize(rays, dim=-1)
    origin = cameras.position[:, :, None, None].expand_as(rays)
    return origin.flatten(1, 3), rays.flatten(1, 3)


def trace(shapes: Shapes, origin: Tensor, rays: Tensor, cameras: Views) -> Tensor:
    """How far along rays (C, R, 3) a solid is met (C, R); infinite where none is.

    Each step goes as far as the nearest surface may be (sphere tracing). Rays that have arrived or left are
    put aside from time to time.
    """
    radius = cameras.radius[:, None]
    to_center = cameras.center[:, None] - origin
    middle = (to_center * rays).sum(-1)
    reach = (radius.square() - to_center.square().sum(-1) + middle.square()).clamp(min=0).sqrt()
    near, far = middle - reach, torch.where(reach > 0, middle + reach, -torch.inf)
    found = torch.full_like(near, torch.inf)
    place = torch.arange(near.shape[1], device=near.device).expand_as(near)
    close = CLOSE_ENOUGH * radius
    for step in range(STEPS):
        if step % THIN_OUT_EVERY == 0:
            alive = near < far
            most = int(alive.sum(1).max())
            if most == 0:
                break
            order = alive.int().argsort(dim=1, descending=True, stable=True)[:, :most]
            near, far, place = (value.gather(1, order) for value in (near, far, place))
            origin, rays = (value.gather(1, order[..., None].expand(-1, -1, 3)) for value in (origin, rays))
        distance = shapes.distance(origin + rays * near[..., None])
        arrived = (distance < close) & (near < far)
        found.scatter_reduce_(1, place, torch.where(arrived, near, torch.inf), "amin")
        far = torch.where(arrived, -torch.inf, far)
        near = near + distance
    return found


def _look(shapes: Shapes, points: Tensor, radius: Tensor) -> Hits:
    """What is at points (C, R, 3) of the surface. Normals by four distances round them."""
    corners = points.new_tensor([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]])
    width = 0.004 * radius[:, None, None]
    slope = sum(corner * shapes.distance(points + width * corner)[..., None] for corner in corners)
    normals = nnf.normalize(slope, dim=-1)
    share = torch.ones_like(points[..., 0])
    for reach in OPENNESS_REACH:
        step = reach * radius[:, None]
        gap = shapes.distance(points + normals * step[..., None])
        share = share * (0.45 + 0.55 * (gap / (step * shapes.squeeze[:, None])).clamp(0, 1))
    return Hits(points, normals, shapes.nearest_part(points), share)
