"""The library's face: its HTTP API, and the page in a real browser."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
import uvicorn
from fake_localizer import FakeLocalizer, write_clip
from fake_memory import FakeMemoryLocalizer

from egohieraloc import Memory
from egohieraloc.errors import VideoError
from egohieraloc.images import write_image
from egohieraloc.memory.values import Question
from egohieraloc.result_schema import ResultDocument
from egohieraloc.web import memory_jobs
from egohieraloc.web.app import create_app
from egohieraloc.web.jobs import BROKEN, BusyError
from egohieraloc.web.memory_jobs import MemoryJobs
from egohieraloc.web.memory_values import question_value

SCREENSHOTS = Path(__file__).parents[2] / "runs" / "screenshots"
NAMES = ("20260310_081500.mp4", "20260311_190000.mp4", "20260312_101530.mp4")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with a memory of three clips of three days, and its folder."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "cache").mkdir()
    clip = write_clip(folder / "clip.mp4")
    memory = Memory.open(folder / "memory", localizer=FakeMemoryLocalizer(folder / "cache"))
    for number, name in enumerate(NAMES):
        path = folder / name
        shutil.copy(clip, path)
        with path.open("ab") as file:  # equal clips would be one video
            file.write(b"\0" * (number + 1))
        memory.add(path)
    make = partial(FakeMemoryLocalizer, folder / "cache")
    app = create_app(folder / "page", partial(FakeLocalizer, folder), memory=(folder / "memory", make))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", folder
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(world: tuple[str, Path]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=world[0], timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def crop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photograph with a red square in the middle."""
    image = np.full((90, 120, 3), 90, np.uint8)
    image[25:65, 40:80] = (220, 30, 30)
    path = tmp_path_factory.mktemp("crop") / "square.png"
    write_image(path, image)
    return path


def ask(client: httpx.Client, **form: Any) -> dict[str, Any]:
    files = [("images", ("crop.png", data, "image/png")) for data in form.pop("images", [])]
    response = client.post("/memory/questions", data=form, files=files or None)
    assert response.status_code == 201, response.text
    entry = response.json()
    until = time.monotonic() + 60
    while entry["status"] in ("waiting", "running"):
        assert time.monotonic() < until
        time.sleep(0.05)
        entry = client.get(f"/memory/asks/{entry['id']}").json()
    return entry


def question(client: httpx.Client, number: int) -> dict[str, Any]:
    return next(q for q in client.get("/memory/questions").json() if q["id"] == number)


def test_videos_are_listed_with_dates_and_thumbnails(client: httpx.Client) -> None:
    videos = client.get("/memory/videos").json()
    assert [video["name"] for video in videos] == list(NAMES)
    assert [video["start"][:16] for video in videos] == [
        "2026-03-10T08:15", "2026-03-11T19:00", "2026-03-12T10:15",
    ]  # fmt: skip
    assert all(video["ready"] and video["exists"] for video in videos)
    thumbnail = client.get(f"/memory/videos/{videos[0]['id']}/thumbnail", params={"time_s": 3})
    assert thumbnail.headers["content-type"] == "image/jpeg"
    assert thumbnail.content[:2] == b"\xff\xd8"


def test_a_question_over_all_videos_or_some(client: httpx.Client, crop: Path) -> None:
    entry = ask(client, images=[crop.read_bytes()], boxes="40,25,40,40")
    found = question(client, entry["question"])
    assert found["found"]
    assert [s["video"]["name"] for s in found["sightings"]] == list(reversed(NAMES))
    assert found["sightings"][0]["seen_until"][:19] == "2026-03-12T10:15:33"
    assert found["notes"] == ""
    videos = client.get("/memory/videos").json()
    entry = ask(client, images=[crop.read_bytes()], videos=videos[1]["id"])
    assert question(client, entry["question"])["sightings"][0]["video"]["name"] == NAMES[1]
    entry = ask(client, images=[crop.read_bytes()], until="2026-03-11T00:00")
    assert question(client, entry["question"])["sightings"][0]["video"]["name"] == NAMES[0]
    missing = ask(client, images=[crop.read_bytes()] * 3)
    assert not question(client, missing["question"])["found"]
    assert client.get(f"/memory/questions/{missing['question']}/thumbnail").status_code == 200
    assert client.delete(f"/memory/questions/{missing['question']}").status_code == 204
    assert client.get(f"/memory/questions/{missing['question']}/thumbnail").status_code == 404


