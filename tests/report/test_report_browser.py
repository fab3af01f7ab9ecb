"""The page in a real browser without network: it shows the answer, follows mouse and keys, fits a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from egohieraloc.query import Query
from egohieraloc.types import Box, NotFound, NotLocalized, QueryMask, ResponseTrack
from made_up import curve, maps, place, prediction, track

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, page: Callable[..., str], tmp_path: Path) -> Iterator[Open]:
    """Opens a report from disk; any message of the browser or request to a network fails the test."""
    trouble: list[str] = []

    def opened(
        *, width: int = 1280, height: int = 900, dark: bool = False, csp: bool = True, **changes: Any
    ) -> Any:
        path = tmp_path / "report.html"
        path.write_text(page(**changes), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            offline=True,
            bypass_csp=not csp,
        )
        shown = context.new_page()
        shown.on("console", lambda message: trouble.append(message.text))
        shown.on("pageerror", lambda error: trouble.append(str(error)))
        shown.on("request", lambda r: r.url.startswith(("data:", "file:")) or trouble.append(r.url))
        shown.goto(path.as_uri())
        shown.wait_for_timeout(150)
        return shown

    yield opened
    assert trouble == []


def test_shows_the_answer(open_page: Open) -> None:
    page = open_page()
    assert page.inner_text("h1") == "Last seen from 0:01.6 to 0:02.0"
    assert "confidence\u00a00.87" in page.inner_text("#subline")
    assert page.locator("#film button").count() == 3
    assert page.locator("#viewer rect.mark").count() == 1
    assert "level 1" in page.inner_text("#query-facts")
    assert page.inner_text("#scene-words") == (
        "From the camera at the query time it is 2.2 m (± 0.6 m), in front of you, to your left and below. "
        "12 of 12 frames have a pose."
    )
    assert page.locator("#views tbody tr").count() == 3
    assert page.locator("#intervals button").all_inner_texts() == [
        "0:00.4 – 0:00.6, confidence\u00a00.60",
        "0:01.6 – 0:02.0, the answer",
    ]


def test_only_candidates_are_offered_as_other_appearances(open_page: Open) -> None:
    """A rise of the curve that was not followed has no box to show, and no confidence."""
    page = open_page(curve=replace(curve(), intervals=((0, 0), (2, 3), (8, 10))))
    assert page.locator("#intervals button").count() == 2
    assert page.locator("#curve rect.passed").count() == 1


def test_an_object_beside_the_answer_that_looks_like_it_is_shown_too(open_page: Open) -> None:
    page = open_page(alternatives=(track(8, 9, 0.6),))
    assert page.locator("#viewer rect.mark").count() == 1  # the last frame shows the answer alone
    page.click("#intervals button.passed")
    assert page.locator("#viewer rect.mark.other").count() == 1
    assert page.locator("#viewer rect.mark:not(.other)").count() == 1
    assert page.locator("#curve rect").last.get_attribute("class") == "chosen"  # over the other one


def test_click_on_the_curve_shows_that_frame(open_page: Open) -> None:
    page = open_page()
    page.locator("#curve").scroll_into_view_if_needed()
    area = page.locator("#curve").bounding_box()
    page.mouse.click(area["x"] + 33, area["y"] + 80)
    assert page.inner_text("#moment").startswith("0:00.0 · frame 0 ")
    assert "no box" in page.inner_text("#moment")
    page.mouse.click(area["x"] + area["width"] - 12, area["y"] + 80)
    assert "frame 33 " in page.inner_text("#moment")


def test_keys_move_along_the_curve_and_turn_the_scene(open_page: Open) -> None:
    page = open_page()
    page.focus("#curve")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "frame 3 " in page.inner_text("#moment")
    assert page.get_attribute("#curve", "aria-valuenow") == "0.2"
    canvas = page.locator("#scene")
    before = canvas.screenshot()
    canvas.focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(120)
    assert canvas.screenshot() != before


def test_mouse_turns_the_scene(open_page: Open) -> None:
    page = open_page()
    canvas = page.locator("#scene")
    canvas.scroll_into_view_if_needed()
    before, area = canvas.screenshot(), canvas.bounding_box()
    page.mouse.move(area["x"] + 200, area["y"] + 100)
    page.mouse.down()
    page.mouse.move(area["x"] + 300, area["y"] + 130)
    page.mouse.up()
    page.wait_for_timeout(120)
    assert canvas.screenshot() != before


def test_buttons_step_play_and_return(open_page: Open) -> None:
    page = open_page()
    page.click("#intervals button >> nth=0")
    assert "frame 9 " in page.inner_text("#moment")
    assert page.locator("#viewer rect.mark.other").count() == 1
    page.click("#next")
    assert "frame 12 " in page.inner_text("#moment")
    page.click("#play")
    page.wait_for_timeout(700)
    page.click("#play")
    assert "frame 12 " not in page.inner_text("#moment")
    page.click("#to-answer")
    assert "frame 30 " in page.inner_text("#moment")  # the last one, where it was left
    assert page.locator("#viewer rect.mark.other").count() == 0
    page.click("#film button >> nth=0")
    assert "frame 24 " in page.inner_text("#moment")


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (1280, True)])
def test_never_scrolls_sideways(open_page: Open, width: int, dark: bool) -> None:
    page = open_page(width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    everything = "[...document.querySelectorAll('main *:not(svg *)')]"
    too_wide = f"{everything}.filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    assert page.evaluate(f"{too_wide}.map(e => e.outerHTML.slice(0, 80))") == []


def test_hostile_names_stay_text(open_page: Open) -> None:
    page = open_page()
    assert "<img src=x" in page.inner_text("#subline")
    assert page.locator("#subline img").count() == 0
    assert page.title() != "1"


def test_nothing_found(open_page: Open) -> None:
    page = open_page(
        track=NotFound("the best moment was too weak"), alternatives=(), place=None, cameras=None, maps=()
    )
    assert page.inner_text("h1") == "Not seen in this video"
    assert "the best moment was too weak" in page.inner_text("#subline")
    for part in ("#film-card", "#scene-card", "#maps-card", "#overlay-card", "#to-answer"):
        assert page.locator(part).is_hidden()


def test_no_place_in_space(open_page: Open) -> None:
    page = open_page(place=NotLocalized("too little motion.", 0, 12), cameras=None)
    assert page.inner_text("#scene-words").startswith("No place in space: too little motion. 0 of 12 frames")
    assert page.locator("#scene").is_hidden()


def test_a_mask_is_decoded_where_it_lies(open_page: Open) -> None:
    """Not symmetric in any way, and its last run is one of ones."""
    mask = np.zeros((3, 5), bool)
    mask[0, 1:3] = mask[1, 4] = mask[2, 3:] = True
    seen = replace(prediction(9), mask=mask, mask_box=Box(50, 30, 100, 60))
    page = open_page(track=ResponseTrack((seen,), 0.9))
    border = page.locator("#viewer path.mark.border")
    inside = border.evaluate(
        """(path) => [35, 45, 55].map((y) => [55, 65, 75, 85, 95].map((x) => {
            const point = new DOMPoint(x, y);
            return path.isPointInFill(point);
        }))"""
    )
    np.testing.assert_array_equal(inside, mask)
    assert (
        page.locator("#viewer path.mark.border").evaluate("(path) => getComputedStyle(path).fill") == "none"
    )


def test_maps_come_as_they_were_kept(open_page: Open) -> None:
    page = open_page()
    images = page.locator("#maps img.map")
    assert images.count() == 5
    kept = maps(9)
    for number, name in enumerate(("foreground", "likelihood", "response", "location", "mask")):
        shown = pixels(page, images.nth(number).get_attribute("src"))
        np.testing.assert_array_equal(shown[..., 0], getattr(kept, name))
    assert page.locator("#maps ellipse").get_attribute("rx") == "20"


def test_four_samples_are_explained_at_most(open_page: Open) -> None:
    page = open_page(maps=tuple(maps(sample) for sample in range(1, 9)))
    captions = page.locator("#maps .map-row figure:first-child figcaption").all_inner_texts()
    assert [caption.split(",")[0] for caption in captions] == [
        f"Frame at 0:0{sample / 5:.1f}" for sample in (1, 3, 6, 8)
    ]


def test_colours_of_maps_and_of_the_query(open_page: Open) -> None:
    bright, dark = (replace(maps(9), foreground=np.full((6, 8), shade, np.uint8)) for shade in (255, 0))
    page = open_page(maps=(bright, dark))
    for row, viridis in enumerate(((253, 231, 37), (68, 1, 84))):
        image = page.locator("#maps .map-row").nth(row).locator("img.map").first
        image.scroll_into_view_if_needed()
        assert middle(image.screenshot()) == pytest.approx(viridis, abs=3)
    white = Query(np.full((120, 160, 3), 255, np.uint8), Box(40, 30, 80, 70))
    mask = QueryMask(np.full((10, 10), 255, np.uint8), Box(30, 20, 90, 80), 0.55, 1)
    page = open_page(query=white, query_mask=mask)
    assert middle(page.locator("#query").screenshot()) == [
        255,
        255,
        255,
    ]  # people know their things by colour
    np.testing.assert_array_equal(pixels(page, page.locator(".query-mask").get_attribute("src"))[..., 0], 255)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_box_lies_on_the_query_image(open_page: Open, width: int) -> None:
    page = open_page(width=width)
    image, drawn = (page.locator(f"#query {part}").bounding_box() for part in ("img", "svg"))
    assert drawn == pytest.approx(image, abs=1)


def test_without_the_video_boxes_are_shown_on_nothing(open_page: Open) -> None:
    page = open_page(thumbnails=())
    assert page.locator("#viewer rect.mark").count() == 1
    assert page.locator("#viewer image").count() == 0
    area = page.locator("#viewer").bounding_box()
    assert area["width"] / area["height"] == pytest.approx(160 / 120, abs=0.02)
    assert page.locator("#film-card").is_hidden()
    page.click("#intervals button >> nth=0")
    assert "frame 9 " in page.inner_text("#moment")


def test_nothing_found_is_a_grey_guess_with_advice(open_page: Open) -> None:
    page = open_page(notes=(), track=NotFound("Too weak.", 0.1), place=None, cameras=None, maps=())
    assert page.inner_text("#subline").startswith("Too weak · ")
    assert page.locator("#notes li").count() == 3
    assert page.locator("#viewer rect.mark.guess").count() == 1
    assert page.locator("#curve rect").count() == 0  # nothing is shaded
    assert "best guess" in page.inner_text("#moment")
    assert page.locator("#overlay-card").is_hidden()


def test_doubts_stand_beside_the_place(open_page: Open) -> None:
    page = open_page(place=replace(place(), doubts=("the camera path leaps at 0:01.0",)))
    assert page.inner_text("#scene-doubts") == "Uncertain: the camera path leaps at 0:01.0."


@pytest.mark.parametrize("dark", [False, True])
def test_no_serious_accessibility_finding(open_page: Open, dark: bool) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(dark=dark, csp=False)  # what axe brings is no part of the page
    found = [
        f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']][:3]}"
        for each in axe.run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert found == []


def pixels(page: Any, uri: str) -> np.ndarray:
    """What the browser makes of an image (H, W, 4)."""
    width, height, values = page.evaluate(
        """async (uri) => {
            const image = new Image();
            image.src = uri;
            await image.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const pen = canvas.getContext("2d");
            pen.drawImage(image, 0, 0);
            const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
            return [canvas.width, canvas.height, [...data]];
        }""",
        uri,
    )
    return np.array(values).reshape(height, width, 4)


def middle(screenshot: bytes) -> list[int]:
    bgr = cv2.imdecode(np.frombuffer(screenshot, np.uint8), cv2.IMREAD_COLOR)
    return bgr[bgr.shape[0] // 2, bgr.shape[1] // 2, ::-1].tolist()
