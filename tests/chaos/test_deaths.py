"""Every row of the failure table: something is killed or stopped while numbers flow, and no number is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chain_topology import chain as chain_of
from ledger import Ledger, eventually_pid, everyone

from heronpy import loader, submit
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.testing import LocalCluster, TopologyHandle

FAST = {
    "heron.metrics.export.interval.ms": 1000,
    "heron.executor.stop.timeout.ms": 2000,
    # Kills of one process follow each other closely here: each is to be met with the shortest pause.
    "heron.executor.stable.ms": 500,
    "heron.executor.heartbeat.timeout.ms": 600_000,  # a test stops executors, and nobody shall replace them
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def chain(ledger: Ledger) -> Iterator[TopologyHandle]:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(chain_of("chain", ledger.dir, par=2, containers=2))
        yield topology.wait_running()
    left = [process.pid for process, _ in find_by_environment({TOPOLOGY_ENV: topology.launch.topology_id})]
    assert left == []
    assert not topology.launch.dir.exists()
    assert not topology.launch.socket_root().exists()


def instance_of(topology: TopologyHandle, component: str) -> str:
    return next(id for id in sorted(everyone(topology)) if f"_{component}_" in id)


def kill(topology: TopologyHandle, process: str) -> None:
    pid = everyone(topology)[process]
    os.kill(pid, signal.SIGKILL)
    eventually_pid(topology, process, lambda new: new != pid)


@pytest.mark.parametrize("component", ["source", pytest.param("middle", marks=pytest.mark.long), "last"])
def test_a_killed_instance_loses_nothing(chain: TopologyHandle, ledger: Ledger, component: str) -> None:
    with ledger.disturbed(f"kill -9 of a {component} instance", chain):
        kill(chain, instance_of(chain, component))


@pytest.mark.parametrize("stmgr", ["stmgr-1", pytest.param("stmgr-2", marks=pytest.mark.long)])
def test_a_killed_stream_manager_loses_nothing(chain: TopologyHandle, ledger: Ledger, stmgr: str) -> None:
    before = everyone(chain)
    with ledger.disturbed(f"kill -9 of {stmgr}", chain):
        kill(chain, stmgr)
    assert everyone(chain) == {**before, stmgr: everyone(chain)[stmgr]}, "others died with it"


def test_a_stream_manager_that_ends_in_order_is_replaced(chain: TopologyHandle, ledger: Ledger) -> None:
    before = everyone(chain)
    with ledger.disturbed("SIGTERM of stmgr-2", chain):
        os.kill(before["stmgr-2"], signal.SIGTERM)
        eventually_pid(chain, "stmgr-2", lambda pid: pid != before["stmgr-2"])
    assert everyone(chain) == {**before, "stmgr-2": everyone(chain)["stmgr-2"]}, "others died with it"


@pytest.mark.parametrize(
    ("process", "container"), [("tmaster", 0), pytest.param("metricsmgr-1", 1, marks=pytest.mark.long)]
)
def test_data_flows_while_a_process_off_its_path_is_dead(
    chain: TopologyHandle, ledger: Ledger, process: str, container: int
) -> None:
    before = everyone(chain)
    executor = before[f"executor-{container}"]
    with ledger.disturbed(f"death of the {process}", chain, numbers=500) as recovery:
        os.kill(executor, signal.SIGSTOP)  # so that nobody starts it again
        try:
            os.kill(before[process], signal.SIGKILL)
            # Numbers that are emitted after the death: on a busy machine those of before may all be done already.
            done = ledger.goal
            ledger.raise_goal(400)
            ledger.wait_for_executed_from(done, 400)
        finally:
            os.kill(executor, signal.SIGCONT)
        recovery.over()
        eventually_pid(chain, process, lambda pid: pid != before[process])
    assert everyone(chain) == {**before, process: everyone(chain)[process]}, "others died with it"


@pytest.mark.parametrize("container", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_lost_container_is_placed_again(chain: TopologyHandle, ledger: Ledger, container: int) -> None:
    with ledger.disturbed(f"kill -9 of the executor of container {container}", chain):
        kill(chain, f"executor-{container}")


@pytest.mark.parametrize("process", ["stmgr-1", pytest.param("middle", marks=pytest.mark.long)])
def test_a_process_that_stands_still_for_a_while_loses_nothing(
    chain: TopologyHandle, ledger: Ledger, process: str
) -> None:
    before = everyone(chain)
    pid = before.get(process) or before[instance_of(chain, process)]
    with ledger.disturbed(f"SIGSTOP of {process} for 2 s", chain) as recovery:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2)  # the failure itself, not a wait for a result
        os.kill(pid, signal.SIGCONT)
        recovery.over()
    assert everyone(chain) == before, "somebody died of it"


def campaign(topology: TopologyHandle, ledger: Ledger, *, kills: int, pause_s: float, dice: random.Random) -> None:
    for _ in range(kills):
        if victims := topology.processes():  # for a moment nobody is there, if it were the executors
            victim = dice.choice(sorted(victims))
            print(f"kill -9 {victim}", flush=True)
            process = HostProcess.of(victims[victim])
            if process is not None:
                process.send(signal.SIGKILL)
        ledger.raise_goal(50)
        time.sleep(dice.uniform(0, pause_s))  # the failures' rhythm, not a wait for a result


def test_several_deaths_at_nearly_the_same_time_lose_nothing(chain: TopologyHandle, ledger: Ledger) -> None:
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    print(f"\nHERON_CHAOS_SEED={seed}")
    with ledger.disturbed("4 random kills within 2 s", chain) as recovery:
        campaign(chain, ledger, kills=4, pause_s=0.7, dice=random.Random(seed))
        recovery.over()


@pytest.mark.skipif("HERON_CHAOS_SECONDS" not in os.environ, reason="only with HERON_CHAOS_SECONDS: make chaos")
@pytest.mark.timeout(0)
def test_a_long_campaign_of_deaths_loses_nothing(chain: TopologyHandle, ledger: Ledger) -> None:
    seed = int(os.environ.get("HERON_CHAOS_SEED", "1"))
    print(f"\nHERON_CHAOS_SEED={seed}")
    dice = random.Random(seed)
    deadline = time.monotonic() + float(os.environ["HERON_CHAOS_SECONDS"])
    rounds = 0
    while time.monotonic() < deadline:
        rounds += 1
        with ledger.disturbed(f"round {rounds}", chain) as recovery:
            campaign(chain, ledger, kills=dice.randrange(1, 7), pause_s=dice.choice([0.1, 1, 3]), dice=dice)
            recovery.over()


@pytest.mark.long
def test_data_flows_without_the_scheduler_service_and_the_topology_can_still_be_killed(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    ledger = Ledger(records)
    # Not through LocalCluster: what it starts dies with its scheduler service, so that tests leave nothing.
    definition = loader.Definition.of(chain_of("short", records, par=1, containers=1))
    launch = submit.submit(definition, home=tmp_path, properties=FAST)
    try:
        topology = TopologyHandle(launch).wait_running()
        before = everyone(topology)
        services = list(find_by_environment({TOPOLOGY_ENV: launch.topology_id, PROCESS_ENV: "scheduler"}))
        assert len(services) == 1
        with ledger.disturbed("kill -9 of the scheduler service", topology):
            services[0][0].send(signal.SIGKILL)
        assert everyone(topology) == before
    finally:
        submit.kill(launch)
    assert list(find_by_environment({TOPOLOGY_ENV: launch.topology_id})) == []
    assert not launch.dir.exists()
