"""What is refused before anything is read: strangers, foreign names and pages, bodies too large."""

from __future__ import annotations

import ipaddress
import secrets
from urllib.parse import parse_qsl, urlsplit

from fastapi import HTTPException
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "egohieraloc_token"
MAX_BODY_BYTES = 32_000_000  # of anything but a video
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Wraps the application.

    A page elsewhere may let its name point to this machine and then read our answers (DNS rebinding): the
    Host header must be localhost, a plain address or the name given at the start. A page elsewhere may also
    send forms here: where a browser names the origin of a request, it must be this server, and a page
    elsewhere may link to ours, nothing more.

    Where there is a token, a request must carry it: as a cookie, or as `Authorization: Bearer TOKEN`. The
    cookie is given to who opens `/?token=TOKEN`.
    """

    def __init__(self, app: ASGIApp, *, host: str, max_video_bytes: int, token: str | None = None) -> None:
        self._app, self._token = app, token
        self._names = {"localhost", host.lower()}
        self._max_video_bytes = max_video_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        video = scope["method"] == "POST" and scope["path"] == "/videos"
        limit = self._max_video_bytes if video else MAX_BODY_BYTES

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        if self._token is not None and scope["path"] == "/" and self._is_token(_asked_token(scope)):
            secure = "; Secure" if scope["scheme"] == "https" else ""
            cookie = f"{COOKIE}={self._token}; Path=/; HttpOnly; SameSite=Strict{secure}"
            welcome = Response(status_code=303, headers={"location": "/", "set-cookie": cookie})
            await welcome(scope, receive, send_safely)
            return
        refusal = self._refusal(headers, scope) or _size_refusal(headers, limit)
        if refusal is not None:
            status, words = refusal
            answer = JSONResponse({"error": words}, status, headers={"connection": "close"})
            await answer(scope, receive, send_safely)
            return
        await self._app(scope, _counted(receive, limit), send_safely)

    def _refusal(self, headers: dict[str, str], scope: Scope) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return (
                403,
                "This server answers to localhost, to addresses and to the name given with --host only.",
            )
        origin = headers.get("origin")
        foreign = origin is not None and origin.lower() != f"{scope['scheme']}://{host}".lower()
        if foreign or not _is_from_here(headers, scope):
            return 403, "This request comes from another site's page."
        if self._token is not None and not self._is_token(_given_token(headers)):
            return 401, "This server needs a token: open the address that it printed at its start."
        return None

    def _is_token(self, given: str) -> bool:
        return self._token is not None and secrets.compare_digest(given.encode(), self._token.encode())

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_from_here(headers: dict[str, str], scope: Scope) -> bool:
    """What browsers say of where a request comes from; other programs say nothing."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return True
    followed = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
    return followed and scope["path"] == "/"


def _asked_token(scope: Scope) -> str:
    asked: bytes = scope["query_string"]
    return next((value for name, value in parse_qsl(asked.decode("latin-1")) if name == "token"), "")


def _given_token(headers: dict[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    cookies = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in cookies if name == COOKIE), "")


def _size_refusal(headers: dict[str, str], limit: int) -> tuple[int, str] | None:
    claim = headers.get("content-length", "0")
    if not (claim.isascii() and claim.isdigit() and len(claim) < 20):
        return 400, f"Content-Length must be a number of bytes, got '{claim[:40]}'."
    return (413, _too_large(limit)) if int(claim) > limit else None


def _counted(receive: Receive, limit: int) -> Receive:
    """Stops reading a body that grows past its limit, whatever it claimed."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, _too_large(limit))
        return message

    return counted


def _too_large(limit: int) -> str:
    return f"This is too large: at most {limit / 1e6:.0f} MB are taken."
