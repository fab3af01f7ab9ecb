"""Attacks on the server: bombs, crowds, strangers, slow clients, and a second server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fake_localizer import FakeLocalizer
from fastapi.testclient import TestClient
from web_clients import upload

from egohieraloc.errors import OutputError
from egohieraloc.progress import Progress
from egohieraloc.web import jobs, patience
from egohieraloc.web.app import create_app
from egohieraloc.web.library import Library
from egohieraloc.web.process import FullError, Limits, OwnProcess, ProcessDiedError, ProcessPool
from hostile import lying_png, png_bomb

SMALL = Limits(memory_bytes=1_000_000_000, cpu_s=1.0)


def send_image(client: TestClient, video_id: str, data: bytes) -> Any:
    return client.post(f"/videos/{video_id}/queries", files={"image": ("a.png", data)})


@pytest.mark.parametrize("make", [png_bomb, lying_png])
def test_an_image_bomb_is_refused(client: TestClient, video_id: str, make: Callable[[], bytes]) -> None:
    """How little time and memory that takes: test_images.py."""
    assert send_image(client, video_id, make()).status_code == 422


def work(tool: None, progress: Progress, kind: str) -> str:
    if kind == "memory":
        return str(len(bytearray(3_000_000_000)))
    if kind == "time":
        while True:
            pass
    if kind == "sleep":
        time.sleep(0.5)
    return "done"


def test_a_process_has_limits_of_memory_and_of_time() -> None:
    process = OwnProcess(limits=SMALL)
    try:
        with pytest.raises(Exception, match="more memory than it may take"):
            process.run(work, "memory")
        began = time.monotonic()
        with pytest.raises(ProcessDiedError):
            process.run(work, "time")
        assert time.monotonic() - began < 30
        assert process.run(work, "quick") == "done"
    finally:
        process.close()


def test_who_finds_the_queue_full_is_told_at_once() -> None:
    pool = ProcessPool(1, waiting=1, limits=SMALL)
    try:
        pool.run(work, "quick", limit_s=60)
        with ThreadPoolExecutor(8) as threads:
            futures = [threads.submit(pool.run, work, "sleep", limit_s=60) for _ in range(8)]
            errors = [future.exception() for future in futures]
        assert sorted(type(error).__name__ for error in errors) == ["FullError"] * 6 + ["NoneType"] * 2
        assert any(isinstance(error, FullError) for error in errors)
        assert pool.run(work, "quick", limit_s=60) == "done"  # and places are given back
    finally:
        pool.close()


def test_the_queue_holds_no_more_than_its_limit(
    serve: Any, clip: Path, switches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_WAITING", 3)
    (switches / "hold").touch()
    with serve(workers=1) as client:
        video_id = upload(client, clip)["id"]
        form = {"time_s": "1.0", "box": "30,30,40,40"}
        with ThreadPoolExecutor(12) as threads:
            asked = [threads.submit(client.post, f"/videos/{video_id}/queries", data=form) for _ in range(12)]
            statuses = [response.result().status_code for response in asked]
        assert set(statuses) == {201, 429}
        assert statuses.count(201) <= 4  # one may already be at work
        (switches / "hold").unlink()


def test_one_server_has_a_folder(tmp_path: Path) -> None:
    first, second = Library(tmp_path / "page"), Library(tmp_path / "page")
    first.open()
    with first.incoming() as receiving:
        with pytest.raises(OutputError, match="Another server uses the folder"):
            second.open()
        assert receiving.exists()
    first.close()
    second.open()
    second.close()


def test_the_folder_is_private(tmp_path: Path) -> None:
    library = Library(tmp_path / "page")
    library.open()
    folders = [tmp_path / "page", *(p for p in (tmp_path / "page").iterdir() if p.is_dir())]
    library.close()
    assert {p.stat().st_mode & 0o777 for p in folders} == {0o700}
    assert len(folders) == 5


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8300"}, 200),
        ({"origin": "https://localhost:8300"}, 403),
        ({"origin": "http://localhost:8301"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ],
)
def test_requests_from_other_pages(client: TestClient, headers: dict[str, str], status: int) -> None:
    assert client.get("/videos", headers=headers).status_code == status


def test_a_link_on_another_page_may_lead_here(client: TestClient) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=headers).status_code == 200
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 403


TOKEN = "a-token-of-some-length"


def test_without_the_token_there_is_nothing(serve: Any) -> None:
    with serve(token=TOKEN) as client:
        for path in ("/", "/videos", "/about", "/static/page.js", "/openapi.json", "/nowhere"):
            assert client.get(path).status_code == 401, path
        assert client.get(f"/?token={TOKEN}x", follow_redirects=False).status_code == 401
        assert client.get(f"/videos?token={TOKEN}").status_code == 401  # it opens the page alone
        assert client.get("/videos", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/videos", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
        welcome = client.get(f"/?token={TOKEN}", follow_redirects=False)
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in welcome.headers["set-cookie"]
        assert client.get("/videos").status_code == 200  # the client keeps the cookie


@pytest.fixture
def patient_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(patience, "HEADERS_S", 0.5)
    monkeypatch.setattr(patience, "BODY_IDLE_S", 0.5)
    app = create_app(tmp_path / "page", partial(FakeLocalizer, tmp_path))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=patience.PatientProtocol, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()


def closed_after_s(port: int, *pieces: bytes, pause_s: float = 0.0) -> float:
    """When the server hangs up on a client that says some pieces and then nothing; it must."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
                time.sleep(pause_s)
            while client.recv(65_536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        return time.monotonic() - began


def test_slow_clients_are_hung_up_on(patient_port: int) -> None:
    head = b"POST /videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    closed_after_s(patient_port)  # says nothing
    assert closed_after_s(patient_port, *[b"G"] * 400, pause_s=0.1) < 40  # says it letter by letter
    closed_after_s(patient_port, head, b"x")
    assert closed_after_s(patient_port, head, *[b"x"] * 8, pause_s=0.2) > 1.5  # slow, but it moves
    ordinary = b"GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n"
    closed_after_s(patient_port, ordinary, b"GET /ab", pause_s=0.3)  # a second request, half
