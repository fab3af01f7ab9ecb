"""What a user meets at a prompt: one line of words, never pixels or pages of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import egohieraloc
import made_up
from egohieraloc import Box, Localizer, Query, Video, demo
from egohieraloc.types import Frame, ResponseTrack
from untrained import untrained_model


def test_a_video_tells_its_size_and_length() -> None:
    assert repr(Video.open(demo.CLIP)) == f"Video('{demo.CLIP}', 640x480, 40.0 s, 15 frames a second)"


def test_a_query_tells_its_box() -> None:
    image = np.zeros((60, 80, 3), np.uint8)
    view = Query(image, Box(10, 20, 30, 50), seen_at_s=5.8)
    box = "Box(x1=10, y1=20, x2=30, y2=50)"
    assert repr(view) == f"Query(80x60, {box}, seen at 5.8 s)"
    assert repr(Query.of_views(view, view, view)) == f"Query(80x60, {box}, seen at 5.8 s, 2 more views)"


def test_a_localizer_tells_what_runs_it(tmp_path: Path) -> None:
    localizer = Localizer.from_pretrained(untrained_model(tmp_path), device="cpu", cache=tmp_path)
    assert repr(localizer) == "Localizer(efficientnet_lite_tiny, torch on cpu)"


@pytest.mark.parametrize(
    "value",
    [
        made_up.prediction(3),
        made_up.curve(),
        made_up.video(),
        made_up.result(),
        made_up.result().query_mask,
        Frame(3, 0.2, np.zeros((60, 80, 3), np.uint8)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_fit_in_a_few_lines(value: object) -> None:
    assert len(repr(value)) < 400
    assert "dtype" not in repr(value)


def test_a_track_of_one_sample() -> None:
    track = ResponseTrack((made_up.prediction(8),), 0.5)
    assert repr(track) == "ResponseTrack(1.6 s to 1.6 s, 1 sample, confidence 0.50)"


def test_tab_completion_knows_the_public_names() -> None:
    assert set(egohieraloc.__all__) <= set(dir(egohieraloc))
    assert {"Localizer", "Query", "Video", "save_report"} <= set(egohieraloc.__all__)
