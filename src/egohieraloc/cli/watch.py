"""`egohieraloc watch`: a camera that remembers."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from egohieraloc.cli import common
from egohieraloc.cli.memory_folder import DEFAULT_FOLDER, Folder, open_memory
from egohieraloc.cli.option_groups import spread


@spread
def watch(
    camera: Annotated[str, typer.Argument(help="A device (0, /dev/video0), a URL (rtsp://...) or a file.")],
    *,
    memory: Folder = DEFAULT_FOLDER,
    name: Annotated[str | None, typer.Option(help="Name of the camera; by default from its address.")] = None,
    segment: Annotated[float, typer.Option(help="Seconds after which what was seen can be asked.")] = 30.0,
    keep_days: Annotated[
        float, typer.Option(help="Forget recordings older than this.", show_default=False)
    ] = math.inf,
    keep_gb: Annotated[
        float, typer.Option(help="Keep at most this much of recordings.", show_default=False)
    ] = math.inf,
    webhook: Annotated[
        str | None, typer.Option(help="POST an event to this address when a saved object is seen.")
    ] = None,
    system: common.SystemOptions,
) -> None:
    """Record a camera into a memory while it runs, so that it can be asked at any moment.

    Prints one JSON line per event: connected, disconnected, segment, and seen for each saved object in it.
    """
    from egohieraloc.memory.camera import Camera
    from egohieraloc.memory.watch import WatchOptions
    from egohieraloc.memory.watch import watch as watch_camera
    from egohieraloc.memory.webhook import Webhook

    opened = open_memory(memory, system, create=True)
    options = WatchOptions(
        name=name,
        segment_s=segment,
        fps=opened.localizer.config.search.fps or 5.0,
        keep_days=keep_days,
        keep_gb=keep_gb,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # the segment in work is finished and read
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        hook = None if webhook is None else stack.enter_context(Webhook(webhook, _print))

        def report(event: dict[str, Any]) -> None:
            _print(event)
            if hook is not None and event["event"] == "seen":
                hook.send(event)

        watch_camera(opened, Camera(camera), options, report, stop)


def _print(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
