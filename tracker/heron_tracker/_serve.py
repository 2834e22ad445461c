"""The Tracker as a process: it listens, tells where, and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
import uvloop

from heron_tracker._app import TrackerApp
from heronpy.errors import UnavailableError

STOP_S = 3
"""How long requests that are under way may take when the Tracker stops."""
BACKLOG = 512
CONNECTIONS_MAX = 2000


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: TrackerApp, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises them again at the end: being told to stop would look like a failure.
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, self.handle_exit, signum, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.tracker.events.close()  # else open streams would be waited for
        await super().shutdown(sockets)


def serve(app: TrackerApp, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        app: What `create_app` returned.
        host, port: Where to listen; port 0: a free one.
        ready: Called with the URL once it can be asked.

    Raises:
        UnavailableError: the port is taken, or the address is not of this host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as e:
        raise UnavailableError(
            f"the Tracker cannot listen at {host}:{port}: {e.strerror or e}; choose another with --port"
        ) from e
    with listening:
        url = f"http://{f'[{host}]' if family == socket.AF_INET6 else host}:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=STOP_S,
        )
        server = _Server(config, app, lambda: ready(url))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=[listening]))
