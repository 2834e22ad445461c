"""Topologies whose containers share nothing with their submitter, nor with one another, but ZooKeeper and a store."""

from __future__ import annotations

import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from process_scheduler import Host, executor, hosts, start_on_a_new_host

from heronpy import loader
from heronpy.container import TRY_AGAIN
from heronpy.errors import UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, container_node, open_statemgr
from heronpy.submit import kill, submit
from heronpy.testing import TopologyHandle, eventually_sync
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

HERE = Path(__file__).parent
INTEGRATION = HERE.parent / "integration"
sys.path.insert(0, str(INTEGRATION))

from keyed_count_topology import KEYS, counts_in, keyed_count_topology  # noqa: E402

pytestmark = pytest.mark.timeout(2400)
WITHIN_S = 600.0
"""Long, because only a failure takes it: each container of a busy machine may need minutes to start."""
INTERVAL = "topology.stateful.checkpoint.interval.seconds"
FAST = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 5000}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    if (missing := zookeeper_missing()) is not None:
        pytest.skip(missing)
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@dataclass
class Running:
    """A topology on hosts that are directories."""

    launch: Launch
    root: Path
    """Of the hosts."""
    shared: Path
    """What the topology writes; no process of the engine looks there."""

    def host(self, container: int) -> Host:
        """The newest one of a container."""
        return [host for host in hosts(self.root) if host.container == container][-1]

    def wait_running(self) -> None:
        """Until all instances are attached, at the newest incarnations of their containers."""

        def check() -> None:
            try:
                status = TopologyHandle(self.launch).status()
            except UnavailableError as e:
                raise AssertionError(str(e)) from e
            assert status.ready, self.last_words()
            found = {one.location.container: one.location.container_incarnation for one in status.stmgrs}
            assert found == {container: self.record(container).incarnation for container in found}

        eventually_sync(check, within_s=WITHIN_S)

    def last_words(self) -> str:
        """What the containers have said, and the ends of their logs."""
        found = [host.said() + host.log()[-2000:] for host in hosts(self.root)]
        return "\n".join(["it does not run", *found])

    def restarted(self, container: int) -> Host:
        return start_on_a_new_host(self.launch, container, self.root)[0]

    def counted(self) -> int:
        return sum(counts_in(self.shared).values())

    def wait_for_progress(self) -> None:
        before = self.counted()
        eventually_sync(lambda: _more(self.counted(), before), within_s=WITHIN_S)

    def check_exact(self) -> None:
        """End the input, and compare what was counted with what was emitted."""
        (self.shared / "finish").touch()

        def check() -> None:
            assert (self.shared / "emitted").exists()
            numbers = int((self.shared / "emitted").read_text())
            counts = counts_in(self.shared)
            assert sum(counts.values()) == numbers
            assert set(counts.values()) == {numbers // KEYS}
            assert len(counts) == KEYS

        eventually_sync(check, within_s=WITHIN_S)

    def record(self, container: int) -> state_pb2.ContainerRecord:
        with open_statemgr(self.launch.statemgr) as state:
            value = state.get(Kind.CONTAINERS, container_node(self.launch.topology, container))
        return state_pb2.ContainerRecord.FromString(value or b"")


@pytest.fixture
def running(
    tmp_path: Path, zookeeper: ZookeeperServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Running]:
    """A topology that runs; a parameter is more of its cluster's configuration, and the interval of its checkpoints."""
    info = tmp_path / "installed/processes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: processes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[heron.schedulers]\nprocesses = process_scheduler:ProcessScheduler\n")
    monkeypatch.syspath_prepend(str(info.parent))
    conf, root, shared = tmp_path / "conf", tmp_path / "hosts", tmp_path / "shared"
    for directory in (conf / "farm", root, shared):
        directory.mkdir(parents=True)
    values = {
        **FAST,
        "heron.class.scheduler": "processes",
        "heron.scheduler.processes.directory": str(root),
        "heron.class.state.manager": "zookeeper",
        "heron.statemgr.connection.string": zookeeper.connection,
        "heron.statemgr.root.path": f"/{tmp_path.name}",
        "heron.uploader.url": str(tmp_path / "packages"),
        "heron.statefulstorage.url": str(tmp_path / "checkpoints"),
        **{key: value for key, value in getattr(request, "param", {}).items() if key != INTERVAL},
    }
    (conf / "farm/cluster.yaml").write_text(yaml.safe_dump(values))
    interval_s = getattr(request, "param", {}).get(INTERVAL, 1)
    definition = loader.Definition.of(keyed_count_topology(shared, rate=500, **{INTERVAL: interval_s}))
    launch = submit(definition, cluster="farm", role="me", home=tmp_path / "submitter", config_path=conf)
    made = Running(launch, root, shared)
    try:
        made.wait_running()
        yield made
    finally:
        kill(launch)
        for directory in root.iterdir():
            Host(directory).send(signal.SIGKILL)


