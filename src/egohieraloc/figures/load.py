"""An answer read back from the folder that `egohieraloc locate --out` wrote."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import reading
from egohieraloc.data.stream import read_json
from egohieraloc.errors import DataError
from egohieraloc.geometry.reconstruction import read_cameras
from egohieraloc.images import read_mask
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import (
    Box,
    FramePrediction,
    Localization3D,
    NotFound,
    NotLocalized,
    ResponseTrack,
    ScoreCurve,
    VideoInfo,
    VideoRef,
    ViewEvidence,
)


def read_result(folder: str | Path) -> Result:
    """The answer as it was; of the masks only those of the answer itself are kept on disk."""
    folder = Path(folder)
    path = folder / "result.json"
    if not path.exists():
        raise DataError(
            f"{folder} holds no result.json. Make one with `egohieraloc locate ... --out {folder}`."
        )
    stored, asked = read_json(path), read_json(folder / "query.json")
    mask = folder / "query_mask.png"
    cameras = folder / "cameras.json"
    with reading(f"{folder}: result.json or query.json"):
        return Result(
            query=Query.from_image(
                folder / "query.png",
                box=Box(*asked["box"]),
                mask=mask if mask.exists() else None,
                seen_at_s=asked["seen_at_s"],
            ),
            video=_video(stored, asked),
            track=_answer(stored, asked, folder),
            curve=_curve(stored),
            alternatives=tuple(
                ResponseTrack(tuple(_prediction(row) for row in each["track"]), each["score"])
                for each in stored["alternatives"]
            ),
            place=_place(stored["place"]) if "place" in stored else None,
            cameras=read_cameras(cameras) if cameras.exists() else None,
        )


def _video(stored: dict[str, Any], asked: dict[str, Any]) -> VideoRef:
    video = stored["video"]
    fps = Fraction(video["fps"]).limit_denominator(100_000)
    info = VideoInfo(video["width"], video["height"], fps, video["num_frames"])
    return VideoRef(video["path"], info, stored["sample_fps"], tuple(asked["sample_frames"]))


def _curve(stored: dict[str, Any]) -> ScoreCurve:
    curve = stored["curve"]
    time_s, raw, smooth = (np.array(curve[name], np.float64) for name in ("time_s", "raw", "smooth"))
    intervals = tuple((int(first), int(last)) for first, last in stored["intervals"])
    return ScoreCurve(time_s, raw, smooth, curve["threshold"], intervals)


def _answer(stored: dict[str, Any], asked: dict[str, Any], folder: Path) -> ResponseTrack | NotFound:
    if not stored["found"]:
        return NotFound(stored["reason"], stored["score"])
    rows = zip(stored["track"], asked["mask_boxes"], strict=True)
    predictions = (_prediction(row, folder / "masks" / f"{row['frame']:07d}.png", box) for row, box in rows)
    return ResponseTrack(tuple(predictions), stored["score"])


def _prediction(
    row: dict[str, Any], mask: Path | None = None, mask_box: list[float] | None = None
) -> FramePrediction:
    return FramePrediction(
        row["frame"],
        row["sample"],
        row["time_s"],
        row["score"],
        Box(*row["box"]),
        read_mask(mask) if mask is not None and mask.exists() else None,
        None if mask_box is None else Box(*mask_box),
    )


def _place(place: dict[str, Any]) -> Localization3D | NotLocalized:
    if not place["found"]:
        return NotLocalized(place["reason"], place["posed_frames"], place["num_frames"])
    factors = ("semantic", "depth", "reprojection", "baseline", "weight")
    return Localization3D(
        np.array(place["point_world"], np.float64),
        np.array(place["displacement"], np.float64),
        np.array(place["covariance"], np.float64),
        place["unit"],
        place["posed_frames"],
        place["num_frames"],
        place["query_frame"],
        tuple(
            ViewEvidence(v["frame"], np.array(v["point_world"], np.float64), *(v[name] for name in factors))
            for v in place["views"]
        ),
    )
