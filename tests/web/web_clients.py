"""What the tests of the server say to it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fake_localizer import FakeLocalizer

from egohieraloc.web.app import create_app

BASE_URL = "http://localhost:8300"


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
