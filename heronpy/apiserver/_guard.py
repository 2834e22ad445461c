"""Who is answered: users with a token. Asked before anything of a request but its head is read."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from heronpy.apiserver._users import User, Users
from heronpy.errors import HeronError
from heronpy.web import header

OPEN_PATHS = ("/health", "/docs", "/openapi.json")
"""What is answered without a token: nothing of it is about topologies."""
USER = "heron.user"
"""Where the scope has the user."""


class UserRequired:
    """Refuses requests without a user's token as `Authorization: Bearer …`.

    Nothing else counts: what a browser adds by itself (cookies, basic authentication) says nothing about who has meant
    the request. So no page of another site can change anything.
    """

    def __init__(self, app: ASGIApp, users: Users) -> None:
        self._app = app
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            user = self._user(scope)
        except HeronError as e:
            await failed(str(e), type(e).__name__, 503)(scope, receive, send)
            return
        if user is None:
            answer = failed("authentication required: send a token as `Authorization: Bearer …`", "ForbiddenError", 401)
            answer.headers["www-authenticate"] = 'Bearer realm="heron apiserver"'
            await answer(scope, receive, send)
            return
        scope[USER] = user
        await self._app(scope, receive, send)

    def _user(self, scope: Scope) -> User | None:
        kind, _, token = header(scope, b"authorization").partition(" ")
        return self._users.find(token.strip()) if kind.lower() == "bearer" and token.strip() else None


def failed(message: str, kind: str, status: int, traceback: str = "") -> JSONResponse:
    """An error as the server answers it: one line, the class of the error, and the user's traceback if there is one."""
    printable = " ".join(message.split()).encode(errors="replace").decode()
    body = {"message": printable, "error": kind, **({"traceback": traceback} if traceback else {})}
    return JSONResponse(body, status)


def unknown_host() -> JSONResponse:
    """The answer to a request by a name that is not the server's."""
    return failed(
        "this API server is not known by the name in the request's Host header: start it with --allow-host NAME",
        "ForbiddenError",
        421,
    )
