"""The page in a real browser with a real mouse: upload, scrub, draw, ask, look, cancel, reload.

One server and one browser serve all tests. Screenshots are kept in runs/screenshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from fake_localizer import write_clip
from web_clients import Live, running_server, upload

from egohieraloc.images import write_image

SCREENSHOTS = Path(__file__).parents[2] / "runs" / "screenshots"
PATIENCE_MS = 60_000  # for conditions; on idle cores all come within a second or two
HOSTILE = '<img src=x onerror="document.title=1">.mp4'
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    switches = folder / "switches"
    switches.mkdir()
    with running_server(folder, switches) as url:
        yield Live(url, switches)


@pytest.fixture(autouse=True)
def _clean(live: Live) -> Iterator[None]:
    yield
    with httpx.Client(base_url=live.url, timeout=60) as client:
        for video in client.get("/videos").json():
            client.delete(f"/videos/{video['id']}")
    for switch in live.switches.iterdir():
        switch.unlink()


@pytest.fixture
def open_page(browser: Any, live: Live, clip: Path) -> Iterator[Open]:
    """Opens the page, with a video or without; a message of the browser or a request elsewhere fails."""
    trouble: list[str] = []
    contexts = []

    def opened(*, empty: bool = False, width: int = 1280, height: int = 900, touch: bool = False) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, has_touch=touch)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: r.url.startswith((live.url, "data:", "blob:")) or trouble.append(r.url))
        page.trouble = trouble
        if empty:
            page.goto(live.url)
            return page
        with httpx.Client(base_url=live.url, timeout=60) as client:
            page.goto(f"{live.url}#v={upload(client, clip)['id']}")
        wait_for_still(page, "0:00.0")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def wait_for_still(page: Any, moment: str) -> None:
    """Until the server's own image of a moment is shown."""
    page.wait_for_selector(f"#still[alt='Frame at {moment}']:not([hidden])")


def scrub_to(page: Any, time_s: float) -> None:
    """Click the slider where that moment is."""
    area = page.locator("#scrub").bounding_box()
    knob = 16
    share = time_s / 3.9
    page.mouse.click(area["x"] + knob / 2 + share * (area["width"] - knob), area["y"] + area["height"] / 2)
    wait_for_still(page, f"0:{time_s:04.1f}")


def draw_box(page: Any, x1: float, y1: float, x2: float, y2: float) -> None:
    """Drag over the image; corners in pixels of the video (160x120)."""
    area = page.locator("#stage").bounding_box()
    scale = area["width"] / 160
    page.mouse.move(area["x"] + x1 * scale, area["y"] + y1 * scale)
    page.mouse.down()
    page.mouse.move(area["x"] + (x1 + x2) / 2 * scale, area["y"] + (y1 + y2) / 2 * scale)
    page.mouse.move(area["x"] + x2 * scale, area["y"] + y2 * scale)
    page.mouse.up()


def ask_about_the_square(page: Any, *, in_3d: bool = False) -> None:
    scrub_to(page, 1.0)
    page.locator("#stage").press("Escape")  # an earlier box would be moved
    draw_box(page, 30, 30, 70, 70)
    page.set_checked("#in-3d", in_3d)
    page.click("#ask")


def ask_twice_and_hold(page: Any, live: Live) -> None:
    """One query is answered, the second is being worked on."""
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    (live.switches / "hold").touch()
    ask_about_the_square(page)
    wait_for_words(page, "Searching closely")


def wait_for_headline(page: Any, text: str) -> None:
    page.wait_for_function("text => document.getElementById('headline').textContent.includes(text)", arg=text)


def wait_for_words(page: Any, text: str, element: str = "answer-words") -> None:
    starts = "([id, text]) => document.getElementById(id).textContent.startsWith(text)"
    page.wait_for_function(starts, arg=[element, text])


def wait_for_rows(page: Any, *words: str) -> None:
    """Until the list of queries shows these, the newest first."""
    same = """words => {
        const titles = [...document.querySelectorAll("#queries .title")].map((title) => title.textContent);
        return titles.length === words.length && titles.every((title, i) => title.startsWith(words[i]));
    }"""
    page.wait_for_function(same, arg=list(words))


def rectangle(page: Any, name: str = "rect.mark") -> list[float]:
    found = page.locator(f"#marks {name}")
    return [float(found.get_attribute(side)) for side in ("x", "y", "width", "height")]


