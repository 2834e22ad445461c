"""Programs for real processes: sources that end, positions in files, results in files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.api import TopologyBuilder
from heronpy.connectors import Record, Sink, SinkContext, SinkWriter, Source, SourceContext, SourceReader
from heronpy.streamlet import Builder, Config, WindowConfig

ELEMENTS = 6000
TASKS = 2
KEYS = 7
WINDOW_S = 60


class Numbers(Source):
    """0 to ELEMENTS - 1; each number is 100 ms after the one before. The second half waits for a file `go`."""

    timed = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, context: SourceContext) -> SourceReader:
        return NumbersReader(self.directory, range(context.task_index, ELEMENTS, context.num_tasks))


class NumbersReader(SourceReader):
    def __init__(self, directory: Path, mine: range) -> None:
        self.go = directory / "go"
        self.mine = mine
        self.at = 0

    def read(self, limit: int) -> Sequence[Record]:
        end = len(self.mine) if self.go.exists() else len(self.mine) // 2
        taken = self.mine[self.at : min(self.at + limit, end)]
        self.at += len(taken)
        return [Record(n, n * 100, str(n)) for n in taken]

    @property
    def ended(self) -> bool:
        return self.at == len(self.mine)


class Lines(Sink):
    """Appends JSON lines to a file for each process."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / name

    def open(self, context: SinkContext) -> SinkWriter:
        self.path.mkdir(exist_ok=True)
        return LinesWriter(self.path / f"{context.task_index}-{os.getpid()}")


class LinesWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: list[Any] = []

    def write(self, element: Any) -> None:
        self.waiting.append(element)

    def flush(self) -> None:
        if self.waiting:
            with self.path.open("a") as file:
                file.write("".join(json.dumps(element) + "\n" for element in self.waiting))
            self.waiting = []


def windows(directory: Path, *, fusion: bool = True) -> TopologyBuilder:
    """Sums by key and window of numbers that were shuffled, and counts so far by key."""
    builder = Builder()
    numbers = builder.new_source(Numbers(directory)).set_num_partitions(TASKS).set_name("numbers")
    shuffled = numbers.repartition(3).set_name("shuffled").map(lambda n: (n % KEYS, n))
    sums = shuffled.reduce_by_key_and_window(WindowConfig(WINDOW_S, WINDOW_S), lambda a, b: a + b).set_name("sums")
    sums.map(lambda e: [e[0].key, e[0].window.start, e[1]]).to_sink(Lines(directory, "sums"))
    shuffled.count_by_key().set_name("counts").map(list).to_sink(Lines(directory, "counts"))
    config = Config()
    config.set_fusion(fusion)
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    config.set_num_containers(2)
    config.set_max_lateness(1)
    config.set_idle_timeout(300)  # until there is `go`, the last window is held open
    config.set_user_config("topology.message.timeout.secs", 600)
    topology = TopologyBuilder("windows")
    builder.build(topology, config)
    return topology


def written(directory: Path, name: str) -> list[Any]:
    """What a sink has written, over all of its lives."""
    return [json.loads(line) for path in (directory / name).glob("*") for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[str]:
    return path.read_text().rpartition("\n")[0].splitlines()
