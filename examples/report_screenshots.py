"""The pictures of a report in `docs/images`: desktop, dark and phone.

    egohieraloc demo --out demo_report
    python examples/report_screenshots.py demo_report/report.html docs/images

Needs Playwright and Chromium. The network is off, as a report needs none.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import cv2
import numpy as np
from playwright.sync_api import Browser, sync_playwright

LOOKS = (("report", 1280, False), ("report_dark", 1280, True), ("report_phone", 390, False))
HIDDEN = ("film-card", "overlay-card", "maps-card")  # so that the rest fits one picture
MOST_PX = 960


def screenshot(browser: Browser, report: Path, width: int, *, dark: bool) -> np.ndarray:
    """The top of the page, down to the place in space, as BGR."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    for name in HIDDEN:
        page.evaluate("name => document.getElementById(name).hidden = true", name)
    page.wait_for_timeout(800)
    place = page.locator("#scene-card").bounding_box()
    picture = cv2.imdecode(np.frombuffer(page.screenshot(full_page=True), np.uint8), cv2.IMREAD_COLOR)
    context.close()
    return picture if place is None else picture[: round(place["y"] + place["height"] + 20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, dark in LOOKS:
            picture = screenshot(browser, arguments.report, width, dark=dark)
            scale = min(1.0, MOST_PX / picture.shape[1])
            picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            path = arguments.out / f"{name}.jpg"
            if not cv2.imwrite(str(path), picture, [cv2.IMWRITE_JPEG_QUALITY, 82]):
                raise SystemExit(f"Cannot write {path}.")
        browser.close()


if __name__ == "__main__":
    main()
