"""Where the supervisors of containers dial in: they say where they run, and why not, and are ordered to end.

Spark can kill a task, but cannot ask one to end gracefully. The certificates are of an authority that this process
makes for itself: they open nothing else, and end with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import socket
import socketserver
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heronpy.address import bare_host
from heronpy.security import CA_FILE, CLI, SCHEDULER, authority, dns_name_of

log = logging.getLogger(__name__)

_HANDSHAKE_S = 10.0
_POLL_S = 0.2
_LINE_BYTES_MAX = 4096
_WORDS_MAX = 300
_KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 10),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)
"""A host that has gone without a word is noticed after 25 s."""


class LinkServer:
    """Serves in threads of its own between `start` and `stop`."""

    def __init__(
        self,
        topology_id: str,
        bind: str,
        advertise: str,
        connected: Callable[[str, str], None],
        said: Callable[[str, str], None],
    ) -> None:
        """Bind a port; nothing is served yet.

        Args:
            topology_id: Whose.
            bind: The address to listen at.
            advertise: Where hosts reach it.
            connected: Called, by any thread, with a run and the address of its host; with none, it is lost.
            said: Called, by any thread, with a run and how its container has ended, which is started again there.
        """
        self._advertise = advertise
        self._connected, self._said = connected, said
        self._ends: dict[str, threading.Event] = {}
        self._newest: dict[str, socket.socket] = {}
        directory = Path(tempfile.mkdtemp(prefix="heron-spark-"))
        try:
            tls = directory / "tls"
            authority.create(tls, topology_id, [], days=authority.CA_DAYS)
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_3
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_cert_chain(tls / f"{SCHEDULER}.pem")
            self._context.load_verify_locations(tls / CA_FILE)
            self._ca, self._certificate = (tls / CA_FILE).read_text(), (tls / f"{CLI}.pem").read_text()
        finally:
            shutil.rmtree(directory)
        self._name = dns_name_of(topology_id, SCHEDULER)
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                    outer._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            address_family = socket.AF_INET6 if ":" in bare_host(bind) else socket.AF_INET
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

        self._server = Server((bare_host(bind), 0), Handler)

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="links", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def invite(self, run: str) -> dict[str, Any]:
        """What the supervisor of a run needs to dial in. Secret."""
        self._ends[run] = threading.Event()
        return {
            "host": bare_host(self._advertise),
            "port": self._server.server_address[1],
            "name": self._name,
            "ca": self._ca,
            "certificate": self._certificate,
        }

    def end(self, run: str) -> None:
        """Order a run to end gracefully, now or when it dials in."""
        self._ends[run].set()

    def forget(self, run: str) -> None:
        """A run has ended."""
        self._newest.pop(run, None)
        event = self._ends.pop(run, None)
        if event is not None:
            event.set()

    def _serve(self, plain: socket.socket) -> None:
        plain.settimeout(_HANDSHAKE_S)
        for option, value in _KEEPALIVE:
            plain.setsockopt(*option, value)
        with self._context.wrap_socket(plain, server_side=True) as link:
            run = str(json.loads(link.recv(_LINE_BYTES_MAX))["run"])
            end = self._ends[run]
            link.sendall(b"hello\n")
            self._newest[run] = link
            try:
                self._connected(run, link.recv(_LINE_BYTES_MAX).decode().strip())
                self._follow(link, run, end)
            finally:
                if self._newest.get(run) is link:
                    self._connected(run, "")

    def _follow(self, link: ssl.SSLSocket, run: str, end: threading.Event) -> None:
        link.settimeout(_POLL_S)
        while not end.is_set():
            with contextlib.suppress(TimeoutError):
                if not (line := link.recv(_LINE_BYTES_MAX)):
                    return
                self._said(run, str(json.loads(line)["reason"])[:_WORDS_MAX])
        link.sendall(b"end\n")
        link.settimeout(None)
        while link.recv(_LINE_BYTES_MAX):  # until it has ended: a connection is never cut while it is read
            pass
