"""Changes as the API server sends them: one JSON object per line, on a connection of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

LINE_BYTES_MAX = 8 * 1024 * 1024


class Stream:
    """The events of one watch. Iterated by one thread; any other may `close` it, which ends the iteration.

    It ends in any case: the server closes watches after some minutes, and a connection may break. Whether something was
    missed is known by asking again.
    """

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._socket: socket.socket = connection.sock or response.fp.raw._sock  # type: ignore[attr-defined]
        self._socket.settimeout(None)  # how long a silence may be, keepalive decides

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each event: {"type": "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR", "object": …}."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while line := self._response.readline(LINE_BYTES_MAX):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def close(self) -> None:
        """End it, also while another thread waits for its next event. Safe to repeat."""
        # The method of the plain socket: that of a TLS socket would take the session from under the reading thread.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            self._response.close()
        self._connection.close()
