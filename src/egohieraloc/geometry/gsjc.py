"""GSJC: the Geometric-Semantic Joint Confidence and the fusion of many views into one point (section 3.6).

Each view of the object has a ray and mostly a depth. The paper weighs it by the product of four factors
(eq. 30): semantic (23, 24; in `lift.py`), depth consistency (25), reprojection consistency (26 to 28) and
triangulation baseline (29), and takes the weighted mean of the back-projected points (31). `literal` is this
form. The default has the corrections listed in docs/place.md, and solves for the point that fits the weighted
rays and depths together, each by its own error: rays fix the distance when they spread, depths when they do
not. N is the number of views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from egohieraloc.config import FusionConfig
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.types import Floats, Mask, ViewEvidence

MAX_RELATIVE_ERROR = 0.5  # of the distance: a point with a larger standard deviation is no answer
_HUBER = 2.0  # standard deviations up to which a view counts fully in the joint solution
_ITERATIONS = 30
_RAYLEIGH_MEDIAN = 1.177  # of the length of a 2D error, in standard deviations


@dataclass(frozen=True, eq=False)
class ObjectView:
    """The object in one posed frame."""

    frame_index: int
    camera: Camera
    pose: CameraPose
    pixel: Floats  # (2,) its centre
    pixel_error: float  # standard deviation of the centre
    diagonal_px: float  # of its box
    semantic: float  # vartheta^sem, in [0, 1]
    depth: float | None = None  # D_bar, along z, in the unit of the poses
    depth_error: float = 0.0  # standard deviation of `depth`
    depth_variance: float = 0.0  # sigma_d^2 within the mask; divided by D_bar^2 unless literal

    @cached_property
    def ray_world(self) -> Floats:
        """Unit direction of the centre (3,), r_i (eq. 29)."""
        return self.pose.rays_world(self.camera.rays(self.pixel)[0])

    @cached_property
    def point_world(self) -> Floats | None:
        """The back-projected centre (3,): X_w = cam_from_world^-1 [D_bar K^-1 (u, v, 1)] (eq. 22)."""
        if self.depth is None:
            return None
        return self.pose.to_world(self.camera.back_project(self.pixel, self.depth)[0])


@dataclass(frozen=True, eq=False)
class FusedPoint:
    """The point all views agree on, its covariance and the evidence of each view."""

    point_world: Floats  # (3,)
    covariance: Floats  # (3, 3)
    views: tuple[ViewEvidence, ...]


def fuse(views: Sequence[ObjectView], config: FusionConfig | None = None) -> FusedPoint | None:
    """The point the views agree on; None when they do not fix one (no depth and no spread of rays)."""
    config = config or FusionConfig()
    if config.literal or not config.triangulate:
        views = [view for view in views if view.depth is not None]
    if not views:
        return None
    points = [point for view in views if (point := view.point_world) is not None]
    consensus = _consensus(views, points, config)
    if consensus is None:
        return None
    factors, weights = _weigh(views, consensus, config)
    solved: tuple[Floats, Floats] | None
    if config.literal or not config.triangulate or (points and bool((weights <= config.min_weight).all())):
        with_point = np.array([view.depth is not None for view in views])
        solved = _mean_with_scatter(np.array(points), weights[with_point], views)
    else:
        # Weighed again, against the joint solution: the consensus of the depths alone may be biased.
        solved = _joint_solution(views, factors, consensus)
        if solved is not None:
            factors, weights = _weigh(views, solved[0], config)
            solved = _joint_solution(views, factors, solved[0])
    if solved is None:
        return None
    point, covariance = solved
    evidence = tuple(
        ViewEvidence(view.frame_index, _evidence_point(view, point), *row)
        for view, row in zip(views, np.column_stack([factors, weights]).tolist(), strict=True)
    )
    return FusedPoint(point, covariance, evidence)


def depth_factor(variances: Floats, reference: float | None = None) -> Floats:
    """exp(-sigma_d^2 / sigma_0^2) for (N,) variances (eq. 25); sigma_0^2 is their median unless given."""
    reference = float(np.median(variances)) if reference is None else reference
    ratio = np.divide(variances, reference, out=np.where(variances > 0, np.inf, 0.0), where=reference > 0)
    return np.exp(-ratio)


def reprojection_factor(error_px: Floats, tolerance_px: Floats) -> Floats:
    """exp(-|uv - uv_hat| / epsilon_r) for (N,) errors (eq. 28); 0 where the consensus has no image (NaN)."""
    return np.exp(-np.where(np.isnan(error_px), np.inf, error_px) / tolerance_px)


def baseline_factor(rays_world: Floats, *, literal: bool, floor: float) -> Floats:
    """The sine of the angle between each ray (N, 3) and the mean ray, clamped from below.

    Literal: the mean is not a unit vector, so that no ray reaches 0 and a wrong ray gets the largest value.
    Default: to the unit mean, relative to the median ray and at most 1.
    """
    sine: Floats
    mean = rays_world.mean(0)
    if literal:
        sine = np.sqrt(np.clip(1 - (rays_world @ mean) ** 2, 0, None))
        return np.maximum(sine, floor)
    mean = mean / max(float(np.linalg.norm(mean)), 1e-12)
    sine = np.linalg.norm(np.cross(rays_world, mean), axis=1)
    median = float(np.median(sine))
    if median <= 1e-9:
        return np.ones(len(sine))
    return np.clip(sine / median, floor, 1.0)


def geometric_median(points: Floats) -> Floats:
    """The point (3,) with the least sum of distances to points (N, 3): up to half of them may be outliers."""
    guess = np.median(points, axis=0)
    tiny = 1e-9 * (1 + float(np.abs(points).max()))
    for _ in range(200):
        pull = 1 / np.maximum(np.linalg.norm(points - guess, axis=1), tiny)
        nearer = pull @ points / pull.sum()
        if np.linalg.norm(nearer - guess) < tiny:
            break
        guess = nearer
    return guess


def triangulate(origins: Floats, rays: Floats, weights: Floats) -> Floats | None:
    """The point (3,) nearest to weighted rays (N, 3) from origins (N, 3); None when they are parallel."""
    across = weights[:, None, None] * (np.eye(3) - rays[:, :, None] * rays[:, None, :])
    normal = across.sum(0)
    values = np.linalg.eigvalsh(normal)
    if values[0] <= 1e-10 * max(values[2], 1e-300):
        return None
    return np.linalg.solve(normal, (across @ origins[:, :, None]).sum(0)[:, 0])


def _consensus(views: Sequence[ObjectView], points: Sequence[Floats], config: FusionConfig) -> Floats | None:
    """p_bar (eq. 26), the point before views are weighed: the mean (literal), else a robust one."""
    if points:
        return np.mean(points, axis=0) if config.literal else geometric_median(np.array(points))
    return _ray_consensus(views, config)


def _ray_consensus(views: Sequence[ObjectView], config: FusionConfig) -> Floats | None:
    """The crossing of two rays that most other views agree with (at most 200 pairs are tried)."""
    origins = np.array([view.pose.center_world for view in views])
    rays = np.array([view.ray_world for view in views])
    first, second = np.triu_indices(len(views), 1)
    step = max(1, len(first) // 200)
    best, best_score = None, 0.0
    for pair in np.column_stack([first, second])[::step]:
        point = triangulate(origins[pair], rays[pair], np.ones(2))
        if point is None:
            continue
        score = float(reprojection_factor(*_reprojection(views, point, config)).sum())
        if score > best_score:
            best, best_score = point, score
    return best


def _weigh(views: Sequence[ObjectView], consensus: Floats, config: FusionConfig) -> tuple[Floats, Floats]:
    """Semantic, depth, reprojection, baseline (N, 4), 1 where switched off; the weights (N,) (eq. 30)."""
    factors = np.ones((len(views), 4))
    factors[:, 0] = [view.semantic for view in views]
    with_depth = np.array([view.depth is not None for view in views])
    if config.depth and with_depth.any():
        variances = np.array([view.depth_variance for view in views])[with_depth]
        factors[with_depth, 1] = depth_factor(variances, config.depth_variance)
    if config.reprojection:
        factors[:, 2] = reprojection_factor(*_reprojection(views, consensus, config))
    if config.baseline:
        rays = np.array([view.ray_world for view in views])
        factors[:, 3] = baseline_factor(rays, literal=config.literal, floor=config.min_baseline)
    return factors, np.maximum(factors.prod(1), config.min_weight)


def _reprojection(views: Sequence[ObjectView], point: Floats, config: FusionConfig) -> tuple[Floats, Floats]:
    """Distance of the projected point (eq. 27) from each view's centre, and its tolerance (N,), in pixels."""
    image = np.array([view.camera.project(view.pose.to_cam(point))[0] for view in views])
    error = np.linalg.norm(image - np.array([view.pixel for view in views]), axis=1)
    diagonal = np.array([view.diagonal_px for view in views])
    return error, np.maximum(config.reprojection_px, config.reprojection_share * diagonal)


