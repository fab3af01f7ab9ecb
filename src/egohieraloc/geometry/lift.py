"""From a prediction in one frame to a view of the object: its centre, its depth and the errors of both
(section 3.5, "2D-to-3D Back-Projection").

Depth comes from a map, or without one from the points of the reconstruction that lie on the object.
n is the number of pixels of the mask or of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from egohieraloc.config import FusionConfig, PlaceConfig
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.depth import depth_at
from egohieraloc.geometry.gsjc import ObjectView, weighted_median
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.types import Box, DepthMap, Floats, FramePrediction, MaskConfidence

_GRID = 24  # samples along each side of a box that has no mask
_MIN_FORWARD = 0.05  # cosine between a ray and the optical axis
_BORDER_PX = 1.5  # a box this near to the image's border is taken as cut by it
_BORDER_FACTOR = 3.0  # by which the centre of a cut box is less certain
_DEVIATION_PER_MAD = 1.4826  # standard deviation of a normal distribution, in median absolute deviations


@dataclass(frozen=True, eq=False)
class Region:
    """The pixels of the object in the frame (n, 2) and the confidence of each (n,)."""

    pixels: Floats
    probability: Floats


@dataclass(frozen=True, eq=False)
class ObjectPoints:
    """Points of the reconstruction that lie on the object (n, 3), and how much each counts (n,)."""

    xyz_world: Floats
    weight: Floats


@dataclass(frozen=True)
class _Surface:
    """Depth of the object's visible side, its spread, and how far behind it the centre lies."""

    depth: float
    spread: float  # standard deviation
    thickness_share: float  # in sizes of the object


def region_of(prediction: FramePrediction, camera: Camera, *, literal: bool) -> Region:
    """The mask's pixels (without its rim, unless literal); without a mask the middle of the box."""
    if prediction.mask is not None and prediction.mask.any():
        return _mask_region(prediction, literal=literal)
    box = prediction.box.clipped(camera.width, camera.height)
    # The corners of a box are mostly background: half its sides around the centre mostly are not.
    share = 1.0 if literal else 0.5
    steps = ((np.arange(_GRID) + 0.5) / _GRID - 0.5) * share
    x, y = np.meshgrid(box.center[0] + steps * box.width, box.center[1] + steps * box.height)
    return Region(np.column_stack([x.ravel(), y.ravel()]), np.ones(_GRID**2))


def semantic_score(prediction: FramePrediction, config: FusionConfig) -> float:
    """vartheta^sem: the mean of P_ave, P_thr and P_max (eq. 23, 24), as far as they are switched on."""
    sure = mask_confidence(prediction, config)
    terms = (
        (config.semantic_average, sure.average),
        (config.semantic_threshold, sure.threshold),
        (config.semantic_maximum, sure.maximum),
    )
    used = [value for is_used, value in terms if is_used]
    return float(np.mean(used)) if used else 1.0


def mask_confidence(prediction: FramePrediction, config: FusionConfig) -> MaskConfidence:
    """P_ave, P_thr and P_max. Without confidences per pixel the score of the frame replaces all three."""
    if prediction.mask_prob is None:
        return prediction.confidence or MaskConfidence(*(prediction.score,) * 3)
    probability = prediction.mask_prob[prediction.mask_prob > config.mask_threshold].astype(np.float64)
    if not probability.size:
        return MaskConfidence(*(prediction.score,) * 3)
    high = probability[probability > config.probability_threshold]
    average = float(high.mean()) if high.size else 0.0
    return MaskConfidence(float(probability.mean()), average, float(probability.max()))


def lift(
    prediction: FramePrediction,
    camera: Camera,
    pose: CameraPose,
    config: PlaceConfig,
    *,
    depth_map: DepthMap | None = None,
    points: ObjectPoints | None = None,
) -> ObjectView:
    """One view of the object, with depth from the map, else from the points, else without."""
    fusion = config.fusion
    box = prediction.box
    region = region_of(prediction, camera, literal=fusion.literal)
    surface = None
    if depth_map is not None:
        values = depth_at(depth_map, region.pixels, camera.width, camera.height)
        values = np.where(camera.sees(region.pixels), values, np.nan)
        surface = _surface(values, region.probability, fusion.thickness_share, literal=fusion.literal)
    if surface is None and points is not None and len(points.weight) >= config.min_region_points:
        # In a box without mask some points lie behind the object: the median is not that of its visible side.
        thickness = fusion.thickness_share if prediction.mask is not None else 0.0
        values = pose.to_cam(points.xyz_world)[:, 2]
        values = np.where(values > 0, values, np.nan)
        surface = _surface(values, points.weight, thickness, literal=fusion.literal)
    diagonal = float(np.hypot(box.width, box.height))
    view = ObjectView(
        frame_index=prediction.frame_index,
        camera=camera,
        pose=pose,
        pixel=np.array(box.center) if fusion.literal else _centre(prediction, region),
        pixel_error=_pixel_error(box, camera, pose, fusion),
        diagonal_px=diagonal,
        semantic=semantic_score(prediction, fusion),
    )
    looks_aside = not camera.rays(view.pixel)[0, 2] > _MIN_FORWARD  # with a fisheye
    return view if surface is None or looks_aside else _with_depth(view, surface, box, fusion)


