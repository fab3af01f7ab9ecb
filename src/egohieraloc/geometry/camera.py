"""Cameras and their poses: from world points to pixels and back, through the lens distortion.

Conventions are COLMAP's: the centre of the top-left pixel is (0.5, 0.5), camera axes are x right, y down,
z forward, and a pose is `cam_from_world` (X_cam = R X_world + t). N is the number of points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from egohieraloc.config import CameraModel
from egohieraloc.errors import GeometryError
from egohieraloc.types import Floats

# Parameters in COLMAP's order; the distortion terms come last.
PARAMETER_NAMES: dict[str, tuple[str, ...]] = {
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k"),
    "SIMPLE_RADIAL_FISHEYE": ("f", "cx", "cy", "k"),
    "RADIAL_FISHEYE": ("f", "cx", "cy", "k1", "k2"),
}
# A perspective lens sees less than 90 degrees off its axis: its radius is tan(angle).
_MAX_PERSPECTIVE_RADIUS = 50.0
_MAX_FISHEYE_ANGLE = 3.1  # short of pi: straight behind has no direction in the image


@dataclass(frozen=True)
class Camera:
    """A lens and an image size. `params` are COLMAP's for `model`."""

    model: CameraModel
    width: int
    height: int
    params: tuple[float, ...]

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

    @property
    def focal(self) -> tuple[float, float]:
        """Focal lengths along x and y, in pixels."""
        return (self.params[0], self.params[1] if self.model == "PINHOLE" else self.params[0])

    @property
    def principal_point(self) -> tuple[float, float]:
        start = 2 if self.model == "PINHOLE" else 1
        return (self.params[start], self.params[start + 1])

    @property
    def is_fisheye(self) -> bool:
        return self.model.endswith("FISHEYE")

    def resized(self, width: int, height: int) -> Camera:
        """The same lens for images of another size. With pixel centres at halves this is a plain product."""
        across, down = width / self.width, height / self.height
        focal_count = 2 if self.model == "PINHOLE" else 1
        scale = [(across + down) / 2] * focal_count + [across, down]
        params = tuple(v * (scale[i] if i < len(scale) else 1.0) for i, v in enumerate(self.params))
        return Camera(self.model, width, height, params)

    def project(self, points_cam: ArrayLike) -> Floats:
        """Points in the camera (N, 3) to pixels (N, 2).

        NaN where the lens has no image of the point: behind a perspective camera, or so far off the axis
        that the distortion polynomial folds back.
        """
        points = np.asarray(points_cam, np.float64).reshape(-1, 3)
        side = np.hypot(points[:, 0], points[:, 1])
        if self.is_fisheye:
            radius = np.arctan2(side, points[:, 2])
        else:
            depth = points[:, 2]
            radius = np.divide(side, depth, out=np.full_like(side, np.nan), where=depth > 0)
        radius = np.where(radius <= self._max_radius, radius, np.nan)
        scale = np.divide(self._distort(radius), side, out=np.zeros_like(side), where=side > 0)
        scale[np.isnan(radius)] = np.nan
        return points[:, :2] * scale[:, None] * self.focal + self.principal_point

    def rays(self, pixels: ArrayLike) -> Floats:
        """Pixels (N, 2) to unit directions in the camera (N, 3); NaN where no ray ends."""
        plane = (np.asarray(pixels, np.float64).reshape(-1, 2) - self.principal_point) / self.focal
        distorted = np.hypot(plane[:, 0], plane[:, 1])
        radius = self._undistort(distorted)
        if self.is_fisheye:
            side, depth = np.sin(radius), np.cos(radius)
        else:
            depth = 1 / np.sqrt(1 + radius**2)
            side = radius * depth
        scale = np.divide(side, distorted, out=np.zeros_like(side), where=distorted > 0)
        return np.column_stack([plane * scale[:, None], depth])

    def back_project(self, pixels: ArrayLike, depth: ArrayLike) -> Floats:
        """The points (N, 3) in the camera at these pixels and at this depth along z (N,).

        NaN where a fisheye looks sideways or backwards: depth along z says nothing there.
        """
        rays = self.rays(pixels)
        forward = np.where(rays[:, 2:] > 1e-6, rays[:, 2:], np.nan)
        return rays * (np.asarray(depth, np.float64).reshape(-1, 1) / forward)

    @property
    def _distortion(self) -> tuple[float, ...]:
        return self.params[4:] if self.model == "PINHOLE" else self.params[3:]

    def _distort(self, radius: Floats) -> Floats:
        powers = (k * radius ** (2 * i) for i, k in enumerate(self._distortion, 1))
        return radius * (1 + sum(powers, np.zeros_like(radius)))

    @property
    def _max_radius(self) -> float:
        """Where the distorted radius stops growing: beyond it two rays share one pixel."""
        limit = _MAX_FISHEYE_ANGLE if self.is_fisheye else _MAX_PERSPECTIVE_RADIUS
        # d/dr of r (1 + k1 r^2 + k2 r^4), as a polynomial in r^2
        slope = [*[(2 * i + 1) * k for i, k in enumerate(self._distortion, 1)][::-1], 1.0]
        roots = np.roots([v if abs(v) > 1e-12 else 0.0 for v in slope])
        turning = [math.sqrt(r.real) for r in roots if abs(r.imag) < 1e-12 and r.real > 0]
        return min([limit, *turning])

    def _undistort(self, distorted: Floats) -> Floats:
        """Invert `_distort` on its rising part by bisection, which cannot leave the interval."""
        if not self._distortion:
            return distorted
        low, high = np.zeros_like(distorted), np.full_like(distorted, self._max_radius)
        reachable = distorted <= self._distort(high)
        for _ in range(60):
            middle = (low + high) / 2
            below = self._distort(middle) < distorted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(reachable, (low + high) / 2, np.nan)


@dataclass(frozen=True, eq=False)
class CameraPose:
    """Where a camera is and looks: `cam_from_world` is the 3x4 matrix [R | t]."""

    cam_from_world: Floats  # (3, 4)

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