def test_the_whole_answer_to_keep(client: httpx.Client, crop: Path, world: tuple[str, Path]) -> None:
    """Without paths; the report shows the video."""
    entry = ask(client, images=[crop.read_bytes()])
    files = f"/memory/questions/{entry['question']}/files"
    answer = client.get(f"{files}/result.json")
    assert "attachment" in answer.headers["content-disposition"]
    document = ResultDocument.model_validate(answer.json())
    assert document.video.path == NAMES[2]
    assert document.video.start is not None
    report = client.get(f"{files}/report.html")
    assert report.headers["content-type"].startswith("text/html")
    assert "could not be opened" not in report.text
    assert str(world[1]) not in answer.text + report.text
    assert client.get("/memory/questions/999/files/result.json").status_code == 404


def test_objects_are_saved_asked_and_forgotten(client: httpx.Client, crop: Path) -> None:
    file = ("images", ("crop.png", crop.read_bytes(), "image/png"))
    saved = client.post("/memory/objects", data={"name": "keys/1", "boxes": ["", ""]}, files=[file, file])
    assert (saved.status_code, saved.json()["views"]) == (201, 2)
    entry = ask(client, object_name="Keys/1")
    assert question(client, entry["question"])["object_name"] == "keys/1"
    (listed,) = client.get("/memory/objects").json()
    assert listed["last_seen"] is not None
    saved = client.post("/memory/objects", data={"name": "wallet"}, files=[file])
    assert client.get("/memory/objects/wallet/thumbnail").headers["content-type"] == "image/jpeg"
    assert client.delete("/memory/objects/wallet").status_code == 204
    assert client.delete("/memory/objects/wallet").status_code == 404


def test_maps_of_the_places_of_saved_objects(client: httpx.Client, crop: Path) -> None:
    file = ("images", ("crop.png", crop.read_bytes(), "image/png"))
    for name in ("bag", "hat"):
        client.post("/memory/objects", data={"name": name}, files=[file])
    ask(client, object_name="bag")
    assert client.get("/memory/maps").json() == []
    ask(client, object_name="bag", in_3d="true")
    found = question(client, ask(client, object_name="bag", in_3d="true")["question"])
    assert "it is 2.1 m" in found["notes"]
    assert found["message"].endswith(f"confidence 0.87. {found['notes']}")
    (only,) = client.get("/memory/maps").json()
    assert only["video"]["name"] == NAMES[2]
    (bag,) = only["scene"]["objects"]
    assert (bag["name"], bag["last_seen_at"][:19], bag["seen_later_at"]) == (
        "bag",
        "2026-03-12T10:15:33",
        None,
    )
    assert ["hat", "not asked for yet"] in only["scene"]["without_place"]
    for name in ("bag", "hat"):
        client.delete(f"/memory/objects/{name}")
    assert client.get("/memory/maps").json() == []


def test_what_is_refused(client: httpx.Client, crop: Path) -> None:
    image = ("images", ("crop.png", crop.read_bytes(), "image/png"))
    blue = np.full((20, 20, 3), (0, 0, 255), np.uint8)
    path = crop.with_name("blue.png")
    write_image(path, blue)
    cases: list[tuple[int, str, dict[str, Any], list[Any] | None]] = [
        (422, "Say what to look for", {}, None),
        (422, "is not an image", {}, [("images", ("a.png", b"no image", "image/png"))]),
        (404, "No object is saved as 'gone'", {"object_name": "gone"}, None),
        (422, "A time is written as", {"until": "yesterday"}, [image]),
        (404, "There is no video gone", {"videos": "gone"}, [image]),
        (422, "Wanted a box for each image, got 2 for 1", {"boxes": ["", ""]}, [image]),
        (422, "At most 16 images", {}, [image] * 17),
    ]
    for status, words, form, files in cases:
        response = client.post("/memory/questions", data=form, files=files)
        assert (response.status_code, words in response.json()["error"]) == (status, True), response.text
    failed = ask(client, images=[path.read_bytes()])
    assert (failed["status"], failed["message"]) == ("failed", "There is something wrong with this query.")
    assert client.get("/memory/asks/gone").status_code == 404
    assert client.get("/memory/videos/gone/thumbnail").status_code == 404
    assert client.delete("/memory/videos/gone").status_code == 404
    assert str(crop.parent) not in client.get("/memory/questions").text


