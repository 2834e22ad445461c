"""The application: routes, errors, middleware. Paths and verbs are those of Heron's API server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

import heronpy
from heronpy.apiserver._config import ApiServerConfig
from heronpy.apiserver._guard import UserRequired, failed, unknown_host
from heronpy.apiserver._routes import router
from heronpy.apiserver._server import Server
from heronpy.errors import HeronError, UserCodeError
from heronpy.web import HostAllowed, docs_page

log = logging.getLogger(__name__)


class ApiServerApp(FastAPI):
    """An API server as an ASGI application."""

    def openapi(self) -> dict[str, Any]:
        """The schema, with the way to authenticate, and without FastAPI's own error: wrong parameters are 400 here."""
        if self.openapi_schema is None:
            schema = super().openapi()
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            parts = schema.setdefault("components", {})
            for name in ("HTTPValidationError", "ValidationError"):
                parts.get("schemas", {}).pop(name, None)
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
        assert self.openapi_schema is not None
        return self.openapi_schema


def create_app(config: ApiServerConfig) -> ApiServerApp:
    """An API server.

    Raises:
        ConfigError: the file of the users is not what it should be.
        StateError: the audit log cannot be written.
        AlreadyExistsError: another server has this HERON_HOME.
    """
    server = Server(config)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await server.close()

    app = ApiServerApp(
        title="heron apiserver",
        version=heronpy.__version__,
        description="Submits, changes and kills topologies for those who have no access to the cluster themselves.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from other hosts
        redoc_url=None,
    )
    app.state.server = server

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return docs_page(app.openapi())

    @app.get("/health", include_in_schema=False)
    async def health() -> PlainTextResponse:
        return PlainTextResponse("ok")

    app.include_router(router)
    _handle_errors(app)
    # The last one is the outermost.
    app.add_middleware(UserRequired, users=server.users)
    app.add_middleware(HostAllowed, names=(config.host, *config.hosts), refuse=unknown_host)
    return app


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(HeronError)
    async def refused(_request: Request, error: HeronError) -> JSONResponse:
        trace = error.traceback if isinstance(error, UserCodeError) else ""
        return failed(str(error), type(error).__name__, error.http_status, trace)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return failed(f"parameter {first['loc'][-1]}: {first['msg']}", "UsageError", 400)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        reason = f"there is no {request.url.path}: see /docs" if error.status_code == 404 else str(error.detail)
        return failed(reason, "NotFoundError" if error.status_code == 404 else "UsageError", error.status_code)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        # The one broad handler: the caller gets an answer, and the log the traceback.
        log.error("%s failed", request.url.path, exc_info=error)
        return failed(f"unexpected {type(error).__name__}: see the server's log", "HeronError", 500)
