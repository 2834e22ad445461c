"""Streamlet programs with checkpoints and real processes that are killed.

Effectively once every element counts once, in sinks and in a live view; at least once none is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import TopologyBuilder
from heronpy.connectors import JsonLinesSink, ListSource, TextFile
from heronpy.stores import SqliteStore, StoreContext
from heronpy.streamlet import Builder, Config, Streamlet, Sum, TransformOperator, WindowConfig
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

WITHIN_S = 400.0
LINES = 400
SLOW = 1000
KEYS = 20
BATCH_S = 100


def growing(builder: Builder, directory: Path) -> Streamlet:
    """The numbers in a file, which is read on."""
    return builder.new_source(TextFile(directory / "in.txt"), discover_every_s=0.1).set_name("numbers")


def slow(builder: Builder, _directory: Path) -> Streamlet:
    """So many numbers, slowly: at least once files are read to where they ended when they were opened."""
    source = builder.new_source(ListSource(range(SLOW))).set_name("numbers")
    return source.map(slowly)


def slowly(n: int) -> int:
    time.sleep(0.005)
    return n


def counting(directory: Path, semantics: int, source: Callable[[Builder, Path], Streamlet] = growing) -> type[Any]:
    builder = Builder()
    pairs = source(builder, directory).map(int).event_time(float).map(lambda n: (n % KEYS, 1))
    pairs.to_store("ones", Sum(), SqliteStore())  # store-1
    pairs.count_by_key().set_name("counts").map(list).to_sink(JsonLinesSink(directory / "counts"))
    windows = pairs.count_by_key_and_window(WindowConfig(100, 50), lambda pair: pair[0]).set_name("windows")
    windows.map(lambda e: [e[0].key, e[0].window.start, e[1]]).to_sink(JsonLinesSink(directory / "windows"))
    config = Config()
    config.set_delivery_semantics(semantics)
    config.set_idle_timeout(2)
    config.set_pipeline(directory / "job", batch_length=BATCH_S)
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

    def windows(self) -> Counter[tuple[int, float]]:
        """How many of each key are in each window."""
        found: Counter[tuple[int, float]] = Counter()
        for key, start, n in self.rows("windows"):
            found[key, start] += n
        return found

    def view(self) -> Counter[tuple[int, int]]:
        """What the live view has by batch and key."""
        context = StoreContext(view="ones", monoid=Sum(), directory=self.directory / "job")
        with contextlib.closing(SqliteStore().reader(context)) as reader:
            return Counter({(batch, key): n for batch in reader.batches() for key, n in reader.items(batch)})

    def expected_windows(self) -> Counter[tuple[int, float]]:
        return Counter((n % KEYS, float(n // 50 * 50 - ago)) for n in range(self.count) for ago in (0, 50))

    def expected_view(self) -> Counter[tuple[int, int]]:
        return Counter((n // BATCH_S, n % KEYS) for n in range(self.count))

    def check_exact(self) -> None:
        """Each count of each key is there once, and the view and the parts of each window sum up to what there was."""
        counts = Counter((key, n) for key, n in self.rows("counts"))
        assert not (wrong := {row: times for row, times in counts.items() if times > 1}), wrong
        wanted = {(n % KEYS, n // KEYS + 1) for n in range(self.count)}
        assert counts.keys() == wanted, f"{len(counts)} of {self.count} so far"
        assert self.windows() == self.expected_windows()
        assert self.view() == self.expected_view()

    def check_nothing_missing(self) -> None:
        """Each key has counted, and each window and the view have, at least what there was."""
        counts: dict[int, int] = {}
        for key, n in self.rows("counts"):
            counts[key] = max(n, counts.get(key, 0))
        assert {key: n for key, n in counts.items() if n * KEYS >= self.count}.keys() == set(range(KEYS)), counts
        assert not (fewer := self.expected_windows() - self.windows()), fewer
        assert not (missing := self.expected_view() - self.view()), missing


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    return Numbers(tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="module")
def topology(numbers: Numbers) -> Iterator[TopologyHandle]:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        yield cluster.submit(counting(numbers.directory, Config.EFFECTIVELY_ONCE)).wait_running()


@pytest.mark.parametrize(
    "process",
    ["windows", *(pytest.param(each, marks=pytest.mark.long) for each in ("numbers", "counts", "store-1", "stmgr-1"))],
)
def test_every_element_counts_once_though_a_process_is_killed(
    topology: TopologyHandle, numbers: Numbers, process: str
) -> None:
    before = len(numbers.rows("counts"))
    numbers.append()
    wait_more(numbers, before)
    numbers.append()
    kill(topology, process)
    numbers.append()
    eventually_sync(numbers.check_exact, within_s=WITHIN_S)


@pytest.mark.long
def test_at_least_once_with_checkpoints_none_is_missing_though_processes_are_killed(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    numbers.count = SLOW
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(counting(tmp_path, Config.ATLEAST_ONCE, slow)).wait_running()
        for process in ("windows", "numbers", "counts", "store-1", "stmgr-1"):
            wait_more(numbers, len(numbers.rows("counts")))
            kill(topology, process)
        eventually_sync(numbers.check_nothing_missing, within_s=WITHIN_S)


class First(TransformOperator):
    """Emits what it has not seen before."""

    def setup(self, context: Any) -> None:
        self.context, self.state = context, context.get_state()

    def transform(self, tup: Any) -> None:
        (n,) = tup.values
        if self.state.get(n) is None:
            self.state.put(n, True)
            self.context.emit([n])


@pytest.mark.long
def test_what_an_operator_beside_its_source_has_seen_goes_back_with_all_others(tmp_path: Path) -> None:
    """The source's object stays, and emits again what was lost; its operator must not remember that."""
    builder = Builder()
    first = slow(builder, tmp_path).transform(First()).repartition(1).set_name("apart")
    first.map(lambda n: (n % KEYS, 1)).count_by_key().set_name("counts").map(list).to_sink(
        JsonLinesSink(tmp_path / "counts")
    )
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    config.set_user_config("topology.stateful.checkpoint.interval.seconds", 0.5)
    topology = TopologyBuilder("remembering")
    builder.build(topology, config)
    numbers = Numbers(tmp_path)
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        running = cluster.submit(topology.build()).wait_running()
        source = {id: pid for id, pid in running.processes().items() if "_numbers_" in id}
        for before in (0, SLOW // 4):
            eventually_sync(lambda before=before: _at_least(numbers, before + 1), within_s=WITHIN_S)
            kill(running, "counts")

        def complete() -> None:
            counts = Counter(dict.fromkeys(range(KEYS), 0))
            for key, n in numbers.rows("counts"):
                counts[key] = max(n, counts[key])
            assert min(counts.values()) >= SLOW // KEYS, "none is missing"

        eventually_sync(complete, within_s=WITHIN_S)
        assert source.items() <= running.processes().items(), "its process was not killed"


def _at_least(numbers: Numbers, rows: int) -> None:
    assert len(numbers.rows("counts")) >= rows


def wait_more(numbers: Numbers, before: int) -> None:
    """Wait until there are more counts, or all."""

    def check() -> None:
        assert len(numbers.rows("counts")) > before or before >= numbers.count

    eventually_sync(check, within_s=WITHIN_S)


def kill(topology: TopologyHandle, process: str) -> None:
    """SIGKILL a process, or one of a component's, that runs."""

    def running() -> int:
        pids = [pid for id, pid in sorted(topology.processes().items()) if id == process or f"_{process}_" in id]
        assert pids, f"no {process} runs"
        return pids[0]

    os.kill(eventually_sync(running, within_s=WITHIN_S), signal.SIGKILL)
