"""At least once with state in real processes: whatever dies, what was acked is in the state."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from replaying_topology import numbers_in, replaying, seen_in

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("replaying")
    (made / "goal").write_text("0")
    return made


@pytest.fixture(scope="module")
def topology(directory: Path) -> Iterator[TopologyHandle]:
    config = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 2000}
    with LocalCluster(config) as cluster:
        yield cluster.submit(replaying(directory)).wait_running()


@pytest.mark.parametrize("process", ["", "source", "middle", "seen", "stmgr-1", "ckptmgr-1", "tmaster"])
def test_what_is_acked_is_in_the_state_though_a_process_is_killed(
    topology: TopologyHandle, directory: Path, process: str
) -> None:
    def acked() -> set[int]:
        return numbers_in(directory.glob("acked-*"))

    def is_midway() -> None:
        assert len(acked()) > before

    def is_done() -> None:
        assert acked() == set(range(goal))

    def is_seen() -> None:
        assert seen_in(directory).keys() == set(range(goal))

    before = int((directory / "goal").read_text())
    (directory / "goal.new").write_text(str(goal := before + 3000))
    os.replace(directory / "goal.new", directory / "goal")
    if process:
        eventually_sync(is_midway)
        running = topology.processes()
        name = next(id for id in sorted(running) if id == process or f"_{process}_" in id)
        os.kill(running[name], signal.SIGKILL)
    eventually_sync(is_done, within_s=180)
    eventually_sync(is_seen)
