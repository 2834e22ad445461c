"""Connections whose client keeps the server waiting: for how long it may, and which go first when there are too many.

uvicorn limits neither how long the head of a request takes, nor what comes after the answer, nor how long an answer is
not read; and it counts a connection that never sends anything as one that is served. So a stranger without a token
could keep a server from answering everybody else by opening as many connections as it serves.
"""

from __future__ import annotations

import asyncio
import logging
import time

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 2000
CLIENT_S = 20.0
"""How long a client may take to send the head of a request, to send what is left of one that was answered, and to read
an answer before the next 64 KiB of it."""
_WARN_EVERY_S = 60.0


class Waits:
    """The connections of a server that wait for their clients, and no request is being answered on them."""

    def __init__(self, connections_max: int, client_s: float) -> None:
        self._connections_max, self._client_s = connections_max, client_s
        self._since: dict[BoundedProtocol, asyncio.TimerHandle] = {}
        """With what closes it; the one that waits longest first."""
        self._warned_s = float("-inf")

    def begin(self, connection: BoundedProtocol) -> None:
        if connection not in self._since:
            self._since[connection] = connection.loop.call_later(self._client_s, self._close, connection)

    def end(self, connection: BoundedProtocol) -> None:
        if (timer := self._since.pop(connection, None)) is not None:
            timer.cancel()

    def make_room(self, connections: int) -> None:
        """Close the connection that waits longest if there are too many: clients send requests at once."""
        if connections < self._connections_max:
            return
        if time.monotonic() - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = time.monotonic()
            log.warning("there are %d connections: those that wait longest for their clients are closed", connections)
        if self._since:
            self._close(next(iter(self._since)))

    def _close(self, connection: BoundedProtocol) -> None:
        self.end(connection)
        connection.connections.discard(connection)
        connection.transport.abort()


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on one connection. `waits` is shared by those of a server, and must be set in a subclass."""

    waits: Waits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own
        self.waits.make_room(len(self.connections))
        super().connection_made(transport)
        self._follow()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._follow()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waits.end(self)
        super().connection_lost(exc)

    def _follow(self) -> None:
        if self not in self.connections:
            return  # it is closed, and its answer goes nowhere
        answered = self.cycle is None or self.cycle.response_complete
        if answered or self.flow.write_paused or self.conn.their_state is h11.IDLE or self.transport.is_closing():
            self.waits.begin(self)
        else:
            self.waits.end(self)

    def _should_upgrade(self) -> bool:
        return False  # there are no WebSockets; a request for one is like any other


def bounded(connections_max: int, client_s: float) -> type[BoundedProtocol]:
    """The protocol of one server."""
    return type("ServerProtocol", (BoundedProtocol,), {"waits": Waits(connections_max, client_s)})


class Seldom(logging.Filter):
    """Lets a warning pass once a minute: a stranger's requests must not fill the disk with them."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        now_s, last_s = time.monotonic(), self._passed_s.get(str(record.msg), float("-inf"))
        if now_s - last_s < _WARN_EVERY_S:
            return False
        self._passed_s[str(record.msg)] = now_s
        return True
