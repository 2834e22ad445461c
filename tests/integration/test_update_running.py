"""`heron update` on a topology that runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from heron_command import heron_command
from keyed_count_topology import KEYS, counts_in, keyed_count_topology

from heronpy.testing import LocalCluster, eventually_sync

RATE = 200


def test_numbers_are_counted_once_though_the_counting_tasks_become_more(tmp_path: Path) -> None:
    config = {"topology.stmgrs": 1, "topology.stateful.checkpoint.interval.seconds": 600}
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(keyed_count_topology(tmp_path, rate=RATE, **config))

        def some() -> None:
            assert sum(counts_in(tmp_path).values()) > 100

        eventually_sync(some)
        before = topology.wait_running().status()
        pids = topology.processes()

        def update(tasks: str) -> subprocess.CompletedProcess[str]:
            words = ["update", "keyed-count", "--containers", "1", "--component-parallelism", tasks]
            return heron_command(*words, home=cluster.home)

        refused = update("numbers:2")
        assert refused.returncode != 0
        why = "component 'numbers' cannot have another number of tasks than 1: it has state 'position'"
        assert why in refused.stderr

        def as_before() -> None:  # what was started for it ends again
            assert topology.processes() == pids

        eventually_sync(as_before)
        done = update("count:3")
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, "count: 2 → 3 tasks"), done.stderr
        after = topology.status()
        assert [i.id for i in after.instances if i.id not in {i.id for i in before.instances}] == [
            "container_1_count_6"
        ]
        assert after.checkpoints.newest > before.checkpoints.newest, "the update has taken one"
        logs = {path.name: path.read_text() for path in topology.launch.log_dir(1).glob("container_1_count_*.log")}
        assert len(logs) == 3
        assert [name for name, text in logs.items() if "are read ahead" not in text] == []

        def new_one_counts() -> None:
            assert (tmp_path / "counts-2.json").exists()
            assert (tmp_path / "counts-2.json").stat().st_size > len("{}")

        eventually_sync(new_one_counts)
        (tmp_path / "finish").touch()

        def all_once() -> None:
            assert (tmp_path / "emitted").exists()
            numbers = int((tmp_path / "emitted").read_text())
            assert counts_in(tmp_path) == {f"key {key}": numbers // KEYS for key in range(KEYS)}

        eventually_sync(all_once)


@pytest.mark.long
def test_an_update_comes_to_an_end_though_a_bolt_is_ten_times_too_slow(tmp_path: Path) -> None:
    """It waits for a checkpoint without batches in flight: the spouts rest until all that they emitted is executed."""
    config = {"topology.stmgrs": 1, "test.work.s": 0.005}
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(keyed_count_topology(tmp_path, rate=5000, **config)).wait_running()

        def full() -> None:
            assert sum(counts_in(tmp_path).values()) > 1000

        eventually_sync(full, within_s=120)
        before = topology.status().checkpoints
        topology.update(count=3, timeout_s=120)
        after = topology.status()
        assert len([i for i in after.instances if "_count_" in i.id]) == 3
        assert after.checkpoints.restores == before.restores + 1, "that of the update"
        (tmp_path / "finish").touch()

        def all_once() -> None:
            assert (tmp_path / "emitted").exists()
            numbers = int((tmp_path / "emitted").read_text())
            assert counts_in(tmp_path) == {f"key {key}": numbers // KEYS for key in range(KEYS)}

        eventually_sync(all_once, within_s=120)
