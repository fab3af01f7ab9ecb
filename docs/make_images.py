"""Make the pictures in docs/images: the demo's report and the pages, in Chromium, with the shipped weights.

python docs/make_images.py [FOLDER]    FOLDER keeps the demo's report, and the pages' videos and answers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
from playwright.sync_api import sync_playwright

from egohieraloc.cli.demo import DEMO_SETTINGS
from egohieraloc.demo import CLIP, QUERY, load_truth
from egohieraloc.memory.shelf import Shelf
from egohieraloc.query import Query

IMAGES = Path(__file__).parent / "images"
COMMAND = [sys.executable, "-c", "from egohieraloc.cli import main; main()"]
PATIENCE_MS = 600_000


@contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """The address of a page that keeps everything in a folder."""
    settings = [part for setting in DEMO_SETTINGS for part in ("--set", setting)]
    options = ["serve", "--port", "0", "--folder", str(folder), *more, *settings]
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, "The server did not start."
            yield found[0]
        finally:
            server.terminate()


def opened(browser: Any, address: str, *, width: int, height: int, dark: bool = False) -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        device_scale_factor=0.75 if width > 1000 else 1,
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    return page


def shoot(page: Any, name: str) -> None:
    page.mouse.move(0, 0)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=IMAGES / f"{name}.jpg", type="jpeg", quality=80)


def report(browser: Any, path: Path) -> None:
    for name, width, height in (
        ("report", 1280, 1640),
        ("report_dark", 1280, 1640),
        ("report_phone", 390, 1500),
    ):
        page = opened(browser, path.as_uri(), width=width, height=height, dark=name == "report_dark")
        shoot(page, name)
        page.context.close()


def page(browser: Any, address: str) -> None:
    """Ask for the bear where it is largest in its first appearance; then show the answer to others, too."""
    truth = load_truth()
    first, last = truth.appearances[0]
    sample = max(range(first, last + 1), key=lambda s: _area(truth.boxes[s]))
    box = truth.boxes[sample]
    assert box is not None
    page = opened(browser, address, width=1280, height=860, dark=True)
    page.set_input_files("#video-file", CLIP)
    page.wait_for_selector("#still:not([hidden])")
    page.locator("#scrub").fill(str(sample / truth.sample_fps))
    page.wait_for_selector("#still:not([hidden])")
    area = page.locator("#stage").bounding_box()
    scale = area["width"] / 640
    x1, y1, x2, y2 = (side * scale for side in box.xyxy)
    page.mouse.move(area["x"] + x1, area["y"] + y1)
    page.mouse.down()
    page.mouse.move(area["x"] + x2, area["y"] + y2, steps=3)
    page.mouse.up()
    page.check("#in-3d")
    page.wait_for_selector("#mask-words:not(:empty)")  # what will be searched is shown
    shoot(page, "page_dark")
    page.click("#ask")
    page.wait_for_selector("#place-card:not([hidden])")
    found = page.url
    page.context.close()
    for name, (width, height) in {"page": (1280, 1800), "page_phone": (390, 1700)}.items():
        page = opened(browser, found, width=width, height=height)
        page.wait_for_selector("#place-card:not([hidden])")
        page.wait_for_selector("#still:not([hidden])")
        shoot(page, name)
        page.context.close()


def library(browser: Any, folder: Path) -> None:
    """Three days: the bundled clip, and parts of it. The bear is a saved object."""
    videos, memory = folder / "videos", folder / "memory"
    videos.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(CLIP, videos / "20260312_101530.mp4")
    _part(videos / "20260311_190215.mp4", 0, 22)
    _part(videos / "20260310_081500.mp4", 14, 32)
    subprocess.run([*COMMAND, "memory", "add", str(videos), "--memory", str(memory)], check=True)
    Shelf(memory).objects.save("teddy bear", Query.from_image(QUERY, box=load_truth().query_box))
    with served(folder / "page", "--memory", str(memory)) as address:
        page = opened(browser, f"{address}/library", width=1280, height=1325)
        page.wait_for_selector("#objects .row")
        page.check("#in-3d")
        page.set_input_files("#image-files", QUERY)
        page.locator("#objects .row").click()
        page.wait_for_selector("#map-card:not([hidden])")
        page.wait_for_selector("#answer-card:not([hidden])")
        shoot(page, "library")
        page.context.close()


def _part(path: Path, start_s: float, end_s: float) -> None:
    with av.open(str(CLIP)) as source, av.open(str(path), "w") as out:
        given = source.streams.video[0]
        stream = out.add_stream("h264", rate=given.average_rate)
        stream.width, stream.height, stream.pix_fmt = given.width, given.height, "yuv420p"
        for frame in source.decode(given):
            if start_s <= frame.time < end_s:
                rgb = frame.to_ndarray(format="rgb24")
                out.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        out.mux(stream.encode())


def _area(box: Any) -> float:
    return 0.0 if box is None else (box.x2 - box.x1) * (box.y2 - box.y1)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/images")
    subprocess.run([*COMMAND, "demo", "--out", str(folder / "demo")], check=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        report(browser, (folder / "demo" / "report.html").resolve())
        with served(folder / "page") as address:
            page(browser, address)
        library(browser, folder / "library")


if __name__ == "__main__":
    main()
