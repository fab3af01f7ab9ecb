"""The page is whole, holds what it was given, and lets no name become markup."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from egohieraloc.report.draw import thumbnail
from egohieraloc.types import NotFound, ScoreCurve
from made_up import SAMPLES, curve, result

Make = Callable[..., str]


def payload(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def decode(uri: str) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(uri.partition(",")[2]), np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_UNCHANGED)


def test_page_holds_the_result_as_it_is_saved(page: Make) -> None:
    shown = payload(page())
    assert set(shown) == {"result", "thumbnails", "query", "overlay", "scene", "notes", "timings_s"}
    saved = result().to_dict()
    saved["video"]["path"] = Path(saved["video"]["path"]).name  # a page is passed on; its folder is private
    assert shown["result"] == saved
    assert shown["notes"] == ["True error 0.03 m."]
    assert shown["timings_s"] == [["decode", 0.4], ["poses", 12.0]]
    assert shown["overlay"] is None
    assert len(shown["thumbnails"]) == SAMPLES
    assert decode(shown["thumbnails"][0]).shape == (120, 160, 3)
    assert shown["scene"]["words"].startswith("From the camera at the query time it is 2.2 m (± 0.6 m), ")


def test_a_shared_image_is_written_once(page: Make) -> None:
    first, second = (thumbnail(np.full((12, 16, 3), shade, np.uint8)) for shade in (10, 200))
    written = payload(page(thumbnails=(first, first, *(second,) * (SAMPLES - 2))))["thumbnails"]
    assert len(written) == SAMPLES
    assert [n for n, uri in enumerate(written) if uri] == [0, 2]


def test_query_is_cut_out_with_its_surroundings(page: Make) -> None:
    query = payload(page())["query"]
    # A box of 40 pixels with a margin of 24 on each side, all inside the image.
    assert query["part"] == [16, 6, 104, 94]
    assert decode(query["image"]).shape == (88, 88, 3)


def test_no_name_becomes_markup(page: Make) -> None:
    text = page(notes=("<b>bold</b>",), track=NotFound("</script><script>alert(1)</script>"))
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)

    Tags().feed(text)
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "b" not in tags
    shown = payload(text)["result"]
    assert shown["reason"] == "</script><script>alert(1)</script>"
    assert shown["video"]["path"].endswith("& walk.mp4")


def test_page_asks_the_network_for_nothing(page: Make) -> None:
    text = page()
    markup = text[: text.index('<script type="application/json"')]
    assert "default-src 'none'" in markup
    assert not re.search(r"(?:src|href)=|@import|url\((?!#)", markup)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"^\s*(?:import|export)\b", text, re.MULTILINE)


def test_template_marks_in_names_stay_names(page: Make) -> None:
    assert payload(page(notes=("{{script}} {{style}} {{data}}",)))["notes"] == [
        "{{script}} {{style}} {{data}}"
    ]


def test_nothing_found(page: Make) -> None:
    shown = payload(page(track=NotFound("too low", 0.2), alternatives=(), place=None, cameras=None))
    wanted = {"found": False, "reason": "too low", "score": 0.2, "track": []}
    assert wanted.items() <= shown["result"].items()
    assert shown["scene"] is None


def test_video_is_kept_inside(page: Make) -> None:
    shown = payload(page(overlay_mp4=b"film"))
    assert shown["overlay"] == "data:video/mp4;base64," + base64.b64encode(b"film").decode()


def test_the_colours_of_maps_are_viridis() -> None:
    text = resources.files("egohieraloc.report").joinpath("templates", "report.html").read_text("utf-8")
    tables = [values.split() for values in re.findall(r'tableValues="([^"]*)"', text)]
    steps = np.linspace(0, 255, len(tables[0])).astype(np.uint8)
    viridis = cv2.applyColorMap(steps[:, None], cv2.COLORMAP_VIRIDIS)[:, 0, ::-1] / 255
    np.testing.assert_allclose(np.array(tables, float).T, viridis, atol=6e-4)


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


def test_lengths_must_agree(page: Make) -> None:
    with pytest.raises(ValueError, match="each of 12 samples, got 11"):
        page(thumbnails=(b"",) * 11)


def test_nan_in_a_curve_is_refused(page: Make) -> None:
    scores = curve()
    broken = ScoreCurve(scores.time_s, scores.raw * np.nan, scores.smooth, 0.5, scores.intervals)
    with pytest.raises(ValueError, match="finite"):
        page(curve=broken)
