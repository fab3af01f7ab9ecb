"""`egohieraloc serve`: ask questions about videos on a page in the browser."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import secrets
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import uvicorn

MAX_CONNECTIONS = 300


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen at. Others can reach the page unless it is local.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 8300,
    folder: Annotated[Path, typer.Option(help="Keeps videos, questions and answers.")] = Path(
        "egohieraloc_page"
    ),
    memory: Annotated[
        Path | None, typer.Option(help="The memory shown under /library; by default one in the folder.")
    ] = None,
    max_gb: Annotated[float, typer.Option(help="Largest video taken, in gigabytes.")] = 2.0,
    token: Annotated[
        str | None, typer.Option(help="What users must know; unless the address is local, one is made up.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate for https, with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate.")] = None,
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
        from egohieraloc.web.patience import PatientProtocol
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "web") from error
    from egohieraloc.models.weights import find_weights, load_weights

    _check_secrets(token, tls_cert, tls_key)
    os.umask(0o077)  # what is written from here on is for nobody else to read
    load_weights(find_weights(model))  # a wrong model shows now, not at the first question
    build = partial(common.build_localizer, model, device, settings, fps, engine=engine)
    make = partial(build, folder.resolve() / "features")
    if token is None and not _is_local(host):
        token = secrets.token_urlsafe(24)
    library = memory or folder / "memory"
    remember = partial(build, library.resolve() / "features")
    app = create_app(
        folder,
        make,
        model=Path(model).stem,
        host=host,
        max_video_bytes=round(max_gb * 1e9),
        token=token,
        memory=(library, remember),
    )
    listening = _listen(host, port)
    app.state.server.library.open()  # another server's folder is refused here, in one line
    scheme = "http" if tls_cert is None else "https"
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    print(f"The page is at {address}{f'/?token={token}' if token else ''} and keeps everything in {folder}/.")
    if not _is_local(host):
        print("Whoever has this address with its token can use the page and see its videos.")
        if tls_cert is None:
            print("What goes over the network can be read on its way: give --tls-cert and --tls-key.")
    print("Stop it with Ctrl+C.", flush=True)
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        limit_concurrency=MAX_CONNECTIONS,
        log_level="warning",
        timeout_graceful_shutdown=2,
        server_header=False,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    _check_certificate(config)
    server = uvicorn.Server(config)
    # Connections still open at the end are closed; uvicorn would log each as an error.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not server.should_exit)
    server.run(sockets=[listening])


def _check_secrets(token: str | None, tls_cert: Path | None, tls_key: Path | None) -> None:
    if token is not None and not re.fullmatch(r"[\w-]{16,}", token, re.ASCII):
        raise ConfigError("A token needs 16 or more of the characters A-Z, a-z, 0-9, - and _.")
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("Give --tls-cert and --tls-key together: a certificate and its private key.")


def _check_certificate(config: uvicorn.Config) -> None:
    try:
        config.load()
    except (OSError, ValueError) as error:  # of TLS too
        raise ConfigError(f"Cannot use --tls-cert and --tls-key: {error}.") from error


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
