"""The endpoint that Prometheus scrapes: `GET /metrics`, over mutual TLS unless that is off.

Everything that a stranger could make large has a bound: connections (those beyond wait in the kernel's queue, without a
byte of memory here), the handshake, the request, and the time of it all. One answer is made at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.address import bare_host, join_address, listening_socket
from heronpy.config import KIB
from heronpy.metricsmgr._ledger import SourceSnapshot
from heronpy.runtime import Launch
from heronpy.security import Security

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8 * KIB
HANDSHAKE_TIMEOUT_S = 5.0
EXCHANGE_TIMEOUT_S = 10.0
"""From the accepted connection to the last byte of the answer; then it is cut."""
CONTEXT_AGE_S = 30.0
"""Renewed certificates are used after this time."""
_BACKLOG = 64

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PrometheusEndpoint:
    """The metrics of one container, for scrapers.

    Args:
        launch: the topology.
        container: whose metrics they are; it is added to a configured port.
        snapshot: returns what is exported, at every scrape and in another thread.
        security: whose certificate is shown.
        options: `port`, `path`, `include-topology-name`.
    """

    def __init__(
        self,
        launch: Launch,
        container: int,
        snapshot: Callable[[], Sequence[SourceSnapshot]],
        security: Security,
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        options = options or {}
        self.port = 0
        """Once it serves."""
        self._security = security if security.tls is not None and launch.config.metrics.prometheus_tls else None
        self._bind = bare_host(launch.config.network.bind)
        self._advertise = launch.advertised_host()
        configured = int(options.get("port", 0)) or launch.config.metrics.prometheus_port
        self._wanted_port = configured + container if configured else 0
        self._path = "/" + str(options.get("path", "/metrics")).strip("/")
        self._topology = launch.topology if bool(options.get("include-topology-name", True)) else None
        self._snapshot = snapshot
        self._registry: CollectorRegistry | None = None
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)
        self._encoding = asyncio.Lock()
        self._context: tuple[float, ssl.SSLContext] | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer for the duration of the block.

        Raises:
            UnavailableError: TLS is on and there are no certificates.
            StateError: they cannot be read, or others can read them too.
        """
        self._tls()
        with self._bound() as listening:
            self.port = listening.getsockname()[1]
            connections: set[asyncio.Task[None]] = set()
            accepting = asyncio.create_task(self._accept(listening, connections), name="prometheus")
            try:
                yield
            finally:
                for task in (accepting, *connections):
                    task.cancel()
                await asyncio.wait([accepting, *connections])

    @property
    def address(self) -> str:
        """Where others reach it, `host:port`, once it serves."""
        return join_address(self._advertise, self.port)

    def _bound(self) -> socket.socket:
        try:
            listening = listening_socket(self._bind, self._wanted_port, backlog=_BACKLOG)
        except OSError as e:
            # Two topologies of one machine with the same configuration: metrics on another port are better than none.
            log.error("no Prometheus endpoint on port %d: %s; a free port is used", self._wanted_port, e.strerror)
            listening = listening_socket(self._bind, 0, backlog=_BACKLOG)
        listening.setblocking(False)
        return listening

    async def _accept(self, listening: socket.socket, connections: set[asyncio.Task[None]]) -> None:
        reported = False
        while True:
            await self._free.acquire()
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            except OSError as e:
                # Reset before it was accepted, which is the scraper's matter; else too many files are open here.
                if not reported and not isinstance(e, ConnectionError):
                    log.warning("scrapers cannot connect: %s", e)
                    reported = True
                self._free.release()
                await asyncio.sleep(0.1)
                continue
            reported = False
            task = asyncio.create_task(self._serve(connection))
            connections.add(task)
            task.add_done_callback(connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                reader, writer = await self._streams(connection)
                try:
                    await self._answer(reader, writer)
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            log.debug("a scrape ended early: %r", e)
        finally:
            connection.close()
            self._free.release()

    async def _streams(self, connection: socket.socket) -> _Streams:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        context = self._tls()
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if context is not None else None,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, _, rest = request[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0].rstrip("/")
        if method != "GET":
            status, content_type, body = http.HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n"
        elif path != self._path.rstrip("/"):
            status, content_type, body = (
                http.HTTPStatus.NOT_FOUND,
                "text/plain",
                f"metrics are at {self._path}\n".encode(),
            )
        else:
            accepted = next((h.partition(":")[2].strip() for h in request[1:] if h.lower().startswith("accept:")), "")
            async with self._encoding:
                content_type, body = await asyncio.to_thread(self._encoded, accepted)
            status = http.HTTPStatus.OK
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.transport.set_write_buffer_limits(high=0)
        writer.writelines((head.encode("latin-1"), body))
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):  # the scraper has what it wanted, and may be gone
            await writer.wait_closed()

    def _encoded(self, accepted: str) -> tuple[str, bytes]:
        """Content type and body, by what the scraper accepts."""
        # Here, in the thread of the first scrape: it costs the start 40 ms of CPU, and most are never scraped.
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        from heronpy.metricsmgr._prometheus import HeronCollector

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(HeronCollector(self._topology, self._snapshot))
        encode, content_type = choose_encoder(accepted)
        return content_type, encode(self._registry)

    def _tls(self) -> ssl.SSLContext | None:
        if self._security is None:
            return None
        now_s = time.monotonic()
        if self._context is None or now_s - self._context[0] > CONTEXT_AGE_S:
            self._context = now_s, self._security.scraper_context()
        return self._context[1]
