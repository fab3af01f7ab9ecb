"""Answers made by hand: every field filled, so that nothing is lost unnoticed."""

from __future__ import annotations

from dataclasses import replace
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

WIDTH, HEIGHT, SAMPLES = 64, 48, 8


def made_track(first: int, last: int, score: float = 0.9) -> ResponseTrack:
    """A box that moves to the right; masks are a disc on a grid that ends beside the frame."""
    rows, columns = np.mgrid[:13, :17]
    return ResponseTrack(
        tuple(
            FramePrediction(
                6 * n,
                n,
                n / 5,
                score - 0.01 * n,
                Box(10.5 + n, 8, 30.25 + n, 21),
                (rows - 6) ** 2 + (columns - n) ** 2 < 20,
                Box(0, -2, WIDTH, HEIGHT + 2),
            )
            for n in range(first, last + 1)
        ),
        score,
    )


def made_result(**changes: Any) -> Result:
    rng = np.random.default_rng(0)
    time_s, raw = np.arange(SAMPLES) / 5, rng.random(SAMPLES)
    small, large = rng.integers(0, 256, (2, 7, 9), np.uint8), rng.integers(0, 256, (28, 36), np.uint8)
    whole = Result(
        query=Query(rng.integers(0, 256, (40, 50, 3), np.uint8), Box(5, 6, 25, 30), seen_at_s=0.4),
        video=SampledVideo(
            VideoSource("kitchen.mp4"),
            VideoInfo(WIDTH, HEIGHT, Fraction(30000, 1001), 6 * SAMPLES),
            5.0,
            6 * np.arange(SAMPLES),
            time_s,
        ),
        track=made_track(4, 6),
        curve=ScoreCurve(time_s, raw, np.sort(raw), 0.3, ((1, 2), (4, 6))),
        alternatives=(made_track(1, 2, 0.7),),
        until_s=1.5,
        query_mask=QueryMask(large, Box(-3, -2, 33, 38), 0.83, 0),
        maps=(FrameMaps(5, small[0], small[1], small[0], small[1], large, (20.5, 14, 6, 5), (0.25, -1)),),
        timings_s=(("read the video", 1.25),),
        versions={"egohieraloc": "0.1.0"},
    )
    return replace(whole, **changes)


def made_place() -> dict[str, Any]:
    """`place` and `cameras` of an answer in 3D."""
    camera = Camera("PINHOLE", WIDTH, HEIGHT, (60.0, 60.0, 32.0, 24.0))
    poses = [CameraPose(np.column_stack([np.eye(3), [0.1 * n, 0, 0]])) for n in range(SAMPLES)]
    frames = tuple(PosedFrame(6 * n, n / 5, pose if n else None) for n, pose in enumerate(poses))
    points = np.random.default_rng(1).normal(size=(9001, 3))
    here = np.array([0.3, -0.2, 1.7])
    view = ViewEvidence(30, here + 0.01, 0.9, 0.8, 0.7, 0.6, 0.3)
    return {
        "cameras": Reconstruction(camera, frames, "m", SparsePoints(points)),
        "place": Localization3D(here, here, 0.01 * np.eye(3), "m", SAMPLES - 1, SAMPLES, 42, (view,)),
    }