def screenshot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"page-{name}.png", full_page=True)


def wait_for_red_crop(page: Any) -> None:
    """Until what to look for shows the red square."""
    red = """() => {
        const crop = document.getElementById("crop");
        const pixels = crop.getContext("2d").getImageData(crop.width / 2, crop.height / 2, 1, 1);
        const [red, green, blue] = pixels.data;
        return !crop.hidden && red > 160 && green < 90 && blue < 90;
    }"""
    page.wait_for_function(red)


def test_upload_scrub_draw_ask_and_see_the_answer(open_page: Open, clip: Path, live: Live) -> None:
    (live.switches / "hold").write_text("encode")
    page = open_page(empty=True)
    page.set_input_files("#video-file", clip)
    wait_for_still(page, "0:00.0")
    assert page.inner_text("#subline") == "walk.mp4 · 160 × 120 · 0:04.0"
    assert page.is_disabled("#ask")
    scrub_to(page, 1.0)
    assert page.inner_text("#moment") == "0:01.0 of 0:04.0 · frame 10 of 40"
    draw_box(page, 30, 30, 70, 70)
    assert rectangle(page, "rect.draft") == pytest.approx([30, 30, 40, 40], abs=1)
    assert page.inner_text("#hint") == "From 0:01.0 of the video."
    wait_for_red_crop(page)
    screenshot(page, "drawn")
    page.click("#ask")
    wait_for_words(page, "Reading the video, 50\u00a0%, about ")
    assert page.inner_text("#answer-words").endswith(" left")
    assert page.is_visible("#cancel")
    screenshot(page, "progress")
    (live.switches / "hold").unlink()
    wait_for_headline(page, "Last seen from 0:02.0 to 0:03.0")
    assert page.inner_text("#answer-words") == "0:02.0 – 0:03.0, confidence\u00a00.87."
    assert page.inner_text("#moment") == "0:03.0 of 0:04.0 · frame 30 of 40"
    assert rectangle(page) == pytest.approx([70, 30, 40, 40], abs=0.1)  # the last frame
    assert page.locator("#marks path.mark.border").count() == 1
    assert page.locator("#curve rect.chosen").count() == 1
    assert page.locator("#curve rect.passed").count() == 1
    assert page.is_hidden("#place-card")
    wait_for_still(page, "0:03.0")
    screenshot(page, "answer")


def test_the_box_follows_the_moment(open_page: Open) -> None:
    page = open_page()
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
    assert rectangle(page)[0] == pytest.approx(70, abs=0.1)
    page.focus("#curve")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#moment") == "0:02.8 of 0:04.0 · frame 28 of 40"
    assert page.get_attribute("#curve", "aria-valuetext") == "0:02.8, score 0.90"


def test_where_in_space(open_page: Open, live: Live) -> None:
    (live.switches / "hold").write_text("poses: matching")
    page = open_page()
    ask_about_the_square(page, in_3d=True)
    wait_for_words(page, "Where you walked: comparing images, 50\u00a0%, about ")
    screenshot(page, "progress-3d")
    (live.switches / "hold").unlink()
    left = "From the camera at the query time it is 2.2 m (± 0.6 m), in front of you, to your left and below."
    wait_for_words(page, f"{left} 20 of 20 frames", "place-words")
    canvas = page.locator("#space canvas")
    canvas.scroll_into_view_if_needed()
    looks = {canvas.screenshot()}
    area = canvas.bounding_box()
    page.mouse.move(area["x"] + 200, area["y"] + 100)
    page.mouse.down()
    page.mouse.move(area["x"] + 300, area["y"] + 130)
    page.mouse.up()
    wait_for_another_look(page, canvas, looks)
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    wait_for_another_look(page, canvas, looks)
    page.focus("#curve")
    page.keyboard.press("Home")  # the camera of that moment is shown
    wait_for_another_look(page, canvas, looks)
    screenshot(page, "answer-3d")
    page.click("#not-this")
    right = "From the camera at the query time it is 2.2 m (± 0.6 m), in front of you and to your right"
    wait_for_words(page, right, "place-words")  # another candidate is elsewhere
    page.reload()
    wait_for_words(page, right, "place-words")
    page.click("#queries .row")
    wait_for_words(page, left, "place-words")
    assert page.is_visible("#space canvas")


