"""From the reconstruction's own frame and unit to a known one (appendix, "Alignment").

A similarity (Sim3) is fitted to known camera positions as COLMAP's `model_aligner` does; where only a length
or the height of the camera is known, it fixes the scale alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import CameraPose
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.types import Floats, Mask

MIN_CAMERAS = 5  # the paper's "at least five images"; three would do without outliers
_MAX_TRIALS = 1000


@dataclass(frozen=True, eq=False)
class Sim3:
    """`x_target = scale * rotation @ x_source + translation`."""

    scale: float
    rotation: Floats  # (3, 3)
    translation: Floats  # (3,)

    def points(self, source: ArrayLike) -> Floats:
        """Points (..., 3) of the source frame in the target frame."""
        return self.scale * np.asarray(source, np.float64) @ self.rotation.T + self.translation

    def inverse(self) -> Sim3:
        rotation = self.rotation.T
        return Sim3(1 / self.scale, rotation, -rotation @ self.translation / self.scale)

    def pose(self, cam_from_source: CameraPose) -> CameraPose:
        """The same camera seen from the target frame; its own unit becomes the target's too."""
        rotation = cam_from_source.rotation @ self.rotation.T
        center = self.points(cam_from_source.center_world)
        moved = CameraPose.from_rotation(rotation, -rotation @ center)
        return replace(moved, turn_error_rad=cam_from_source.turn_error_rad)

    def reconstruction(self, source: Reconstruction) -> Reconstruction:
        """The whole reconstruction in the target frame, which is metric."""
        return replace(
            source,
            frames=tuple(
                replace(frame, pose=None if frame.pose is None else self.pose(frame.pose))
                for frame in source.frames
            ),
            points=replace(source.points, xyz_world=self.points(source.points.xyz_world)),
            unit="m",
        )


@dataclass(frozen=True, eq=False)
class Alignment:
    """A fitted Sim3, which correspondences support it, and their error in the target's unit."""

    target_from_source: Sim3
    inliers: Mask  # (N,)
    rmse: float


def fit_sim3(source: ArrayLike, target: ArrayLike) -> Sim3:
    """The least-squares similarity between corresponding points (N, 3), N >= 3 (Umeyama 1991)."""
    a, b = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if a.shape != b.shape or a.ndim != 2 or a.shape[1] != 3 or len(a) < 3:
        raise GeometryError(
            f"A similarity needs at least 3 pairs of 3D points, got shapes {a.shape} and {b.shape}."
        )
    mean_a, mean_b = a.mean(0), b.mean(0)
    variance = ((a - mean_a) ** 2).sum() / len(a)
    u, singular, vt = np.linalg.svd((b - mean_b).T @ (a - mean_a) / len(a))
    if singular[1] <= 1e-9 * max(singular[0], 1e-300):
        raise GeometryError(
            "The known positions lie on one line (or in one point): the turn around it is free. "
            "Add a position off the line."
        )
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ vt))])
    rotation = (u * sign) @ vt
    scale = float((singular * sign).sum() / variance)
    return Sim3(scale, rotation, mean_b - scale * rotation @ mean_a)


def align(source: ArrayLike, target: ArrayLike, *, max_error: float, seed: int = 0) -> Alignment:
    """The similarity most pairs agree on (within `max_error` of the target's unit), refitted to those."""
    a, b = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if len(a) < MIN_CAMERAS:
        raise GeometryError(
            f"Alignment needs at least {MIN_CAMERAS} cameras that have both a pose and a known position, "
            f"got {len(a)}."
        )
    best = np.zeros(len(a), bool)
    for triple in _triples(len(a), seed):
        try:
            candidate = fit_sim3(a[triple], b[triple])
        except GeometryError:
            continue
        inliers = _errors(candidate, a, b) <= max_error
        if inliers.sum() > best.sum():
            best = inliers
    if best.sum() < MIN_CAMERAS:
        raise GeometryError(
            f"Only {best.sum()} of {len(a)} known positions agree within {max_error:g}; {MIN_CAMERAS} are "
            "needed. Check the reference file, or allow a larger error."
        )
    for _ in range(10):
        fitted = fit_sim3(a[best], b[best])
        again = _errors(fitted, a, b) <= max_error
        if again.sum() < MIN_CAMERAS or (again == best).all():
            break
        best = again
    rmse = float(np.sqrt((_errors(fitted, a[best], b[best]) ** 2).mean()))
    return Alignment(fitted, best, rmse)


