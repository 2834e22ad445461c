"""Instances that are killed: their tuples do not wait for a timeout, and they come back."""

from __future__ import annotations

import os
import signal

import pytest
from replay_topology import replay_topology
from topology_on_disk import remove

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
NUMBERS, KILLS = 12_000, 3
SOURCE, SLOW = "container_1_numbers_1", "container_2_slow_2"


def total(topology: TopologyHandle, instance: str, counter: str) -> float:
    found = next(i for i in topology.status().instances if i.id == instance)
    return found.totals.get(counter, 0.0)


def test_tuples_in_a_killed_bolt_and_before_it_fail_at_once_and_are_replayed() -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(replay_topology(numbers=NUMBERS)).wait_running(180)
        for _ in range(KILLS):
            acked = total(topology, SOURCE, "acked")
            eventually_sync(lambda acked=acked: _above(total(topology, SOURCE, "acked"), acked), within_s=30)
            os.kill(topology.processes()[SLOW], signal.SIGKILL)
            topology.wait_running(180)

        def all_acked() -> None:
            assert total(topology, SOURCE, "acked") == NUMBERS

        eventually_sync(all_acked, within_s=60)  # the timeout is ten minutes
        failed = total(topology, SOURCE, "failed")
        assert 0 < failed <= KILLS * 10_000, "each tuple fails at most once for each death"


@pytest.mark.long
def test_an_instance_that_is_restarted_attaches_though_the_socket_directory_was_removed() -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(replay_topology(numbers=NUMBERS)).wait_running(180)
        remove(topology.launch.socket_root())
        os.kill(topology.processes()[SLOW], signal.SIGKILL)
        topology.wait_running(180)

        def all_acked() -> None:
            assert total(topology, SOURCE, "acked") == NUMBERS

        eventually_sync(all_acked, within_s=60)


def _above(found: float, least: float) -> None:
    assert found > least
