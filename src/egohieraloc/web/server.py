"""What the routes share: the library, the queue, and processes for what touches the bytes of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from egohieraloc.web.jobs import Jobs, Locates
from egohieraloc.web.library import Library
from egohieraloc.web.process import OwnProcess

INSPECT_LIMIT_S, FRAME_LIMIT_S = 300.0, 30.0
KEEP = {"cache-control": "private, max-age=86400, immutable"}


class Server:
    """`checker` opens what is new; `reader` gives frames of what was checked; `previewer` shows masks."""

    def __init__(self, library: Library, make: Callable[[], Locates], workers: int) -> None:
        self.library = library
        self._make, self._workers = make, workers
        self.checker, self.reader = OwnProcess(), OwnProcess()
        self.previewer = OwnProcess(
            make
        )  # a Localizer of its own, so that a preview does not wait for answers
        self.jobs: Jobs

    def start(self) -> None:
        self.jobs = Jobs(self.library, self._make, workers=self._workers)

    def close(self) -> None:
        self.jobs.close()
        self.checker.close()
        self.reader.close()
        self.previewer.close()


def _server_of(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


ThisServer = Annotated[Server, Depends(_server_of)]
