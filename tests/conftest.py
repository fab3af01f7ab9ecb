"""What tests of several folders share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; tests that need it are skipped where it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()
