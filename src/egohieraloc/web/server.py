"""What the routes share: the library, the queue, and processes for what touches the bytes of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from egohieraloc.web.jobs import Jobs, Locates
from egohieraloc.web.library import Library
from egohieraloc.web.process import Limits, OwnProcess, ProcessPool

INSPECT_LIMIT_S, FRAME_LIMIT_S = 300.0, 30.0
THREADS = 100  # more than can wait for processes: the page's own answers always find one
CHECKERS, WAITING_CHECKS = 2, 30
READERS, WAITING_FRAMES = 2, 30
LIMITS = Limits(memory_bytes=4_000_000_000, cpu_s=300.0)  # of a process that opens the files of others
KEEP = {"cache-control": "private, max-age=86400, immutable"}


class Server:
    """`checkers` open what is new; `readers` give frames of what was checked; `previewer` shows masks."""

    def __init__(self, library: Library, make: Callable[[], Locates], workers: int) -> None:
        self.library = library
        self._make, self._workers = make, workers
        self.checkers = ProcessPool(CHECKERS, waiting=WAITING_CHECKS, limits=LIMITS)
        self.readers = ProcessPool(READERS, waiting=WAITING_FRAMES, limits=LIMITS)
        self.previewer = OwnProcess(make)  # a Localizer of its own: a preview does not wait for answers
        self.jobs: Jobs

    def start(self) -> None:
        self.library.open()
        self.jobs = Jobs(self.library, self._make, workers=self._workers)

    def close(self) -> None:
        self.jobs.close()
        self.checkers.close()
        self.readers.close()
        self.previewer.close()
        self.library.close()


def _server_of(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


ThisServer = Annotated[Server, Depends(_server_of)]
