"""The application: routes, errors, middleware.

Errors are what Heron 0.20.5 answers, a JSON string "request failed: …", with the status that fits: 400 for what makes
no sense (with the position, for a query), 401 without the token, 403 for changes that are off or not deliberate, 404
for what there is not, 421 for a Host that is not this Tracker's, 501 for files of other hosts, 503 while the one who
knows does not answer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

import heronpy
from heron_tracker import _routes_actions, _routes_files, _routes_metrics, _routes_topologies, _routes_tracker
from heron_tracker._config import TrackerConfig
from heron_tracker._credentials import make_directory
from heron_tracker._guards import DeliberateChanges, TokenRequired, unknown_host
from heron_tracker._middleware import Timed
from heron_tracker._tracker import Tracker
from heron_tracker._ui_files import UiFiles
from heronpy.errors import HeronError
from heronpy.web import HostAllowed, docs_page

log = logging.getLogger(__name__)

UI = Path(__file__).parent / "ui"
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": str, "description": "The request is invalid: says why."},
    401: {"model": str, "description": "The token is missing or wrong."},
    403: {"model": str, "description": "Changes are off, or the request is not deliberate."},
    404: {"model": str, "description": "Not found: says what."},
    501: {"model": str, "description": "The files are on another host."},
    503: {"model": str, "description": "The process that knows is unreachable: says since when."},
}


class TrackerApp(FastAPI):
    """A Tracker as an ASGI application."""

    def openapi(self) -> dict[str, Any]:
        """The schema, without FastAPI's own error: wrong parameters are 400 here."""
        if self.openapi_schema is None:
            schema = super().openapi()
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                schema.get("components", {}).get("schemas", {}).pop(name, None)
        assert self.openapi_schema is not None
        return self.openapi_schema


def create_app(config: TrackerConfig, *, ui: Path = UI) -> TrackerApp:
    """A Tracker. It follows its state managers from the application's start to its end.

    Args:
        config: The configuration.
        ui: The folder of the web UI, served at `/` if there is an index.html in it.
    """
    if config.adopt and config.adopt_directory is not None:
        make_directory(config.adopt_directory)  # before anything is served: it is the operator's to mend
    tracker = Tracker(config)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with tracker.running():
            yield

    app = TrackerApp(
        title="heron tracker",
        version=heronpy.__version__,
        description="Topologies, their plans, states, metrics, exceptions and log files.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from other hosts
        redoc_url=None,
    )
    app.state.tracker = tracker
    for module in (_routes_tracker, _routes_topologies, _routes_metrics, _routes_files, _routes_actions):
        app.include_router(module.router, responses=_ERRORS)
    if config.profiling_get:
        app.include_router(_routes_actions.profiling_by_get, responses=_ERRORS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return docs_page(app.openapi())

    _handle_errors(app)
    files = UiFiles(ui) if (ui / "index.html").is_file() else None
    # The last one is the outermost: a preflight request of a browser cannot carry the token.
    app.add_middleware(DeliberateChanges)
    if config.token is not None:
        app.add_middleware(TokenRequired, token=config.token, files=files)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=config.cors_origins, allow_methods=["GET"], allow_headers=["authorization"]
        )
    app.add_middleware(HostAllowed, names=(config.host, *config.hosts), refuse=unknown_host)
    app.add_middleware(Timed, metrics=tracker.metrics)
    _serve_ui(app, files)
    return app


def _serve_ui(app: FastAPI, files: UiFiles | None) -> None:
    if files is not None:
        app.mount("/", files, name="ui")
        return

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("/docs")


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(HeronError)
    async def refused(_request: Request, error: HeronError) -> JSONResponse:
        return _failed(str(error), error.http_status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        # Of an error that a validator of ours raised, pydantic says first that it is a ValueError.
        reason = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return _failed(f"parameter {first['loc'][-1]}: {reason}", 400)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        reason = f"there is no {request.url.path}: see /docs" if error.status_code == 404 else error.detail
        return _failed(reason, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        # The one broad handler: the caller gets an answer, and the log the traceback.
        log.error("%s failed", request.url.path, exc_info=error)
        return _failed(f"unexpected {type(error).__name__}: see the Tracker's log", 500)


def _failed(reason: str, status: int, headers: Any = None) -> JSONResponse:
    printable = " ".join(reason.split()).encode(errors="replace").decode()
    return JSONResponse(f"request failed: {printable}", status, headers=headers)
