"""`egohieraloc serve`: ask questions about videos on a page in the browser."""

from __future__ import annotations

import ipaddress
import logging
import socket
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.errors import ConfigError, MissingExtraError


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen at. Others can reach the page unless it is local.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 8300,
    folder: Annotated[Path, typer.Option(help="Keeps videos, questions and answers.")] = Path(
        "egohieraloc_page"
    ),
    max_gb: Annotated[float, typer.Option(help="Largest video taken, in gigabytes.")] = 2.0,
    model: common.Model = "mini",
    device: common.Device = None,
    engine: common.Engine = None,
    fps: common.Fps = "5",
    settings: common.Settings = None,
) -> None:
    """Serve a page for the browser: choose a video, draw a box around an object, see where it was last."""
    try:
        import uvicorn

        from egohieraloc.web.app import create_app
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "web") from error
    from egohieraloc.models.weights import find_weights, load_weights

    load_weights(find_weights(model))  # a wrong model shows now, not at the first question
    features = folder.resolve() / "features"
    make = partial(common.build_localizer, model, device, settings, fps, features, engine)
    app = create_app(folder, make, model=Path(model).stem, host=host, max_video_bytes=round(max_gb * 1e9))
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    print(f"The page is at http://{shown}:{port} and keeps everything in {folder}/.")
    if not _is_local(host):
        print("Anyone who can reach this address can use it and see its videos.")
    print("Stop it with Ctrl+C.", flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, server_header=False)
    server = uvicorn.Server(config)
    # Connections still open at the end are closed; uvicorn would log each as an error.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not server.should_exit)
    server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"Cannot listen at {host}, port {port}: {error}. Choose another --port.") from error


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
