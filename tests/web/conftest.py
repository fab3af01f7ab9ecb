"""Servers to test with: the real application around a fake Localizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_localizer import FakeLocalizer, write_clip

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient
from web_clients import BASE_URL, Live, running_server, upload

from egohieraloc.web.app import create_app


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip") / "walk.mp4")


@pytest.fixture
def switches(tmp_path: Path) -> Path:
    """Files here steer the fake Localizer of `serve`."""
    folder = tmp_path / "switches"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def serve(tmp_path: Path, switches: Path) -> Callable[..., Any]:
    """Makes a client of a server; the folder is the same for all of a test."""

    def served(*, step_s: float = 0.0, **options: Any) -> TestClient:
        make = partial(FakeLocalizer, switches, step_s)
        app = create_app(tmp_path / "page", make, **options)
        return TestClient(app, base_url=BASE_URL, raise_server_exceptions=False)

    return served


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One server for all tests of a file that leave nothing behind that matters to others."""
    folder = tmp_path_factory.mktemp("shared")
    app = create_app(folder / "page", partial(FakeLocalizer, folder), max_video_bytes=1_000_000)
    with TestClient(app, base_url=BASE_URL, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def video_id(client: TestClient, clip: Path) -> str:
    return upload(client, clip)["id"]


@pytest.fixture
def live(tmp_path: Path, switches: Path) -> Iterator[Live]:
    with running_server(tmp_path, switches) as url:
        yield Live(url, switches)
