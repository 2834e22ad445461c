"""ZooKeeper or etcd is killed, or comes back without its data, while numbers flow: none is lost, the state is back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from chain_topology import chain as chain_of
from ledger import Ledger, eventually_pid, everyone

from heronpy.errors import StateError
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync
from heronpy.testing.etcd import EtcdServer, etcd_missing
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

pytestmark = pytest.mark.long

DURABLE = (Kind.TOPOLOGIES, Kind.PACKINGPLANS, Kind.PPLANS, Kind.EXECUTIONSTATE, Kind.SCHEDULERS, Kind.EPOCHS)
BACK_S = 180.0


@pytest.fixture(scope="module", params=["zookeeper", "etcd"])
def kind(request: pytest.FixtureRequest) -> str:
    if (why := zookeeper_missing() if request.param == "zookeeper" else etcd_missing()) is not None:
        pytest.skip(why)
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer | EtcdServer]:
    directory = tmp_path_factory.mktemp(kind)
    # Short sessions, so that a Topology Master's node is free soon after its death.
    one = EtcdServer(directory) if kind == "etcd" else ZookeeperServer(directory, session_timeout_max_ms=10_000)
    with one as server:
        yield server


@pytest.fixture(scope="module")
def ledger(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def chain(kind: str, server: ZookeeperServer | EtcdServer, ledger: Ledger) -> Iterator[TopologyHandle]:
    properties = {
        "heron.class.state.manager": kind,
        "heron.statemgr.connection.string": server.connection,
        "heron.statemgr.root.path": "/heron",
        "heron.executor.stable.ms": 500,
        "heron.executor.heartbeat.timeout.ms": 600_000,  # a test stops an executor, and nobody shall replace it
    }
    with LocalCluster(properties) as cluster:
        yield cluster.submit(chain_of("chain", ledger.dir, par=2, containers=2)).wait_running()


def state_is_back(chain: TopologyHandle) -> None:
    """Wait until the state manager has everything that a topology needs."""

    def check() -> None:
        try:
            with open_statemgr(chain.launch.statemgr, call_timeout_s=10.0) as state:
                missing = [kind.value for kind in (*DURABLE, Kind.TMASTERS) if state.get(kind, "chain") is None]
        except StateError as e:
            raise AssertionError(str(e)) from None
        assert missing == []

    eventually_sync(check, within_s=BACK_S)


def test_numbers_flow_while_the_state_manager_is_dead_and_its_restart_disturbs_nobody(
    chain: TopologyHandle, ledger: Ledger, server: ZookeeperServer | EtcdServer
) -> None:
    before = everyone(chain)
    with ledger.disturbed(f"kill -9 of {server.name}", chain) as recovery:
        server.kill()
        done = ledger.goal
        ledger.raise_goal(300)
        ledger.wait_for_executed_from(done, 300)
        server.start()
        recovery.over()
        state_is_back(chain)
    assert everyone(chain) == before, "somebody died of it"


def test_a_stream_manager_that_dies_while_the_state_manager_is_dead_is_replaced(
    chain: TopologyHandle, ledger: Ledger, server: ZookeeperServer | EtcdServer
) -> None:
    pid = everyone(chain)["stmgr-2"]
    with ledger.disturbed(f"kill -9 of {server.name}, then of stmgr-2", chain) as recovery:
        server.kill()
        os.kill(pid, signal.SIGKILL)
        eventually_pid(chain, "stmgr-2", lambda now: now != pid)
        server.start()
        recovery.over()
        state_is_back(chain)


def test_one_that_comes_back_empty_is_given_the_state_again(
    chain: TopologyHandle, ledger: Ledger, server: ZookeeperServer | EtcdServer
) -> None:
    before = everyone(chain)
    with ledger.disturbed(f"{server.name} emptied", chain) as recovery:
        server.kill()
        server.empty()
        server.start()
        recovery.over()
        began_s = time.monotonic()
        state_is_back(chain)
        print(f"\nthe state was back after {time.monotonic() - began_s:.1f} s")
    assert everyone(chain) == before, "somebody died of it"


def test_the_topology_master_dies_while_it_is_emptied(
    chain: TopologyHandle, ledger: Ledger, server: ZookeeperServer | EtcdServer
) -> None:
    pid = everyone(chain)["tmaster"]
    with ledger.disturbed(f"{server.name} emptied and the tmaster killed", chain) as recovery:
        server.kill()
        server.empty()
        os.kill(pid, signal.SIGKILL)
        server.start()
        recovery.over()
        state_is_back(chain)


def test_a_stream_manager_is_replaced_while_there_is_no_topology_master(chain: TopologyHandle, ledger: Ledger) -> None:
    before = everyone(chain)
    with ledger.disturbed("kill -9 of the tmaster, then of stmgr-2", chain) as recovery:
        # So that nobody starts the tmaster again.
        os.kill(before["executor-0"], signal.SIGSTOP)
        try:
            os.kill(before["tmaster"], signal.SIGKILL)
            os.kill(before["stmgr-2"], signal.SIGKILL)
            eventually_pid(chain, "stmgr-2", lambda pid: pid != before["stmgr-2"])
            done = ledger.goal
            ledger.raise_goal(300)
            ledger.wait_for_executed_from(done, 300)
        finally:
            os.kill(before["executor-0"], signal.SIGCONT)
        recovery.over()
