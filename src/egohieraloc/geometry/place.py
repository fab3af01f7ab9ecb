"""The 3D answer: where the object was last seen, from the camera at the query time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from egohieraloc.clock import clock
from egohieraloc.config import FusionConfig, PlaceConfig
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import CameraPose
from egohieraloc.geometry.doubts import between_camera_and_scene, doubts_of, latest, rests_at
from egohieraloc.geometry.gsjc import FusedPoint, ObjectView, fuse
from egohieraloc.geometry.lift import lift, object_points
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.types import DepthMap, DepthUnit, FramePrediction, Localization3D, NotLocalized

_NO_DISTANCE = (
    "its distance cannot be told: there is no depth for it, and it was not seen from sides that differ enough"
)
_BEYOND_THE_LENS = (
    "it is seen only at the rim of the image, beyond what the lens is calibrated for: no direction is known "
    "there"
)
_HELD = "it moves against the scene, as in a hand, so only its last view counts"
_PUT_DOWN = "it was moved while it was in sight, so only its last views count"
_ASIDE = np.sin(np.radians(15.0))  # a direction within 15 degrees of an axis is not named


def place(
    predictions: Sequence[FramePrediction],
    reconstruction: Reconstruction,
    *,
    query_time_s: float,
    depth: Mapping[int, DepthMap] | None = None,
    config: PlaceConfig | None = None,
) -> Localization3D | NotLocalized:
    """Where the object of a track is.

    `predictions` are the last appearance (of several appearances only the last is used: the object may have
    been moved in between). `depth` holds maps by frame number, in the unit of the reconstruction. The
    displacement is seen from the posed frame nearest to `query_time_s`, which the answer names. An object
    that moves against the scene is placed by its last views; `doubts` says so, and what else may be wrong.
    """
    config = config or PlaceConfig()
    counts = {"posed_frames": reconstruction.num_posed, "num_frames": len(reconstruction.frames)}
    if not predictions:
        return NotLocalized("the object was not found in the video", **counts)
    if reconstruction.num_posed == 0:
        return NotLocalized("no frame up to the query time has a camera pose", **counts)
    # The frame shown at the query time is its own; without borrowing no other will do.
    within_s = math.inf if config.max_pose_gap_s > 0 else reconstruction.frame_gap_s / 2
    query_frame = reconstruction.nearest_posed(query_time_s, within_s=within_s)
    if query_frame is None:
        return NotLocalized(f"the query time ({clock(query_time_s)}) has no camera pose of its own", **counts)
    appearance = last_appearance(predictions)
    if not _posed(appearance, reconstruction, config.max_pose_gap_s):
        gap = f"{config.max_pose_gap_s:g} s"
        reason = f"no frame that shows the object, nor one within {gap} of it, has a camera pose"
        return NotLocalized(reason, **counts)
    views = object_views(appearance, reconstruction, depth or {}, config)
    if not views:
        return NotLocalized(_BEYOND_THE_LENS, **counts)
    fused, doubts = fuse(views, config.fusion), list[str]()
    if fused is not None and not config.fusion.literal and not rests_at(fused.point_world, latest(views)):
        fused, doubt = _of_moving_object(views, reconstruction, depth or {}, config.fusion)
        doubts.append(doubt)
    if fused is None:
        return NotLocalized(doubts[0] if doubts else _NO_DISTANCE, **counts)
    doubts += doubts_of(fused, views, reconstruction, query_time_s)
    return Localization3D(
        point_world=fused.point_world,
        displacement=reconstruction.poses[query_frame.index].to_cam(fused.point_world),
        covariance=fused.covariance,
        unit=reconstruction.unit,
        query_frame=query_frame.index,
        views=fused.views,
        doubts=tuple(doubts),
        **counts,
    )


def _of_moving_object(
    views: Sequence[ObjectView],
    reconstruction: Reconstruction,
    depth: Mapping[int, DepthMap],
    config: FusionConfig,
) -> tuple[FusedPoint | None, str]:
    """Where an object that moves against the scene was at the end, and what is to be said of it.

    From the last view alone where it has a depth map of its own; else from the latest ones where they agree
    (it was put down), or else from the last one again: somewhere between the camera and the scene.
    """
    last, late = views[-1], latest(views)
    if last.frame_index in depth:
        return fuse([last], config), _HELD
    fused = fuse(late, config) if len(late) < len(views) else None
    if fused is not None and rests_at(fused.point_world, late):
        return fused, _PUT_DOWN
    return between_camera_and_scene(last, reconstruction), _HELD


def last_appearance(predictions: Sequence[FramePrediction]) -> tuple[FramePrediction, ...]:
    """The predictions after the last gap in the samples."""
    ordered = sorted(predictions, key=lambda prediction: prediction.sample)
    start = len(ordered) - 1
    while start > 0 and ordered[start].sample - ordered[start - 1].sample <= 1:
        start -= 1
    return tuple(ordered[start:])


def describe(localization: Localization3D) -> str:
    """Distance and direction in plain words: "1.8 m (± 0.2 m), to your left and below".

    Without a scale the direction comes first: the distance says little.
    """
    x, y, z = localization.displacement / max(localization.distance, 1e-12)
    words = []
    if z < -_ASIDE:
        words.append("behind you")
    elif z > np.cos(np.radians(30.0)):
        words.append("in front of you")
    if abs(x) > _ASIDE:
        words.append("to your right" if x > 0 else "to your left")
    if abs(y) > _ASIDE:
        words.append("below" if y > 0 else "above")
    where, far, error = _listed(words), f"{localization.distance:.1f}", f"± {localization.uncertainty:.1f}"
    if localization.unit == "m":
        return f"{far} m ({error} m), {where}"
    return f"{where}, {far} units away ({error} units; no scale is known)"


def object_views(
    predictions: Sequence[FramePrediction],
    reconstruction: Reconstruction,
    depth: Mapping[int, DepthMap],
    config: PlaceConfig,
) -> list[ObjectView]:
    """The predictions lifted by their frames' poses, or when none has one, one by a pose near in time.

    Those whose ray the lens does not have are left out.
    """
    expected = DepthUnit.METRIC if reconstruction.unit == "m" else DepthUnit.SFM
    wrong = sorted({depth_map.unit.value for depth_map in depth.values() if depth_map.unit is not expected})
    if wrong:
        raise GeometryError(
            f"Depth is in {', '.join(wrong)} and the camera path in {expected.value}. Fit relative maps with "
            "geometry.depth.fit_to_points, or make the path metric with geometry.depth.scale_by_depth."
        )
    points = object_points(predictions, reconstruction, config)
    views = [
        lift(p, reconstruction.camera, pose, config, depth_map=depth.get(p.frame_index), points=points)
        for p, pose in _posed(predictions, reconstruction, config.max_pose_gap_s)
    ]
    return [view for view in views if np.isfinite(view.ray_world).all()]


def _posed(
    predictions: Sequence[FramePrediction], reconstruction: Reconstruction, max_gap_s: float
) -> list[tuple[FramePrediction, CameraPose]]:
    """The predictions with their frames' poses, or when none has one, one with a pose near in time."""
    return [
        (prediction, reconstruction.poses[prediction.frame_index])
        for prediction in predictions
        if prediction.frame_index in reconstruction.poses
    ] or _borrowed_pose(predictions, reconstruction, max_gap_s)


def _borrowed_pose(
    predictions: Sequence[FramePrediction], reconstruction: Reconstruction, max_gap_s: float
) -> list[tuple[FramePrediction, CameraPose]]:
    """The prediction nearest in time to a posed frame, with that frame's pose."""
    pairs = [
        (prediction, frame)
        for prediction in predictions
        if (frame := reconstruction.nearest_posed(prediction.time_s, within_s=max_gap_s)) is not None
    ]
    if not pairs:
        return []
    prediction, frame = min(pairs, key=lambda pair: abs(pair[1].time_s - pair[0].time_s))
    # The pose is that of another moment than the ray: a rough answer, which counts half.
    return [(replace(prediction, score=prediction.score / 2), reconstruction.poses[frame.index])]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else " and ".join([", ".join(words[:-1]), words[-1]])