class Gate:
    """Stands for the process that answers: fails each question, once it is open."""

    def __init__(self) -> None:
        self.open, self.error = threading.Event(), VideoError("/home/alice/private/walk.mp4 is empty.")

    def run(self, *_: Any, **__: Any) -> int:
        self.open.wait(60)
        raise self.error

    def close(self) -> None: ...


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_questions_wait_in_a_queue_that_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_jobs, "MAX_WAITING", 4)
    monkeypatch.setattr(memory_jobs, "MAX_KEPT", 5)
    jobs, gate = MemoryJobs(tmp_path, partial(FakeMemoryLocalizer, tmp_path)), Gate()
    monkeypatch.setattr(jobs, "_process", gate)
    asked = [jobs.ask("keys", None, None).id for _ in range(4)]
    with pytest.raises(BusyError, match="4 queries are waiting already"):
        jobs.ask("keys", None, None)
    assert all(jobs.get(number) is not None for number in asked)
    gate.open.set()
    wait_until(lambda: jobs.get(asked[-1]).status == "failed")
    assert jobs.get(asked[0]).message == "walk.mp4 is empty."
    gate.error = ZeroDivisionError("by zero")
    asked += [jobs.ask("keys", None, None).id for _ in range(3)]
    wait_until(lambda: jobs.get(asked[-1]).status == "failed")
    assert jobs.get(asked[-1]).message == BROKEN
    assert [jobs.get(number) is not None for number in asked] == [False] * 2 + [True] * 5
    jobs.close()


def test_a_question_keeps_no_path_of_a_video_that_was_removed() -> None:
    message = "Not found. The file /home/alice/walk.mp4 is gone; unverified, from memory, it looks ..."
    value = question_value(Question(1, datetime.now(UTC), None, None, message, (), found=False))
    assert value.message.startswith("Not found. The file walk.mp4 is gone")


@pytest.fixture
def hold(world: tuple[str, Path]) -> Iterator[Path]:
    """While this file is there questions stay on their way."""
    file = world[1] / "cache" / "hold"
    file.touch()
    yield file
    file.unlink(missing_ok=True)


def test_questions_on_their_way_are_listed_and_cancelled(
    client: httpx.Client, crop: Path, hold: Path
) -> None:
    def stands(number: str) -> str:
        return client.get(f"/memory/asks/{number}").json()["status"]

    file = ("images", ("crop.png", crop.read_bytes(), "image/png"))
    client.post("/memory/objects", data={"name": "cup"}, files=[file])
    kept = client.get("/memory/questions").json()
    first = client.post("/memory/questions", files=[file]).json()["id"]
    second, third = (
        client.post("/memory/questions", data={"object_name": "cup"}).json()["id"] for _ in range(2)
    )
    wait_until(lambda: stands(first) == "running")
    listed = [(ask["id"], ask["object_name"]) for ask in client.get("/memory/asks").json()]
    assert listed == [(first, None), (second, "cup"), (third, "cup")]
    for number in (second, first):
        assert client.delete(f"/memory/asks/{number}").json()["status"] == "cancelled"
    wait_until(lambda: stands(third) == "running")
    hold.unlink()
    wait_until(lambda: stands(third) == "done")
    assert (stands(first), stands(second)) == ("cancelled", "cancelled")
    assert client.delete(f"/memory/asks/{third}").json()["status"] == "done"
    assert client.get("/memory/asks").json() == []
    assert len(client.get("/memory/questions").json()) == len(kept) + 1
    assert client.delete("/memory/asks/gone").status_code == 404
    client.delete("/memory/objects/cup")


@pytest.fixture
def page(browser: Any, world: tuple[str, Path]) -> Iterator[Any]:
    """The library page; a message of the browser or a request elsewhere fails."""
    trouble: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda r: r.url.startswith((world[0], "data:", "blob:")) or trouble.append(r.url))
    page.goto(f"{world[0]}/library")
    page.wait_for_selector("#videos li")
    yield page
    context.close()
    assert trouble == []


def screenshot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"library-{name}.png", full_page=True)


def wait_for_headline(page: Any, text: str) -> None:
    page.wait_for_function("text => document.getElementById('headline').textContent.includes(text)", arg=text)


