"""A topology whose checkpoints are in a storage that hangs: checkpoints fail, data flows on, and later ones succeed."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keyed_count_topology import KEYS, counts_in, keyed_count_topology

from heronpy.testing import LocalCluster, eventually_sync
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = [pytest.mark.long, pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")]

PATIENCE_S = 240.0
"""Longer than a Checkpoint Manager waits for a storage, on a busy machine."""


class Door:
    """A way to a server. While it is shut, connections are accepted and nothing comes through."""

    def __init__(self, port: int) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
            back.start()
            self._pass_on(client, server)
            back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.is_open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.is_open.set()
        self._listening.close()


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server(tmp_path / "s3") as server:
        server.url("hung")
        door = Door(server.port)
        try:
            yield door
        finally:
            door.close()


def test_checkpoints_fail_while_the_storage_hangs_and_data_flows_on(tmp_path: Path, door: Door) -> None:
    directory = tmp_path / "counts"
    directory.mkdir()
    url = f"s3://hung/{secrets.token_hex(4)}?endpoint=http://127.0.0.1:{door.port}&region=us-east-1"
    with LocalCluster({"heron.statefulstorage.url": url, "heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(keyed_count_topology(directory, rate=200)).wait_running()

        def committed(more_than: int) -> None:
            assert topology.status().checkpoints.newest > more_than

        eventually_sync(lambda: committed(0))
        door.is_open.clear()
        shut_s, counted = time.monotonic(), [sum(counts_in(directory).values())]
        failed = topology.status().checkpoints.failed

        def has_failed() -> None:
            counted.append(sum(counts_in(directory).values()))
            checkpoints = topology.status().checkpoints
            assert checkpoints.failed > failed
            assert "did not" in checkpoints.last_failure

        eventually_sync(has_failed, within_s=PATIENCE_S)
        shut_for_s = time.monotonic() - shut_s
        assert counted[-1] - counted[0] > 50 * shut_for_s, "of 200 a second"
        assert topology.status().checkpoints.restores == 0
        before = topology.status().checkpoints.newest
        door.is_open.set()
        eventually_sync(lambda: committed(before), within_s=PATIENCE_S)
        (directory / "finish").touch()

        def exact() -> None:
            assert (directory / "emitted").exists()
            emitted = int((directory / "emitted").read_text())
            assert set(counts_in(directory).values()) == {emitted // KEYS}

        eventually_sync(exact)
        assert topology.status().checkpoints.restores == 0
