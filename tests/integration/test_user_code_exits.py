"""User code that ends its process, or never returns: the process ends as it should, and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from failures_topology import LEAVES_AT, WAYS, leaving, wild

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FAST = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.stop.timeout.ms": 5000,
    "heron.executor.stable.ms": 200,
}
FORCED = "heron.instance.force.exit.timeout.ms"
"""How long user code may take to end. Long enough for what is to happen before, on a busy machine too."""
WILD = "container_1_wild_2"


def notes(directory: Path) -> list[str]:
    path = directory / "notes"
    return path.read_text().splitlines() if path.exists() else []


def deaths(topology: TopologyHandle, process: str) -> list[str]:
    """How a process died, in order, as its executor tells."""
    return re.findall(rf"{process} died: pid \d+, ([^,]+),", topology.logs("executor-1"))


def test_however_user_code_ends_its_process_it_is_started_again_and_every_tuple_is_acked(tmp_path: Path) -> None:
    count = 12
    with LocalCluster({**FAST, FORCED: 60_000}) as cluster:
        topology = cluster.submit(wild(tmp_path, count=count, exits=True))

        def all_acked() -> None:
            acked = {line for line in notes(tmp_path) if line.startswith("acked")}
            assert acked == {f"acked {number}" for number in range(count)}

        eventually_sync(all_acked, within_s=240)
        # sys.exit(0) too: a task never ends by itself, so its end is a failure.
        assert deaths(topology, WILD) == ["exit code 1"] * len(WAYS) + ["exit code 7"]
        assert topology.logs(WILD).count("ValueError: a wrong value") >= 1
        # The tuple in hand fails once: by the dying bolt, or at its death by the Stream Manager, as does one that is
        # sent to it meanwhile. None has to wait for its timeout, which is longer than this test.
        failed = [line.split() for line in notes(tmp_path) if line.startswith("failed")]
        numbers = [int(number) for _, number in failed]
        assert len(set(numbers)) == len(numbers)
        assert set(WAYS) <= set(numbers) <= {0, *WAYS, *(number + 1 for number in WAYS)}

        def reported() -> None:
            exceptions = topology.status().exceptions
            assert any("a wrong value" in e.report.stacktrace for e in exceptions), exceptions

        eventually_sync(reported)


def test_a_tuple_that_always_ends_its_process_is_set_aside_effectively_once(tmp_path: Path) -> None:
    count = 12
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(leaving(tmp_path, count=count))

        def all_others_written() -> None:
            files = sorted((tmp_path / "out").glob("part-*.jsonl"))
            written = [int(line) for file in files for line in file.read_text().splitlines()]
            assert sorted(written) == [number for number in range(count) if number != LEAVES_AT]

        eventually_sync(all_others_written, within_s=240)
        leaving_at = "component 'leaving', a tuple of numbers:default with key (5,)"
        assert f"{leaving_at}: set aside, as it has failed again and again" in topology.logs("container_1_leaving_2")


@pytest.mark.parametrize(
    "where",
    [
        *(pytest.param(where, marks=pytest.mark.long) for where in ("initialize", "spout initialize")),
        "process",
        "cleanup",
    ],
)
def test_user_code_that_never_returns_cannot_keep_its_process_from_ending(tmp_path: Path, where: str) -> None:
    process = "container_1_tries_1" if where.startswith("spout") else WILD
    with LocalCluster({**FAST, FORCED: 8000 if where == "cleanup" else 500}) as cluster:
        topology = cluster.submit(wild(tmp_path, count=3, block=where)).wait_running()
        pid = topology.processes()[process]
        if where != "cleanup":
            eventually_sync(lambda: _contains(notes(tmp_path), f"blocks {pid}"))
        os.kill(pid, signal.SIGTERM)
        # By itself: nothing else would ever end it.
        eventually_sync(lambda: _contains(deaths(topology, process), "exit code 0"))
        assert f"blocks {pid}" in notes(tmp_path)


def _contains(found: list[str], what: str) -> None:
    assert what in found
