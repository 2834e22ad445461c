"""Checkpoints in S3 behind a network that fails: refused requests, uploads that are cut, answers that are lost."""

from __future__ import annotations

import contextlib
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from heronpy.checkpoints import CheckpointStorage, newest_intact, open_storage
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.testing import eventually_sync
from heronpy.testing.checkpoints_kit import small_checkpoint, store
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = [pytest.mark.long, pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")]

ATTEMPTS = 3
"""So often a request is tried."""
SLOW_DOWN = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LARGE = bytes(range(256)) * 4096  # 1 MiB: more than is in sockets' buffers on the way

T = TypeVar("T")
Fault = Callable[[socket.socket, socket.socket], None]


def refused(client: socket.socket, server: socket.socket) -> None:
    """The server is overloaded."""
    client.recv(1 << 16)
    client.sendall(SLOW_DOWN)


def cut(client: socket.socket, server: socket.socket) -> None:
    """The connection breaks in the middle of an upload."""
    for _ in range(4):
        server.sendall(client.recv(16 * 1024))


def answer_lost(client: socket.socket, server: socket.socket) -> None:
    """The server has done it, and nobody is told."""
    threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
    while (answer := server.recv(1 << 16)).startswith(b"HTTP/1.1 100"):
        client.sendall(answer)


def hung(client: socket.socket, server: socket.socket) -> None:
    """The server takes the request, and says nothing."""
    while client.recv(1 << 16):
        pass


def stalled(client: socket.socket, server: socket.socket) -> None:
    """The server begins to answer."""
    threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
    client.sendall(server.recv(400)[:400])
    hung(client, server)


def conflict(client: socket.socket, server: socket.socket) -> None:
    """Something happens to the object at the same time."""
    client.recv(1 << 16)
    body = b"<Error><Code>ConditionalRequestConflict</Code><Message>try again</Message></Error>"
    client.sendall(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))


def not_the_store(client: socket.socket, server: socket.socket) -> None:
    """Something on the way answers with a page of its own."""
    client.recv(1 << 16)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>Sign in: <")


class Network(socketserver.ThreadingTCPServer):
    """Passes connections on to a server; `faults` happen to the next ones."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = ("127.0.0.1", port)
        self.faults: list[Fault] = []


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        network = self.server
        assert isinstance(network, Network)
        fault = network.faults.pop(0) if network.faults else None
        with contextlib.suppress(OSError), socket.create_connection(network.target) as server:
            if fault is not None:
                fault(self.request, server)
                return
            back = threading.Thread(target=_pass_on, args=(server, self.request), daemon=True)
            back.start()
            _pass_on(self.request, server)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def network(server: S3Server) -> Iterator[Network]:
    with Network(server.port) as network:
        thread = threading.Thread(target=network.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield network
        network.shutdown()
        thread.join()


@pytest.fixture
def storage(server: S3Server, network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointStorage]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.url("faults")
    place = f"s3://faults/{secrets.token_hex(8)}"
    with open_storage(f"{place}?endpoint=http://127.0.0.1:{network.server_address[1]}&region=us-east-1") as storage:
        yield storage


@pytest.mark.parametrize("fault", [refused, cut])
def test_a_request_that_fails_is_tried_again_and_what_is_stored_is_whole(
    storage: CheckpointStorage, network: Network, fault: Fault
) -> None:
    network.faults = [fault] * (ATTEMPTS - 1)
    storage.put("objects/a", [LARGE])
    assert network.faults == []
    assert storage.read("objects/a") == LARGE


@pytest.mark.parametrize("fault", [refused, cut])
def test_an_upload_that_fails_for_good_is_unavailable_and_nothing_of_it_is_there(
    storage: CheckpointStorage, network: Network, fault: Fault
) -> None:
    network.faults = [fault] * ATTEMPTS
    with pytest.raises(UnavailableError, match="objects/a"):
        storage.put("objects/a", [LARGE])
    assert network.faults == []
    with pytest.raises(NotFoundError):
        storage.size("objects/a")
    assert storage.names() == []


def test_a_manifest_whose_answer_was_lost_is_created_once_and_by_its_writer(
    storage: CheckpointStorage, network: Network
) -> None:
    network.faults = [answer_lost]
    assert storage.create("manifests/1.json", b"mine")
    assert network.faults == []
    assert not storage.create("manifests/1.json", b"theirs")
    assert storage.read("manifests/1.json") == b"mine"


def test_what_conflicts_with_another_request_is_created_by_the_next_attempt(
    storage: CheckpointStorage, network: Network
) -> None:
    network.faults = [conflict] * (ATTEMPTS - 1)
    assert storage.create("manifests/1.json", b"mine")
    assert network.faults == []
    network.faults = [conflict] * ATTEMPTS
    with pytest.raises(UnavailableError, match="manifests/2"):
        storage.create("manifests/2.json", b"mine")


def test_a_storage_that_refuses_is_never_taken_for_one_without_checkpoints(
    storage: CheckpointStorage, network: Network
) -> None:
    network.faults = [refused] * ATTEMPTS
    with pytest.raises(UnavailableError):
        newest_intact(storage)
    assert network.faults == []
    store(storage, *small_checkpoint(1, {"a": b"1"}))
    assert newest_intact(storage)[0].checkpoint_id == 1


def test_a_page_of_somebody_else_is_no_listing(storage: CheckpointStorage, network: Network) -> None:
    network.faults = [not_the_store] * ATTEMPTS
    with pytest.raises(UnavailableError):
        storage.names()


CALLS: dict[str, Callable[[CheckpointStorage], object]] = {
    "put": lambda storage: storage.put("objects/b", [LARGE]),
    "put in parts": lambda storage: storage.put("objects/b", [LARGE] * 9),
    "create": lambda storage: storage.create("manifests/2.json", b"2"),
    "size": lambda storage: storage.size("objects/a"),
    "read": lambda storage: storage.read("objects/a"),
    "names": lambda storage: storage.names(),
    "delete": lambda storage: storage.delete(["objects/a"]),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is made now waits less for an answer."""
    monkeypatch.setattr("heronpy.checkpoints._s3._ANSWER_S", 1.0)


def in_time(call: Callable[[], T]) -> T:
    """What a storage that waits less says, once the server is quick enough for it."""

    def answered() -> T:
        try:
            return call()
        except UnavailableError as e:
            raise AssertionError(str(e)) from e

    return eventually_sync(answered)


@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_accepts_and_hangs_costs_each_call_its_timeouts(
    impatient: None, storage: CheckpointStorage, network: Network, call: str
) -> None:
    network.faults = [hung] * 3 * ATTEMPTS
    before_s = time.monotonic()
    with pytest.raises(UnavailableError, match=r"[Tt]imed? ?out"):
        CALLS[call](storage)
    assert time.monotonic() - before_s < 240
    assert len(network.faults) < 3 * ATTEMPTS
    network.faults = []
    in_time(lambda: CALLS["put"](storage))
    assert in_time(lambda: storage.read("objects/b")) == LARGE, "it is used again"


def test_an_answer_that_stalls_is_not_waited_for(impatient: None, storage: CheckpointStorage, network: Network) -> None:
    in_time(lambda: storage.put("objects/a", [LARGE]))
    network.faults = [stalled] * ATTEMPTS
    with pytest.raises(UnavailableError):
        storage.read("objects/a")
    network.faults = []
    assert in_time(lambda: storage.read("objects/a")) == LARGE