def wait_for_another_look(page: Any, canvas: Any, looks: set[bytes]) -> None:
    """Until the view is drawn as it was not before."""
    while (look := canvas.screenshot()) in looks:
        page.evaluate("() => new Promise(requestAnimationFrame)")
    looks.add(look)


def test_the_same_object_can_be_asked_for_again_in_space(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.check("#in-3d")
    page.click("#ask")
    wait_for_words(page, "From the camera at the query time it is 2.2 m", "place-words")
    wait_for_rows(page, "0:02.0", "0:02.0")


def test_no_place_in_space(open_page: Open, live: Live) -> None:
    (live.switches / "lost").touch()
    page = open_page()
    ask_about_the_square(page, in_3d=True)
    wait_for_words(page, "No place in space: its last words are in the file. 0 of 20 frames", "place-words")
    assert page.inner_text("#headline") == "Last seen from 0:02.0 to 0:03.0"
    assert page.is_hidden("#space")


def test_not_this_one_shows_the_next(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.click("#not-this")
    assert page.inner_text("#answer-words") == "Candidate 2 of 2: 0:00.6 – 0:01.0, confidence\u00a00.60."
    assert page.inner_text("#headline") == "Also seen from 0:00.6 to 0:01.0"
    assert page.inner_text("#moment").startswith("0:01.0")
    assert rectangle(page, "rect.mark.other")[0] == pytest.approx(30, abs=0.1)
    page.reload()
    wait_for_words(page, "Candidate 2")
    assert page.inner_text("#not-this") == "Back to the first"
    page.click("#not-this")
    assert page.inner_text("#headline") == "Last seen from 0:02.0 to 0:03.0"


def test_nothing_found(open_page: Open, live: Live) -> None:
    (live.switches / "miss").touch()
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Not seen in this video")
    assert page.inner_text("#answer-words") == "Nothing looks like it."
    assert page.locator("#marks rect.mark:not(.draft)").count() == 0
    page.click("#not-this")
    assert page.inner_text("#answer-words").startswith("A guess, too unsure to be an answer (1 of 1)")
    assert page.inner_text("#headline") == "Perhaps seen from 0:02.0 to 0:03.0"
    assert page.is_hidden("#not-this")


def test_several_queries_cancel_and_reload(open_page: Open, live: Live) -> None:
    page = open_page()
    ask_twice_and_hold(page, live)
    ask_about_the_square(page)
    wait_for_words(page, "Waiting for its turn")
    wait_for_rows(page, "Waiting for its turn", "Searching closely", "0:02.0")
    screenshot(page, "several")
    page.reload()
    wait_for_words(page, "Waiting for its turn")
    page.click("#cancel")
    wait_for_headline(page, "Cancelled")
    page.locator("#queries .row").nth(1).click()
    wait_for_words(page, "Searching closely")
    page.click("#cancel")
    wait_for_headline(page, "Cancelled")
    wait_for_rows(page, "Cancelled", "Cancelled", "0:02.0")
    page.locator("#queries .row").nth(2).click()
    wait_for_headline(page, "Last seen from 0:02.0")
    page.reload()
    wait_for_headline(page, "Last seen from 0:02.0")
    wait_for_rows(page, "Cancelled", "Cancelled", "0:02.0")


def test_a_reload_while_it_runs_shows_the_answer(open_page: Open, live: Live) -> None:
    (live.switches / "hold").touch()
    page = open_page()
    ask_about_the_square(page)
    wait_for_words(page, "Searching closely")
    page.reload()
    wait_for_words(page, "Searching closely")
    (live.switches / "hold").unlink()
    wait_for_headline(page, "Last seen from 0:02.0")
    assert rectangle(page)[0] == pytest.approx(70, abs=0.1)


def test_a_reload_keeps_the_drawn_box(open_page: Open) -> None:
    page = open_page()
    scrub_to(page, 1.0)
    draw_box(page, 30, 30, 70, 70)
    before = rectangle(page, "rect.draft")
    page.reload()
    wait_for_still(page, "0:01.0")
    assert rectangle(page, "rect.draft") == pytest.approx(before, abs=0.01)
    wait_for_red_crop(page)
    page.click("#ask")
    wait_for_headline(page, "Last seen")


def test_an_image_instead_of_a_box(open_page: Open, tmp_path: Path) -> None:
    write_image(tmp_path / "crop.png", np.full((30, 40, 3), (220, 30, 30), np.uint8))
    page = open_page()
    page.set_input_files("#image-file", tmp_path / "crop.png")
    page.wait_for_selector("#crop:not([hidden])")
    assert page.inner_text("#hint").startswith("crop.png. Draw a box")
    page.click("#ask")
    wait_for_headline(page, "Last seen")


def test_several_views_join_in_one_question(open_page: Open, live: Live, tmp_path: Path) -> None:
    """Two photos chosen at once, and a box in the video; one of the photos is taken back."""
    names = [tmp_path / f"{name}.png" for name in ("front", "back")]
    for name in names:
        write_image(name, np.full((30, 40, 3), (220, 30, 30), np.uint8))
    page = open_page()
    assert page.is_hidden("#another")
    page.set_input_files("#image-file", names)
    page.wait_for_selector("#kept li:nth-child(1)")
    assert page.inner_text("#hint").startswith("back.png")
    page.click("#another")
    page.wait_for_selector("#kept li:nth-child(2)")
    assert page.inner_text("#hint") == "Show it from another side, or ask."
    draw_box(page, 10, 30, 50, 70)
    page.wait_for_selector("#another:not([hidden])")
    page.click("#kept li:nth-child(1) .remove")
    screenshot(page, "several-views")
    page.click("#ask")
    wait_for_headline(page, "Last seen")
    with httpx.Client(base_url=live.url, timeout=60) as client:
        (video,) = client.get("/videos").json()
        (query,) = client.get(f"/videos/{video['id']}/queries").json()
    assert query["box"] == [0, 0, 40, 30]
    assert [view["seen_at_s"] for view in query["others"]] == [0.0]


def test_files_can_be_dropped(open_page: Open, clip: Path, tmp_path: Path) -> None:
    page = open_page(empty=True)
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
    page = open_page(empty=True)
    screenshot(page, "empty")
    (tmp_path / "notes.mp4").write_text("no video")
    page.set_input_files("#video-file", tmp_path / "notes.mp4")
    page.wait_for_selector("#trouble:not([hidden])")
    assert page.inner_text("#trouble").startswith("The file cannot be read as a video")
    page.wait_for_selector("#upload", state="hidden")
    screenshot(page, "refused")
    assert [text for text in page.trouble if "422" not in text] == []
    page.trouble.clear()


def test_a_video_the_browser_cannot_play(open_page: Open, tmp_path: Path) -> None:
    page = open_page(empty=True)
    page.set_input_files("#video-file", write_clip(tmp_path / "old.avi", codec="mpeg4"))
    wait_for_still(page, "0:00.0")
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    wait_for_still(page, "0:03.0")
    page.click("#play")
    wait_for_words(page, "0:03.9", "moment")
    wait_for_still(page, "0:03.9")
    page.wait_for_selector("#play[aria-label=Play]")
    page.trouble.clear()


def test_playing_moves_the_box(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.evaluate(
        """() => {
            window.seen = [];
            new MutationObserver(() => {
                const mark = document.querySelector("#marks rect.mark");
                const time = document.getElementById("scrub").value;
                if (mark) seen.push([time, mark.getAttribute("x")].map(Number));
            }).observe(document.getElementById("marks"), { childList: true });
        }"""
    )
    page.click("#play")
    wait_for_words(page, "0:03.9", "moment")
    page.wait_for_selector("#play[aria-pressed=false]")
    for time_s, x in page.evaluate("seen"):  # the slider's own value is rounded to frames
        assert x == pytest.approx(10 + 20 * min(time_s, 3.0), abs=2.5)
    assert page.evaluate("seen.length") > 1


def test_keys_alone_are_enough(open_page: Open) -> None:
    page = open_page()
    page.focus("#scrub")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#moment") == "0:01.0 of 0:04.0 · frame 10 of 40"
    page.focus("#stage")
    page.keyboard.press("ArrowLeft")
    assert rectangle(page, "rect.draft") == pytest.approx([64, 48, 32, 24])
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowDown")
    assert rectangle(page, "rect.draft") == pytest.approx([60.8, 48, 32, 27.2])
    page.keyboard.press("Escape")
    assert page.is_disabled("#ask")
    page.keyboard.press("ArrowUp")
    page.focus("#in-3d")
    page.keyboard.press("Space")
    page.focus("#ask")
    page.keyboard.press("Enter")
    wait_for_headline(page, "Last seen")
    assert page.is_visible("#place-card")
    page.focus("#not-this")
    page.keyboard.press("Enter")
    wait_for_words(page, "Candidate 2")


def test_a_finger_draws(open_page: Open) -> None:
    page = open_page(width=390, height=800, touch=True)
    area = page.locator("#stage").bounding_box()
    session = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        at = [{"x": area["x"] + x, "y": area["y"] + y} for x, y in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    touch("touchStart", (50, 50))
    touch("touchMove", (90, 80))
    menu = "new MouseEvent('contextmenu', { bubbles: true, cancelable: true })"
    assert not page.evaluate(f"document.getElementById('marks').dispatchEvent({menu})")  # see viewer.js
    touch("touchMove", (150, 120))
    touch("touchEnd")
    assert page.evaluate(f"document.getElementById('marks').dispatchEvent({menu})")
    scale = 160 / area["width"]
    assert rectangle(page, "rect.draft") == pytest.approx(
        [50 * scale, 50 * scale, 100 * scale, 70 * scale], abs=1
    )
    page.click("#ask")
    wait_for_headline(page, "Last seen")
    wait_for_still(page, "0:03.0")
    screenshot(page, "phone")


def test_never_scrolls_sideways(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page, in_3d=True)
    wait_for_headline(page, "Last seen")
    wait_for_still(page, "0:03.0")
    everything = "[...document.querySelectorAll('main *:not(svg *)')]"
    too_wide = f"{everything}.filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    for width, scheme in ((1280, "dark"), (768, "light"), (390, "dark"), (320, "light")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("width => innerWidth === width", arg=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(f"{too_wide}.map(e => e.outerHTML.slice(0, 80))") == []
        screenshot(page, f"{width}-{scheme}")


@pytest.mark.parametrize("busy", [False, True])
def test_a_video_can_be_removed(open_page: Open, live: Live, busy: bool) -> None:
    page = open_page()
    page.on("dialog", lambda dialog: dialog.accept())
    if busy:
        (live.switches / "hold").touch()
        ask_about_the_square(page)
        wait_for_words(page, "Searching closely")
    page.click("#videos .remove")
    page.wait_for_function("() => document.querySelectorAll('#videos li').length === 0")
    assert page.is_hidden("#watch")
    assert page.is_hidden("#answer-card")
    assert page.inner_text("#headline") == "Where was it last seen?"
    page.wait_for_function("async () => (await (await fetch('/videos')).json()).length === 0")
    assert "#" not in page.url


def test_a_list_that_is_brought_up_to_date_keeps_its_rows(open_page: Open, live: Live) -> None:
    """A click that has begun on a row must find the same row when it ends."""
    (live.switches / "hold").touch()
    page = open_page()
    ask_about_the_square(page)
    wait_for_rows(page, "Searching closely")
    page.evaluate("window.row = document.querySelector('#queries li')")
    page.focus("#queries .row")
    (live.switches / "hold").unlink()
    wait_for_rows(page, "0:02.0")
    assert page.evaluate("row === document.querySelector('#queries li')")
    assert page.evaluate("row.contains(document.activeElement)")


def test_the_query_chosen_last_is_shown(open_page: Open, live: Live) -> None:
    """Also when the answer to an earlier choice comes after it."""
    page = open_page()
    ask_twice_and_hold(page, live)
    page.click("#cancel")
    wait_for_rows(page, "Cancelled", "0:02.0")
    held: list[Any] = []
    page.route("**/queries/*", lambda route: route.continue_() if held else held.append(route))
    with page.expect_request("**/queries/*"):
        page.locator("#queries .row").nth(1).click()
    with page.expect_response("**/queries/*"):
        page.locator("#queries .row").nth(0).click()
    with page.expect_response("**/queries/*") as late:
        held[0].continue_()
    late.value.finished()
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert page.inner_text("#headline") == "Cancelled"


def test_a_restart_of_the_server_loses_nothing(
    browser: Any, clip: Path, tmp_path: Path, switches: Path
) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    with running_server(tmp_path, switches) as url:
        page.goto(url)
        page.set_input_files("#video-file", clip)
        wait_for_still(page, "0:00.0")
        (switches / "hold").touch()
        ask_about_the_square(page)
        wait_for_words(page, "Searching closely")
    (switches / "hold").unlink()
    with running_server(tmp_path, switches, int(url.rsplit(":", 1)[1])):
        wait_for_headline(page, "Last seen from 0:02.0")  # the open page takes up where it was
    page.close()
