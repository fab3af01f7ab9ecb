"""The page in a real browser with a real mouse: upload, scrub, draw, ask, look, cancel, reload.

Screenshots go to the folder named by EGOHIERALOC_SCREENSHOTS, where that is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_localizer import write_clip
from web_clients import Live, running_server

from egohieraloc.images import write_image

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
# Slow: on busy cores a touch or a click can come too late for the page's own timing.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HOSTILE = '<img src=x onerror="document.title=1">.mp4'
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any, live: Live) -> Iterator[Open]:
    """Opens the page; any message of the browser or request to elsewhere fails the test."""
    trouble: list[str] = []
    contexts = []

    def opened(*, width: int = 1280, height: int = 900, dark: bool = False, touch: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: r.url.startswith((live.url, "data:", "blob:")) or trouble.append(r.url))
        page.goto(live.url)
        page.trouble = trouble
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def choose_video(page: Any, clip: Path) -> None:
    page.set_input_files("#video-file", clip)
    page.wait_for_selector("#watch:not([hidden])")
    page.wait_for_selector("#still:not([hidden])")


def scrub_to(page: Any, time_s: float) -> None:
    """Click the slider where that moment is."""
    area = page.locator("#scrub").bounding_box()
    knob = 16
    share = time_s / 3.9
    page.mouse.click(area["x"] + knob / 2 + share * (area["width"] - knob), area["y"] + area["height"] / 2)
    page.wait_for_selector("#still:not([hidden])")


def draw_box(page: Any, x1: float, y1: float, x2: float, y2: float) -> None:
    """Drag over the picture; corners in pixels of the video (160x120)."""
    area = page.locator("#stage").bounding_box()
    scale = area["width"] / 160
    page.mouse.move(area["x"] + x1 * scale, area["y"] + y1 * scale)
    page.mouse.down()
    page.mouse.move(area["x"] + (x1 + x2) / 2 * scale, area["y"] + (y1 + y2) / 2 * scale)
    page.mouse.move(area["x"] + x2 * scale, area["y"] + y2 * scale)
    page.mouse.up()


def ask_about_the_square(page: Any) -> None:
    scrub_to(page, 1.0)
    draw_box(page, 30, 30, 70, 70)
    page.click("#ask")


def wait_for_headline(page: Any, text: str) -> None:
    page.wait_for_function("text => document.getElementById('headline').textContent.includes(text)", arg=text)


def wait_for_words(page: Any, text: str, element: str = "answer-words") -> None:
    starts = "([id, text]) => document.getElementById(id).textContent.startsWith(text)"
    page.wait_for_function(starts, arg=[element, text])


def rectangle(page: Any, name: str = "rect.mark") -> list[float]:
    found = page.locator(f"#marks {name}")
    return [float(found.get_attribute(side)) for side in ("x", "y", "width", "height")]


def screenshot(page: Any, name: str) -> None:
    folder = os.environ.get("EGOHIERALOC_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def test_upload_scrub_draw_ask_and_see_the_answer(open_page: Open, clip: Path) -> None:
    page = open_page()
    screenshot(page, "page-empty")
    choose_video(page, clip)
    assert page.inner_text("#subline") == "walk.mp4 · 160 × 120 · 0:04.0"
    assert page.is_disabled("#ask")
    scrub_to(page, 1.0)
    assert page.inner_text("#moment") == "0:01.0 of 0:04.0"
    draw_box(page, 30, 30, 70, 70)
    assert rectangle(page, "rect.draft") == pytest.approx([30, 30, 40, 40], abs=1)
    assert page.inner_text("#hint") == "From 0:01.0 of the video."
    middle = "[...document.getElementById('crop').getContext('2d').getImageData(30, 30, 1, 1).data]"
    red, green, blue, _ = page.evaluate(middle)
    assert red > 160 > 90 > max(green, blue)
    screenshot(page, "page-drawn")
    page.click("#ask")
    wait_for_words(page, "Reading the video")
    page.wait_for_function(
        "() => /about \\d+ s left/.test(document.getElementById('answer-words').textContent)"
    )
    assert page.is_visible("#cancel")
    screenshot(page, "page-progress")
    wait_for_headline(page, "Last seen from 0:02.0 to 0:03.0")
    assert page.inner_text("#answer-words") == "0:02.0 – 0:03.0, 87 % sure."
    assert page.inner_text("#moment") == "0:02.6 of 0:04.0"
    assert rectangle(page) == pytest.approx([62, 30, 40, 40], abs=0.1)
    assert page.locator("#marks image").count() == 1
    assert page.locator("#curve rect.chosen").count() == 1
    assert page.locator("#curve rect.passed").count() == 1
    page.wait_for_selector("#still:not([hidden])")
    screenshot(page, "page-answer")


def test_the_box_follows_the_moment(open_page: Open, clip: Path) -> None:
    page = open_page()
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.locator("#curve").scroll_into_view_if_needed()
    area = page.locator("#curve").bounding_box()

    def click_curve(time_s: float) -> None:
        page.mouse.click(area["x"] + 30 + time_s / 4 * (area["width"] - 38), area["y"] + 60)

    click_curve(2.1)  # between two samples: on the straight line between their boxes
    assert rectangle(page) == pytest.approx([52, 30, 40, 40], abs=0.5)
    click_curve(3.5)
    assert page.locator("#marks rect").count() == 0
    page.click("#to-answer")
    assert rectangle(page)[0] == pytest.approx(62, abs=0.1)
    page.focus("#curve")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#moment") == "0:02.8 of 0:04.0"
    assert page.get_attribute("#curve", "aria-valuetext") == "0:02.8, score 0.90"


def test_not_this_one_shows_the_next(open_page: Open, clip: Path) -> None:
    page = open_page()
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.click("#not-this")
    assert page.inner_text("#answer-words") == "Candidate 2 of 2: 0:00.6 – 0:01.0, 60 % sure."
    assert page.inner_text("#headline") == "Perhaps seen from 0:00.6 to 0:01.0"
    assert page.inner_text("#moment").startswith("0:00.8")
    assert rectangle(page, "rect.mark.other")[0] == pytest.approx(26, abs=0.1)
    assert page.is_hidden("#not-this")
    page.reload()
    wait_for_words(page, "Candidate 2")


def test_nothing_found(open_page: Open, clip: Path, live: Live) -> None:
    (live.switches / "miss").touch()
    page = open_page()
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Not seen in this video")
    assert page.inner_text("#answer-words") == "Nothing looks like it."
    assert page.locator("#marks rect").count() == 0
    page.click("#not-this")
    assert page.inner_text("#answer-words").startswith("Candidate 1 of 1")


def test_ask_again_cancel_and_reload(open_page: Open, clip: Path, live: Live) -> None:
    page = open_page()
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    (live.switches / "hold").touch()
    ask_about_the_square(page)
    wait_for_headline(page, "Looking")
    wait_for_words(page, "Looking closely")
    page.reload()
    wait_for_headline(page, "Looking")
    wait_for_words(page, "Looking closely")
    page.click("#cancel")
    wait_for_headline(page, "Cancelled")
    (live.switches / "hold").unlink()
    rows = page.locator("#queries .row")
    page.wait_for_function(
        "() => document.querySelector('#queries .row').textContent.startsWith('Cancelled')"
    )
    assert rows.count() == 2
    screenshot(page, "page-cancelled")
    rows.nth(1).click()
    wait_for_headline(page, "Last seen from 0:02.0")
    page.reload()
    wait_for_headline(page, "Last seen from 0:02.0")
    assert page.locator("#queries .row").count() == 2


def test_a_reload_while_it_runs_shows_the_answer(open_page: Open, clip: Path, live: Live) -> None:
    (live.switches / "hold").touch()
    page = open_page()
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Looking")
    page.reload()
    (live.switches / "hold").unlink()
    wait_for_headline(page, "Last seen from 0:02.0")
    assert rectangle(page)[0] == pytest.approx(62, abs=0.1)


def test_a_picture_instead_of_a_box(open_page: Open, clip: Path, tmp_path: Path) -> None:
    write_image(tmp_path / "crop.png", np.full((30, 40, 3), (220, 30, 30), np.uint8))
    page = open_page()
    choose_video(page, clip)
    page.set_input_files("#picture-file", tmp_path / "crop.png")
    page.wait_for_selector("#crop:not([hidden])")
    assert page.inner_text("#hint") == "crop.png"
    page.click("#ask")
    wait_for_headline(page, "Last seen")


def test_files_can_be_dropped(open_page: Open, clip: Path, tmp_path: Path) -> None:
    page = open_page()
    drop = """([bytes, name, type]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name, { type }));
        for (const kind of ["dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true }));
        }
    }"""
    write_image(tmp_path / "crop.png", np.full((30, 40, 3), 200, np.uint8))
    crop = [list((tmp_path / "crop.png").read_bytes()), "crop.png", "image/png"]
    page.evaluate(drop, crop)
    wait_for_words(page, "Choose a video first", "trouble")
    page.evaluate(drop, [list(clip.read_bytes()), HOSTILE, "video/mp4"])
    page.wait_for_selector("#watch:not([hidden])")
    assert page.is_hidden("#trouble")
    assert HOSTILE in page.inner_text("#subline")
    assert page.locator("#subline img").count() == 0
    assert page.title() != "1"
    page.evaluate(drop, crop)
    page.wait_for_selector("#crop:not([hidden])")


def test_bad_files_are_explained(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    (tmp_path / "notes.mp4").write_text("no video")
    page.set_input_files("#video-file", tmp_path / "notes.mp4")
    page.wait_for_selector("#trouble:not([hidden])")
    assert page.inner_text("#trouble").startswith("This is not a video that can be opened.")
    assert page.is_hidden("#upload")
    assert [text for text in page.trouble if "422" not in text] == []
    page.trouble.clear()


def test_a_video_the_browser_cannot_play(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    choose_video(page, write_clip(tmp_path / "old.avi", codec="mpeg4"))
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.wait_for_selector("#still:not([hidden])")
    before = page.inner_text("#moment")
    page.click("#play")
    page.wait_for_function("text => document.getElementById('moment').textContent !== text", arg=before)
    page.click("#play")
    assert page.get_attribute("#play", "aria-label") == "Play"
    page.trouble.clear()


def test_playing_moves_the_box(open_page: Open, clip: Path) -> None:
    page = open_page()
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.click("#play")
    seen = page.wait_for_function(
        """() => {
            const time = Number(document.getElementById("scrub").value);
            const mark = document.querySelector("#marks rect.mark");
            return time > 2.65 && mark && [time, Number(mark.getAttribute("x"))];
        }"""
    )
    time_s, x = seen.json_value()
    assert x == pytest.approx(10 + 20 * time_s, abs=2.5)  # the slider's own value is rounded to frames
    page.wait_for_function("() => document.getElementById('play').getAttribute('aria-pressed') === 'false'")
    assert page.inner_text("#moment") == "0:03.9 of 0:04.0"


def test_keys_alone_are_enough(open_page: Open, clip: Path) -> None:
    page = open_page()
    choose_video(page, clip)
    page.focus("#scrub")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#moment") == "0:01.0 of 0:04.0"
    page.focus("#stage")
    page.keyboard.press("ArrowLeft")
    assert rectangle(page, "rect.draft") == pytest.approx([64, 48, 32, 24])
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowDown")
    assert rectangle(page, "rect.draft") == pytest.approx([60.8, 48, 32, 27.2])
    page.keyboard.press("Escape")
    assert page.is_disabled("#ask")
    page.keyboard.press("ArrowUp")
    page.focus("#ask")
    page.keyboard.press("Enter")
    wait_for_headline(page, "Last seen")
    page.focus("#not-this")
    page.keyboard.press("Enter")
    assert page.inner_text("#answer-words").startswith("Candidate 2")


def test_a_finger_draws(open_page: Open, clip: Path) -> None:
    page = open_page(width=390, height=800, touch=True)
    choose_video(page, clip)
    area = page.locator("#stage").bounding_box()
    session = page.context.new_cdp_session(page)

    def touch(kind: str, x: float, y: float) -> None:
        points = [] if kind == "touchEnd" else [{"x": area["x"] + x, "y": area["y"] + y}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 50, 50)
    touch("touchMove", 90, 80)
    touch("touchMove", 150, 120)
    touch("touchEnd", 0, 0)
    scale = 160 / area["width"]
    assert rectangle(page, "rect.draft") == pytest.approx(
        [50 * scale, 50 * scale, 100 * scale, 70 * scale], abs=1
    )
    page.wait_for_timeout(500)  # the browser takes two touches in a moment for one gesture
    page.tap("#ask")
    wait_for_headline(page, "Last seen")
    screenshot(page, "page-phone")


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (768, False), (1280, True)])
def test_never_scrolls_sideways(open_page: Open, clip: Path, width: int, dark: bool) -> None:
    page = open_page(width=width, dark=dark)
    choose_video(page, clip)
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.wait_for_selector("#still:not([hidden])")
    screenshot(page, f"page-{width}{'-dark' if dark else ''}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    everything = "[...document.querySelectorAll('main *:not(svg *)')]"
    too_wide = f"{everything}.filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    assert page.evaluate(f"{too_wide}.map(e => e.outerHTML.slice(0, 80))") == []


def test_a_video_can_be_removed(open_page: Open, clip: Path) -> None:
    page = open_page()
    choose_video(page, clip)
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("#videos .remove")
    page.wait_for_function("() => document.querySelectorAll('#videos li').length === 0")
    assert page.is_hidden("#watch")


def test_a_restart_of_the_server_loses_nothing(
    browser: Any, clip: Path, tmp_path: Path, switches: Path
) -> None:
    page = browser.new_page()
    with running_server(tmp_path, switches) as url:
        page.goto(url)
        choose_video(page, clip)
        (switches / "hold").touch()
        ask_about_the_square(page)
        wait_for_headline(page, "Looking")
    (switches / "hold").unlink()
    with running_server(tmp_path, switches, int(url.rsplit(":", 1)[1])):
        wait_for_headline(page, "Last seen from 0:02.0")  # the open page takes up where it was
    page.close()
