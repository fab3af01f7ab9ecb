"""Images of the samples: each its own in short videos, few in long ones, written once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import SAMPLES, track

from egohieraloc.images import write_image
from egohieraloc.query import Query
from egohieraloc.report import build
from egohieraloc.report.html import ReportData, render_report
from egohieraloc.result import Result
from egohieraloc.types import Box, NotFound, ResponseTrack, ScoreCurve, VideoRef
from egohieraloc.video.reader import Video


@pytest.fixture
def video(tmp_path: Path) -> Video:
    for number in range(3 * SAMPLES):
        write_image(tmp_path / f"{number}.png", np.full((12, 16, 3), 7 * number, np.uint8))
    return Video.open(tmp_path, folder_fps=15)


def result(video: Video, found: ResponseTrack | NotFound) -> Result:
    zeros = np.zeros(SAMPLES)
    frames = tuple(range(0, 3 * SAMPLES, 3))
    query = Query(np.zeros((10, 10, 3), np.uint8), Box(0, 0, 10, 10))
    return Result(
        query, VideoRef(str(video.path), video.info, 5.0, frames), found, ScoreCurve(zeros, zeros, zeros, 0.5)
    )


def test_every_sample_of_a_short_video_has_its_own(video: Video) -> None:
    assert len(set(build._thumbnails(video, result(video, NotFound(""))))) == SAMPLES


def test_in_a_long_video_the_track_has_its_own_and_others_share(
    video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = build._thumbnails(video, result(video, NotFound("")))
    monkeypatch.setattr(build, "MAX_IMAGES", 4)
    few = build._thumbnails(video, result(video, track(7, 8, 0.9)))
    assert [own.index(image) for image in few] == [0, 0, 0, 3, 3, 3, 6, 7, 8, 9, 9, 9]


def test_a_shared_image_is_written_once(report_data: Callable[..., ReportData]) -> None:
    first, second, *rest = report_data().thumbnails
    page = render_report(report_data(thumbnails=(first, first, second, *rest[1:])))
    text = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert text
    written = json.loads(text[1])["samples"]["image"]
    assert len(written) == SAMPLES
    assert [n for n, uri in enumerate(written) if uri is None] == [1]
