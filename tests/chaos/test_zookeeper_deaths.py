"""ZooKeeper is killed, or comes back without its data, while numbers flow: no number is lost, and the state is back."""

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
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or ""),
]

DURABLE = (Kind.TOPOLOGIES, Kind.PACKINGPLANS, Kind.PPLANS, Kind.EXECUTIONSTATE, Kind.SCHEDULERS, Kind.EPOCHS)
BACK_S = 180.0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    # Short sessions, so that a Topology Master's node is free soon after its death.
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper"), session_timeout_max_ms=10_000) as server:
        yield server


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def chain(zookeeper: ZookeeperServer, ledger: Ledger) -> Iterator[TopologyHandle]:
    properties = {
        "heron.class.state.manager": "zookeeper",
        "heron.statemgr.connection.string": zookeeper.connection,
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


def test_numbers_flow_while_zookeeper_is_dead_and_its_restart_disturbs_nobody(
    chain: TopologyHandle, ledger: Ledger, zookeeper: ZookeeperServer
) -> None:
    before = everyone(chain)
    with ledger.disturbed("kill -9 of ZooKeeper", chain) as recovery:
        zookeeper.kill()
        done = ledger.goal
        ledger.raise_goal(300)
        ledger.wait_for_executed_from(done, 300)
        zookeeper.start()
        recovery.over()
        state_is_back(chain)
    assert everyone(chain) == before, "somebody died of it"


def test_a_stream_manager_that_dies_while_zookeeper_is_dead_is_replaced(
    chain: TopologyHandle, ledger: Ledger, zookeeper: ZookeeperServer
) -> None:
    pid = everyone(chain)["stmgr-2"]
    with ledger.disturbed("kill -9 of ZooKeeper, then of stmgr-2", chain) as recovery:
        zookeeper.kill()
        os.kill(pid, signal.SIGKILL)
        eventually_pid(chain, "stmgr-2", lambda now: now != pid)
        zookeeper.start()
        recovery.over()
        state_is_back(chain)


def test_zookeeper_that_comes_back_empty_is_given_the_state_again(
    chain: TopologyHandle, ledger: Ledger, zookeeper: ZookeeperServer
) -> None:
    before = everyone(chain)
    with ledger.disturbed("ZooKeeper emptied", chain) as recovery:
        zookeeper.kill()
        zookeeper.empty()
        zookeeper.start()
        recovery.over()
        began_s = time.monotonic()
        state_is_back(chain)
        print(f"\nthe state was back after {time.monotonic() - began_s:.1f} s")
    assert everyone(chain) == before, "somebody died of it"


def test_the_topology_master_dies_while_zookeeper_is_emptied(
    chain: TopologyHandle, ledger: Ledger, zookeeper: ZookeeperServer
) -> None:
    pid = everyone(chain)["tmaster"]
    with ledger.disturbed("ZooKeeper emptied and the tmaster killed", chain) as recovery:
        zookeeper.kill()
        zookeeper.empty()
        os.kill(pid, signal.SIGKILL)
        zookeeper.start()
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
