"""Clients that keep a web server waiting: it goes on answering the others, and holds nothing of theirs for long."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.testing import eventually_sync

CONNECTIONS_MAX = 20
CLIENT_S = 4.0
SERVER = f"""
import asyncio, logging
from starlette.responses import PlainTextResponse, StreamingResponse
from heronpy.web import listen, serve
logging.basicConfig()

async def endless():
    try:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)
    finally:
        print("left", flush=True)

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/endless":
        answer = StreamingResponse(endless())
    else:
        await asyncio.sleep({1.5 * CLIENT_S} if scope["path"] == "/slow" else 0)
        answer = PlainTextResponse("ok")
    await answer(scope, receive, send)

listening = listen("127.0.0.1", 0, "the test")
port = listening.getsockname()[1]
serve(
    app, listening, "127.0.0.1", lambda url: print(port, flush=True),
    connections_max={CONNECTIONS_MAX}, client_s={CLIENT_S},
)
"""
HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Server:
    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        self.out = process.stdout
        self.pid, self.port, self._log = process.pid, int(self.out.readline()), log
        self.idle_fds = self.fds()

    def fds(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, path: str = "/") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().status

    def log(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            yield Server(process, tmp_path / "log")
        finally:
            process.kill()


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD + b"X: ", HEAD + b"Content-Length: 1000000\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n"],
    ids=["nothing", "half a head", "no body", "no chunk"],
)
def test_clients_that_send_nothing_more_keep_no_others_out(server: Server, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * CONNECTIONS_MAX):
            connection = stack.enter_context(server.connected())
            with contextlib.suppress(OSError):  # it may be closed already
                connection.sendall(sent)
        assert server.ask() == 200

        def drip() -> None:
            with contextlib.suppress(OSError):
                connection.sendall(b"1")
            assert server.fds() == server.idle_fds

        eventually_sync(drip, within_s=60)
    assert len(server.log()) == 1
    assert "connections: those that wait longest for their clients are closed" in server.log()[0]


def test_a_client_that_reads_no_answer_is_left(server: Server) -> None:
    with server.connected() as connection:
        connection.sendall(HEAD.replace(b"/ ", b"/endless ") + b"\r\n")
        assert server.out.readline() == "left\n"
        eventually_sync(lambda: _equal(server.fds(), server.idle_fds), within_s=60)


def test_a_client_that_waits_for_a_slow_answer_or_reads_a_long_one_is_served(server: Server) -> None:
    with server.connected() as connection:
        connection.sendall(HEAD.replace(b"/ ", b"/endless ") + b"\r\n")
        with contextlib.ExitStack() as stack:
            slow = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            stack.callback(slow.close)
            slow.request("GET", "/slow")
            for _ in range(3 * CONNECTIONS_MAX):
                stack.enter_context(server.connected())
                assert connection.recv(1 << 20)
            while not _is_readable(slow):
                assert connection.recv(1 << 20)
            assert slow.getresponse().status == 200
        assert connection.recv(1 << 20)


def test_a_flood_of_what_is_no_request_is_one_line_in_the_log(server: Server) -> None:
    for _ in range(50):
        with server.connected() as connection:
            connection.sendall(b"no request\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert server.log() == ["WARNING:uvicorn.error:Invalid HTTP request received."]


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    assert connection.sock is not None
    connection.sock.settimeout(0)
    try:
        return bool(connection.sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.sock.settimeout(60)


def _equal(found: object, expected: object) -> None:
    assert found == expected
