"""A made-up answer to report on: twelve samples, the object in two of their runs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import (
    Box,
    FrameMaps,
    FramePrediction,
    Localization3D,
    QueryMask,
    ResponseTrack,
    SampledVideo,
    ScoreCurve,
    VideoInfo,
    VideoSource,
    ViewEvidence,
)

SAMPLES = 12
HOSTILE = 'a"b <img src=x onerror="document.title=1"><script>& walk.mp4'
LOOKING = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # along y, z up


def prediction(sample: int) -> FramePrediction:
    box = Box(40 + sample, 30, 80 + sample, 70)
    mask = np.zeros((8, 8), bool)
    mask[2:6, 2:6] = True
    return FramePrediction(3 * sample, sample, sample / 5, 0.8, box, mask, box)


def track(first: int, last: int, score: float) -> ResponseTrack:
    return ResponseTrack(tuple(prediction(sample) for sample in range(first, last + 1)), score)


def poses() -> tuple[np.ndarray, ...]:
    """A head that walks along x and looks along y, z up."""
    return tuple(np.column_stack([LOOKING, -LOOKING @ [0.1 * i, 0, 1.6]]) for i in range(SAMPLES))


def cameras(**changes: Any) -> Reconstruction:
    frames = tuple(PosedFrame(3 * i, i / 5, CameraPose(pose)) for i, pose in enumerate(poses()))
    values = {
        "camera": Camera("PINHOLE", 160, 120, (150.0, 150.0, 80.0, 60.0)),
        "frames": frames,
        "unit": "m",
    }
    return Reconstruction(**(values | {"points": SparsePoints(np.ones((7, 3)))} | changes))


def place() -> Localization3D:
    point = np.array([0.5, 2, 0.9])
    views = tuple(ViewEvidence(3 * s, point, 0.9, 0.8, 0.7, 0.6, 0.5) for s in range(8, 11))
    seen = np.array([-0.6, 0.7, 2.0])
    return Localization3D(point, seen, np.diag([0.01, 0.04, 0.01]), "m", 12, 12, 33, views)


def maps(sample: int) -> FrameMaps:
    """Each map with its peak in the second row, and none at the same place as another."""
    shown = [np.zeros((6, 8), np.uint8) for _ in range(4)]
    for column, values in enumerate(shown):
        values[1, column] = 255
    mask = np.zeros((24, 32), np.uint8)
    mask[8:16, 8:20] = 200
    return FrameMaps(sample, *shown, mask, ellipse=(60, 50, 20, 25), drift=(3, 1))


def curve() -> ScoreCurve:
    smooth = np.where((np.arange(SAMPLES) >= 8) & (np.arange(SAMPLES) <= 10), 0.9, 0.1)
    smooth[2:4] = 0.7
    return ScoreCurve(np.arange(SAMPLES) / 5, smooth, smooth, 0.5, ((2, 3), (8, 10)))


def video(path: str = f"/videos/{HOSTILE}") -> SampledVideo:
    info = VideoInfo(160, 120, Fraction(15), 3 * SAMPLES)
    return SampledVideo(VideoSource(path), info, 5.0, np.arange(0, 3 * SAMPLES, 3), np.arange(SAMPLES) / 5)


def result(**changes: Any) -> Result:
    """An answer in 2D and 3D; every field can be replaced."""
    image = np.random.default_rng(0).integers(0, 255, (120, 160, 3), np.uint8)
    values: dict[str, Any] = {
        "query": Query(image, Box(40, 30, 80, 70), seen_at_s=0.4),
        "video": video(),
        "track": track(8, 10, 0.87),
        "curve": curve(),
        "alternatives": (track(2, 3, 0.6),),
        "query_mask": QueryMask(np.full((10, 10), 128, np.uint8), Box(30, 20, 90, 80), 0.55, 1),
        "maps": (maps(9),),
        "place": place(),
        "cameras": cameras(),
        "timings_s": (("decode", 0.4), ("poses", 12.0)),
        "versions": {"egohieraloc": "0.1.0"},
    }
    return Result(**(values | changes))
