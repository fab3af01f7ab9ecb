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


def ask(client: Any, video_id: str, **more: str) -> dict[str, Any]:
    form = {"time_s": "1.0", "box": "30,30,40,40", **more}
    response = client.post(f"/videos/{video_id}/queries", data=form)
    assert response.status_code == 201, response.text
    return response.json()


def wait_for(client: Any, query_id: str, *statuses: str, stage: str | None = None) -> dict[str, Any]:
    """The query once it has one of these statuses and, where one is named, is at this stage."""
    until = time.monotonic() + 120
    while True:
        query = client.get(f"/queries/{query_id}").json()
        if query["status"] in statuses and stage in (None, (query["progress"] or {}).get("stage")):
            return query
        assert query["status"] in ("waiting", "running"), query
        assert time.monotonic() < until, query
        time.sleep(0.05)


@dataclass(frozen=True)
class Live:
    """A server on a real socket."""

    url: str
    switches: Path


@contextmanager
def running_server(folder: Path, switches: Path, port: int = 0) -> Iterator[str]:
    app = create_app(folder / "page", partial(FakeLocalizer, switches))
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
