"""Instances that are killed: their tuples do not wait for a timeout, and they come back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from replay_topology import PENDING_MAX, replay_topology
from topology_on_disk import remove

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
KILLS = 2
SOURCE, SLOW = "container_1_numbers_1", "container_2_slow_2"


def total(topology: TopologyHandle, instance: str, counter: str) -> float:
    found = next(i for i in topology.status().instances if i.id == instance)
    return found.totals.get(counter, 0.0)


def all_acked(topology: TopologyHandle) -> None:
    instance = next(i for i in topology.status().instances if i.id == SOURCE)
    assert instance.totals["acked"] == instance.totals["emitted"] > 0


def kill(topology: TopologyHandle) -> None:
    """kill -9 of the bolt; on return another one runs."""
    pid = topology.processes()[SLOW]
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: _other(topology.processes().get(SLOW), pid))
    topology.wait_running()


def test_tuples_in_a_killed_bolt_and_before_it_fail_at_once_and_are_replayed(tmp_path: Path) -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(replay_topology(tmp_path)).wait_running()
        for _ in range(KILLS):
            acked = total(topology, SOURCE, "acked")
            eventually_sync(lambda acked=acked: _above(total(topology, SOURCE, "acked"), acked))
            kill(topology)
        (tmp_path / "finish").touch()
        eventually_sync(lambda: all_acked(topology))  # the timeout is ten minutes
        failed = total(topology, SOURCE, "failed")
        assert 0 < failed <= KILLS * PENDING_MAX, "each tuple fails at most once for each death"


@pytest.mark.long
def test_an_instance_that_is_restarted_attaches_though_the_socket_directory_was_removed(tmp_path: Path) -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(replay_topology(tmp_path)).wait_running()
        remove(topology.launch.socket_root())
        kill(topology)
        (tmp_path / "finish").touch()
        eventually_sync(lambda: all_acked(topology))


def _above(found: float, least: float) -> None:
    assert found > least


def _other(found: int | None, before: int) -> None:
    assert found not in (None, before)
