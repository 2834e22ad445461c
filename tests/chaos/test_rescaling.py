"""Other numbers of tasks while numbers are counted: each is counted once, also if something dies in the middle."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from counted import Counted
from counting_topology import counting

from heronpy.errors import HeronError
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return Counted(tmp_path_factory.mktemp("counted"))


@pytest.fixture(scope="module")
def topology(counted: Counted) -> Iterator[TopologyHandle]:
    config = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 2000}
    with LocalCluster(config) as cluster:
        yield cluster.submit(counting("counting", counted.dir, containers=1)).wait_running()


def tasks_of(topology: TopologyHandle, component: str) -> set[int]:
    return {i.task_id for i in topology.status().instances if i.component == component}


def test_numbers_are_counted_once_though_tasks_and_containers_come_and_go(
    topology: TopologyHandle, counted: Counted
) -> None:
    counted.raise_goal(500)
    counted.wait_midway(500)
    had = tasks_of(topology, "count")
    for tasks, containers in ((3, 1), (8, 2), (1, 1)):
        counted.raise_goal(500)
        counted.wait_midway(500)
        before = tasks_of(topology, "count")
        topology.update(count=tasks, containers=containers)
        now = tasks_of(topology, "count")
        assert len(now) == tasks
        assert not (now - before) & had, "an id was used again"
        assert len(now & before) == min(len(now), len(before)), "a task that could stay did not"
        assert len(topology.status().stmgrs) == containers
        had |= now
    counted.raise_goal(500)
    counted.wait_exact()


@pytest.mark.parametrize("process", ["tmaster", "executor-0", "executor-1"])
def test_the_old_plan_or_the_new_one_is_in_force_if_a_process_is_killed_during_an_update(
    topology: TopologyHandle, counted: Counted, process: str
) -> None:
    counted.raise_goal(500)
    counted.wait_midway()
    old = len(tasks_of(topology, "count"))
    new = 3 if old != 3 else 2
    outcome: list[str] = []

    def update() -> None:
        try:
            topology.update(count=new)
            outcome.append("")
        except HeronError as e:
            outcome.append(str(e))

    updating = threading.Thread(target=update)
    updating.start()
    eventually_sync(lambda: _equal(topology.status().checkpoints.phase != "running" or bool(outcome), True))
    os.kill(topology.processes()[process], signal.SIGKILL)
    updating.join(200)
    assert outcome, "the update neither succeeded nor failed"
    counted.wait_exact()
    topology.wait_running()
    assert len(tasks_of(topology, "count")) in ((new,) if outcome == [""] else (old, new)), outcome


def _equal(found: object, expected: object) -> None:
    assert found == expected
