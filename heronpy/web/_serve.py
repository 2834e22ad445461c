"""An application as a process: it listens, reports where, and stops gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
import uvloop
from starlette.types import ASGIApp

from heronpy.address import bare_host, join_address, listening_socket
from heronpy.errors import UnavailableError
from heronpy.web._protocol import CLIENT_S, CONNECTIONS_MAX, Seldom, bounded

STOP_S = 3
"""How long requests that are under way may take when the server stops."""
BACKLOG = 512
_FILES = 4 * CONNECTIONS_MAX
"""So many file descriptors, if the system allows them: for connections, and for what requests open."""
HEAD_BYTES_MAX = 64 << 10
"""The longest request line with its headers. The longest query has 20,000 characters, each up to three bytes in a URL.

With less, a long request would be served when it arrives in one piece, and cut off when it arrives in two.
"""
_SWITCH_S = 0.001
"""How long a thread that calculates keeps the interpreter while the loop wants it."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], before_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._before_stop = before_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises them again at the end: being asked to stop would look like a failure.
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, self.handle_exit, signum, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_stop()
        await super().shutdown(sockets)


def listen(host: str, port: int, who: str) -> socket.socket:
    """Where a server is asked; port 0: a free one. `who` is what errors call it.

    Raises:
        UnavailableError: the port is taken, or the address is not of this host.
    """
    try:
        return listening_socket(bare_host(host), port, backlog=BACKLOG)
    except OSError as e:
        where = join_address(bare_host(host), port)
        raise UnavailableError(f"{who} cannot listen at {where}: {e.strerror or e}; choose another with --port") from e


def serve(
    app: ASGIApp,
    listening: socket.socket,
    host: str,
    ready: Callable[[str], None],
    *,
    before_stop: Callable[[], None] = lambda: None,
    certificate: tuple[Path, Path] | None = None,
    connections_max: int = CONNECTIONS_MAX,
    client_s: float = CLIENT_S,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Closes the socket.

    Args:
        app: The application.
        listening: What `listen` returned.
        host: What it was given, for the URL.
        ready: Called with the URL once it can be asked.
        before_stop: Called before requests that are under way are waited for.
        certificate: Certificate chain and key, as PEM files, to be asked by https; None: by http.
        connections_max: With more, those that wait longest for their clients are closed.
        client_s: How long a connection may wait for its client: see `BoundedProtocol`.
    """
    sys.setswitchinterval(_SWITCH_S)
    _allow_files()
    logging.getLogger("uvicorn.error").addFilter(Seldom())
    with listening:
        url = f"{'https' if certificate else 'http'}://{join_address(bare_host(host), listening.getsockname()[1])}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=connections_max + BACKLOG,
            http=bounded(connections_max, client_s),
            ws="none",
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_graceful_shutdown=STOP_S,
            ssl_certfile=certificate[0] if certificate else None,
            ssl_keyfile=certificate[1] if certificate else None,
        )
        server = _Server(config, lambda: ready(url), before_stop)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=[listening]))


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
