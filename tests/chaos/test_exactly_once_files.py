"""From files to files with real processes: whatever dies, every line is in the output once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Grouping, TopologyBuilder
from heronpy.connectors import JsonLinesSink, SinkBolt, SourceSpout, TextFile
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

WITHIN_S = 120.0
CHUNKS = 60
LINES_PER_CHUNK = 50
PACE_S = 0.05
"""Between two chunks: so that some are committed, some prepared and some on their way when a process dies."""


def copying(directory: Path) -> type[Any]:
    builder = TopologyBuilder("copying")
    lines = builder.add_spout("lines", SourceSpout(TextFile(directory / "in" / "*.txt"), discover_every_s=0.1), 2)
    sink = SinkBolt(JsonLinesSink(directory / "out"), field="value")
    builder.add_bolt("copies", sink, 2, {lines: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.stmgrs": 2,
        }
    )
    return builder.build()


class Lines:
    """What is written, and what comes out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        (directory / "in").mkdir()
        self.append()

    def append(self) -> None:
        """More lines, in three files."""
        for number in range(3):
            lines = [f"line {self.count + n}\n" for n in range(number, LINES_PER_CHUNK, 3)]
            with (self.directory / "in" / f"{number}.txt").open("a") as f:
                f.write("".join(lines))
        self.count += LINES_PER_CHUNK

    def out(self) -> Counter[str]:
        files = list((self.directory / "out").glob("part-*.jsonl"))
        return Counter(json.loads(line) for file in files for line in file.read_text().splitlines())

    def wait_exact(self) -> None:
        expected = {f"line {n}" for n in range(self.count)}

        def check() -> None:
            found = self.out()
            assert set(found.values()) <= {1}, f"more than once: {found.most_common(5)}"
            assert found.keys() == expected, f"{len(expected - found.keys())} of {self.count} lines are not there yet"

        eventually_sync(check, within_s=WITHIN_S)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    return Lines(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="module")
def topology(lines: Lines) -> Iterator[TopologyHandle]:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        yield cluster.submit(copying(lines.directory)).wait_running()


def test_every_line_is_copied_once_without_any_failure(topology: TopologyHandle, lines: Lines) -> None:
    lines.append()
    lines.wait_exact()


@pytest.mark.parametrize(
    "process",
    ["copies", *(pytest.param(other, marks=pytest.mark.long) for other in ("stmgr-1", "lines", "tmaster"))],
)
def test_every_line_is_copied_once_though_a_process_is_killed(
    topology: TopologyHandle, lines: Lines, process: str
) -> None:
    for chunk in range(CHUNKS):
        lines.append()
        time.sleep(PACE_S)
        if chunk == CHUNKS // 2:
            running = topology.processes()
            name = next(id for id in sorted(running) if id == process or f"_{process}_" in id)
            os.kill(running[name], signal.SIGKILL)
    lines.wait_exact()


@pytest.mark.long
@pytest.mark.parametrize(("readers", "writers"), [(3, 1), (1, 3), (2, 2)])
def test_every_line_is_copied_once_though_readers_and_writers_come_and_go(
    topology: TopologyHandle, lines: Lines, readers: int, writers: int
) -> None:
    for chunk in range(CHUNKS):
        lines.append()
        time.sleep(PACE_S)
        if chunk == CHUNKS // 2:
            topology.update(lines=readers, copies=writers, containers=2)
    lines.wait_exact()


def test_nothing_is_left_of_older_epochs(topology: TopologyHandle, lines: Lines) -> None:
    lines.append()
    lines.wait_exact()

    def check() -> None:
        staging = list((lines.directory / "out").glob(".heron/*/*/*"))
        assert len(staging) <= 4, staging
        assert [file for folder in staging for file in folder.glob("part-*")] == []

    eventually_sync(check, within_s=WITHIN_S)
