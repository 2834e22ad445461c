"""What happens to every request: it is timed and counted, and its token is checked."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heron_tracker._own_metrics import OwnMetrics
from heron_tracker._ui_files import UiFiles

OPEN_PATHS = ("/health",)
"""What is answered without the token."""


class Timed:
    """Adds `x-process-time` (seconds until the answer began) and `nosniff`, and counts requests."""

    def __init__(self, app: ASGIApp, metrics: OwnMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - began_s
                headers = message.setdefault("headers", [])
                headers.append((b"x-process-time", f"{seconds:.6f}".encode()))
                # An answer may repeat what a topology wrote (a log, an exception): no browser shall take it for a page.
                if all(name != b"x-content-type-options" for name, _ in headers):
                    headers.append((b"x-content-type-options", b"nosniff"))
                route: Any = scope.get("route")
                self._metrics.answered(getattr(route, "path", "other"), message["status"], seconds)
            await send(message)

        await self._app(scope, receive, timed)


class TokenRequired:
    """Refuses requests without the token: as a bearer token, or as the password of basic authentication.

    The files of the web UI are open: see there. Its page asks for the token, and sends it as a bearer token.
    """

    def __init__(self, app: ASGIApp, token: str, files: UiFiles | None = None) -> None:
        self._app = app
        self._token = token.encode()
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        if self._files is not None and scope["method"] in ("GET", "HEAD") and scope["path"] in self._files.paths:
            await self._files(scope, receive, send)
            return
        response = JSONResponse("request failed: this Tracker wants its token as `Authorization: Bearer …`", 401)
        response.headers.append("www-authenticate", 'Bearer realm="heron tracker"')
        response.headers.append("www-authenticate", 'Basic realm="heron tracker"')
        await response(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, credentials = sent.partition(b" ")
        if kind.lower() == b"basic":
            try:
                credentials = base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(credentials.strip(), self._token)