def _with_depth(view: ObjectView, surface: _Surface, box: Box, fusion: FusionConfig) -> ObjectView:
    """The view with the depth of the object's centre, behind its visible side by a share of its size."""
    depth, spread = surface.depth, surface.spread
    if fusion.literal:
        error = float(np.hypot(spread, fusion.depth_error_share * depth))
        return replace(view, depth=depth, depth_error=error, depth_variance=spread**2)
    size = float(np.sqrt(box.width * box.height)) * depth / view.camera.focal[0]
    errors = (spread / 2, fusion.depth_error_share * depth, fusion.thickness_error_share * size)
    return replace(
        view,
        depth=depth + surface.thickness_share * size,
        depth_error=float(np.linalg.norm(errors)),
        depth_variance=(spread / depth) ** 2,
    )


def object_points(
    predictions: Sequence[FramePrediction], reconstruction: Reconstruction, config: PlaceConfig
) -> ObjectPoints:
    """The points seen in the mask (or box) in at least half of the track's frames that see them.

    A point counts by how near to the centre it is seen: what is near the rim is often background.
    """
    weight = np.zeros(len(reconstruction.points.xyz_world))
    inside, seen = np.zeros_like(weight), np.zeros_like(weight)
    for prediction in predictions:
        rows, pixels = reconstruction.observed_in(prediction.frame_index)
        near = _nearness(prediction, pixels, config.region_margin)
        seen[rows] += 1
        inside[rows] += near > 0
        weight[rows] += near
    on_object = (inside > 0) & (2 * inside >= seen)
    return ObjectPoints(reconstruction.points.xyz_world[on_object], weight[on_object])


def _surface(values: Floats, weights: Floats, thickness_share: float, *, literal: bool) -> _Surface | None:
    """Weighted mean (eq. 21) and standard deviation of depths (n,), or weighted median and scaled MAD."""
    valid = np.isfinite(values) & (weights > 0)
    if not valid.any():
        return None
    values, weights = values[valid], weights[valid]
    if literal:
        mean = float(values @ weights / weights.sum())
        return _Surface(mean, float(np.sqrt(((values - mean) ** 2).mean())), thickness_share)
    median = weighted_median(values, weights)
    deviation = weighted_median(np.abs(values - median), weights)
    return _Surface(median, _DEVIATION_PER_MAD * deviation, thickness_share)


def _mask_region(prediction: FramePrediction, *, literal: bool) -> Region:
    mask = prediction.mask
    assert mask is not None
    covered = prediction.mask_box or prediction.box
    if not literal:
        eroded = cv2.erode(mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0).astype(bool)
        mask = eroded if eroded.any() else mask
    rows, columns = np.nonzero(mask)
    x = covered.x1 + (columns + 0.5) * covered.width / mask.shape[1]
    y = covered.y1 + (rows + 0.5) * covered.height / mask.shape[0]
    probability = np.ones(len(x)) if prediction.mask_prob is None else prediction.mask_prob[rows, columns]
    return Region(np.column_stack([x, y]), probability.astype(np.float64))


def _centre(prediction: FramePrediction, region: Region) -> Floats:
    """The centroid of the mask, or the centre of the box where there is none (the paper's choice)."""
    if prediction.mask is None or not prediction.mask.any():
        return np.array(prediction.box.center)
    return np.average(region.pixels, axis=0, weights=np.maximum(region.probability, 1e-6))


def _pixel_error(box: Box, camera: Camera, pose: CameraPose, fusion: FusionConfig) -> float:
    """Of the object's centre: by its box, and by the direction the camera looks in."""
    diagonal = float(np.hypot(box.width, box.height))
    of_box = float(np.hypot(1.0, fusion.center_error_share * diagonal)) * _border_factor(box, camera)
    return float(np.hypot(of_box, camera.focal[0] * pose.turn_error_rad))


def _border_factor(box: Box, camera: Camera) -> float:
    """By how much the error of the centre grows: more than 1 when the image's border cuts the object."""
    cut = (
        box.x1 <= _BORDER_PX
        or box.y1 <= _BORDER_PX
        or box.x2 >= camera.width - _BORDER_PX
        or box.y2 >= camera.height - _BORDER_PX
    )
    return _BORDER_FACTOR if cut else 1.0


def _nearness(prediction: FramePrediction, pixels: Floats, margin: float) -> Floats:
    """1 at the centre of the box, less outwards, 0 outside the mask (or the box and its margin) (n,)."""
    box = prediction.box
    half = np.maximum([box.width, box.height], 1e-9) * (0.5 + margin)
    offset = (pixels - box.center) / half
    inside = np.asarray((np.abs(offset) <= 1).all(1))
    if prediction.mask is not None and prediction.mask.any():
        covered = prediction.mask_box or box
        size = prediction.mask.shape[1], prediction.mask.shape[0]
        cell = np.floor((pixels - (covered.x1, covered.y1)) / (covered.width, covered.height) * size)
        within = np.asarray(((cell >= 0) & (cell < size)).all(1))
        x, y = np.where(within[:, None], cell, 0).astype(int).T
        inside &= within & prediction.mask[y, x]
    return np.where(inside, np.exp(-2 * (offset**2).sum(1)), 0.0)
