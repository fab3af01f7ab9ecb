"""What tests of several folders share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from egohieraloc.processor import avoid_broken_tiles

# Half a minute and more, some with few tests: begun first, so that no worker waits for another at the end.
LONG = {
    "test_end_to_end.py",
    "test_examples.py",
    "test_golden.py",
    "test_loop.py",
    "test_run_vq2d.py",
    "test_sfm.py",
    "test_web_browser.py",
    "test_web_jobs.py",
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


avoid_broken_tiles()  # for tests that build a network themselves


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session")
def demo_cache(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A cache for the bundled clip, which is read once for all files that ask about it, in any worker."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if hasattr(request.config, "workerinput") else folder) / "demo_cache"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; tests that need it are skipped where it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()
