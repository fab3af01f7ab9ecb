"""`egohieraloc serve` as a user starts it, with a small network that was never trained."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from typer.testing import CliRunner
from web_clients import Live

from egohieraloc.cli import app
from egohieraloc.cli.serve import _is_local, serve
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError, MissingExtraError, WeightsError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import save_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    torch.manual_seed(0)
    save_weights(path, EgoHieraLocNet(preset("tiny")).eval())
    return path


@pytest.fixture
def served(weights: Path, tmp_path: Path) -> Iterator[Any]:
    start = "from egohieraloc.cli import main; main()"
    options = ["--port", "0", "--folder", str(tmp_path / "page"), "--model", str(weights), "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-c", start, "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_real_server_end_to_end(served: subprocess.Popen[str], clip: Path, tmp_path: Path) -> None:
    assert served.stdout is not None
    line = served.stdout.readline()
    found = re.match(r"The page is at (http://127\.0\.0\.1:\d+) and keeps everything in ", line)
    assert found, line
    url = found[1]

    def call(path: str, data: bytes | None = None, kind: str = "application/octet-stream") -> Any:
        request = urllib.request.Request(url + path, data, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    assert call("/about")["model"] == "tiny"
    video = call("/videos?name=walk.mp4", clip.read_bytes())
    form = b"time_s=1&box=30,30,40,40&in_3d=true"
    query = call(f"/videos/{video['id']}/queries", form, "application/x-www-form-urlencoded")
    until = time.monotonic() + 120
    while query["status"] in ("waiting", "running") and time.monotonic() < until:
        time.sleep(0.2)
        query = call(f"/queries/{query['id']}")
    assert query["status"] == "done", query
    assert len(query["answer"]["curve"]["time_s"]) == 20
    place = query["answer"]["place"]
    assert place["found"] is False  # a square that slides over grey shows no room
    scene = call(f"/queries/{query['id']}/scene")
    assert scene["words"] == f"No place in space: {place['reason']}."
    assert str(tmp_path) not in str(query) + str(scene)
    assert list((tmp_path / "page" / "features").glob("features-*/chunk-*"))
    waiting = http.client.HTTPConnection(url.removeprefix("http://"))
    waiting.putrequest("POST", "/videos")
    waiting.putheader("Content-Length", "1000")
    waiting.endheaders(b"x")
    _wait(lambda: any((tmp_path / "page" / "incoming").iterdir()))
    served.send_signal(signal.SIGINT)
    _, said = served.communicate(timeout=60)
    assert served.returncode in (0, 130)
    assert "Traceback" not in said


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """One that this machine gave itself, and its key."""
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    place = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([openssl, "req", *kind, *place], check=True, capture_output=True)
    return cert, key


def test_over_tls(
    weights: Path, tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who knows the certificate is answered; who does not, and who speaks plainly, learns nothing."""
    started: list[uvicorn.Server] = []

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            started.append(self)

    monkeypatch.setattr(uvicorn, "Server", Kept)
    monkeypatch.setattr(os, "umask", lambda mode: 0)  # of all tests
    cert, key = certificate
    given = {"folder": tmp_path / "page", "model": str(weights), "tls_cert": cert, "tls_key": key}
    thread = threading.Thread(target=serve, kwargs={**given, "port": 0, "token": "a-token-of-some-length"})
    thread.start()
    try:
        _wait(lambda: started and started[0].started)
        port = started[0].servers[0].sockets[0].getsockname()[1]
        url, headers = f"https://127.0.0.1:{port}/videos", {"Authorization": "Bearer a-token-of-some-length"}
        request = urllib.request.Request(url, headers=headers)
        known = ssl.create_default_context(cafile=str(cert))
        with urllib.request.urlopen(request, context=known, timeout=60) as response:
            assert json.load(response) == []
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(request, timeout=60)
        plain = urllib.request.Request(url.replace("https", "http"), headers=headers)
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(plain, timeout=60)
    finally:
        for server in started:
            server.should_exit = True
        thread.join()


def test_a_sender_who_gives_up_leaves_nothing(live: Live, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection(live.url.removeprefix("http://"))
    connection.putrequest("POST", "/videos?name=half.mp4")
    connection.putheader("Content-Length", "1000000")
    connection.endheaders(b"x" * 50_000)
    incoming = tmp_path / "page" / "incoming"
    _wait(lambda: any(incoming.iterdir()))
    connection.close()
    _wait(lambda: not any(incoming.iterdir()))
    with urllib.request.urlopen(f"{live.url}/videos") as response:
        assert json.load(response) == []


def _wait(condition: Any) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_port_in_use(weights: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ["--port", port, "--folder", str(tmp_path / "page"), "--model", str(weights)]
        result = CliRunner().invoke(app, ["serve", *options])
    assert isinstance(result.exception, ConfigError)
    assert f"127.0.0.1, port {port}" in str(result.exception)


def test_mistakes_show_before_anything_starts(weights: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", "--model", str(tmp_path / "none.safetensors")])
    assert isinstance(result.exception, WeightsError)
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["serve", "--model", str(weights), "--folder", str(tmp_path / "file")])
    assert "Choose another: --folder" in str(result.exception)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(app, ["serve"])
    assert isinstance(result.exception, MissingExtraError)
    assert "egohieraloc[web]" in str(result.exception)


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("lan", False)],
)
def test_what_is_local(host: str, local: bool) -> None:
    assert _is_local(host) is local
