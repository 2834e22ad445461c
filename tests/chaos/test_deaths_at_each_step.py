"""Effectively once with real processes: whoever dies at whatever step of a checkpoint or a restore, each number counts
once.

The simulators stop at many more steps (`tests/unit/test_checkpoint_model.py`, `make simulate`); here are those of the
protocol's outline, where real processes can be stopped: by user code, and by what is stored.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from counted import WITHIN_S, Counted
from ledger import kill_all
from stepwise_topology import OWN, counting_stepwise, is_reached, send_at

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

STATEFUL_TASKS = 4


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return Counted(tmp_path_factory.mktemp("stepwise"))


@pytest.fixture(scope="module")
def topology(counted: Counted) -> Iterator[TopologyHandle]:
    config = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 2000}
    with LocalCluster(config) as cluster:
        yield cluster.submit(counting_stepwise("stepwise", counted.dir)).wait_running()


def pid_of(topology: TopologyHandle, process: str) -> int:
    def check() -> int:
        running = topology.processes()
        assert process in running
        return running[process]

    return eventually_sync(check, within_s=WITHIN_S)


def wait_for(done: Callable[[], bool], what: str) -> None:
    def check() -> None:
        assert done(), what

    eventually_sync(check, within_s=WITHIN_S)


@pytest.mark.parametrize(
    ("step", "victim"),
    [
        ("snapshot", OWN),
        pytest.param("marker", OWN, marks=pytest.mark.long),
        pytest.param("marker", "stmgr-1", marks=pytest.mark.long),
        pytest.param("marker", "tmaster", marks=pytest.mark.long),
        pytest.param("snapshot", "ckptmgr-1", marks=pytest.mark.long),
        pytest.param("snapshot", "tmaster", marks=pytest.mark.long),
        pytest.param("post-save", OWN, marks=pytest.mark.long),
        pytest.param("post-save", "tmaster", marks=pytest.mark.long),
        pytest.param("post-save", "stmgr-1", marks=pytest.mark.long),
    ],
)
def test_numbers_are_counted_once_though_a_process_dies_at_a_step_of_a_checkpoint(
    topology: TopologyHandle, counted: Counted, step: str, victim: str
) -> None:
    counted.raise_goal(300)
    counted.wait_midway()
    send_at(counted.dir, step, {victim if victim == OWN else pid_of(topology, victim): signal.SIGKILL})
    wait_for(lambda: is_reached(counted.dir, step), f"no task has reached {step}")
    counted.wait_exact()


@pytest.mark.parametrize(
    ("step", "victim"),
    [
        ("restore", OWN),
        pytest.param("restore", "tmaster", marks=pytest.mark.long),
        pytest.param("restore", "stmgr-2", marks=pytest.mark.long),
        pytest.param("restore", "ckptmgr-1", marks=pytest.mark.long),
        pytest.param("pre-restore", OWN, marks=pytest.mark.long),
        pytest.param("pre-restore", "tmaster", marks=pytest.mark.long),
    ],
)
def test_numbers_are_counted_once_though_a_process_dies_at_a_step_of_a_restore(
    topology: TopologyHandle, counted: Counted, step: str, victim: str
) -> None:
    counted.raise_goal(300)
    counted.wait_midway()
    send_at(counted.dir, step, {victim if victim == OWN else pid_of(topology, victim): signal.SIGKILL})
    running = topology.processes()
    kill_all(next(pid for id, pid in sorted(running.items()) if "_source_" in id))
    wait_for(lambda: is_reached(counted.dir, step), f"no task has reached {step}")
    counted.wait_exact()


@pytest.mark.long
def test_numbers_are_counted_once_though_the_checkpoint_manager_dies_before_the_manifest(
    topology: TopologyHandle, counted: Counted
) -> None:
    """All snapshots are stored, and it stands still until then."""
    counted.raise_goal(300)
    counted.wait_midway()
    stopped = pid_of(topology, "ckptmgr-0")
    send_at(counted.dir, "marker", {stopped: signal.SIGSTOP})
    wait_for(lambda: is_reached(counted.dir, "marker"), "no task has sent a marker")
    storage = Path(topology.launch.checkpoints)
    manifests = len([*(storage / "manifests").iterdir()])

    def are_stored() -> bool:
        objects = sorted(path.name[:20] for path in storage.glob("objects/*/*"))
        return objects.count(objects[-1]) >= STATEFUL_TASKS

    wait_for(are_stored, "not all tasks have stored their snapshots")
    assert len([*(storage / "manifests").iterdir()]) <= manifests
    kill_all(stopped)
    counted.wait_exact()


@pytest.mark.long
@pytest.mark.parametrize("victim", ["tmaster", "ckptmgr-0"])
def test_numbers_are_counted_once_though_a_process_dies_when_there_is_a_manifest(
    topology: TopologyHandle, counted: Counted, victim: str
) -> None:
    """Just before or after the commit."""
    manifests = Path(topology.launch.checkpoints) / "manifests"
    for _ in range(3):
        counted.raise_goal(300)
        counted.wait_midway()
        pid = pid_of(topology, victim)
        newest = max(manifests.glob("*.json")).name
        give_up_s = time.monotonic() + WITHIN_S
        while max((path.name for path in manifests.glob("*.json")), default=newest) == newest:
            assert time.monotonic() < give_up_s, "there is no newer manifest"  # the commit comes milliseconds after it
        kill_all(pid)
        counted.wait_exact()