def _mean_with_scatter(points: Floats, weights: Floats, views: Sequence[ObjectView]) -> tuple[Floats, Floats]:
    """The weighted mean (eq. 31) and its covariance: scatter over the effective number of views.

    The sum of weights is the denominator as in the main text; the appendix adds an epsilon to it, which
    pulls the point towards the world's origin.
    """
    share = weights / weights.sum()
    mean = share @ points
    # One view has no scatter: its own depth error, in all directions, is the least there is.
    own = float(np.mean([view.depth_error for view in views])) ** 2
    scatter = (points - mean).T @ ((points - mean) * share[:, None])
    return mean, (scatter + own * np.eye(3)) * float((share**2).sum())


def _joint_solution(
    views: Sequence[ObjectView], factors: Floats, start: Floats
) -> tuple[Floats, Floats] | None:
    """Weighted least squares over rays and depths, with views that disagree counted less (Huber).

    Returns the point (3,) and its covariance (3, 3), which grows where the views disagree by more than their
    errors; None when rays and depths do not fix a point. A scatter of the rays that is larger than the errors
    of their centres replaces these.
    """
    weights = factors[:, [0, 2, 3]].prod(1)
    weights = np.maximum(weights / max(weights.max(), 1e-300), 1e-12)
    measured = _Measurements.of(views, depth_factors=factors[:, 1])
    point, scatter = start, 0.0
    for _ in range(_ITERATIONS):
        distance = np.maximum(((point - measured.origins) * measured.rays).sum(1), 1e-9)
        information = measured.information(distance, scatter)
        target = measured.targets(distance)
        chi2 = np.einsum("ni,nij,nj->n", point - target, information, point - target)
        trust = weights * np.minimum(1.0, _HUBER / np.sqrt(np.maximum(chi2, 1e-300)))
        weighted = trust[:, None, None] * information
        normal = weighted.sum(0)
        if np.linalg.eigvalsh(normal)[0] * float(np.median(distance)) ** 2 < 1 / MAX_RELATIVE_ERROR**2:
            return None
        moved = np.linalg.solve(normal, (weighted @ target[:, :, None]).sum(0)[:, 0])
        miss = np.linalg.norm(np.cross(moved - measured.origins, measured.rays), axis=1) / distance
        scatter = weighted_median(miss, weights) / _RAYLEIGH_MEDIAN
        done = np.linalg.norm(moved - point) <= 1e-9 * (1 + np.linalg.norm(point))
        point = moved
        if done:
            break
    inflation = max(1.0, float((trust * chi2).sum() / weights.sum()) / 3)
    return point, np.linalg.inv(normal) * inflation


