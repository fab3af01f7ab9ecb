"""Cameras and their poses: from world points to pixels and back, through the lens distortion.

Conventions are COLMAP's: the centre of the top-left pixel is (0.5, 0.5), camera axes are x right, y down,
z forward, and a pose is `cam_from_world` (X_cam = R X_world + t). N is the number of points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from egohieraloc.config import CameraModel
from egohieraloc.errors import GeometryError
from egohieraloc.types import Floats, Mask

# Parameters in COLMAP's order. RAD_TAN_THIN_PRISM_FISHEYE is Project Aria's FISHEYE624.
PARAMETER_NAMES: dict[str, tuple[str, ...]] = {
    "SIMPLE_PINHOLE": ("f", "cx", "cy"),
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k1"),
    "RADIAL": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
    "SIMPLE_RADIAL_FISHEYE": ("f", "cx", "cy", "k1"),
    "RADIAL_FISHEYE": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV_FISHEYE": ("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4"),
    "RAD_TAN_THIN_PRISM_FISHEYE": (
        "fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2", "s1", "s2", "s3", "s4",
    ),
}  # fmt: skip
# A perspective lens sees less than 90 degrees off its axis: its radius is tan(angle).
_MAX_PERSPECTIVE_RADIUS = 50.0
_MAX_FISHEYE_ANGLE = 3.1  # short of pi: straight behind has no direction in the image
_UNBENDING_STEPS = 25  # each shortens the error by the strength of the tangential terms, some hundredths
_MAX_UNBENT_ERROR = 1e-9  # in units of the focal length


@dataclass(frozen=True)
class Camera:
    """A lens and an image size. `params` are COLMAP's for `model`.

    valid_radius_px: how far from the principal point the lens was calibrated, where that is known. Beyond it
    the image is dark (vignette) and the polynomial means nothing: no pixel there has a ray.
    """

    model: CameraModel
    width: int
    height: int
    params: tuple[float, ...]
    valid_radius_px: float | None = None

    def __post_init__(self) -> None:
        if self.model not in get_args(CameraModel):
            raise GeometryError(
                f"Unknown camera model {self.model!r}. Use one of {', '.join(get_args(CameraModel))}."
            )
        names = PARAMETER_NAMES[self.model]
        if len(self.params) != len(names) or not all(math.isfinite(v) for v in self.params):
            raise GeometryError(
                f"A {self.model} camera needs the {len(names)} finite parameters {', '.join(names)}, "
                f"got {self.params}."
            )
        if min(self.focal) <= 0 or self.width <= 0 or self.height <= 0:
            raise GeometryError(
                f"A camera needs a positive focal length and size, got focal {self.focal} "
                f"and {self.width}x{self.height}."
            )
        if self.valid_radius_px is not None and not self.valid_radius_px > 0:
            raise GeometryError(f"The valid radius of a lens must be positive, got {self.valid_radius_px}.")

    @property
    def focal(self) -> tuple[float, float]:
        """Focal lengths along x and y, in pixels."""
        return (self.params[0], self.params[self._focals - 1])

    @property
    def principal_point(self) -> tuple[float, float]:
        return (self.params[self._focals], self.params[self._focals + 1])

    @property
    def is_fisheye(self) -> bool:
        return self.model.endswith("FISHEYE")

    def resized(self, width: int, height: int) -> Camera:
        """The same lens for images of another size. With pixel centres at halves this is a plain product."""
        across, down = width / self.width, height / self.height
        scale = [(across + down) / 2] if self._focals == 1 else [across, down]
        scale += [across, down] + [1.0] * (len(self.params) - self._focals - 2)
        params = tuple(v * s for v, s in zip(self.params, scale, strict=True))
        radius = self.valid_radius_px and self.valid_radius_px * (across + down) / 2
        return Camera(self.model, width, height, params, radius)

    def project(self, points_cam: ArrayLike) -> Floats:
        """Points in the camera (N, 3) to pixels (N, 2).

        NaN where the lens has no image of the point: behind a perspective camera, beyond the valid radius, or
        so far off the axis that the distortion polynomial folds back.
        """
        points = np.asarray(points_cam, np.float64).reshape(-1, 3)
        side, depth = np.hypot(points[:, 0], points[:, 1]), points[:, 2]
        if self.is_fisheye:
            radius = np.arctan2(side, depth)
        else:
            radius = np.divide(side, depth, out=np.full_like(side, np.nan), where=depth > 0)
        radius = np.where(radius <= self._max_radius, radius, np.nan)
        scale = np.divide(radius, side, out=np.zeros_like(side), where=side > 0)
        scale[np.isnan(radius)] = np.nan
        return self._valid(self._distort(points[:, :2] * scale[:, None]) * self.focal + self.principal_point)

    def rays(self, pixels: ArrayLike) -> Floats:
        """Pixels (N, 2) to unit directions in the camera (N, 3); NaN where no ray ends."""
        valid = self._valid(np.asarray(pixels, np.float64).reshape(-1, 2))
        plane = self._undistort((valid - self.principal_point) / self.focal)
        radius = np.hypot(plane[:, 0], plane[:, 1])
        if self.is_fisheye:
            side, depth = np.sin(radius), np.cos(radius)
        else:
            depth = 1 / np.sqrt(1 + radius**2)
            side = radius * depth
        scale = np.divide(side, radius, out=np.ones_like(side), where=radius > 0)
        return np.column_stack([plane * scale[:, None], depth])

    def back_project(self, pixels: ArrayLike, depth: ArrayLike) -> Floats:
        """The points (N, 3) in the camera at these pixels and at this depth along z (N,).

        NaN where a fisheye looks sideways or backwards: depth along z says nothing there.
        """
        rays = self.rays(pixels)
        forward = np.where(rays[:, 2:] > 1e-6, rays[:, 2:], np.nan)
        return rays * (np.asarray(depth, np.float64).reshape(-1, 1) / forward)

    def turned(self, quarter_turns: int) -> Camera:
        """The lens of the image turned clockwise. A lens is round: its terms turn as vectors."""
        if quarter_turns % 4 == 0:
            return self
        named = dict(zip(PARAMETER_NAMES[self.model], self.params, strict=True))
        (fx, fy), (cx, cy) = self.focal, self.principal_point
        named |= {"f": fx, "fx": fy, "fy": fx, "cx": self.height - cy, "cy": cx}
        # x of the new image is minus y of the old one, y of the new one is x of the old one
        for x, y in (("p2", "p1"),) if self.model == "OPENCV" else (("p1", "p2"), ("s1", "s3"), ("s2", "s4")):
            if x in named:
                named[x], named[y] = -named[y], named[x]
        params = tuple(named[name] for name in PARAMETER_NAMES[self.model])
        turned = Camera(self.model, self.height, self.width, params, self.valid_radius_px)
        return turned.turned(quarter_turns - 1)

    def sees(self, pixels: Floats) -> Mask:
        """Whether pixels (N, 2) lie within the valid radius (N,)."""
        radius = math.inf if self.valid_radius_px is None else self.valid_radius_px
        within: Mask = np.hypot(*(pixels - self.principal_point).T) <= radius
        return within

    def _valid(self, pixels: Floats) -> Floats:
        """The pixels (N, 2), NaN beyond the valid radius."""
        return np.where(self.sees(pixels)[:, None], pixels, np.nan)

    @property
    def _focals(self) -> int:
        return 2 if PARAMETER_NAMES[self.model][0] == "fx" else 1

    def _terms(self, letter: str) -> tuple[float, ...]:
        names = PARAMETER_NAMES[self.model]
        return tuple(value for name, value in zip(names, self.params, strict=True) if name[0] == letter)

    def _distort(self, plane: Floats) -> Floats:
        """From angles or tangents (N, 2) to the image in focal lengths (N, 2)."""
        radius = np.hypot(plane[:, 0], plane[:, 1])
        bent = plane * self._stretch(radius)[:, None]
        # OpenCV's tangential terms are of the undistorted coordinates, Aria's of the distorted ones.
        return bent + self._tangential(bent if self.is_fisheye else plane)

    def _undistort(self, distorted: Floats) -> Floats:
        """Inverse of `_distort` (N, 2); NaN where it has none."""
        if not self._terms("p"):
            return self._unstretch(distorted)
        bent = distorted
        for _ in range(_UNBENDING_STEPS):
            bent = distorted - self._tangential(bent if self.is_fisheye else self._unstretch(bent))
        plane = self._unstretch(bent)
        off = np.abs(self._distort(plane) - distorted).max(1, keepdims=True)
        return np.where(off <= _MAX_UNBENT_ERROR, plane, np.nan)

    def _tangential(self, plane: Floats) -> Floats:
        """The terms that are not round (N, 2): tangential, and of a thin prism."""
        terms, prism = np.array(self._terms("p")), np.array(self._terms("s"))
        if not terms.any() and not prism.any():
            return np.zeros_like(plane)
        terms = terms[::-1] if self.model == "OPENCV" else terms  # its p1 is the one along y
        square = (plane**2).sum(1, keepdims=True)
        bend: Floats = 2 * (plane @ terms)[:, None] * plane + square * terms
        if prism.size:
            bend += np.hstack([square, square**2]) @ prism.reshape(2, 2).T
        return bend

    def _stretch(self, radius: Floats) -> Floats:
        """1 + k1 r^2 + k2 r^4 ... for radii (N,)."""
        powers = (k * radius ** (2 * i) for i, k in enumerate(self._terms("k"), 1))
        return 1 + sum(powers, np.zeros_like(radius))

    def _unstretch(self, bent: Floats) -> Floats:
        """Invert the radial part (N, 2) on its rising part by bisection, which cannot leave the interval."""
        if not self._terms("k"):
            return bent
        wanted = np.hypot(bent[:, 0], bent[:, 1])
        low, high = np.zeros_like(wanted), np.full_like(wanted, self._max_radius)
        reachable = wanted <= high * self._stretch(high)
        for _ in range(60):
            middle = (low + high) / 2
            below = middle * self._stretch(middle) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        radius = np.where(reachable, (low + high) / 2, np.nan)
        scale = np.divide(radius, wanted, out=np.ones_like(wanted), where=wanted > 0)
        return bent * scale[:, None]

    @cached_property
    def _max_radius(self) -> float:
        """Where the distorted radius stops growing: beyond it two rays share one pixel."""
        limit = _MAX_FISHEYE_ANGLE if self.is_fisheye else _MAX_PERSPECTIVE_RADIUS
        # d/dr of r (1 + k1 r^2 + k2 r^4 ...), as a polynomial in r^2
        slope = [*[(2 * i + 1) * k for i, k in enumerate(self._terms("k"), 1)][::-1], 1.0]
        roots = np.roots([v if abs(v) > 1e-12 else 0.0 for v in slope])
        turning = [math.sqrt(r.real) for r in roots if abs(r.imag) < 1e-12 and r.real > 0]
        return min([limit, *turning])


@dataclass(frozen=True, eq=False)
class CameraPose:
    """Where a camera is and looks: `cam_from_world` is the 3x4 matrix [R | t]."""

    cam_from_world: Floats  # (3, 4)
    turn_error_rad: float = 0.0  # standard deviation of the direction it looks in, where known

    def __post_init__(self) -> None:
        matrix = np.asarray(self.cam_from_world, np.float64)
        if matrix.shape != (3, 4) or not np.isfinite(matrix).all():
            raise GeometryError(f"A pose must be a finite 3x4 matrix [R | t], got shape {matrix.shape}.")
        rotation = matrix[:, :3]
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-3 or np.linalg.det(rotation) < 0:
            raise GeometryError("The first three columns of a pose must be a rotation matrix.")
        object.__setattr__(self, "cam_from_world", matrix)

    @classmethod
    def from_rotation(cls, rotation: ArrayLike, translation: ArrayLike) -> CameraPose:
        return cls(np.column_stack([np.asarray(rotation), np.asarray(translation)]))

    @property
    def rotation(self) -> Floats:
        return self.cam_from_world[:, :3]

    @property
    def translation(self) -> Floats:
        return self.cam_from_world[:, 3]

    @property
    def center_world(self) -> Floats:
        """Where the camera stands (3,)."""
        return -self.rotation.T @ self.translation

    def to_cam(self, points_world: ArrayLike) -> Floats:
        """World points (..., 3) in the camera."""
        return np.asarray(points_world, np.float64) @ self.rotation.T + self.translation

    def to_world(self, points_cam: ArrayLike) -> Floats:
        """Camera points (..., 3) in the world."""
        return (np.asarray(points_cam, np.float64) - self.translation) @ self.rotation

    def rays_world(self, rays_cam: ArrayLike) -> Floats:
        """Directions in the camera (..., 3) as directions in the world."""
        return np.asarray(rays_cam, np.float64) @ self.rotation
