"""Checkpoints of a running topology as they are stored: seen, merged, deleted, and on a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from keyed_count_topology import KEYS, counts_in, keyed_count_topology
from small_disk import fill, small_disk

from heronpy.submit import StoredCheckpoint, checkpoints
from heronpy.testing import LocalCluster, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
RATE = 1000


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(FAST) as cluster:
        yield cluster


def check_exact(directory: Path, numbers: int) -> None:
    counts = counts_in(directory)
    assert sum(counts.values()) >= numbers, f"{sum(counts.values())} of {numbers}"
    assert set(counts.values()) == {numbers // KEYS}
    assert len(counts) == KEYS


@pytest.mark.long
def test_checkpoints_are_listed_merged_and_deleted_with_the_topology(cluster: LocalCluster, tmp_path: Path) -> None:
    topology = cluster.submit(keyed_count_topology(tmp_path, numbers=1_000_000, rate=RATE)).wait_running()

    def kept() -> list[StoredCheckpoint]:
        found = checkpoints(topology.launch)
        assert max((one.id for one in found), default=0) >= 20, "merges take place after ten"
        return found

    found = eventually_sync(kept)
    committed = [one for one in found if one.committed]
    assert 3 <= len(committed) <= 5, "so many are kept"
    assert len(found) <= 7, "what is under way, and what is about to be deleted"
    assert committed[-1].components.keys() == {"numbers", "count"}
    assert committed[-1].tasks == {"numbers": 1, "count": 2}
    stored = list(Path(topology.launch.checkpoints).rglob("*.base"))
    assert any(f"/{1:020d}-" not in str(path) for path in stored), "objects are merged"
    topology.kill()
    assert not Path(topology.launch.checkpoints).exists()


@pytest.mark.long
def test_a_full_disk_fails_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    numbers = 20 * RATE
    counts = tmp_path / "counts"
    counts.mkdir()
    with (
        small_disk(tmp_path / "small") as disk,
        LocalCluster({**FAST, "heron.statefulstorage.url": str(disk)}) as cluster,
    ):
        topology = cluster.submit(keyed_count_topology(counts, numbers=numbers, rate=RATE)).wait_running()

        def newest() -> int:
            return max((one.id for one in checkpoints(topology.launch) if one.committed), default=0)

        def logged(text: str) -> None:
            assert text in topology.logs("tmaster")

        eventually_sync(lambda: _positive(newest()))
        pids = topology.processes()
        fill(disk / "filler")
        eventually_sync(lambda: logged("No space left on device"))
        before = newest()
        (disk / "filler").unlink()
        eventually_sync(lambda: check_exact(counts, numbers))
        eventually_sync(lambda: _positive(newest() - before))
        assert topology.processes() == pids, "no process is replaced"


def _positive(value: int) -> None:
    assert value > 0