def test_counts_are_exact_and_nothing_is_left_when_it_is_killed(running: Running, tmp_path: Path) -> None:
    running.wait_for_progress()
    running.check_exact()
    places = [host.topology() for host in hosts(running.root)]
    assert len(places) == 3
    holders = [place for place in places if (place / "tls/authority").exists()]
    assert holders == [running.host(0).topology()], "only container 0 can sign"
    assert not (running.host(0).topology() / "package").exists(), "and it has no user code"
    keys = [(place / f"tls/container-{place.name}.pem").read_text() for place in places]
    assert len(set(keys)) == 3
    kill(running.launch)
    assert [process for host in hosts(running.root) for process in host.processes()] == []
    secrets = ("token", "*.pem", "*.sock")
    assert [path for host in hosts(running.root) for name in secrets for path in host.directory.rglob(name)] == []
    assert all("the container ends" in host.log() or "incarnation" in host.log() for host in hosts(running.root))
    with open_statemgr(running.launch.statemgr) as state:
        found = {kind: names for kind in Kind if (names := state.list(kind))}
        assert found == {Kind.TOMBSTONES: [running.launch.topology_id]}
    assert list((tmp_path / "packages").rglob("*.tar.gz")) == []


def test_a_container_that_was_killed_goes_on_in_a_fresh_directory(running: Running) -> None:
    for container in (1, 0, 2):
        running.wait_for_progress()
        before = running.record(container)
        running.host(container).send(signal.SIGKILL)
        running.restarted(container)
        eventually_sync(lambda c=container, b=before: _more(running.record(c).incarnation, b.incarnation))
        running.wait_running()
    running.wait_for_progress()
    running.check_exact()


def test_a_container_that_was_stopped_and_replaced_ends_itself_when_it_goes_on(running: Running) -> None:
    for container in (2, 1):
        running.wait_for_progress()
        old = running.host(container)
        old.send(signal.SIGSTOP)
        running.restarted(container)
        running.wait_running()
        running.wait_for_progress()
        old.send(signal.SIGCONT)
        eventually_sync(lambda o=old: _equal(o.processes(), []), within_s=WITHIN_S)
        assert "replaces this one" in old.log()
        assert not list(old.directory.rglob("token")), "it leaves no secret"
        running.wait_for_progress()
    running.check_exact()


def test_a_topology_master_that_was_stopped_and_replaced_ends_itself_when_it_goes_on(running: Running) -> None:
    running.wait_for_progress()
    old = running.host(0)
    old.send(signal.SIGSTOP)
    running.restarted(0)
    running.wait_running()
    old.send(signal.SIGCONT)
    eventually_sync(lambda: _equal(old.processes(), []), within_s=WITHIN_S)
    running.wait_running()
    running.wait_for_progress()
    running.check_exact()


@pytest.mark.parametrize("running", [{INTERVAL: 3600}], indirect=True)
def test_a_container_that_its_cluster_ends_has_a_checkpoint_taken_first(running: Running) -> None:
    for container in (1, 0):
        running.wait_for_progress()
        before, counted = TopologyHandle(running.launch).status().checkpoints.newest, running.counted()
        host = running.host(container)
        executor(host, signal.SIGTERM)
        eventually_sync(lambda h=host: _equal(h.processes(), []), within_s=WITHIN_S)
        assert f"ends, and checkpoint {before + 1} has what was done until now" in host.said()
        running.restarted(container)
        running.wait_running()
        assert TopologyHandle(running.launch).status().checkpoints.newest == before + 1
        assert running.counted() >= counted, "it goes on from there"
    running.wait_for_progress()
    running.check_exact()


