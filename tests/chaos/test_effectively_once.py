"""Effectively once with real processes: whatever dies, every number is counted once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting_topology import KEYS, counting

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

PAR = 2
WITHIN_S = 120.0


class Counted:
    """What the bolts had counted at the newest checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.goal = 0
        self.raise_goal(0)

    def raise_goal(self, by: int) -> None:
        self.goal += by
        new = self.dir / "goal.new"
        new.write_text(str(self.goal))
        os.replace(new, self.dir / "goal")

    def newest(self) -> list[dict[str, object]]:
        return [json.loads(path.read_text()) for path in sorted(self.dir.glob("committed-?"))]

    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for one in self.newest():
            total.update(one["counts"])
        return total

    def wait_some(self, more: int) -> None:
        """Wait until so many more numbers are committed."""
        before = sum(self.counts().values())

        def check() -> None:
            assert sum(self.counts().values()) >= before + more

        eventually_sync(check, within_s=WITHIN_S)

    def wait_exact(self) -> None:
        """Wait until all numbers below the goal are committed, and see that each is counted once."""
        expected = Counter(f"key-{number % KEYS}" for number in range(self.goal))

        def check() -> None:
            found = self.counts()
            assert not found - expected, f"counted too often: {found - expected}"
            assert found == expected, f"{sum((expected - found).values())} of {self.goal} are not counted yet"

        eventually_sync(check, within_s=WITHIN_S)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return Counted(tmp_path_factory.mktemp("counted"))


@pytest.fixture(scope="module")
def topology(counted: Counted) -> Iterator[TopologyHandle]:
    config = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 2000}
    with LocalCluster(config) as cluster:
        yield cluster.submit(counting("counting", counted.dir, par=PAR)).wait_running(180)


def test_numbers_are_counted_once_without_any_failure(topology: TopologyHandle, counted: Counted) -> None:
    counted.raise_goal(1000)
    counted.wait_exact()


@pytest.mark.parametrize("process", ["source", "middle", "count", "stmgr-1", "stmgr-2", "ckptmgr-1", "tmaster"])
def test_numbers_are_counted_once_though_a_process_is_killed(
    topology: TopologyHandle, counted: Counted, process: str
) -> None:
    counted.raise_goal(3000)
    counted.wait_some(300)
    running = topology.processes()
    name = next(id for id in sorted(running) if id == process or f"_{process}_" in id)
    os.kill(running[name], signal.SIGKILL)
    counted.wait_exact()


def test_numbers_are_counted_once_though_a_container_is_lost(topology: TopologyHandle, counted: Counted) -> None:
    counted.raise_goal(3000)
    counted.wait_some(300)
    running = topology.processes()
    for name in [id for id in running if id.startswith("container_1_") or id.endswith("-1")]:
        os.kill(running[name], signal.SIGKILL)
    counted.wait_exact()
