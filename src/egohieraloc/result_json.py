"""The values of an answer as parts of `result.json`, and back. What is written twice has equal bytes."""

from __future__ import annotations

import base64
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np

from egohieraloc.errors import QueryError
from egohieraloc.geometry.reconstruction import (
    Reconstruction,
    SparsePoints,
    cameras_from_json,
    cameras_to_json,
)
from egohieraloc.images import MAX_PIXELS, decode_grey, write_image
from egohieraloc.query import Query
from egohieraloc.result_schema import (
    CamerasPart,
    CurvePart,
    ForegroundPart,
    MapsPart,
    MaskPart,
    NoPlacePart,
    OtherViewPart,
    PlacePart,
    PredictionPart,
    QueryPart,
    ResultDocument,
    VideoPart,
    ViewPart,
)
from egohieraloc.types import (
    Box,
    Bytes,
    Floats,
    FrameMaps,
    FramePrediction,
    Localization3D,
    Mask,
    NotLocalized,
    QueryMask,
    ResponseTrack,
    SampledVideo,
    ScoreCurve,
    VideoInfo,
    VideoSource,
    ViewEvidence,
)

MAX_POINTS = 4000  # of the map
MAPS = ("foreground", "likelihood", "response", "location", "mask")
FACTORS = ("semantic", "depth", "reprojection", "baseline", "weight")


def prediction_rows(track: ResponseTrack) -> list[PredictionPart]:
    return [
        PredictionPart(
            frame=p.frame_index,
            sample=p.sample,
            time_s=p.time_s,
            box=p.box.xyxy,
            score=p.score,
            mask=None if p.mask is None or p.mask_box is None else mask_part(p.mask, p.mask_box),
        )
        for p in track
    ]


def track_from(rows: list[PredictionPart], score: float) -> ResponseTrack:
    return ResponseTrack(
        tuple(
            FramePrediction(
                row.frame,
                row.sample,
                row.time_s,
                row.score,
                Box(*row.box),
                mask_from(row.mask) if row.mask else None,
                Box(*row.mask.box) if row.mask else None,
            )
            for row in rows
        ),
        score,
    )


def mask_part(mask: Mask, box: Box) -> MaskPart:
    flat = np.concatenate([[False], mask.ravel(order="F"), [False]])
    edges = np.flatnonzero(np.diff(flat.astype(np.int8)))
    counts = np.diff(np.concatenate([[0], edges, [mask.size]])).tolist()
    if mask.size and edges.size and edges[-1] == mask.size:
        counts.pop()  # the last run of zeros has no length
    return MaskPart(box=box.xyxy, size=mask.shape, counts=counts)


def mask_from(part: MaskPart) -> Mask:
    if not sum(part.counts) == part.size[0] * part.size[1] <= MAX_PIXELS:  # before it takes memory
        raise ValueError(f"the counts of a mask of {part.size} add up to {sum(part.counts)}")
    flat = np.repeat(np.arange(len(part.counts)) % 2 == 1, part.counts)
    return flat.reshape(part.size, order="F")


def curve_part(curve: ScoreCurve, video: SampledVideo) -> CurvePart:
    return CurvePart(
        frame=video.frame_index.tolist(),
        time_s=curve.time_s.tolist(),
        raw=curve.raw.tolist(),
        smooth=curve.smooth.tolist(),
        threshold=curve.threshold,
    )


def curve_from(document: ResultDocument) -> ScoreCurve:
    part = document.curve
    time_s, raw, smooth = (np.array(values, np.float64) for values in (part.time_s, part.raw, part.smooth))
    return ScoreCurve(time_s, raw, smooth, part.threshold, tuple(document.intervals))


def video_part(video: SampledVideo) -> VideoPart:
    return VideoPart(
        path=video.source.path,
        width=video.info.width,
        height=video.info.height,
        fps=float(video.info.fps),
        num_frames=video.info.num_frames,
        folder_fps=video.source.folder_fps,
        start=video.source.start,
    )


def video_from(document: ResultDocument) -> SampledVideo:
    part, curve = document.video, document.curve
    fps = Fraction(part.fps).limit_denominator(1_000_000)
    return SampledVideo(
        VideoSource(part.path, part.folder_fps, part.start),
        VideoInfo(part.width, part.height, fps, part.num_frames),
        document.sample_fps,
        np.array(curve.frame, np.int64),
        np.array(curve.time_s, np.float64),
        document.until_s,
    )