@pytest.mark.parametrize("running", [{INTERVAL: 3600}], indirect=True)
def test_a_container_whose_topology_cannot_take_one_ends_in_time(running: Running) -> None:
    running.host(2).send(signal.SIGSTOP)
    host = running.host(1)
    executor(host, signal.SIGTERM)
    eventually_sync(lambda: _equal(host.processes(), []), within_s=stop_limit_s(running.launch) + 30)
    assert "ends, and checkpoint" not in host.said()
    running.host(2).send(signal.SIGCONT)


def test_a_stranger_and_a_bootstrap_certificate_open_nothing(running: Running) -> None:
    pids = {process.pid for host in hosts(running.root) for process in host.processes()}
    found = psutil.net_connections("tcp")
    ports = sorted({c.laddr.port for c in found if c.pid in pids and c.status == psutil.CONN_LISTEN})
    assert len(ports) >= 3
    tls = running.launch.tls_dir
    for port in ports:
        context = ssl.create_default_context(cafile=str(tls / "ca.pem"))
        context.check_hostname = False
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _answer(port, context)
        assert _plain(port) == b"" or _plain(port)[:1] == b"\x15", f"port {port} answers without TLS"


def test_a_container_that_starts_after_a_kill_is_not_needed(running: Running) -> None:
    document = (running.host(1).directory / "bootstrap.json").read_bytes()
    kill(running.launch)
    late = Host(running.root / "1-late")
    assert late.start(document).wait(WITHIN_S) == 0
    assert f"topology {running.launch.topology} was killed" in late.said()
    assert late.said().count("\n") == 1
    with open_statemgr(running.launch.statemgr) as state:
        assert state.delete(Kind.TOMBSTONES, running.launch.topology_id)
    later = Host(running.root / "1-later")
    assert later.start(document).wait(WITHIN_S) == TRY_AGAIN, "a lost state manager looks the same"
    assert "was killed, or" in later.said()
    assert later.said().count("\n") == 1


def test_what_was_stopped_while_its_topology_was_killed_brings_nothing_back(running: Running) -> None:
    running.wait_for_progress()
    cut_off = [running.host(0), running.host(1)]
    for host in cut_off:
        host.send(signal.SIGSTOP)
        host.lose()
    kill(running.launch)
    with open_statemgr(running.launch.statemgr) as state:
        before = {kind: names for kind in Kind if (names := state.list(kind))}
        assert before == {Kind.TOMBSTONES: [running.launch.topology_id]}
        for host in cut_off:
            host.send(signal.SIGCONT)
        for host in cut_off:
            eventually_sync(lambda h=host: _equal(h.processes(), []), within_s=WITHIN_S)
            assert "was killed" in host.log()
            assert not list(host.directory.rglob("token")), "it leaves no secret"
        eventually_sync(lambda: _equal({kind: names for kind in Kind if (names := state.list(kind))}, before))


def test_what_a_container_cannot_do_now_is_tried_again_and_says_why(running: Running, tmp_path: Path) -> None:
    document = (running.host(1).directory / "bootstrap.json").read_bytes()
    (tmp_path / "packages").rename(tmp_path / "away")
    try:
        without_packages = Host(running.root / "1-without")
        assert without_packages.start(document).wait(WITHIN_S) in (TRY_AGAIN, 3, 7)
        assert "packages" in without_packages.said()
        assert without_packages.said().count("\n") == 1
    finally:
        (tmp_path / "away").rename(tmp_path / "packages")


def _answer(port: int, context: ssl.SSLContext) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s, context.wrap_socket(s) as tls:
        tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        if not tls.recv(100):
            raise ConnectionError("closed")


def _plain(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            return s.recv(100)
        except ConnectionError:
            return b""


def _more(value: int, than: int) -> None:
    assert value > than


def _equal(value: object, other: object) -> None:
    assert value == other
