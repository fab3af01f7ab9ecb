"""Events sent elsewhere: each as a JSON POST, in order, tried again when nobody answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from egohieraloc.errors import ConfigError

TRIES = 3
PAUSE_S = 1.0
LIMIT_S = 10.0


class Webhook:
    """Posts in a thread of its own, so that a slow receiver holds nothing up; `close` waits for the last."""

    def __init__(self, url: str, failed: Callable[[dict[str, Any]], None]) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigError(f"A webhook is an address such as https://example.org/hook, got '{url}'.")
        self._url, self._failed = url, failed
        self._worker = ThreadPoolExecutor(1, "webhook")

    def __enter__(self) -> Webhook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.shutdown()

    def send(self, event: dict[str, Any]) -> None:
        self._worker.submit(self._post, event)

    def _post(self, event: dict[str, Any]) -> None:
        body = json.dumps(event).encode()
        reason = ""
        for attempt in range(TRIES):
            time.sleep(PAUSE_S * attempt)
            request = Request(self._url, body, {"content-type": "application/json"})
            try:
                with urlopen(request, timeout=LIMIT_S):
                    return
            except (OSError, ValueError, HTTPException) as error:  # also of no answer in HTTP
                reason = str(getattr(error, "reason", error))
        self._failed({"event": "webhook failed", "reason": reason, "lost": event})
