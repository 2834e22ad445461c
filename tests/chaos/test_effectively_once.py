"""Effectively once with real processes: whatever dies, every number is counted once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from counted import Counted
from counting_topology import counting
from ledger import kill_all

from heronpy.testing import LocalCluster, TopologyHandle

PAR = 2


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return Counted(tmp_path_factory.mktemp("counted"))


@pytest.fixture(scope="module")
def topology(counted: Counted) -> Iterator[TopologyHandle]:
    config = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 2000}
    with LocalCluster(config) as cluster:
        yield cluster.submit(counting("counting", counted.dir, par=PAR)).wait_running()


def test_numbers_are_counted_once_without_any_failure(topology: TopologyHandle, counted: Counted) -> None:
    counted.raise_goal(1000)
    counted.wait_exact()


LATER = ("source", "middle", "stmgr-1", "stmgr-2", "ckptmgr-1")
"""Which die with a container, or as others of their kind do."""


@pytest.mark.parametrize(
    "process",
    ["count", "tmaster", *(pytest.param(name, marks=pytest.mark.long) for name in LATER)],
)
def test_numbers_are_counted_once_though_a_process_is_killed(
    topology: TopologyHandle, counted: Counted, process: str
) -> None:
    counted.raise_goal(500)
    counted.wait_midway()
    running = topology.processes()
    name = next(id for id in sorted(running) if id == process or f"_{process}_" in id)
    kill_all(running[name])
    counted.wait_exact()


def test_numbers_are_counted_once_though_a_container_is_lost(topology: TopologyHandle, counted: Counted) -> None:
    counted.raise_goal(500)
    counted.wait_midway()
    running = topology.processes()
    for name in [id for id in running if id.startswith("container_1_") or id.endswith("-1")]:
        kill_all(running[name])
    counted.wait_exact()
