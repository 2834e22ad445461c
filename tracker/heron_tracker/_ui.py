"""The web UI: static files, with headers that let a browser run nothing else."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Asked for again each time, and answered with 304: after an upgrade nobody has half of an old page.
    "cache-control": "no-cache",
}


class UiFiles(StaticFiles):
    """The files of the UI. They say nothing of topologies."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or index.html for a folder that has one."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def open_paths(folder: Path) -> frozenset[str]:
    """The paths of the UI's files, which are answered without a token: the UI itself asks for one. None if it has none."""
    if not (folder / "index.html").is_file():
        return frozenset()
    return frozenset({"/", *(f"/{file.relative_to(folder)}" for file in folder.rglob("*") if file.is_file())})
