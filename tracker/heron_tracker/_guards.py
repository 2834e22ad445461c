"""Who is answered: requests to this Tracker's own names, with its token, and changes only on purpose.

Three doors, each against a different stranger:

- `heronpy.web.HostAllowed`: a page of another site that has had its own name point to this address (DNS rebinding).
  The browser then takes this Tracker for that site, and sends the site's name as Host.
- `TokenRequired`: clients that can connect: another user of this machine, or of the network.
- `DeliberateChanges`: a page that makes the user's browser send a request (CSRF). What a form or a link can send
  without asking first has no header of the sender's choice.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from heron_tracker._ui_files import UiFiles
from heronpy.web import header

OPEN_PATHS = ("/health", "/docs", "/openapi.json")
"""What is answered without the token: nothing of it is about topologies."""
CHANGE_HEADER = "x-heron-request"
"""What a request that changes something carries, with any value, unless it carries a bearer token."""
_READS = ("GET", "HEAD", "OPTIONS")


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
        response = _refused("authentication required: send the Tracker's token as `Authorization: Bearer …`", 401)
        response.headers.append("www-authenticate", 'Bearer realm="heron tracker"')
        response.headers.append("www-authenticate", 'Basic realm="heron tracker"')
        await response(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        kind, _, credentials = header(scope, b"authorization").encode("latin-1").partition(b" ")
        if kind.lower() == b"basic":
            try:
                credentials = base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(credentials.strip(), self._token)


class DeliberateChanges:
    """Refuses what would change something and may have been sent by a page of another site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _READS and (reason := _suspicion(scope)):
            await _refused(reason, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _suspicion(scope: Scope) -> str | None:
    origin = header(scope, b"origin")
    if origin and _address_of(origin) != header(scope, b"host").lower():
        return "requests that change something are not accepted from pages of other sites"
    bearer = header(scope, b"authorization").lower().startswith("bearer ")
    if not bearer and not header(scope, CHANGE_HEADER.encode()):
        # Credentials of basic authentication do not count: browsers add them by themselves, whichever page asks.
        return f"requests that change something must carry a bearer token, or the header {CHANGE_HEADER}"
    return None


def _address_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def unknown_host() -> JSONResponse:
    """The answer to a request by a name that is not the Tracker's."""
    return _refused("this Tracker is not known by the name in the request's Host header: add it to tracker.hosts", 421)


def _refused(reason: str, status: int) -> JSONResponse:
    return JSONResponse(f"request failed: {reason}", status)
