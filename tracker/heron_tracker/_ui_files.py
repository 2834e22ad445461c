"""The web UI's files, as they are served: to everybody, and with headers that keep other scripts out of its pages.

They are the same for everybody and contain no secret, so that they need no token: the page asks for it, and sends it
with what it asks the API. What is answered without the token is a list of files made at the start, and comes from the
folder alone: the API is never reached by one of their names.
"""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # kept, and asked for again: a new version of the Tracker has new files
}


class UiFiles(StaticFiles):
    """The folder of the web UI as an ASGI application."""

    def __init__(self, folder: Path) -> None:
        """Serve a folder that has an index.html."""
        super().__init__(directory=folder, html=True)
        files = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        self.paths = frozenset(("/", *(f"/{file}" for file in files)))
        """What can be asked for."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response
