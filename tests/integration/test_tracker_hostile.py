"""What one topology, or one caller, does to a Tracker must not touch it for the others.

A real Tracker serves one ordinary topology. While it is handed something hostile, that topology is asked for again and
again: every answer must be right and come soon, and the Tracker's memory must stay what it is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import psutil
import pytest
from heron_tracker.parts import check_address, is_this_host
from topology_on_disk import launch_in, packing_plan, submit

from heronpy.errors import UnavailableError
from heronpy.proto import state_pb2, topology_pb2
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync

ANSWER_CPU_MAX_S = 6.0
"""What the Tracker calculates before it answers any other request: on a busy machine it may not run for a while."""
GROWTH_MAX_MIB = 200
TRACKER = [sys.executable, "-m", "heronpy.cli", "tracker", "--port", "0", "--json", "--no-token"]
PICKLE_BOMB = b"\x8e" + (1 << 30).to_bytes(8, "little")
"""Nine bytes, of which pickle makes a gigabyte."""


class Hosted:
    """A Tracker as a process, and the state manager that it follows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.launch = launch_in(directory)
        self.state: StateManager = open_statemgr(self.launch.statemgr)
        submit(self.state, 1)
        self.record("words", self.launch.dir, "words-1")
        self.process = subprocess.Popen(
            [*TRACKER, "--type", "file", "--rootpath", self.launch.statemgr.root],
            env={**os.environ, "HERON_HOME": str(directory)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.http = httpx.Client(base_url=self.url, timeout=300)

    def record(self, name: str, directory: Path, id: str, definition: bytes | None = None) -> None:
        """What a submission writes, of a topology that has a Topology Master somewhere."""
        execution = state_pb2.ExecutionState(
            topology=name, topology_id=id, cluster="local", role="me", environ="default", topology_dir=str(directory)
        )
        if definition is not None:
            self.state.set(Kind.TOPOLOGIES, name, definition)
            self.state.set(Kind.PACKINGPLANS, name, packing_plan(1).to_proto().SerializeToString())
        location = state_pb2.TmasterLocation(topology=name, topology_id=id, host="127.0.0.1", port=9)
        self.state.set(Kind.TMASTERS, name, location.SerializeToString())
        self.state.set(Kind.EXECUTIONSTATE, name, execution.SerializeToString())

    def get(self, path: str, name: str = "words", **params: Any) -> httpx.Response:
        place = {"cluster": "local", "environ": "default", "topology": name}
        return self.http.get(f"/topologies/{path}", params={**place, **params})

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def peak_mib(self) -> int:
        """The most memory that the Tracker has used since `forget_peak`."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) >> 10

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def undisturbed(self, *hostile: Callable[[], None]) -> None:
        """Run these side by side, while somebody else asks for the ordinary topology."""
        self.get("logicalplan")
        self.forget_peak()
        before = self.peak_mib()
        threads = [threading.Thread(target=one) for one in hostile]
        for thread in threads:
            thread.start()
        slowest_s = slowest_cpu_s = 0.0
        all_began_s = time.monotonic()
        with httpx.Client(base_url=self.url, timeout=300) as other:
            place = {"cluster": "local", "environ": "default", "topology": "words"}
            while True:
                alive = any(thread.is_alive() for thread in threads)
                began_s, began_cpu_s = time.monotonic(), self.cpu_s()
                answer = other.get("/topologies/logicalplan", params=place)
                slowest_s = max(slowest_s, time.monotonic() - began_s)
                slowest_cpu_s = max(slowest_cpu_s, self.cpu_s() - began_cpu_s)
                assert list(answer.json()["spouts"]) == ["word"]
                if not alive:
                    break
        grown = self.peak_mib() - before
        print(f"slowest answer {slowest_s * 1e3:.0f} ms, memory +{grown} MiB")
        # What is held up by the hostile requests takes as long as they do.
        assert slowest_cpu_s < ANSWER_CPU_MAX_S or slowest_s < (time.monotonic() - all_began_s) / 2
        assert grown < GROWTH_MAX_MIB

    def stop(self) -> None:
        self.http.close()
        self.state.close()
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.process.wait(300) == 0


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    hosted = Hosted(tmp_path_factory.mktemp("hostile"))
    yield hosted
    hosted.stop()


def definition(name: str) -> topology_pb2.Topology:
    topology = topology_pb2.Topology(id=f"{name}-1", name=name, state=topology_pb2.RUNNING)
    spout = topology.spouts.add()
    spout.comp.name, spout.comp.class_name = "word", "words.Word"
    spout.comp.config.SetInParent()
    return topology


def listed(hosted: Hosted, name: str) -> None:
    def check() -> None:
        names = hosted.http.get("/topologies").json()
        assert name in names.get("local", {}).get("me", {}).get("default", [])

    eventually_sync(check)


def damaged(hosted: Hosted, name: str) -> str:
    """Why the topology's state cannot be read."""

    def check() -> None:
        assert name in hosted.http.get("/statemanagers").json()[0]["damaged"]

    eventually_sync(check)
    reason: str = hosted.http.get("/statemanagers").json()[0]["damaged"][name]
    return reason


@pytest.mark.parametrize("query", [f"SUM({','.join(['1'] * 9000)})", f"MAX({','.join(['DEFAULT(0,1)'] * 1000)})"])
def test_a_query_that_would_take_a_gigabyte(hosted: Hosted, query: str) -> None:
    def ask() -> None:
        answer = hosted.get("metrics/query", query=query, starttime=0, endtime=86_400)
        assert answer.status_code in (200, 400)
        # It is refused for its size, or on a busy machine for its time.
        assert answer.status_code == 200 or "calculates more than" in answer.text or "takes more than" in answer.text

    hosted.undisturbed(ask, ask, ask, ask)


def test_the_longest_query_is_read_however_it_arrives(hosted: Hosted) -> None:
    query = quote(f"SUM({','.join(['1'] * 9997)})", safe="")
    head = f"GET /topologies/metrics/query?query={query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    request = head.encode()
    assert len(request) > 40_000
    server = urlsplit(hosted.url)
    assert server.hostname is not None
    with socket.create_connection((server.hostname, server.port or 0), timeout=120) as connection:
        for first in range(0, len(request), 15_000):
            connection.sendall(request[first : first + 15_000])
            eventually_sync(lambda: check_was_read(connection))
        with connection.makefile("rb") as answers:
            answer = answers.read().decode()
    assert answer.startswith("HTTP/1.1 400")
    assert "request failed: parameter" in answer


def check_was_read(connection: socket.socket) -> None:
    """Check that the other end, on this host, has taken everything that was sent."""
    ours, theirs = (f":{end[1]:04X}" for end in (connection.getsockname(), connection.getpeername()))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    waiting = [line[4] for line in lines if line[1].endswith(theirs) and line[2].endswith(ours)]
    assert [queues.partition(":")[2] for queues in waiting] == ["00000000"]


def test_a_pickle_that_would_take_a_gigabyte(hosted: Hosted) -> None:
    topology = definition("bomb")
    for config in (topology.topology_config, topology.spouts[0].comp.config):
        for n in range(100):
            kv = config.kvs.add(key=f"mine.{n}", serialized_value=PICKLE_BOMB)
            kv.type = topology_pb2.PYTHON_SERIALIZED_VALUE

    def show() -> None:
        hosted.record("bomb", hosted.directory / "bomb", "bomb-1", topology.SerializeToString())
        listed(hosted, "bomb")
        assert hosted.get("config", "bomb").json()["mine.7"] == "<an object of the topology>"

    hosted.undisturbed(show)


@pytest.mark.parametrize("kind", ["fifo", "link", "deep", "huge", "device"])
def test_a_launch_file_that_is_a_trap(hosted: Hosted, kind: str) -> None:
    directory = hosted.directory / kind
    directory.mkdir(mode=0o700)
    trap = directory / "launch.json"
    if kind == "fifo":
        os.mkfifo(trap)
    elif kind == "link":
        trap.symlink_to(hosted.launch.dir / "launch.json")
    elif kind == "device":
        trap.symlink_to("/dev/zero")
    elif kind == "deep":
        trap.write_text("[" * 200_000)
    else:
        trap.write_bytes(b"[0],\n" * 8_000_000)
    hosted.record(kind, directory, f"{kind}-1", definition(kind).SerializeToString())

    def ask() -> None:
        listed(hosted, kind)
        answer = hosted.get("metrics", kind, component="word")
        assert answer.status_code == 503
        assert "its credentials are in its directory" in answer.text
        assert hosted.http.get("/prometheus/targets").status_code == 200

    hosted.undisturbed(ask, ask)


def test_a_state_that_is_too_large_is_listed_with_the_reason(hosted: Hosted) -> None:
    wide = definition("wide")
    for n in range(30_000):
        wide.topology_config.kvs.add(key=f"k{n}", value="v")
    long = definition("long")
    long.topology_config.kvs.add(key="k", value="x" * (5 << 20))
    named = definition("named")
    named.spouts[0].comp.name = "n" * 100_000

    def write() -> None:
        for topology in (wide, long, named):
            name = topology.name
            hosted.record(name, hosted.directory / name, f"{name}-1", topology.SerializeToString())
        assert "30,001 streams, fields" in damaged(hosted, "wide") or "30,000 streams" in damaged(hosted, "wide")
        assert "bytes of topologies" in damaged(hosted, "long")
        assert "characters in a name" in damaged(hosted, "named")
        answer = hosted.get("logicalplan", "wide")
        assert (answer.status_code, "its state cannot be read" in answer.text) == (404, True)

    hosted.undisturbed(write)


def test_a_state_of_the_largest_size_is_served(hosted: Hosted) -> None:
    full = definition("full")
    for n in range(19_000):
        full.topology_config.kvs.add(key=f"key.number.{n}", value=f"value {n} " * 10)
    for n in range(1_900):
        spout = full.spouts.add()
        spout.comp.name, spout.comp.class_name = f"word{n}", "words.Word"
        spout.comp.config.SetInParent()

    def show() -> None:
        hosted.record("full", hosted.directory / "full", "full-1", full.SerializeToString())
        listed(hosted, "full")
        for path in ("logicalplan", "config", "info"):
            assert hosted.get(path, "full").status_code == 200

    hosted.undisturbed(show)


def test_bytes_that_are_no_state_are_listed_with_the_reason(hosted: Hosted) -> None:
    def write() -> None:
        hosted.state.set(Kind.TOPOLOGIES, "noise", b"\xff" * 1000)
        hosted.state.set(Kind.EXECUTIONSTATE, "noise", b"\xff" * 1000)
        assert "DecodeError" in damaged(hosted, "noise")

    hosted.undisturbed(write)


def test_a_token_is_not_sent_to_an_address_that_only_the_state_manager_vouches_for(hosted: Hosted) -> None:
    """The entry of another topology names the directory of `words`, and a master at an address of its own."""
    config = hosted.launch.dir / "launch.json"
    before = config.read_text()
    hosted.record("thief", hosted.launch.dir, "thief-1", definition("thief").SerializeToString())
    listed(hosted, "thief")
    answer = hosted.get("metrics", "thief", component="word")
    assert (answer.status_code, "is the directory of another topology" in answer.text) == (503, True)
    assert config.read_text() == before


def test_a_master_elsewhere_is_not_asked_without_certificates() -> None:
    topology: Any = type("T", (), {"key": type("K", (), {"name": "words"})})
    for host in ("192.0.2.1", "attacker.example", "::", "0.0.0.0", ""):
        assert not is_this_host(host)
        with pytest.raises(UnavailableError, match="no certificates"):
            check_address(topology, host, proves_itself=False)
        check_address(topology, host, proves_itself=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_address(topology, host, proves_itself=False)
