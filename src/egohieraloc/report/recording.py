"""An answer as a Rerun recording: images, boxes, masks, cameras, points and curves on one timeline.

Needs the extra `viz`. Entities: `query`, `score/*`, `world/camera` (pose and lens), `world/camera/image` with
`answer`, `other` and `mask` in it, `world/path`, `world/points`, `world/views` and `world/object`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import MissingExtraError
from egohieraloc.files import atomic_path
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.report.draw import COLOUR, shrunk_mask, thumbnail
from egohieraloc.report.scene import leveling, uncertainty_axes
from egohieraloc.result import Result
from egohieraloc.types import FramePrediction, Localization3D, ResponseTrack, Rgb
from egohieraloc.video.reader import Video

TIMELINE = "video time"
WIDTH_PX = 640  # images are no wider: a recording holds every sample
OTHER = (251, 191, 36)
QUIET = (140, 150, 145)
IMAGE = "world/camera/image"


def find_rerun() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import rerun
    except ImportError as error:
        raise MissingExtraError("rerun-sdk", "viz") from error
    return rerun


def write_recording(path: str | Path, result: Result) -> None:
    """Write `path` (.rrd), atomically. Open it with `rerun PATH`."""
    rr = find_rerun()
    video = Video.reopen(result.video.source)
    with atomic_path(path) as temporary:
        stream = rr.RecordingStream("egohieraloc")
        stream.save(temporary, default_blueprint=_layout(rr, in_3d=result.cameras is not None))
        _log_query(rr, stream, result)
        _log_curve(rr, stream, result)
        _log_samples(rr, stream, result, video)
        if result.cameras is not None:
            _log_cameras(rr, stream, result.cameras, min(1.0, WIDTH_PX / video.info.width))
        if isinstance(result.place, Localization3D):
            _log_place(rr, stream, result.place, result.cameras)
        stream.disconnect()  # closes the file, so that all of it is there


def _layout(rr: Any, *, in_3d: bool) -> Any:
    """The image beside the 3D view, the curve below."""
    views = rr.blueprint
    images = [
        views.Spatial2DView(origin=IMAGE, name="video"),
        views.Spatial2DView(origin="query", name="query"),
    ]
    space = [views.Spatial3DView(origin="/", contents="world/**", name="space")] if in_3d else []
    top = views.Horizontal(*images, *space)
    return views.Blueprint(views.Vertical(top, views.TimeSeriesView(origin="score"), row_shares=[3, 1]))


def _log_query(rr: Any, stream: Any, result: Result) -> None:
    stream.log("query", rr.Image(result.query.image), static=True)
    stream.log("query/box", _boxes(rr, [result.query.box.xyxy], COLOUR), static=True)


def _log_curve(rr: Any, stream: Any, result: Result) -> None:
    curve = result.curve
    for name, shade in (("raw", QUIET), ("smooth", COLOUR), ("threshold", OTHER)):
        stream.log(f"score/{name}", rr.SeriesLines(colors=[shade], names=[name]), static=True)
    for time_s, raw, smooth in zip(curve.time_s, curve.raw, curve.smooth, strict=True):
        stream.set_time(TIMELINE, duration=float(time_s))
        stream.log("score/raw", rr.Scalars(float(raw)))
        stream.log("score/smooth", rr.Scalars(float(smooth)))
        stream.log("score/threshold", rr.Scalars(curve.threshold))


def _log_samples(rr: Any, stream: Any, result: Result, video: Video) -> None:
    """Each sample's image, and what was seen in it; where nothing was, what was there before is cleared."""
    track = result.track
    answer = {p.frame_index: p for p in track.predictions} if isinstance(track, ResponseTrack) else {}
    other = {p.frame_index: p for each in result.alternatives for p in each.predictions}
    scale = min(1.0, WIDTH_PX / video.info.width)
    stream.log(IMAGE, rr.AnnotationContext([(1, "object", COLOUR)]), static=True)
    for frame in video.frames(result.video.frame_index):
        stream.set_time(TIMELINE, duration=frame.time_s)
        image = rr.EncodedImage(contents=thumbnail(frame.rgb, width_px=WIDTH_PX), media_type="image/jpeg")
        stream.log(IMAGE, image)
        for name, found, shade in (("answer", answer, COLOUR), ("other", other, OTHER)):
            seen = found.get(frame.index)
            drawn = (
                _boxes(rr, [np.multiply(seen.box.xyxy, scale)], shade) if seen else rr.Clear(recursive=False)
            )
            stream.log(f"{IMAGE}/{name}", drawn)
        best = answer.get(frame.index)
        stream.log(f"{IMAGE}/mask", _mask(rr, frame.rgb, best, scale) if best else rr.Clear(recursive=False))


