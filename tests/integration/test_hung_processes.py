"""Processes that hang are found by their heartbeats, ended with their stacks in the log, and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hung_topology import Endless, Slow, hanging
from numbers_topology import Numbers

from heronpy.host import read_pids
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FAST = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.heartbeat.timeout.ms": 3000,
    "heron.executor.stop.timeout.ms": 3000,
}
BOLT = "container_1_bolt_2"


def test_an_endless_loop_in_user_code_is_ended_with_its_stacks_in_the_log_and_no_tuple_is_lost(tmp_path: Path) -> None:
    # A loop uses a whole core for as long as it may.
    with LocalCluster({**FAST, "heron.executor.stop.timeout.ms": 1000}) as cluster:
        topology = cluster.submit(hanging(tmp_path, Endless, count=20, limit_s=2))
        eventually_sync(lambda: _equal(acked(tmp_path), set(range(20))))
        log = topology.logs("executor-1")
        assert f"{BOLT} is hung" in log
        assert "its task has been in one call of user code for" in log
        assert "in wait_for_what_never_comes" in log
        assert "killed by SIGKILL (its task has been in one call of user code" in log
        assert read_pids(topology.launch.container_dir(1))[BOLT].restarts == 1


@pytest.mark.long
def test_a_long_call_of_user_code_is_left_alone_within_the_limit_of_its_component(tmp_path: Path) -> None:
    """Longer than the timeout of heartbeats; then a batch that takes longer than the limit, in short calls."""
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(hanging(tmp_path, Slow, count=60, limit_s=10, first_s=4))
        eventually_sync(lambda: _equal(acked(tmp_path), set(range(60))))
        assert "is hung" not in topology.logs("executor-1")
        assert read_pids(topology.launch.container_dir(1))[BOLT].restarts == 0


@pytest.fixture(scope="module")
def numbers() -> Iterator[TopologyHandle]:
    with LocalCluster(FAST) as cluster:
        yield cluster.submit(Numbers).wait_running()


@pytest.mark.parametrize(
    ("process", "container"),
    [
        ("stmgr-1", 1),
        *(pytest.param(*other, marks=pytest.mark.long) for other in (("metricsmgr-2", 2), ("tmaster", 0))),
    ],
)
def test_a_process_that_is_stopped_for_ever_is_replaced(numbers: TopologyHandle, process: str, container: int) -> None:
    pid = numbers.wait_running().processes()[process]
    os.kill(pid, signal.SIGSTOP)
    eventually_sync(lambda: _differs(numbers.processes().get(process), pid))
    numbers.wait_running()
    log = numbers.logs(f"executor-{container}")
    assert f"{process} is hung: pid {pid}, no heartbeat for" in log
    assert "it is stopped, so there are no stacks" in log
    record = read_pids(numbers.launch.container_dir(container))[process]
    assert record.restarts == 1
    assert "it is stopped" in record.last_end


@pytest.mark.long
def test_the_gateway_of_an_instance_that_is_stopped_is_found_too(numbers: TopologyHandle) -> None:
    numbers.wait_running()
    process = next(i.id for i in numbers.status().instances if i.component == "sums")
    pid = numbers.processes()[process]
    os.kill(pid, signal.SIGSTOP)
    eventually_sync(lambda: _differs(numbers.processes().get(process), pid))
    numbers.wait_running()


def acked(directory: Path) -> set[int]:
    notes = directory / "notes"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return {int(line.split()[1]) for line in lines if line.startswith("acked")}


def _equal(found: object, expected: object) -> None:
    assert found == expected


def _differs(found: int | None, before: int) -> None:
    assert found not in (None, before)
