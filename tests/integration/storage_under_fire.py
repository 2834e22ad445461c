"""A topology whose counts are exact though tasks die, and the storage of its checkpoints is away meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from keyed_count_topology import KEYS, counts_in, keyed_count_topology

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

WITHIN_S = 300.0


def check_counts_are_exact(directory: Path, url: str, leave: Callable[[], None], come_back: Callable[[], None]) -> None:
    """Kill a task, have the storage leave, kill a task meanwhile, and have the storage come back.

    Args:
        directory: For the counts.
        url: Of the storage.
        leave: Has it leave; what it has stored stays.
        come_back: Has it serve again.
    """
    with LocalCluster({"heron.statefulstorage.url": url, "heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(keyed_count_topology(directory, rate=300)).wait_running()
        _wait_committed(topology)
        _kill_a_task(topology)
        _wait_restored(topology, times=1)
        _wait_committed(topology)

        failed = topology.status().checkpoints.failed
        leave()
        eventually_sync(lambda: _check_failed(topology, failed), within_s=WITHIN_S)
        _kill_a_task(topology)
        come_back()
        _wait_restored(topology, times=2)
        _wait_committed(topology)

        (directory / "finish").touch()
        eventually_sync(lambda: _check_exact(directory), within_s=WITHIN_S)


def _kill_a_task(topology: TopologyHandle) -> None:
    os.kill(next(pid for name, pid in topology.processes().items() if "_count_" in name), signal.SIGKILL)


def _wait_committed(topology: TopologyHandle) -> None:
    """Until there is a newer checkpoint than now."""
    before = topology.status().checkpoints.newest

    def newer() -> None:
        checkpoints = topology.status().checkpoints
        assert checkpoints.newest > before, checkpoints

    eventually_sync(newer, within_s=WITHIN_S)


def _wait_restored(topology: TopologyHandle, *, times: int) -> None:
    def restored() -> None:
        checkpoints = topology.status().checkpoints
        assert checkpoints.restores >= times, checkpoints

    eventually_sync(restored, within_s=WITHIN_S)


def _check_failed(topology: TopologyHandle, before: int) -> None:
    checkpoints = topology.status().checkpoints
    assert checkpoints.failed > before, checkpoints


def _check_exact(directory: Path) -> None:
    assert (directory / "emitted").exists()
    emitted, counts = int((directory / "emitted").read_text()), counts_in(directory)
    assert emitted > 0
    assert counts.keys() == {f"key {n}" for n in range(KEYS)}
    assert set(counts.values()) == {emitted // KEYS}, f"{sum(counts.values())} of {emitted}"