def query_part(query: Query, foreground: QueryMask | None) -> QueryPart:
    return QueryPart(
        image="query.png",
        mask=None if query.mask is None else "query_mask.png",
        box=query.box.xyxy,
        seen_at_s=query.seen_at_s,
        foreground=None if foreground is None else foreground_part(foreground),
        others=[
            OtherViewPart(
                image=f"views/{number}.png",
                mask=None if view.mask is None else f"views/{number}_mask.png",
                box=view.box.xyxy,
                seen_at_s=view.seen_at_s,
            )
            for number, view in enumerate(query.others, start=2)
        ],
    )


def query_from(part: QueryPart, folder: Path) -> Query:
    """The query, its images read from the folder of its result.json."""
    views = [
        Query.from_image(
            folder / view.image,
            box=Box(*view.box),
            mask=None if view.mask is None else folder / view.mask,
            seen_at_s=view.seen_at_s,
        )
        for view in part.views
    ]
    return Query.of_views(*views)


def write_query(query: Query, folder: Path) -> None:
    """The images that `query_part` names."""
    part = query_part(query, None)
    for view, files in zip(query.views, part.views, strict=True):
        write_image(folder / files.image, view.image)
        if view.mask is not None and files.mask is not None:
            write_image(folder / files.mask, view.mask)


def foreground_part(mask: QueryMask) -> ForegroundPart:
    return ForegroundPart(box=mask.box.xyxy, mask=to_png(mask.mask), quality=mask.quality, level=mask.level)


def foreground_from(part: ForegroundPart) -> QueryMask:
    return QueryMask(from_png(part.mask), Box(*part.box), part.quality, part.level)


def maps_part(maps: FrameMaps) -> MapsPart:
    images = {name: to_png(getattr(maps, name)) for name in MAPS}
    return MapsPart(sample=maps.sample, ellipse=maps.ellipse, drift=maps.drift, **images)


def maps_from(part: MapsPart) -> FrameMaps:
    images = {name: from_png(getattr(part, name)) for name in MAPS}
    return FrameMaps(sample=part.sample, ellipse=part.ellipse, drift=part.drift, **images)


def place_part(place: Localization3D | NotLocalized) -> PlacePart | NoPlacePart:
    if isinstance(place, NotLocalized):
        return NoPlacePart(
            found=False,
            reason=place.reason,
            posed_frames=place.posed_frames,
            num_frames=place.num_frames,
        )
    return PlacePart(
        found=True,
        unit=place.unit,
        point_world=place.point_world.tolist(),
        displacement=place.displacement.tolist(),
        covariance=place.covariance.tolist(),
        query_frame=place.query_frame,
        views=[
            ViewPart(
                frame=view.frame_index,
                point_world=view.point_world.tolist(),
                **{name: getattr(view, name) for name in FACTORS},
            )
            for view in place.views
        ],
        posed_frames=place.posed_frames,
        num_frames=place.num_frames,
        doubts=list(place.doubts),
    )


def place_from(part: PlacePart | NoPlacePart) -> Localization3D | NotLocalized:
    if isinstance(part, NoPlacePart):
        return NotLocalized(part.reason, part.posed_frames, part.num_frames)
    return Localization3D(
        np.array(part.point_world),
        np.array(part.displacement),
        np.array(part.covariance),
        part.unit,
        part.posed_frames,
        part.num_frames,
        part.query_frame,
        tuple(
            ViewEvidence(view.frame, np.array(view.point_world), *(getattr(view, name) for name in FACTORS))
            for view in part.views
        ),
        tuple(part.doubts),
    )


def cameras_part(cameras: Reconstruction) -> CamerasPart:
    return CamerasPart(**cameras_to_json(cameras), points_world=kept_points(cameras).tolist())


def kept_points(cameras: Reconstruction) -> Floats:
    """At most MAX_POINTS points (P, 3) of the map, evenly taken and rounded: those that views show."""
    points = cameras.points.xyz_world
    return np.asarray(np.round(points[:: max(1, -(-len(points) // MAX_POINTS))], 5), np.float64)


def cameras_from(part: CamerasPart) -> Reconstruction:
    points = SparsePoints(np.array(part.points_world, np.float64).reshape(-1, 3))
    return cameras_from_json(part.model_dump(), points)


def to_png(values: Bytes) -> str:
    """(h, w) bytes as a PNG in base64."""
    return base64.b64encode(cv2.imencode(".png", values)[1].tobytes()).decode("ascii")


def from_png(text: str) -> Bytes:
    try:
        return decode_grey(base64.b64decode(text, validate=True))
    except QueryError as error:
        raise ValueError("a map is not an 8-bit grey PNG") from error
