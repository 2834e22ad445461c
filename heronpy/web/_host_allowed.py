"""Whose name a request may be addressed to."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send


class HostAllowed:
    """Refuses requests that are addressed to another name than this server's.

    Allowed are `localhost` and below, every IP address (no attacker can have another address point here), and the names
    that are configured.
    """

    def __init__(self, app: ASGIApp, names: tuple[str, ...], refuse: Callable[[], ASGIApp]) -> None:
        """Of an application and the names that it has; `refuse` makes the answer to all others, a 421."""
        self._app = app
        self._refuse = refuse
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(header(scope, b"host")):
            await self._refuse()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, header: str) -> bool:
        host = host_of(header)
        if host == "localhost" or host.endswith(".localhost") or host in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def host_of(header: str) -> str:
    """The name or address in a Host header, without port and brackets, in lower case."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def header(scope: Scope, name: bytes) -> str:
    """The first header of this name (in lower case) of a request; empty if there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