def _log_cameras(rr: Any, stream: Any, cameras: Reconstruction, scale: float) -> None:
    """A pinhole stands for every lens: Rerun knows no other."""
    lens = cameras.camera
    stream.log(
        "world/camera",
        rr.Pinhole(
            focal_length=np.multiply(lens.focal, scale),
            principal_point=np.multiply(lens.principal_point, scale),
            resolution=[lens.width * scale, lens.height * scale],
            camera_xyz=rr.ViewCoordinates.RDF,
        ),
        static=True,
    )
    poses = np.array([pose.cam_from_world for pose in cameras.poses.values()]).reshape(-1, 3, 4)
    stream.log("/", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    stream.log("world", rr.Transform3D(mat3x3=leveling(poses)), static=True)  # heads are upright on the whole
    centers = []
    for frame in cameras.frames:
        if frame.pose is None:
            continue
        centers.append(frame.pose.center_world)
        stream.set_time(TIMELINE, duration=frame.time_s)
        stream.log("world/camera", rr.Transform3D(translation=centers[-1], mat3x3=frame.pose.rotation.T))
    stream.log("world/path", rr.LineStrips3D([centers], colors=[QUIET]), static=True)
    if len(cameras.points.xyz_world):
        stream.log("world/points", rr.Points3D(cameras.points.xyz_world, colors=[QUIET]), static=True)


def _log_place(rr: Any, stream: Any, place: Localization3D, cameras: Reconstruction | None) -> None:
    """The fused point with two standard deviations, and each view's point and ray, brighter by its weight."""
    largest = max((view.weight for view in place.views), default=0.0) or 1.0
    shades = [(*COLOUR, 60 + round(195 * view.weight / largest)) for view in place.views]
    stream.log("world/views", rr.Points3D([v.point_world for v in place.views], colors=shades), static=True)
    if cameras is not None:
        rays = [[cameras.poses[v.frame_index].center_world, v.point_world] for v in place.views]
        stream.log("world/views/rays", rr.LineStrips3D(rays, colors=shades), static=True)
    axes = uncertainty_axes(place.covariance)
    lengths = np.linalg.norm(axes, axis=1)
    turn = (axes / np.maximum(lengths, 1e-12)[:, None]).T  # columns are the ellipsoid's own axes
    if np.linalg.det(turn) < 0:
        turn[:, 0] *= -1
    stream.log("world/object", rr.Transform3D(translation=place.point_world, mat3x3=turn), static=True)
    stream.log("world/object", rr.Ellipsoids3D(half_sizes=[lengths], colors=[COLOUR]), static=True)
    stream.log(
        "world/object/point", rr.Points3D([[0, 0, 0]], colors=[COLOUR], labels=["the object"]), static=True
    )


def _boxes(rr: Any, corners: list[Any], shade: tuple[int, int, int]) -> Any:
    return rr.Boxes2D(array=np.array(corners), array_format=rr.Box2DFormat.XYXY, colors=[shade])


def _mask(rr: Any, rgb: Rgb, prediction: FramePrediction, scale: float) -> Any:
    height, width = (round(side * scale) for side in rgb.shape[:2])
    return rr.SegmentationImage(shrunk_mask(prediction, rgb, width, height).astype(np.uint8))
