"""Shapes of solids as signed distances: a body, a cap on it, handles.

A body is a profile turned round a rectangular core, so that jars (no core), cartons (almost only core) and
everything between are one family; a cap is turned round the axis. Heights run along z. Letters: C solids,
K corners of a profile, R points.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, reduce

import torch
import torch.nn.functional as nnf
from torch import Tensor

TABLE_ROWS, TABLE_COLUMNS = 256, 128  # of a tabled profile
TABLE_HEIGHT = 1.1  # heights from minus this to this, radii from 0 to 1: profiles must lie within
FAR = 4.0  # distance of a part that is not there
ANGLES = 48
BODY, CAP, RING, BAR = range(4)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Lengths are in units of about half the longest side. Parts that are not there have a negative width."""

    body: Tensor  # (C, K, 2) radius and height of the profile's corners, from the axis to the axis
    core: Tensor  # (C, 2) half sides in x and y of the rectangle the body is turned round
    squeeze: Tensor  # (C,) depth in y over what it would be, at most 1
    cap: Tensor  # (C, K, 2) profile of the cap
    has_cap: Tensor  # (C,) bool
    ring: Tensor  # (C, 5) x and z of the centre, radius, stretch in z (at least 1), half width of the tube
    wall: Tensor  # (C,) rings and bars begin at this radius of the body
    two_rings: Tensor  # (C,) bool: one on either side
    bar: Tensor  # (C, 5) x, z of the end at the body, x, z of the other end, half width

    def take(self, which: slice) -> Shapes:
        return Shapes(*(getattr(self, field.name)[which] for field in fields(self)))

    @cached_property
    def _tables(self) -> tuple[Tensor, Tensor]:
        """Distances (C, 1, rows, columns) of the profiles of body and cap."""
        absent = ~self.has_cap[:, None, None, None]
        return profile_distance(self.body), profile_distance(self.cap).masked_fill(absent, FAR)

    @property
    def hollow(self) -> Tensor:
        """(C,) whether the body is open above: on its axis it is lower than at its rim."""
        return self.body[:, -1, 1] < self.body[..., 1].amax(1) - 0.01

    @cached_property
    def _present(self) -> tuple[bool, bool, bool]:
        """Whether any of the solids has a cap, a ring, a bar."""
        flags = torch.stack((self.has_cap.any(), (self.ring[:, 4] > 0).any(), (self.bar[:, 4] > 0).any()))
        cap, ring, bar = flags.tolist()
        return cap, ring, bar

    def parts(self, points: Tensor) -> dict[int, Tensor]:
        """Distance bounds (C, R) of the parts at points (C, R, 3): none is larger than the distance."""
        x, y, z = points.unbind(-1)
        squeeze = self.squeeze[:, None]
        y = y / squeeze
        radius = torch.hypot(
            (x.abs() - self.core[:, :1]).clamp(min=0), (y.abs() - self.core[:, 1:]).clamp(min=0)
        )
        body, cap = self._tables
        has_cap, has_ring, has_bar = self._present
        found = {BODY: _looked_up(body, radius, z)}
        if has_cap:
            found[CAP] = _looked_up(cap, torch.hypot(x, y), z)
        if has_ring:
            found[RING] = torch.maximum(self._ring(x, y, z), self.wall[:, None] - radius)
        if has_bar:
            found[BAR] = torch.maximum(self._bar(x, y, z), self.wall[:, None] - radius)
        return {part: squeeze * distance for part, distance in found.items()}

    def distance(self, points: Tensor) -> Tensor:
        """(C, R) at points (C, R, 3)."""
        return reduce(torch.minimum, self.parts(points).values())

    def nearest_part(self, points: Tensor) -> Tensor:
        """(C, R) int64 at points (C, R, 3)."""
        parts = self.parts(points)
        numbers = torch.tensor(list(parts), device=points.device)
        return numbers[torch.stack(list(parts.values())).argmin(0)]

    def _ring(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        across, height, radius, stretch, width = self.ring[:, :, None].unbind(1)
        x = torch.where(self.two_rings[:, None], x.abs(), x)
        off = torch.hypot(x - across, (z - height) / stretch) - radius
        return torch.where(width > 0, torch.hypot(off, y) - width, FAR)

    def _bar(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        from_x, from_z, to_x, to_z, width = self.bar[:, :, None].unbind(1)
        along = ((x - from_x) * (to_x - from_x) + (z - from_z) * (to_z - from_z)) / (
            (to_x - from_x).square() + (to_z - from_z).square()
        ).clamp(min=1e-6)
        along = along.clamp(0, 1)
        off_x, off_z = x - from_x - along * (to_x - from_x), z - from_z - along * (to_z - from_z)
        return torch.where(width > 0, (off_x.square() + y.square() + off_z.square()).sqrt() - width, FAR)

    def outline(self) -> Tensor:
        """Points (C, n, 3) of the surface, so dense that their hull is the solid's to within a percent."""
        angle = torch.arange(ANGLES, device=self.core.device) * (2 * torch.pi / ANGLES)
        around = torch.stack((angle.cos(), angle.sin()), -1)  # (A, 2)
        body = _turned(self.body, around, self.core)
        cap = torch.where(self.has_cap[:, None, None], _turned(self.cap, around, 0 * self.core), body)
        points = torch.cat((body, cap, self._ring_points(around, body), self._bar_points(around, body)), 1)
        one = torch.ones_like(self.squeeze)
        return points * torch.stack((one, self.squeeze, one), -1)[:, None]

    def _ring_points(self, around: Tensor, body: Tensor) -> Tensor:
        across, height, radius, stretch, width = self.ring[:, :, None].unbind(1)
        rows = []
        for wide, aside in ((1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (0.7, 0.7), (0.7, -0.7)):
            outer = radius + wide * width
            x, z = across + outer * around[:, 0], height + stretch * outer * around[:, 1]
            mirrored = torch.where(self.two_rings[:, None], -x, x)
            rows += [torch.stack((side, (aside * width).expand_as(x), z), -1) for side in (x, mirrored)]
        return self._outside(torch.cat(rows, 1), width, body)

    def _bar_points(self, around: Tensor, body: Tensor) -> Tensor:
        width = self.bar[:, 4, None]
        cos, sin, zero = width * around[:, 0], width * around[:, 1], 0 * width * around[:, 0]
        rows = []
        for place in (0, 2):
            x, z = self.bar[:, place, None], self.bar[:, place + 1, None]
            rows.append(torch.stack((x + cos, zero, z + sin), -1))
            rows.append(torch.stack((x + cos, sin, z + zero), -1))
            rows.append(torch.stack((x + zero, cos, z + sin), -1))
        return self._outside(torch.cat(rows, 1), width, body)

    def _outside(self, points: Tensor, width: Tensor, body: Tensor) -> Tensor:
        """Points (C, n, 3) of handles, those that the body swallows replaced by one of its own."""
        aside = (points[..., :2].abs() - self.core[:, None]).clamp(min=0).norm(dim=-1, keepdim=True)
        there = (width > 0)[..., None] & (aside > self.wall[:, None, None])
        return torch.where(there, points, body[:, :1])


def profile_distance(corners: Tensor) -> Tensor:
    """Signed distances (C, 1, rows, columns), negative inside, of profiles (C, K, 2) from axis to axis."""
    device = corners.device
    radius = (torch.arange(TABLE_COLUMNS, device=device) + 0.5) / TABLE_COLUMNS
    height = ((torch.arange(TABLE_ROWS, device=device) + 0.5) * (2 / TABLE_ROWS) - 1) * TABLE_HEIGHT
    shape = (len(corners), TABLE_ROWS, TABLE_COLUMNS)
    nearest, inside = (
        torch.full(shape, FAR**2, device=device),
        torch.zeros(shape, dtype=torch.bool, device=device),
    )
    for start, end in zip(corners.unbind(1)[:-1], corners.unbind(1)[1:], strict=True):
        a, b = start[:, :, None, None], (end - start)[:, :, None, None]
        x, z = radius - a[:, 0], height[:, None] - a[:, 1]
        along = (x * b[:, 0] + z * b[:, 1]) / b.square().sum(1).clamp(min=1e-12)
        along = along.clamp(0, 1)
        nearest = torch.minimum(nearest, (x - along * b[:, 0]).square() + (z - along * b[:, 1]).square())
        spans = (start[:, 1, None] > height) != (end[:, 1, None] > height)
        rise = torch.where(b[:, 1] == 0, 1.0, b[:, 1])
        inside ^= spans[:, :, None] & (x < z * b[:, 0] / rise)
    return torch.where(inside, -nearest.sqrt(), nearest.sqrt())[:, None]


def _looked_up(table: Tensor, radius: Tensor, height: Tensor) -> Tensor:
    """Values (C, R) of tables; outside of them those of the border, which are smaller than the truth."""
    grid = torch.stack((2 * radius - 1, height / TABLE_HEIGHT), -1)[:, None]
    return nnf.grid_sample(table, grid, padding_mode="border", align_corners=False)[:, 0, 0]


def _turned(profile: Tensor, around: Tensor, core: Tensor) -> Tensor:
    """Points (C, K * A, 3) of profiles (C, K, 2) turned round cores (C, 2) to directions (A, 2)."""
    flat = profile[:, :, None, :1] * around + (core[:, None] * around.sign())[:, None]
    height = profile[:, :, None, 1:].expand(-1, -1, len(around), -1)
    return torch.cat((flat, height), -1).flatten(1, 2)
