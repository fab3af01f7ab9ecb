"""A made-up answer to report on: twelve samples, the object in two of their runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from egohieraloc.report.scene import SceneData
from egohieraloc.types import (
    Box,
    FramePrediction,
    Localization3D,
    ResponseTrack,
    ViewEvidence,
)

SAMPLES = 12
HOSTILE = 'a"b <img src=x onerror="document.title=1"><script>& walk.mp4'


def prediction(sample: int) -> FramePrediction:
    box = Box(40 + sample, 30, 80 + sample, 70)
    mask = np.zeros((8, 8), bool)
    mask[2:6, 2:6] = True
    return FramePrediction(3 * sample, sample, sample / 5, 0.8, box, mask, box)


def track(first: int, last: int, score: float) -> ResponseTrack:
    return ResponseTrack(tuple(prediction(sample) for sample in range(first, last + 1)), score)


def poses() -> tuple[np.ndarray, ...]:
    """A head that walks along x and looks along y, z up."""
    looking = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    return tuple(np.column_stack([looking, -looking @ [0.1 * i, 0, 1.6]]) for i in range(SAMPLES))


def scene(**changes: Any) -> SceneData:
    views = tuple(ViewEvidence(3 * s, np.array([0.5, 2, 0.9]), 0.9, 0.8, 0.7, 0.6, 0.5) for s in range(8, 11))
    place = Localization3D(
        np.array([0.5, 2, 0.9]),
        np.array([-0.6, 0.7, 2.0]),
        np.diag([0.01, 0.04, 0.01]),
        "m",
        12,
        12,
        33,
        views,
    )
    values = {"place": place, "frame_indices": tuple(range(0, 36, 3)), "cam_from_world": poses()}
    return SceneData(**(values | {"words": "2.2 m, to your left and below"} | changes))
