"""The page is whole, holds what it was given, and lets no name become markup."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from egohieraloc.errors import OutputError
from egohieraloc.report.html import FrameMaps, HeatMap, ReportData, render_report, thumbnail, write_report
from egohieraloc.types import NotFound, ScoreCurve

Make = Callable[..., ReportData]


def payload(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def decode(uri: str) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(uri.partition(",")[2]), np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_UNCHANGED)


def test_page_says_what_it_was_given(report_data: Make) -> None:
    shown = payload(render_report(report_data()))
    assert shown["found"]
    assert shown["score"] == 0.87
    assert [(t["start"], t["end"]) for t in shown["tracks"]] == [(8, 10), (2, 3)]
    assert shown["tracks"][0]["views"][0]["box"] == [48, 30, 88, 70]
    assert shown["curve"]["intervals"] == [[2, 3], [8, 10]]
    assert shown["curve"]["threshold"] == 0.5
    assert shown["samples"]["frame"] == list(range(0, 36, 3))
    assert shown["query"]["level"] == 1
    assert shown["query"]["seenAt"] == 0.4
    assert shown["notes"] == ["True error 0.03 m."]
    assert shown["timings"] == [["decode", 0.4], ["poses", 12.0]]
    assert shown["overlay"] is None
    assert decode(shown["samples"]["image"][0]).shape == (120, 160, 3)


def test_query_is_cut_out_with_its_box_and_mask(report_data: Make) -> None:
    query = payload(render_report(report_data()))["query"]
    # A box of 40 pixels with a margin of 24 on each side, all inside the image.
    assert (query["width"], query["height"]) == (88, 88)
    assert query["box"] == [24, 24, 64, 64]
    assert decode(query["image"]).shape == (88, 88, 3)
    mask = decode(query["mask"])
    assert mask.shape == (88, 88, 4)
    assert np.all(mask[..., 3] == 128)


def test_no_name_becomes_markup(report_data: Make) -> None:
    page = render_report(
        report_data(notes=("<b>bold</b>",), answer=NotFound("</script><script>alert(1)</script>"))
    )
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)

    Tags().feed(page)
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "b" not in tags
    shown = payload(page)
    assert shown["reason"] == "</script><script>alert(1)</script>"
    assert shown["video"]["name"].endswith("& walk.mp4")


def test_page_asks_the_network_for_nothing(report_data: Make) -> None:
    page = render_report(report_data())
    markup = page[: page.index('<script type="application/json"')]
    assert "default-src 'none'" in markup
    assert not re.search(r"(?:src|href)=|@import|url\(", markup)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_template_marks_in_names_stay_names(report_data: Make) -> None:
    page = render_report(report_data(notes=("{{script}} {{style}} {{data}}",)))
    assert payload(page)["notes"] == ["{{script}} {{style}} {{data}}"]


def test_nothing_found(report_data: Make) -> None:
    shown = payload(render_report(report_data(answer=NotFound("too low", 0.2), alternatives=(), scene=None)))
    assert (shown["found"], shown["reason"], shown["score"], shown["tracks"]) == (False, "too low", 0.2, [])
    assert shown["scene"] is None


def test_video_is_kept_inside(report_data: Make) -> None:
    shown = payload(render_report(report_data(overlay_mp4=b"film")))
    assert shown["overlay"] == "data:video/mp4;base64," + base64.b64encode(b"film").decode()


def test_map_keeps_its_peak_and_survives_nan(report_data: Make) -> None:
    values = np.full((7, 7), np.nan)
    values[1, 5] = 1
    maps = (FrameMaps(9, (HeatMap("response", values),)),)
    shown = payload(render_report(report_data(frame_maps=maps)))["maps"][0]
    assert shown["ellipse"] is None
    image = decode(shown["maps"][0]["image"]).astype(int)
    row, column = np.unravel_index(np.argmax(image[..., 2] + image[..., 1] - image[..., 0]), image.shape[:2])
    assert (row * 7 // image.shape[0], column * 7 // image.shape[1]) == (1, 5)


def test_thumbnail_never_grows_and_keeps_its_shape() -> None:
    assert cv2.imdecode(np.frombuffer(thumbnail(np.zeros((30, 40, 3), np.uint8)), np.uint8), 1).shape == (
        30,
        40,
        3,
    )
    large = thumbnail(np.zeros((1080, 1920, 3), np.uint8), width_px=320)
    assert cv2.imdecode(np.frombuffer(large, np.uint8), 1).shape == (180, 320, 3)


def test_thumbnail_keeps_red_red() -> None:
    red = np.zeros((20, 20, 3), np.uint8)
    red[..., 0] = 255
    blue, green, stored = cv2.imdecode(np.frombuffer(thumbnail(red), np.uint8), 1)[10, 10]
    assert stored > 240
    assert max(blue, green) < 15


def test_lengths_must_agree(report_data: Make) -> None:
    with pytest.raises(ValueError, match="got 11, 12 and 12"):
        report_data(thumbnails=report_data().thumbnails[:-1])


def test_nan_in_a_curve_is_refused_and_nothing_is_left(report_data: Make, tmp_path: Path) -> None:
    curve = report_data().curve
    broken = ScoreCurve(curve.time_s, curve.raw * np.nan, curve.smooth, curve.threshold, curve.intervals)
    with pytest.raises(ValueError):
        write_report(tmp_path / "report.html", report_data(curve=broken))
    assert list(tmp_path.iterdir()) == []


def test_write_report(report_data: Make, tmp_path: Path) -> None:
    write_report(tmp_path / "deep" / "report.html", report_data())
    assert (tmp_path / "deep" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OutputError):
        write_report(blocked / "report.html", report_data())
