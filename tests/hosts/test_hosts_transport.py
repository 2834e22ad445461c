"""gRPC with mutual TLS between hosts, and servers on them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import speaker

from heronpy.runtime import StatemgrSpec
from heronpy.security import authority, container_identity
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Host, Hosts, hosts_missing
from heronpy.testing.servers import ZookeeperServer, zookeeper_ensemble, zookeeper_missing

pytestmark = pytest.mark.skipif(hosts_missing() is not None, reason=str(hosts_missing()))


@pytest.fixture(scope="module")
def network() -> Iterator[Hosts]:
    with Hosts("one", "two", "three") as hosts:
        yield hosts


@pytest.fixture
def hosts(network: Hosts, tmp_path: Path) -> Iterator[Hosts]:
    """With the certificates of a topology, each container's own alone."""
    authority.create(tmp_path / "tls", speaker.TOPOLOGY, range(4), days=1)
    for number, host in enumerate(network, start=1):
        tls = host.directory / "tls"
        shutil.rmtree(tls, ignore_errors=True)
        tls.mkdir(mode=0o700)
        for name in ("ca.pem", f"container-{number}.pem"):
            shutil.copy(tmp_path / "tls" / name, tls)
    yield network
    for host in network:
        host.heal()


@contextmanager
def speaking(host: Host, *args: str) -> Iterator[subprocess.Popen[str]]:
    process = host.popen([sys.executable, speaker.__file__, *args], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def until(process: subprocess.Popen[str], expected: str) -> None:
    """Read until a line is as expected; pytest's own timeout ends a hang."""
    while (said := line(process)) != expected:
        assert said, "it has ended"


@pytest.mark.parametrize(("bind", "family"), [("0.0.0.0:0", "address"), ("[::]:0", "address6")])
def test_processes_on_two_hosts_talk_again_after_a_cut(hosts: Hosts, bind: str, family: str) -> None:
    one, two = hosts["one"], hosts["two"]
    advertised = getattr(one, family)
    with speaking(one, "serve", "stmgr-1", str(one.directory / "tls"), bind, advertised) as server:
        address = line(server)
        assert advertised in address
        with speaking(two, "say", "stmgr-2", str(two.directory / "tls"), address, container_identity(1)) as caller:
            until(caller, "hello")
            one.cut()
            until(caller, "DEADLINE_EXCEEDED")
            one.heal()
            until(caller, "hello")


def test_a_host_with_the_certificate_of_another_container_is_not_talked_to(hosts: Hosts) -> None:
    one, three = hosts["one"], hosts["three"]
    with speaking(three, "serve", "stmgr-3", str(three.directory / "tls"), "0.0.0.0:0", three.address) as server:
        address = line(server)
        with speaking(one, "say", "stmgr-1", str(one.directory / "tls"), address, container_identity(2)) as caller:
            assert line(caller) == "UNAVAILABLE"


@pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))
def test_an_ensemble_over_the_hosts_survives_its_leader(hosts: Hosts, tmp_path: Path) -> None:
    with zookeeper_ensemble(tmp_path, places=list(hosts)) as servers:
        spec = StatemgrSpec(type="zookeeper", connection=_connection(servers), root="/heron")
        # Servers that get no CPU for a second lose each other, and elect a leader again.
        with open_statemgr(spec, session_timeout_s=20, call_timeout_s=120) as state:
            state.set(Kind.TOPOLOGIES, "words", b"before")
            leader = next(server for server in servers if server.mode() == "leader")
            host = next(host for host in hosts if host.address == leader.bind)
            host.vanish()
            eventually_sync(lambda: _equal(sum(s.mode() == "leader" for s in servers if s is not leader), 1))
            state.set(Kind.TOPOLOGIES, "words", b"after")
            assert state.get(Kind.TOPOLOGIES, "words") == b"after"
            host.come_back()
            leader.start()
            eventually_sync(lambda: _equal(leader.mode(), "follower"))


def _connection(servers: Sequence[ZookeeperServer]) -> str:
    return ",".join(server.connection for server in servers)


def _equal(found: object, expected: object) -> None:
    assert found == expected
