"""The page in a real browser without network: it shows the answer, follows mouse and keys, fits a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up import scene

from egohieraloc.report.html import ReportData, write_report
from egohieraloc.types import NotFound, NotLocalized

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, report_data: Callable[..., ReportData], tmp_path: Path) -> Iterator[Open]:
    """Opens a report from disk; any message of the browser or request to a network fails the test."""
    trouble: list[str] = []

    def opened(*, width: int = 1280, height: int = 900, dark: bool = False, **changes: Any) -> Any:
        path = tmp_path / "report.html"
        write_report(path, report_data(**changes))
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            offline=True,
        )
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: r.url.startswith(("data:", "file:")) or trouble.append(r.url))
        page.goto(path.as_uri())
        page.wait_for_timeout(150)
        return page

    yield opened
    assert trouble == []


def test_shows_the_answer(open_page: Open) -> None:
    page = open_page()
    assert page.inner_text("h1") == "Last seen from 0:01.6 to 0:02.0"
    assert "confidence 87 %" in page.inner_text("#subline")
    assert page.locator("#film button").count() == 3
    assert page.locator("#viewer rect.mark").count() == 1
    assert "level 1" in page.inner_text("#query-facts")
    assert "2.2 m, to your left and below. 12 of 12 frames have a pose." in page.inner_text("#scene-words")
    assert page.locator("#views tbody tr").count() == 3
    assert page.locator("#intervals button").all_inner_texts() == [
        "0:00.4 – 0:00.6 60 %",
        "0:01.6 – 0:02.0 the answer",
    ]


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
    assert page.get_attribute("#curve", "aria-valuenow") == "1"
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
    page.click("#next")
    assert "frame 12 " in page.inner_text("#moment")
    page.click("#play")
    page.wait_for_timeout(700)
    page.click("#play")
    assert "frame 12 " not in page.inner_text("#moment")
    page.click("#to-answer")
    assert "frame 27 " in page.inner_text("#moment")
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
        answer=NotFound("the best moment was too weak"), alternatives=(), scene=None, frame_maps=()
    )
    assert page.inner_text("h1") == "Not seen in this video"
    assert "the best moment was too weak" in page.inner_text("#subline")
    for part in ("#film-card", "#scene-card", "#maps-card", "#overlay-card", "#to-answer"):
        assert page.locator(part).is_hidden()


def test_no_place_in_space(open_page: Open) -> None:
    page = open_page(
        scene=scene(place=NotLocalized("too little motion", 0, 12), frame_indices=(), cam_from_world=())
    )
    assert page.inner_text("#scene-words").startswith("No place in space: too little motion. 0 of 12 frames")
    assert page.locator("#scene").is_hidden()
