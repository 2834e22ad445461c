"""Everything that is state at once: positions in files, counts by key, windows, timers, rows that wait for a commit.

`lines` → `parsed` → `work` → `files` and `table`; tuples that are late for their window → `late` → the same sinks. Both
sinks are transactional. Each row has a name and two numbers, so that what is divided among tasks can be added up.

A streamlet program beside it reads the same files, and makes the same counts and windows in files of its own, and a
live view of the counts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    Grouping,
    Timer,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.connectors import JsonLinesSink, SinkBolt, SourceSpout, SqlSink, TextFile
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, Count, WindowConfig

KEYS = 97
WINDOW = 50
"""Numbers in a window."""
LAG = 1000
"""By how much numbers may be out of order in windows; what is later is late."""
TABLE = "results"
VIEW = "ones"
"""The streamlet's live view: how often each key came."""
VIEW_BATCH_S = 1_000_000
FAIL_FILE = "fail"
"""A task of `parsed` that finds it removes it and raises."""


class Parse(Bolt):
    """Lines as keys and numbers."""

    outputs = ("key", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.fail_file = Path(config["chaos.dir"]) / FAIL_FILE
        self.seen = 0

    def process(self, tup: Tuple) -> None:
        self.seen += 1
        if self.seen % 50 == 0 and self.fail_file.exists():
            try:
                os.unlink(self.fail_file)
            except FileNotFoundError:
                pass
            else:
                raise RuntimeError("user code fails once")
        number = int(tup["value"])
        self.emit([f"key-{number % KEYS}", number])
        self.ack(tup)


class Work(BaseWindowedBolt):
    """Counts keys from tuple to tuple, and again in each window, by a timer at its end."""

    outputs = ("what", "n", "total")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.timers = context.timers
        self.counts = context.keyed_state("counts", default=0)
        self.ends = context.keyed_state("ends", default=dict)

    def process(self, tup: Tuple) -> None:
        key, number = tup.values
        self.counts[key] += 1
        self.emit([f"count {key}", self.counts[key], 0])
        end = number - number % WINDOW + WINDOW
        ends = self.ends[key]
        ends[end] = ends.get(end, 0) + 1
        self.timers.event(key, end)
        super().process(tup)

    def on_timer(self, timer: Timer) -> None:
        count = self.ends[timer.key].pop(timer.at_ms)
        if not self.ends[timer.key]:
            del self.ends[timer.key]
        self.emit([f"timer {timer.key} {timer.at_ms}", count, 0])

    def execute(self, window: TupleWindow) -> None:
        numbers = [tup["number"] for tup in window.get()]
        self.emit([f"window {window.get_start_timestamp()}", len(numbers), sum(numbers)])


class Late(Bolt):
    """Late tuples as windows of one."""

    outputs = ("what", "n", "total")

    def process(self, tup: Tuple) -> None:
        number = tup["late_tuple"]["number"]
        self.emit([f"window {number - number % WINDOW}", 1, number])
        self.ack(tup)


def mixed(name: str, directory: Path, out: Path, url: str, *, par: int, containers: int) -> type[Any]:
    """Make the topology.

    Args:
        name: of the topology.
        directory: it reads `in/*.txt`.
        out: it writes files there.
        url: of a database with the table.
        par: tasks of each component, but `late` and `table`.
        containers: beside that of the Topology Master.
    """
    builder = TopologyBuilder(name)
    source = SourceSpout(TextFile(directory / "in" / "*.txt"), discover_every_s=0.1)
    lines = builder.add_spout("lines", source, par)
    parsed = builder.add_bolt("parsed", Parse, par, {lines: Grouping.SHUFFLE})
    windowed = (
        Work.with_tumbling_window(Duration(WINDOW))
        .with_timestamp_field("number")
        .with_lag(Duration(LAG))
        .with_watermark_interval(Duration(20))
        .with_late_tuple_stream("late")
    )
    work = builder.add_bolt("work", windowed, par, {parsed: Grouping.fields("key")})
    late = builder.add_bolt("late", Late, 1, {work["late"]: Grouping.SHUFFLE})
    results = {work: Grouping.SHUFFLE, late: Grouping.SHUFFLE}
    builder.add_bolt("files", SinkBolt(JsonLinesSink(out)), par, results)
    builder.add_bolt("table", SinkBolt(SqlSink(url, TABLE)), 1, results)
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.stmgrs": containers,
            "chaos.dir": str(directory),
        }
    )
    add_streamlet(builder, directory, out, par)
    return builder.build()


def add_streamlet(builder: TopologyBuilder, directory: Path, out: Path, par: int) -> None:
    """Add the program; its files go to `out` with these names before."""
    program = Builder()
    source = program.new_source(TextFile(directory / "in" / "*.txt"), discover_every_s=0.1).set_num_partitions(par)
    pairs = source.map(int).event_time(float).map(lambda n: (f"key-{n % KEYS}", n))
    pairs.to_store(VIEW, Count(), SqliteStore())
    counts = pairs.count_by_key()
    counts.map(lambda e: {"what": f"count {e[0]}", "n": e[1], "total": 0}).to_sink(JsonLinesSink(counts_of(out)))
    ones = pairs.map(lambda pair: (pair[1] % par, (1, pair[1])))
    sums = ones.reduce_by_key_and_window(WindowConfig(WINDOW, WINDOW), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    rows = sums.map(lambda e: {"what": f"window {e[0].window.start:.0f}", "n": e[1][0], "total": e[1][1]})
    rows.to_sink(JsonLinesSink(windows_of(out)))
    config = Config()
    config.set_pipeline(directory / "job", batch_length=VIEW_BATCH_S)
    config.set_max_lateness(LAG)
    config.set_idle_timeout(2)
    program.build(builder, config)


def counts_of(out: Path) -> Path:
    """Where the streamlet's counts are."""
    return out.with_name(f"{out.name}-counts")


def windows_of(out: Path) -> Path:
    """Where the streamlet's windows are."""
    return out.with_name(f"{out.name}-windows")
