"""How long the server waits for what a client has begun to say."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0  # for the whole head of a request, from the connection or its first byte
BODY_IDLE_S = 30.0  # between two pieces of a body


class PatientProtocol(H11Protocol):
    """Closes the connection of a client that keeps the server waiting."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for(HEADERS_S)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        working = self.cycle is not None and not self.cycle.response_complete
        if working and not self.cycle.more_body:
            self._stop_waiting()  # now it is the server's turn
        elif working:
            self._wait_for(BODY_IDLE_S)
        elif self._timer is None:  # the head of a further request has begun
            self._wait_for(HEADERS_S)

    def on_response_complete(self) -> None:
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
