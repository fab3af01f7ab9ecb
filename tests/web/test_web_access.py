"""The pages for everyone: axe-core's rules in every state they are met in, and the Tab key alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from test_web_browser import (  # fixtures among them
    Open,
    _clean,
    ask_about_the_square,
    live,
    open_page,
    rectangle,
    wait_for_headline,
    wait_for_words,
)
from test_web_memory import ask, client, crop, world
from test_web_page import SERIOUS, photo
from web_clients import Live

__all__ = ["_clean", "client", "crop", "live", "open_page", "photo", "world"]


def findings(page: Any) -> list[str]:
    """What axe-core finds that keeps someone from using the page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [
        f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']][:3]}"
        for each in axe.run(page).response["violations"]
        if each["impact"] in SERIOUS
    ]


def unguarded(browser: Any, address: str, **options: Any) -> Any:
    """A page that lets axe-core's script in."""
    page = browser.new_context(bypass_csp=True, **options).new_page()
    page.goto(address)
    return page


def test_from_the_first_visit_to_an_answer_that_is_none(
    browser: Any, live: Live, clip: Path, photo: Path
) -> None:
    page = unguarded(browser, live.url)
    page.wait_for_selector("#demo:visible")
    assert findings(page) == []
    page.set_input_files("#video-file", clip)
    page.wait_for_selector("#ask-card:visible")
    page.check("#in-3d")
    page.fill("#until", "soon")
    page.set_input_files("#image-file", photo)
    page.wait_for_selector("#photo-card:visible")
    page.locator("#photo").press("ArrowRight")
    page.click("#ask")
    page.wait_for_selector("#trouble:visible")
    assert findings(page) == []
    page.fill("#until", "")
    (live.switches / "miss").touch()
    page.click("#ask")
    wait_for_headline(page, "Not seen in this video")
    page.click("#not-this")
    assert findings(page) == []
    page.context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_library(
    browser: Any, world: tuple[str, Path], client: httpx.Client, crop: Path, scheme: str, width: int
) -> None:
    ask(client, images=[crop.read_bytes()], boxes="40,25,40,40")
    viewport = {"width": width, "height": 900}
    page = unguarded(browser, f"{world[0]}/library", color_scheme=scheme, viewport=viewport)
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#videos li")
    page.wait_for_selector("#questions-card:visible")
    page.click("#questions .row")
    page.wait_for_selector("#answer-card:visible")
    assert findings(page) == []
    page.context.close()


def tab_to(page: Any, element: str, *, back: bool = False) -> None:
    """Press Tab until an element has the focus, which must be seen wherever it goes."""
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        at, outlined = page.evaluate(
            """() => {
                const at = document.activeElement;
                const shown = at.classList.contains("unseen") ? at.closest("label") : at;
                return [at.id, at === document.body || getComputedStyle(shown).outlineStyle !== "none"];
            }"""
        )
        assert outlined, at
        if at == element:
            return
    raise AssertionError(f"Tab does not lead to {element}.")


def test_tab_alone_leads_through_the_page(open_page: Open) -> None:
    """A moment, a box, a query time, Ask, the next candidate, its curve, a download: no mouse anywhere."""
    page = open_page()
    tab_to(page, "stage")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert rectangle(page, "rect.draft") == pytest.approx([64, 48, 35.2, 24])
    tab_to(page, "scrub")
    page.keyboard.press("End")
    assert page.inner_text("#moment").endswith("frame 39 of 40")
    tab_to(page, "until-now")
    page.keyboard.press("Enter")
    assert page.input_value("#until") == "0:03.9"
    tab_to(page, "ask")
    page.keyboard.press("Enter")
    wait_for_headline(page, "Last seen")
    tab_to(page, "not-this", back=True)
    page.keyboard.press("Enter")
    wait_for_words(page, "Candidate 2")
    tab_to(page, "curve", back=True)
    page.keyboard.press("Home")
    assert page.inner_text("#moment").startswith("0:00.0")
    tab_to(page, "overlay-link")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "overlay.mp4"


def test_tab_alone_leads_through_the_library(
    browser: Any, world: tuple[str, Path], client: httpx.Client, crop: Path
) -> None:
    """A box on an image, Ask, an earlier sighting, the question opened again."""
    page = browser.new_page()
    page.goto(f"{world[0]}/library")
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#videos li")
    page.locator("#views .view").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    assert page.locator("#views rect.mark").get_attribute("height") == "20.4"
    tab_to(page, "ask")
    page.evaluate(
        """() => {
            const { append } = FormData.prototype;
            FormData.prototype.append = function (...given) {
                window.box = given[1];
                append.apply(this, given);
            };
        }"""
    )
    page.keyboard.press("Enter")
    wait_for_headline(page, "Last seen")
    assert page.evaluate("window.box") == "48.0,36.0,24.0,20.4"
    page.locator("#sightings .row").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator("#questions .row").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#sightings .row").first.get_attribute("aria-current") == "true"
    page.close()


def test_a_question_is_opened_and_deleted_with_keys(open_page: Open) -> None:
    page = open_page()
    ask_about_the_square(page)
    wait_for_headline(page, "Last seen")
    page.once("dialog", lambda dialog: dialog.accept())
    page.focus("#queries .remove")
    page.keyboard.press("Enter")
    wait_for_headline(page, "Where was it last seen?")
    page.wait_for_function("document.activeElement !== document.body")  # and Tab goes on from there
