"""A gRPC server on a unix socket that may be removed: cleaners of temporary directories do that.

A socket without a name still serves those that are connected, but accepts no new clients. So the server looks, and
when its socket is gone, another server is bound in its place. The old one goes on with its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import grpc.aio

from heronpy.errors import StateError, UnavailableError

log = logging.getLogger(__name__)

CHECK_S = 1.0


class UnixServer:
    """Serves on a unix socket, and binds it again when it was removed."""

    def __init__(self, path: Callable[[], Path], make: Callable[[str], grpc.aio.Server]) -> None:
        """Make a server that does not listen yet.

        Args:
            path: where the socket is to be; makes its directory.
            make: makes a gRPC server that is bound to an address and not started: see `listen`.
        """
        self._path, self._make = path, make
        self._servers: list[grpc.aio.Server] = []
        self._socket: Path | None = None
        self._bound: tuple[int, int] | None = None

    async def start(self) -> None:
        """Bind the socket, in the place of one that an earlier incarnation left there.

        Raises:
            OSError: its directory cannot be used.
            UnavailableError: it cannot be bound.
        """
        socket = self._path()
        # gRPC removes the path that it was given whenever a server stops, also if that is another one's by then. So
        # each server is given a path of its own, which is renamed; what listens is the same.
        own = socket.with_name(f".{os.getpid()}.{len(self._servers)}")
        own.unlink(missing_ok=True)
        server = self._make(f"unix:{own}")
        await server.start()
        self._servers.append(server)
        own.rename(socket)
        self._socket, self._bound = socket, _identity(socket)

    async def run(self) -> None:
        """Bind the socket again when it is gone; until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            if self._socket is None or _identity(self._socket) is not None:
                continue  # if it is another one, a newer incarnation has taken over
            try:
                await self.start()
            except (OSError, UnavailableError, StateError) as error:
                log.warning("the socket %s was removed, and cannot be bound: %s", self._socket, error)
            else:
                log.warning("the socket %s was removed: it is bound again", self._socket)

    async def stop(self, grace: float = 0) -> None:
        """Close all connections, after `grace` seconds at most, and remove the socket if it is still this one's."""
        for server in self._servers:
            await server.stop(grace)
        if self._socket is not None and self._bound is not None and _identity(self._socket) == self._bound:
            with contextlib.suppress(FileNotFoundError):
                self._socket.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
