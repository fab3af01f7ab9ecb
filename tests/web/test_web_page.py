"""What users of the page expect, in a real browser: boxes on photos, boxes that move, masks, names, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from test_web_browser import (  # fixtures among them
    Open,
    _clean,
    ask_about_the_square,
    draw_box,
    live,
    open_page,
    rectangle,
    screenshot,
    wait_for_headline,
    wait_for_rows,
    wait_for_still,
    wait_for_words,
)
from web_clients import Live, ask, upload, wait_for

from egohieraloc.images import write_image

__all__ = ["_clean", "live", "open_page"]
SERIOUS = ("serious", "critical")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.full((150, 300, 3), (40, 90, 40), np.uint8)
    pixels[50:100, 100:200] = (220, 30, 30)
    write_image(tmp_path / "photo.png", pixels)
    return tmp_path / "photo.png"


def drag(page: Any, element: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From one point of an element to another, as shares of its width and height."""
    area = page.locator(element).bounding_box()
    at = [(area["x"] + x * area["width"], area["y"] + y * area["height"]) for x, y in (start, end)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move((at[0][0] + at[1][0]) / 2, (at[0][1] + at[1][1]) / 2)
    page.mouse.move(*at[1])
    page.mouse.up()


def test_a_drawn_box_is_moved_and_resized(open_page: Open) -> None:
    page = open_page()
    draw_box(page, 40, 30, 80, 70)
    draw_box(page, 60, 50, 80, 60)  # from its middle: by 20 and 10
    assert rectangle(page, "rect.mark.draft") == pytest.approx([60, 40, 40, 40], abs=1)
    draw_box(page, 100, 80, 120, 100)  # its corner, below and to the right
    assert rectangle(page, "rect.mark.draft") == pytest.approx([60, 40, 60, 60], abs=1)
    draw_box(page, 60, 70, 50, 90)  # its left side, which moves sideways alone
    assert rectangle(page, "rect.mark.draft") == pytest.approx([50, 40, 70, 60], abs=1)
    draw_box(page, 130, 20, 150, 34)  # elsewhere: a new one
    assert rectangle(page, "rect.mark.draft") == pytest.approx([130, 20, 20, 14], abs=1)
    page.locator("#stage").click(position={"x": 5, "y": 5})
    assert page.locator("#marks rect.mark.draft").count() == 0


def test_what_will_be_searched_is_shown_before_asking(open_page: Open) -> None:
    """The fake finds the left half."""
    page = open_page()
    draw_box(page, 10, 30, 50, 70)
    wait_for_words(page, "The bright part is searched", "mask-words")
    left, right = page.evaluate(
        """() => {
            const { width, height } = document.getElementById("crop");
            const pen = document.getElementById("crop").getContext("2d");
            return [0.15, 0.85].map((x) => pen.getImageData(x * width, height / 2, 1, 1).data[0]);
        }"""
    )
    assert left > 2 * right > 0


def test_a_box_on_a_photo(open_page: Open, live: Live, photo: Path) -> None:
    page = open_page()
    page.set_input_files("#image-file", photo)
    wait_for_words(page, "photo.png. Draw a box around the object", "hint")
    drag(page, "#photo", (1 / 3, 1 / 3), (2 / 3, 2 / 3))
    assert page.locator("#photo-marks .mark.draft").count() == 1
    wait_for_words(page, "The bright part is searched", "mask-words")
    page.click("#ask")
    wait_for_headline(page, "Last seen")
    with httpx.Client(base_url=live.url, timeout=60) as client:
        video = client.get("/videos").json()[0]["id"]
        query = client.get(f"/videos/{video}/queries").json()[0]
    assert query["box"] == pytest.approx([100, 50, 200, 100], abs=3)
    page.click("#photo-away")
    assert page.locator("#photo-card").is_hidden()
    assert page.locator("#ask").is_disabled()


def test_query_time_and_camera_height_reach_the_answer(open_page: Open, live: Live) -> None:
    page = open_page()
    draw_box(page, 10, 30, 50, 70)
    page.fill("#until", "0:01.6")
    assert page.locator("#height-row").is_hidden()
    page.check("#in-3d")
    page.fill("#height", "1.55")
    page.click("#ask")
    wait_for_rows(page, "")  # there is one
    with httpx.Client(base_url=live.url, timeout=60) as client:
        video = client.get("/videos").json()[0]["id"]
        query = client.get(f"/videos/{video}/queries").json()[0]
        assert (query["until_s"], query["camera_height_m"]) == (1.6, 1.55)
        wait_for(client, query["id"], "done", "failed")
    assert (live.switches / "height-1.55").exists()
    page.wait_for_selector("#headline:not(:text-matches('Waiting|Looking'))")  # showing it clears the words
    page.fill("#until", "soon")
    page.click("#ask")
    page.wait_for_selector("#trouble:has-text('minutes:seconds')")


def test_the_moment_is_taken_as_query_time(open_page: Open) -> None:
    page = open_page()
    page.click("#next")
    wait_for_still(page, "0:00.1")
    assert "frame 1 of 40" in page.inner_text("#moment")
    page.click("#until-now")
    assert page.input_value("#until") == "0:00.1"


def test_the_focus_stays_where_one_asked(open_page: Open) -> None:
    """With the keyboard alone: a box, a query, and the answer."""
    page = open_page()
    page.locator("#stage").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#ask").focus()
    page.keyboard.press("Enter")
    wait_for_headline(page, "Last seen")
    assert page.evaluate("document.activeElement.id") == "ask"


def test_the_answer_is_shown_where_it_was_last(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen from 0:02.0 to 0:03.0")
    wait_for_still(page, "0:03.0")


def test_questions_are_named_and_deleted(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.once("dialog", lambda dialog: dialog.accept("my red square"))
    page.click("#name")
    wait_for_rows(page, "my red square: 0:02.0")
    assert page.inner_text("#answer-title") == "my red square"
    page.reload()
    wait_for_rows(page, "my red square: 0:02.0")
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#queries .remove")
    page.wait_for_selector("#queries-card", state="hidden")
    wait_for_headline(page, "Where was it last seen?")


def test_report_overlay_and_json_are_downloaded(open_page: Open, live: Live) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    for file, start in (("result.json", b"{"), ("overlay.mp4", None), ("report.html", b"<!doctype html>")):
        with page.expect_download() as download:
            page.click(f"#files a[data-file='{file}']")
        assert download.value.suggested_filename == file
        content = Path(download.value.path()).read_bytes()
        assert len(content) > 1000
        assert start is None or content.startswith(start)
        assert str(live.switches.parent).encode() not in content  # where the server keeps things is its own
    assert json.loads(httpx.get(page.locator("#files a >> nth=2").evaluate("(a) => a.href")).text)["found"]


def test_not_found_gives_advice_and_a_grey_guess(open_page: Open, live: Live) -> None:
    (live.switches / "miss").touch()
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Not seen in this video")
    assert page.locator("#hints li").count() == 3
    assert page.locator("#overlay-link").is_hidden()
    assert page.locator("#curve rect, #curve .threshold").count() == 0  # nothing is shaded, nothing can end
    assert "ends below" not in page.inner_text("#legend")
    page.click("#not-this")
    wait_for_words(page, "A guess, too unsure to be an answer")
    wait_for_still(page, "0:03.0")
    assert page.locator("#marks rect.mark.guess").count() == 1
    screenshot(page, "not-found")


def test_the_first_visit_offers_the_demo(open_page: Open) -> None:
    page = open_page(empty=True)
    page.wait_for_selector("#demo:visible")
    assert page.inner_text("#limits") == "Up to 2 GB. It stays on this computer."
    page.click("#demo")
    page.wait_for_selector("#watch:not([hidden])")
    assert "demo" in page.inner_text("#subline")
    page.wait_for_selector("#demo-row", state="hidden")


def test_the_wheel_scrolls_on_over_the_3d_view(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page, in_3d=True)
    wait_for_headline(page, "Last seen")
    page.set_viewport_size({"width": 1280, "height": 500})
    canvas = page.locator("#space canvas")
    canvas.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    canvas.hover()
    page.mouse.wheel(0, -200)
    page.wait_for_function("before => scrollY < before", arg=before)
    picture = canvas.screenshot()
    page.keyboard.down("Control")
    page.mouse.wheel(0, 300)
    page.keyboard.up("Control")
    page.wait_for_timeout(200)
    assert canvas.screenshot() != picture


def test_a_phone_is_not_told_to_drop(open_page: Open) -> None:
    page = open_page(width=390, height=844, touch=True)
    assert "drop" not in page.inner_text("body")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_serious_accessibility_finding(
    browser: Any, live: Live, clip: Path, scheme: str, width: int
) -> None:
    """axe-core's rules on the page with a drawn box, an answer in space and a list of queries."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with httpx.Client(base_url=live.url, timeout=60) as client:
        video = upload(client, clip)["id"]
        query = ask(client, video, in_3d="true")["id"]
        wait_for(client, query, "done")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(f"{live.url}#v={video}&q={query}")
    page.wait_for_selector("#place-card:not([hidden])")
    found = [
        f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']][:3]}"
        for each in axe.run(page).response["violations"]
        if each["impact"] in SERIOUS
    ]
    context.close()
    assert found == []