def test_the_page_shows_all_videos_and_asks_them(page: Any, crop: Path, hold: Path) -> None:
    dates = page.locator("#videos li b").all_inner_texts()
    assert dates == [
        "Thursday, 12 March 2026, 10:15:30",
        "Wednesday, 11 March 2026, 19:00:00",
        "Tuesday, 10 March 2026, 08:15:00",
    ]
    page.wait_for_function(
        "() => [...document.querySelectorAll('#videos img')].every((i) => i.naturalWidth > 0)"
    )
    assert page.locator("#days .day").count() == 3
    assert page.is_disabled("#ask")
    page.set_input_files("#image-files", [crop, crop])
    page.wait_for_selector("#views li:nth-child(2)")
    area = page.locator("#views .view").first.bounding_box()
    page.mouse.move(area["x"] + area["width"] / 3, area["y"] + area["height"] * 25 / 90)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 2 / 3, area["y"] + area["height"] * 65 / 90)
    page.mouse.up()
    drawn = page.locator("#views .view rect.mark").first
    assert [round(float(drawn.get_attribute(side))) for side in ("x", "y", "width", "height")] == [
        40,
        25,
        40,
        40,
    ]
    page.click("#ask")
    page.wait_for_function(
        "() => document.getElementById('asks').textContent.startsWith('Searching closely, 50')"
    )
    assert page.is_visible("#asks progress")
    hold.unlink()
    wait_for_headline(page, "Last seen on Thursday, 12 March 2026, 10:15:33")
    assert "in 20260312_101530.mp4 from 0:02.0 to 0:03.0, confidence 0.87." in page.inner_text(
        "#answer-words"
    )
    assert page.locator("#sightings li").count() == 3
    assert page.locator("#days .seen").count() == 3
    assert page.locator("#shown-marks rect.mark").get_attribute("x") == "50"  # at 2 s, as the image
    screenshot(page, "answer")
    page.locator("#sightings .row").nth(1).click()
    assert "20260311_190000.mp4" in page.inner_text("#answer-words")
    assert page.locator("#sightings .row[aria-current=true]").inner_text().startswith("Wednesday")
    page.reload()
    wait_for_headline(page, "Last seen on Thursday, 12 March 2026, 10:15:33")
    with page.expect_download() as download:
        page.click("#files a[data-file='report.html']")
    assert download.value.suggested_filename == "report.html"


def test_a_reloaded_page_takes_up_its_question(
    page: Any, client: httpx.Client, crop: Path, hold: Path
) -> None:
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#views li")
    page.click("#ask")
    page.wait_for_function("() => document.getElementById('asks').textContent.includes('50')")
    page.reload()
    page.wait_for_function("() => document.getElementById('asks').textContent.includes('50')")
    before = len(client.get("/memory/questions").json())
    hold.unlink()
    wait_for_headline(page, "Last seen on Thursday")
    assert page.locator("#questions li").count() == before + 1
    assert page.is_hidden("#asks-card")


def test_a_question_is_cancelled_on_the_page(page: Any, client: httpx.Client, crop: Path, hold: Path) -> None:
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#views li")
    before = len(client.get("/memory/questions").json())
    page.click("#ask")
    page.wait_for_function("() => document.getElementById('asks').textContent.includes('50')")
    page.click("#asks button")
    page.wait_for_selector("#asks-card", state="hidden")
    assert page.is_hidden("#answer-card")
    assert page.is_hidden("#trouble")
    hold.unlink()
    page.click("#ask")
    wait_for_headline(page, "Last seen on Thursday")
    assert page.locator("#questions li").count() == before + 1


def test_what_others_ask_appears(page: Any, crop: Path, client: httpx.Client) -> None:
    """Lists are brought up to date now and then; a row keeps its place, and says when it was last seen."""
    page.clock.install()
    page.reload()
    page.wait_for_selector("#videos li")
    file = ("images", ("crop.png", crop.read_bytes(), "image/png"))
    client.post("/memory/objects", data={"name": "pen"}, files=[file])
    page.clock.run_for(16_000)
    row = page.locator("#objects li", has_text="pen")
    row.wait_for()
    assert row.locator(".quiet").inner_text() == "1 image"
    ask(client, object_name="pen")
    page.clock.run_for(16_000)
    page.locator("#questions .row", has_text="pen, asked").wait_for()
    page.wait_for_function(
        "() => document.getElementById('objects').textContent.includes('1 image, last seen Thu')"
    )
    client.delete("/memory/objects/pen")


def test_only_chosen_videos_and_only_before_a_time(page: Any, crop: Path) -> None:
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#views li")
    page.locator("#videos input").nth(1).check()
    assert page.inner_text("#chosen-words") == "1 of 3 are asked."
    page.click("#ask")
    wait_for_headline(page, "Last seen on Wednesday, 11 March 2026, 19:00:03")
    page.locator("#videos input").nth(1).uncheck()
    page.fill("#until", "2026-03-11T12:00:00")
    page.click("#ask")
    wait_for_headline(page, "Last seen on Tuesday, 10 March 2026, 08:15:03")
    assert "only before Wed, 11 Mar 2026, 12:00:00" in page.locator("#questions .row").first.inner_text()
    page.fill("#until", "2020-01-01T12:00:00")
    page.click("#ask")
    wait_for_headline(page, "Not seen")


