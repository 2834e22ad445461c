"""A streamlet program effectively once with real processes that are killed: every element counts once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import TopologyBuilder
from heronpy.connectors import JsonLinesSink, TextFile
from heronpy.streamlet import Builder, Config, WindowConfig
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

WITHIN_S = 180.0
LINES = 400
KEYS = 20


def counting(directory: Path) -> type[Any]:
    builder = Builder()
    source = builder.new_source(TextFile(directory / "in.txt"), discover_every_s=0.1).set_name("numbers")
    pairs = source.map(int).event_time(float).map(lambda n: (n % KEYS, 1))
    pairs.count_by_key().set_name("counts").map(list).to_sink(JsonLinesSink(directory / "counts"))
    windows = pairs.count_by_key_and_window(WindowConfig(100, 50), lambda pair: pair[0]).set_name("windows")
    windows.map(lambda e: [e[0].key, e[0].window.start, e[1]]).to_sink(JsonLinesSink(directory / "windows"))
    config = Config()
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_idle_timeout(2)
    config.set_user_config("topology.stateful.checkpoint.interval.seconds", 0.5)
    topology = TopologyBuilder("streamlet")
    builder.build(topology, config)
    return topology.build()


class Numbers:
    """What is written, and what comes out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.append()

    def append(self) -> None:
        with (self.directory / "in.txt").open("a") as f:
            f.write("".join(f"{self.count + n}\n" for n in range(LINES)))
        self.count += LINES

    def rows(self, sink: str) -> list[list[Any]]:
        files = sorted((self.directory / sink).glob("part-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def check_exact(self) -> None:
        """Each count of each key is there once, and the parts of each window sum up to what is in it."""
        counts = Counter((key, n) for key, n in self.rows("counts"))
        numbers = range(self.count)
        assert not (wrong := {row: times for row, times in counts.items() if times > 1}), wrong
        assert counts.keys() == {(n % KEYS, n // KEYS + 1) for n in numbers}, f"{len(counts)} of {self.count} so far"
        windows: Counter[tuple[int, float]] = Counter()
        for key, start, n in self.rows("windows"):
            windows[key, start] += n
        assert windows == Counter((n % KEYS, float(n // 50 * 50 - ago)) for n in numbers for ago in (0, 50))

    def wait_exact(self) -> None:
        eventually_sync(self.check_exact, within_s=WITHIN_S)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    return Numbers(tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="module")
def topology(numbers: Numbers) -> Iterator[TopologyHandle]:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        yield cluster.submit(counting(numbers.directory)).wait_running()


@pytest.mark.parametrize(
    "process", ["windows", *(pytest.param(each, marks=pytest.mark.long) for each in ("numbers", "counts", "stmgr-1"))]
)
def test_every_element_counts_once_though_a_process_is_killed(
    topology: TopologyHandle, numbers: Numbers, process: str
) -> None:
    before = len(numbers.rows("counts"))
    numbers.append()

    def check_begun() -> None:
        assert len(numbers.rows("counts")) > before

    eventually_sync(check_begun, within_s=WITHIN_S)
    numbers.append()
    running = topology.processes()
    name = next(id for id in sorted(running) if id == process or f"_{process}_" in id)
    os.kill(running[name], signal.SIGKILL)
    numbers.append()
    numbers.wait_exact()
