"""The executor as a real process: packing plans, incarnations and owners that come and go."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import executor_process
import pytest
from executor_process import Container, equal

from heronpy.host import (
    read_pids,
)
from heronpy.proto import state_pb2
from heronpy.statemgr import Kind, container_node, open_statemgr
from heronpy.testing import eventually_sync

container, stop_timeout_ms = executor_process.container, executor_process.stop_timeout_ms


def _contains(text: Callable[[], str], part: str, times: int = 1) -> None:
    assert text().count(part) >= times


def test_a_new_packing_plan_starts_and_ends_instances_and_leaves_the_others_alone(container: Container) -> None:
    container.pack("sleeps", "sleeps")
    container.execute()
    before = container.up("container_1_sleeps_1", "container_1_sleeps_2", "stmgr-1")
    container.pack("sleeps", "ignores")
    after = container.up("container_1_sleeps_1", "container_1_ignores_2", "stmgr-1")
    assert after["container_1_sleeps_1"] == before["container_1_sleeps_1"]
    assert after["stmgr-1"] == before["stmgr-1"]
    eventually_sync(lambda: equal(container.ended(), ["container_1_sleeps_2"]))
    eventually_sync(lambda: equal("container_1_sleeps_2" in read_pids(container.launch.container_dir(1)), False))


def test_an_executor_goes_on_beside_damaged_plans(container: Container) -> None:
    container.damage(Kind.PACKINGPLANS)
    executor = container.execute()
    eventually_sync(lambda: _contains(container.log, "node packingplans/words of the state manager is damaged"))
    container.pack("sleeps")
    before = container.up("container_1_sleeps_1")
    container.damage(Kind.PACKINGPLANS)
    eventually_sync(lambda: _contains(container.log, "node packingplans/", times=2))
    for kind in (Kind.NEXTPACKINGPLANS, Kind.LOGLEVELS):
        container.damage(kind)
        eventually_sync(partial(_contains, container.log, f"node {kind.value}/"))
    container.pack("sleeps", "sleeps")
    assert (
        container.up("container_1_sleeps_1", "container_1_sleeps_2")["container_1_sleeps_1"]
        == before["container_1_sleeps_1"]
    )
    assert executor.poll() is None
    assert "Traceback" not in container.log()


@pytest.mark.parametrize("lost", [False, True])
def test_the_topology_master_which_has_a_copy_is_started_beside_a_damaged_or_lost_packing_plan(
    container: Container, lost: bool
) -> None:
    if not lost:
        container.damage(Kind.PACKINGPLANS)
    container.execute(0)
    before = container.up("tmaster", number=0)
    container.pack("sleeps")
    container.execute(1)
    container.up("container_1_sleeps_1")
    assert container.up("tmaster", number=0) == before


def test_what_is_being_prepared_is_started_and_ends_if_nothing_comes_of_it(container: Container) -> None:
    container.pack("sleeps", "sleeps")
    container.execute()
    before = container.up("container_1_sleeps_1", "container_1_sleeps_2", "stmgr-1")
    container.prepare("sleeps", "ignores", "sleeps")
    prepared = container.up(*before, "container_1_ignores_2", "container_1_sleeps_3")
    assert {id: prepared[id] for id in before} == before
    container.prepare()
    eventually_sync(lambda: equal("container_1_sleeps_3" in read_pids(container.launch.container_dir(1)), False))
    container.prepare("sleeps", "sleeps", "sleeps")
    prepared = container.up(*before, "container_1_sleeps_3")
    container.pack("sleeps", "sleeps", "sleeps")
    container.pack("sleeps", "sleeps", "sleeps", "sleeps")
    after = container.up(*before, "container_1_sleeps_3", "container_1_sleeps_4")
    assert {id: after[id] for id in prepared} == prepared


def test_a_second_executor_gives_way_and_harms_nothing(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    before = container.up("container_1_sleeps_1")
    assert container.execute().wait(300) == 1
    assert container.up("container_1_sleeps_1") == before


@pytest.fixture
def elsewhere(container: Container, tmp_path: Path) -> Iterator[Container]:
    """The same container with a directory of its own, as on another host."""
    launch = dataclasses.replace(container.launch, dir=tmp_path / "elsewhere")
    launch.save(token=container.launch.token())
    shutil.copytree(container.launch.tls_dir, launch.tls_dir)
    statemgr = open_statemgr(launch.statemgr)
    made = Container(launch, statemgr)
    yield made
    made.close()
    statemgr.close()


def test_a_container_that_was_stopped_and_replaced_ends_in_order_when_it_goes_on(
    container: Container, elsewhere: Container
) -> None:
    container.pack("sleeps", "forks")
    old = container.execute()
    processes = "container_1_sleeps_1", "container_1_forks_2", "stmgr-1", "metricsmgr-1"
    container.up(*processes)
    os.kill(old.pid, signal.SIGSTOP)
    new = elsewhere.execute()
    pids = elsewhere.up(*processes)
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(300) == 0, "the cluster is not to start it again"
    assert "replaces this one" in container.log()
    assert len(container.ended()) == 4, "in order"
    assert read_pids(container.launch.container_dir(1)) == {}
    assert elsewhere.up(*processes) == pids, "the other one goes on undisturbed"
    assert elsewhere.left().count("container_1_forks_2") == 3
    new.terminate()
    assert new.wait(300) == 0
    assert elsewhere.left() == []


def test_the_processes_of_a_container_know_its_incarnation(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    pid = container.up("stmgr-1")["stmgr-1"]
    with open_statemgr(container.launch.statemgr) as state:
        value = state.get(Kind.CONTAINERS, container_node(container.launch.topology, 1))
    record = state_pb2.ContainerRecord.FromString(value or b"")
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"HERON_INCARNATION={record.incarnation}".encode() in environment
    assert (record.topology_id, record.container) == (container.launch.topology_id, 1)
    assert record.address == "127.0.0.1"


def test_a_record_that_the_state_manager_has_lost_is_written_again(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    container.up("stmgr-1")
    node = container_node(container.launch.topology, 1)
    with open_statemgr(container.launch.statemgr) as state:
        execution = state_pb2.ExecutionState(topology_id=container.launch.topology_id)
        state.set(Kind.EXECUTIONSTATE, container.launch.topology, execution.SerializeToString())
        before = state.get(Kind.CONTAINERS, node)
        assert before
        state.delete(Kind.CONTAINERS, node)
        eventually_sync(lambda: equal(state.get(Kind.CONTAINERS, node), before))
