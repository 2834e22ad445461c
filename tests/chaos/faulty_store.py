"""A network between processes and an S3 server that fails by the name of a request.

Each request is named by who makes it (the driver, or a task: their user agents say so), what it does and to which
object, without what is random: `driver create manifest.json/*.json`. From the n-th request of a name on, requests are
refused, connections break, answers of what was done are lost or say that it was not, and whoever makes the request is
killed or stopped before or after it is done. Requests are counted, and nothing is timed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from faulty_files import without_random

FOR_EVER = 1_000_000
REFUSALS = {
    "500": (500, "InternalError"),
    "503": (503, "SlowDown"),
    "403": (403, "AccessDenied"),
}
ACTIONS = (
    *REFUSALS,
    *(f"done, and {status}" for status in REFUSALS),
    "reset",
    "done, and reset",
    "done, and half of the answer",
    "hang",
    "kill -9 before",
    "kill -9 after",
    "kill -9 of the JVM",
    "stop before",
    "stop after",
    "store killed before",
    "store killed after",
    "told",
)


class FaultyStore:
    """The network. A context manager: it serves for the duration of the block."""

    def __init__(self, port: int, bucket: str, kill: Callable[[], None]) -> None:
        """Describe it.

        Args:
            port: where the real server is.
            bucket: all requests are of it.
            kill: ends the real server.
        """
        self.target_port, self.kill_server = port, kill
        self._bucket = bucket
        self._server = _Listening(self)
        self.port: int = self._server.server_address[1]
        self._lock = threading.Lock()
        self._prefix = ""
        self._counts: Counter[str] = Counter()
        self._traced: list[str] = []
        self._armed: tuple[str, int, str, int] | None = None
        self._same = ""
        self.fired = ""
        """The first request that something happened to; empty: none."""
        self.happened, self.released = threading.Event(), threading.Event()

    def __enter__(self) -> FaultyStore:
        threading.Thread(target=self._server.serve_forever, name="faulty store", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()
        self._server.shutdown()
        self._server.server_close()

    def watch(self, prefix: str) -> None:
        """Count the requests for objects below a prefix, from 0; nothing happens to them."""
        with self._lock:
            self._prefix, self._armed, self.fired = f"{prefix}/", None, ""
            self._counts.clear()
            self._traced = []
        self.happened.clear()

    def arm(self, name: str, at: int, action: str, repeat: int = 1) -> None:
        """Have something happen to the request number `at` of a name.

        Args:
            name: as in the trace.
            at: from 1.
            action: one of ACTIONS.
            repeat: so many requests for that object meet it, which are the attempts of one call; FOR_EVER: all.
        """
        assert action in ACTIONS, action
        self.released.clear()
        with self._lock:
            self._armed, self._same = (name, at, action, repeat), ""

    def disarm(self) -> None:
        """All is well again, and what waits goes on."""
        with self._lock:
            self._armed = None
        self.released.set()

    def trace(self) -> list[str]:
        """The names of all requests since `watch`, in their order."""
        with self._lock:
            return list(self._traced)

    def named(self, request: BaseHTTPRequestHandler) -> str:
        """A request's name; empty: it is not watched."""
        url = urlsplit(request.path)
        query, key = parse_qs(url.query, keep_blank_values=True), unquote(url.path).removeprefix(f"/{self._bucket}/")
        if "list-type" in query:
            key = query["prefix"][0]
        verb = _verb(request, query)
        if verb != "delete" and not key.startswith(self._prefix):
            return ""
        role = "task" if "app/task" in request.headers.get("User-Agent", "") else "driver"
        return f"{role} {verb} {key.removeprefix(self._prefix) if verb != 'delete' else ''}".rstrip()

    def met(self, request: BaseHTTPRequestHandler) -> str:
        """Count a request; what is to happen to it, if anything."""
        full = self.named(request)
        if not full:
            return ""
        name = without_random(full)
        with self._lock:
            self._counts[name] += 1
            self._traced.append(name)
            if self._armed is None:
                return ""
            wanted, at, action, repeat = self._armed
            first = not self.fired and name == wanted and self._counts[name] >= at
            if not first and not (self.fired and (repeat == FOR_EVER or full == self._same)):
                return ""
            if first:
                self.fired, self._same = name, full
            if repeat != FOR_EVER:
                self._armed = (wanted, at, action, repeat - 1) if repeat > 1 else None
        return action


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, store: FaultyStore) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.store = store

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break here all the time."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    _upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def handle_expect_100(self) -> bool:
        """At once: a client waits a second for it otherwise."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _handle(self) -> None:
        store = self.server.store  # type: ignore[attr-defined]  # it is a `_Listening`
        assert isinstance(store, FaultyStore)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        action = store.met(self)
        done, _, answer = action.partition(", and ")
        if action == "told":
            store.happened.set()
        if done in REFUSALS:
            self._refuse(done)
        elif action == "reset":
            self._reset()
        elif action == "hang":
            store.released.wait()
            self._reset()
        elif action.startswith("kill -9") and not action.endswith("after"):
            _killed(_process_of(self.client_address[1]), jvm=action.endswith("JVM"))
            self._reset()
        elif action == "store killed before":
            store.kill_server()
            store.happened.set()
            self._reset()
        else:
            if action == "stop before":
                self._stop(store)
            self._forward(body, store, action, answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def _forward(self, body: bytes, store: FaultyStore, action: str, answer: str) -> None:
        try:
            response, data = self._asked(body, store.target_port)
        except (OSError, http.client.HTTPException):  # the server is away
            self._reset()
            return
        if action == "stop after":
            self._stop(store)
        if action == "store killed after":
            store.kill_server()
            store.happened.set()
        if action == "kill -9 after":
            _killed(_process_of(self.client_address[1]))
        if answer in REFUSALS:
            self._refuse(answer)
        elif answer == "reset" or action in ("store killed after", "kill -9 after"):
            self._reset()
        else:
            self._answer(response, data, half=bool(answer))

    def _asked(self, body: bytes, port: int) -> tuple[http.client.HTTPResponse, bytes]:
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection("127.0.0.1", port)
        self._upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                self._upstream.putheader(name, value)
        self._upstream.endheaders(body)
        response = self._upstream.getresponse()
        return response, response.read()

    def _answer(self, response: http.client.HTTPResponse, data: bytes, *, half: bool = False) -> None:
        self.send_response_only(response.status, response.reason)
        length = response.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        for name, value in response.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        if not half or data:
            self.end_headers()
        self.wfile.write(data[: len(data) // 2] if half else data)
        self.wfile.flush()
        self.close_connection = self.close_connection or half

    def _refuse(self, status: str) -> None:
        code, name = REFUSALS[status]
        data = (
            b"" if self.command == "HEAD" else f"<Error><Code>{name}</Code><Message>injected</Message></Error>".encode()
        )
        self.send_response_only(code)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _stop(self, store: FaultyStore) -> None:
        """Stop whoever asks, and hold its request, until all is well again."""
        pid = _process_of(self.client_address[1])
        os.kill(pid, signal.SIGSTOP)
        store.happened.set()
        store.released.wait()
        os.kill(pid, signal.SIGCONT)


def _verb(request: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> str:
    if "delete" in query:
        return "delete"
    if "list-type" in query:
        return "list"
    if "uploads" in query or "uploadId" in query:
        return f"{request.command.lower()} upload"
    if request.command == "PUT":
        return (
            "copy"
            if "x-amz-copy-source" in request.headers
            else "create"
            if "If-None-Match" in request.headers
            else "put"
        )
    return request.command.lower()


def _process_of(port: int) -> int:
    """The process that has the connection from this port of this host."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[9] != "0":
                return _holder_of(f"socket:[{fields[9]}]")
    raise ProcessLookupError(f"nobody has port {port}")


def _holder_of(link: str) -> int:
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(fd) == link:
                return int(fd.parts[2])
    raise ProcessLookupError(f"nobody has {link}")


def _killed(pid: int, *, jvm: bool = False) -> None:
    """End a process at once; or the JVM of a task, which is the parent of the daemon that its worker was forked by."""
    for _ in range(2 if jvm else 0):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