def test_the_place_in_space_of_images(page: Any, crop: Path) -> None:
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#views li")
    page.check("#in-3d")
    page.click("#ask")
    page.wait_for_selector("#notes:visible")
    assert "it is 2.1 m" in page.inner_text("#notes")
    page.uncheck("#in-3d")
    page.click("#ask")
    page.wait_for_selector("#notes", state="hidden")
    wait_for_headline(page, "Last seen on Thursday")
    assert page.is_hidden("#notes")


def test_the_day_of_an_answer_is_on_the_time_line(page: Any, crop: Path, client: httpx.Client) -> None:
    """Also where many newer days were recorded."""
    ask(client, images=[crop.read_bytes()])
    (first, *_) = videos = client.get("/memory/videos").json()
    for number in range(70):
        start = f"2026-{4 + number // 28:02}-{1 + number % 28:02}T08:00:00Z"
        videos.append({**first, "id": f"{number:016}", "start": start, "ready": False})
    page.route("**/memory/videos", lambda route: route.fulfill(json=videos))
    page.reload()
    page.locator("#questions .row").first.click()
    page.wait_for_selector("#days .seen")
    assert page.locator("#days .day").count() == 63
    seen = page.locator("#days .day:has(.seen:not(.other))")
    assert seen.get_attribute("data-day") == "2026-03-12"


def test_objects_on_the_page(page: Any, crop: Path) -> None:
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#views li")
    page.once("dialog", lambda dialog: dialog.accept("<b>my mug</b>"))
    page.click("#save")
    row = page.locator("#objects li", has_text="<b>my mug</b>")
    row.wait_for()
    row.locator(".row").click()
    wait_for_headline(page, "Last seen on Thursday")
    page.wait_for_function("() => document.querySelector('#questions .quiet').textContent.includes('my mug')")
    page.once("dialog", lambda dialog: dialog.accept())
    row.locator(".remove").click()
    row.wait_for(state="detached")


def test_a_narrow_screen(page: Any, crop: Path, client: httpx.Client) -> None:
    """What was asked for is in view: the answer comes first, a question that is chosen leads to it."""
    ask(client, images=[crop.read_bytes()])
    page.set_viewport_size({"width": 390, "height": 800})
    page.reload()
    page.locator("#questions .row").first.click()
    wait_for_headline(page, "Last seen")
    assert page.evaluate("document.getElementById('headline').getBoundingClientRect().top") > -1
    tops = page.evaluate(
        "['answer', 'look', 'objects', 'days', 'shots', 'questions']"
        ".map((name) => document.getElementById(`${name}-card`).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    screenshot(page, "phone")


def test_places_are_shown_on_a_map(page: Any, crop: Path, client: httpx.Client) -> None:
    assert page.is_hidden("#map-card")
    file = ("images", ("crop.png", crop.read_bytes(), "image/png"))
    client.post("/memory/objects", data={"name": "<b>bag"}, files=[file])
    page.reload()
    page.wait_for_selector("#objects .row")
    page.check("#in-3d")
    page.locator("#objects .row", has_text="<b>bag").click()
    page.wait_for_selector("#map-card", state="visible")
    text = page.inner_text("#map-legend")
    assert text.startswith("<b>bag: Thursday, 12 March 2026, 10:15:33, within ")
    assert page.is_hidden("#map-video")
    painted = page.evaluate(
        "() => { const c = document.getElementById('map');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 0; i < d.length; i += 4)"
        "  n += d[i] === 0x15 && d[i + 1] === 0x80 && d[i + 2] === 0x3d; return n; }"
    )
    assert painted > 30
    screenshot(page, "map")
    client.delete("/memory/objects/<b>bag")


def test_a_gone_file_and_a_removed_video(page: Any, crop: Path, world: tuple[str, Path]) -> None:
    """Last: it changes what the others see."""
    (world[1] / NAMES[2]).unlink()
    page.reload()
    page.wait_for_selector("#videos li")
    assert "the file is gone" in page.locator("#videos li").first.inner_text()
    page.set_input_files("#image-files", crop)
    page.wait_for_selector("#views li")
    page.click("#ask")
    wait_for_headline(page, "Last seen on Thursday, 12 March 2026")
    gone = f"The file {NAMES[2]} is no longer there; this is from memory."
    assert page.inner_text("#notes") == gone
    page.wait_for_function("() => document.getElementById('shown-image').naturalWidth > 0")
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("#videos .remove").first.click()
    page.wait_for_function("() => document.querySelectorAll('#videos li').length === 2")
    assert (world[1] / NAMES[1]).exists()
    page.locator("#questions .row").first.click()
    page.wait_for_selector("#answer-card:visible")
    assert page.is_hidden("#files")  # they went with the video