@dataclass(frozen=True, eq=False)
class _Measurements:
    """The views as arrays: what each measures, and how exactly.

    A view fixes the point across its ray by the error of its centre and along it by the error of its depth.
    Depth errors of one track are one error (the same surface, the same fit), so that N depths count as one;
    centres are independent. The depth factor weighs the depth alone: it says nothing about the ray.
    """

    origins: Floats  # (N, 3)
    rays: Floats  # (N, 3) unit directions
    angle_error: Floats  # (N,) of the rays, radians
    has_depth: Mask  # (N,)
    along: Floats  # (N,) depth along the ray, 0 without
    along_info: Floats  # (N,) inverse variance of `along`, 0 without a depth

    @classmethod
    def of(cls, views: Sequence[ObjectView], *, depth_factors: Floats) -> _Measurements:
        rays = np.array([view.ray_world for view in views])
        axes = np.array([view.pose.rotation[2] for view in views])
        has_depth = np.array([view.depth is not None for view in views])
        depth_error = np.array([max(view.depth_error, 1e-9) for view in views])
        depth_share = np.where(has_depth, depth_factors, 0.0)
        return cls(
            origins=np.array([view.pose.center_world for view in views]),
            rays=rays,
            angle_error=np.array([view.pixel_error / view.camera.focal[0] for view in views]),
            has_depth=has_depth,
            along=np.array([view.depth or 0.0 for view in views]) / (rays * axes).sum(1),  # depth is along z
            along_info=depth_share / max(depth_share.sum(), 1e-12) / depth_error**2,
        )

    def information(self, distance: Floats, scatter: float) -> Floats:
        """Inverse covariance (N, 3, 3) of each view's point at these distances (N,)."""
        outer = self.rays[:, :, None] * self.rays[:, None, :]
        across_info = 1 / (np.maximum(self.angle_error, scatter) * distance) ** 2
        information: Floats = (
            across_info[:, None, None] * (np.eye(3) - outer) + self.along_info[:, None, None] * outer
        )
        return information

    def targets(self, distance: Floats) -> Floats:
        """The point (N, 3) each view measures: at its depth, else at this distance along its ray."""
        return self.origins + self.rays * np.where(self.has_depth, self.along, distance)[:, None]


def weighted_median(values: Floats, weights: Floats) -> float:
    """The value with half of the weight below it; the middle of two when it falls between them."""
    order = np.argsort(values)
    values, cumulative = values[order], np.cumsum(weights[order])
    half = cumulative[-1] / 2
    low = int(np.searchsorted(cumulative, half * (1 - 1e-12)))
    high = int(np.searchsorted(cumulative, half * (1 + 1e-12)))
    return float((values[low] + values[min(high, len(values) - 1)]) / 2)


def _evidence_point(view: ObjectView, answer: Floats) -> Floats:
    """The view's own point: back-projected, or without a depth the point of its ray nearest to the answer."""
    if (point := view.point_world) is not None:
        return point
    ray, origin = view.ray_world, view.pose.center_world
    return origin + ray * float((answer - origin) @ ray)
