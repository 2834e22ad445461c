"""A topology with checkpoints, in all its processes: they are committed, and errors of user code are undone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from keyed_count_topology import KEYS, counts_in, keyed_count_topology

from heronpy.testing import LocalCluster
from heronpy.testing import eventually_sync as _eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
RATE = 1000
eventually_sync = partial(_eventually_sync, within_s=90)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(FAST) as cluster:
        yield cluster


def check_exact(directory: Path, numbers: int) -> None:
    counts = counts_in(directory)
    assert sum(counts.values()) >= numbers, f"{sum(counts.values())} of {numbers}"
    assert set(counts.values()) == {numbers // KEYS}
    assert len(counts) == KEYS


def test_checkpoints_are_committed_while_it_runs(cluster: LocalCluster, tmp_path: Path) -> None:
    topology = cluster.submit(keyed_count_topology(tmp_path, numbers=4000, rate=RATE)).wait_running(120)
    eventually_sync(lambda: check_exact(tmp_path, 4000))
    assert "is committed after" in topology.logs("tmaster")


def test_an_error_of_user_code_is_undone_by_a_restore(cluster: LocalCluster, tmp_path: Path) -> None:
    numbers = 6 * RATE
    program = keyed_count_topology(tmp_path, numbers=numbers, rate=RATE, **{"test.fail.at": str(3 * RATE)})
    topology = cluster.submit(program).wait_running(120)
    pids = topology.processes()
    eventually_sync(lambda: check_exact(tmp_path, numbers))
    assert (tmp_path / "failed").exists()
    assert topology.processes() == pids, "no process is replaced"