def align_to_positions(
    reconstruction: Reconstruction, center_by_frame: Mapping[int, ArrayLike], *, max_error: float
) -> tuple[Reconstruction, Alignment]:
    """The reconstruction in the frame of known camera positions (frame number to (3,), in metres)."""
    poses = reconstruction.poses
    shared = [index for index in center_by_frame if index in poses]
    source = np.array([poses[index].center_world for index in shared]).reshape(-1, 3)
    target = np.array([center_by_frame[index] for index in shared], np.float64).reshape(-1, 3)
    found = align(source, target, max_error=max_error)
    return found.target_from_source.reconstruction(reconstruction), found


def read_positions(path: str | Path) -> dict[str, Floats]:
    """Read `name x y z` lines, the reference file of COLMAP's model_aligner. `#` starts a comment."""
    positions: dict[str, Floats] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GeometryError(f"Cannot read the reference positions {path}: {error}.") from error
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            name, (x, y, z) = words[0], (float(word) for word in words[1:])
        except ValueError as error:
            raise GeometryError(f"{path}, line {number}: wanted 'name x y z', got {line!r}.") from error
        positions[name] = np.array([x, y, z])
    return positions


def scale_by_length(
    reconstruction: Reconstruction, point_a: ArrayLike, point_b: ArrayLike, length_m: float
) -> Reconstruction:
    """Make two points of the reconstruction lie `length_m` apart."""
    measured = float(np.linalg.norm(np.subtract(point_a, point_b)))
    if not (measured > 0 and length_m > 0):
        raise GeometryError(f"A known length must be positive, got {length_m} m over {measured:g} units.")
    return scaled(reconstruction, length_m / measured)


def scale_by_camera_height(reconstruction: Reconstruction, height_m: float) -> Reconstruction:
    """Make the camera walk `height_m` above the floor, on average. Rough: the floor must have points.

    Cameras are carried without roll, so their x axes are level: down is what is square to all of them. The
    floor is where the lowest points lie (the 98th percentile downwards, so that a few strays do not count).
    """
    poses = list(reconstruction.poses.values())
    if not height_m > 0 or len(poses) < 2 or len(reconstruction.points.xyz_world) < 20:
        raise GeometryError(
            f"Scale by camera height needs a positive height, 2 poses and 20 points, got {height_m} m, "
            f"{len(poses)} poses and {len(reconstruction.points.xyz_world)} points."
        )
    down = down_direction(poses)
    floor = np.percentile(reconstruction.points.xyz_world @ down, 98)
    camera = np.median([pose.center_world @ down for pose in poses])
    if floor <= camera:
        raise GeometryError("No points lie below the camera: the floor was not seen. Give a known length.")
    return scaled(reconstruction, height_m / float(floor - camera))


def down_direction(poses: Sequence[CameraPose]) -> Floats:
    """The unit vector downwards (3,), from cameras that are held level but look around."""
    right = np.array([pose.rotation[0] for pose in poses])
    mean_down = np.mean([pose.rotation[1] for pose in poses], axis=0)
    values, vectors = np.linalg.eigh(right.T @ right / len(right))
    # With one viewing direction only, two directions are square to "right": take the cameras' own down.
    down: Floats = vectors[:, 0] * np.sign(vectors[:, 0] @ mean_down) if values[1] > 0.02 else mean_down
    down /= np.linalg.norm(down)
    return down


def scaled(reconstruction: Reconstruction, scale: float) -> Reconstruction:
    """The reconstruction in metres, given how many metres one of its units is."""
    return Sim3(scale, np.eye(3), np.zeros(3)).reconstruction(reconstruction)


def _errors(sim3: Sim3, source: Floats, target: Floats) -> Floats:
    distance: Floats = np.linalg.norm(sim3.points(source) - target, axis=1)
    return distance


def _triples(count: int, seed: int) -> list[list[int]]:
    """All triples of a small set, otherwise a thousand at random (always the same for one seed)."""
    if count <= 18:
        return [list(triple) for triple in combinations(range(count), 3)]
    generator = np.random.default_rng(seed)
    return [generator.choice(count, 3, replace=False).tolist() for _ in range(_MAX_TRIALS)]
