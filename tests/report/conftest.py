"""A report to test with."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from made_up import HOSTILE, SAMPLES, scene, track

from egohieraloc.query import Query
from egohieraloc.report.html import FrameMaps, HeatMap, ReportData, thumbnail
from egohieraloc.types import Box, QueryMask, ScoreCurve, VideoInfo, VideoRef


@pytest.fixture
def report_data() -> Callable[..., ReportData]:
    """Makes report data; every field can be replaced."""
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 255, (120, 160, 3), np.uint8) for _ in range(SAMPLES)]
    smooth = np.where((np.arange(SAMPLES) >= 8) & (np.arange(SAMPLES) <= 10), 0.9, 0.1)
    smooth[2:4] = 0.7
    values: dict[str, Any] = {
        "video": VideoRef(
            f"/videos/{HOSTILE}", VideoInfo(160, 120, Fraction(15), 36), 5.0, tuple(range(0, 36, 3))
        ),
        "query": Query(frames[2], Box(40, 30, 80, 70), seen_at_s=0.4),
        "curve": ScoreCurve(np.arange(SAMPLES) / 5, smooth, smooth, 0.5, ((2, 3), (8, 10))),
        "answer": track(8, 10, 0.87),
        "thumbnails": tuple(thumbnail(frame) for frame in frames),
        "alternatives": (track(2, 3, 0.6),),
        "query_mask": QueryMask(np.full((120, 160), 0.5, np.float32), 0.55, 1),
        "frame_maps": (FrameMaps(9, (HeatMap("O", rng.random((7, 7))),), (60, 50, 20, 25), (3, 1)),),
        "scene": scene(),
        "notes": ("True error 0.03 m.",),
        "timings_s": (("decode", 0.4), ("poses", 12.0)),
        "versions": (("egohieraloc", "0.1.0"),),
    }
    return lambda **changes: ReportData(**(values | changes))
