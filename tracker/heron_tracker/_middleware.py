"""What happens to every request that is answered: it is timed and counted."""

from __future__ import annotations

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heron_tracker._own_metrics import OwnMetrics


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
