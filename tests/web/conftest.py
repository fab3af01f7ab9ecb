"""Servers to test with: the real application around a fake Localizer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_localizer import FakeLocalizer, write_clip

pytest.importorskip("fastapi")
import uvicorn
from fastapi.testclient import TestClient

from egohieraloc.web.app import create_app

BASE_URL = "http://localhost:8300"


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


def upload(client: Any, path: Path) -> dict[str, Any]:
    response = client.post("/videos", params={"name": path.name}, content=path.read_bytes())
    assert response.status_code == 201, response.text
    return response.json()


def ask(client: Any, video_id: str) -> dict[str, Any]:
    form = {"time_s": "1.0", "box": "30,30,40,40"}
    response = client.post(f"/videos/{video_id}/queries", data=form)
    assert response.status_code == 201, response.text
    return response.json()


def wait_for(client: Any, query_id: str, *statuses: str) -> dict[str, Any]:
    """The question once it has one of these statuses."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        query = client.get(f"/queries/{query_id}").json()
        if query["status"] in statuses:
            return query
        time.sleep(0.05)
    raise AssertionError(f"Still {query['status']}: {query}")


@dataclass(frozen=True)
class Live:
    """A server on a real socket."""

    url: str
    switches: Path


@pytest.fixture
def live(tmp_path: Path, switches: Path) -> Iterator[Live]:
    with running_server(tmp_path, switches) as url:
        yield Live(url, switches)


@contextmanager
def running_server(folder: Path, switches: Path, port: int = 0) -> Iterator[str]:
    app = create_app(folder / "page", partial(FakeLocalizer, switches, 0.05))
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
