"""Bolts follow the watermarks of their sources: windows and timers, in every mode, behind and beside others."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Count,
    Duration,
    Grouping,
    KeyedWindowBolt,
    Spout,
    Timer,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.connectors import (
    ListSource,
    Record,
    Source,
    SourceContext,
    SourceReader,
    SourceSpout,
    SplitReader,
    StreamSplit,
)
from heronpy.errors import ConfigError
from heronpy.loader import Definition
from heronpy.plan import LogicalPlan, watermark_fields
from heronpy.submit import prepare
from heronpy.testing import Simulator
from heronpy.windows import NEVER, Pane, Tumbling

SECONDS = 40
"""The newest time in each split."""
MODES = ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"]
AT_A_TIME = {"fast": 20, "slow": 1}
SLOW_EVERY_S = 0.002
BY_SECONDS = {"topology.bolts.watermark.event.interval.ms": 1, "topology.bolts.watermark.idle.after.ms": 3_600_000}


class Reader(SplitReader):
    """Has an element every second, and gives out so many at a time."""

    def __init__(self, name: str, position: int | None, newest_s: int) -> None:
        self._name, self._position, self._newest_s = name, position or 0, newest_s
        self._read_s = 0.0

    def read(self, limit: int) -> Sequence[Record]:
        records: list[Record] = []
        if self._name == "slow":
            if time.monotonic() < self._read_s + SLOW_EVERY_S:
                return records
            self._read_s = time.monotonic()
        for _ in range(AT_A_TIME[self._name]):
            if self._position < self._newest_s:
                self._position += 1
                records.append(Record(self._name, self._position * 1000, f"{self._name}:{self._position}"))
        return records

    @property
    def position(self) -> Any:
        return self._position


@dataclasses.dataclass(frozen=True)
class Split:
    name: str
    newest_s: int

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        return Reader(self.name, position, self.newest_s)


class InTurn(SourceReader):
    """All splits, without positions."""

    def __init__(self, splits: Mapping[str, Split], context: SourceContext) -> None:
        self._readers = deque((name, split.open(None, context)) for name, split in splits.items())

    def read(self, limit: int) -> Sequence[Record]:
        for _ in range(len(self._readers)):
            self._readers.rotate(-1)
            if records := self._readers[0][1].read(limit):
                return records
        return ()

    def splits(self) -> Collection[str]:
        return [name for name, _ in self._readers]

    def split_of(self, record: Record) -> str:
        return record.id.split(":")[0]


class TwoSpeeds(Source):
    """Two splits, of which one is far ahead of the other."""

    timed, rewindable, interleaved = True, True, True

    def __init__(self, newest_s: int = SECONDS) -> None:
        self._splits = {name: Split(name, newest_s) for name in AT_A_TIME}

    def open(self, context: SourceContext) -> SourceReader:
        return InTurn(self._splits if context.task_index == 0 else {}, context)

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        return self._splits


class Counts(BaseWindowedBolt):
    outputs = ["count", "at"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.counts: dict[int, int] = {}

    def execute(self, window: TupleWindow) -> None:
        end = window.get_end_timestamp()
        assert end not in self.counts
        self.counts[end] = len(window.get())
        self.emit([len(window.get()), end - 1])


class Panes(KeyedWindowBolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.counts: dict[int, int] = {}

    def on_pane(self, pane: Pane) -> None:
        end = pane.span.end_ms
        self.counts[end] = self.counts.get(end, 0) + len(pane.value)


class Timed(Bolt):
    """Counts by ten seconds, until their timer fires."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.timers, self.open, self.counts = context.timers, dict.fromkeys(range(10_000, 60_000, 10_000), 0), {}

    def process(self, tup: Tuple) -> None:
        end = tup["time_ms"] // 10_000 * 10_000 + 10_000
        self.open[end] += 1
        self.timers.event(end, end)
        self.ack(tup)

    def on_timer(self, timer: Timer) -> None:
        self.counts[timer.at_ms] = self.open.pop(timer.at_ms)


class Pass(Bolt):
    outputs = ["value", "at"]  # noqa: RUF012

    def process(self, tup: Tuple) -> None:
        if tup["value"] != "dropped":
            self.emit([tup["value"], tup["time_ms"]], anchors=[tup])
        self.ack(tup)


TUMBLING = {
    "windows": Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("time_ms"),
    "keyed": Panes.with_windows(Tumbling(10_000)).with_timestamp_field("time_ms"),
}
WHOLE = {10_000: 18, 20_000: 20, 30_000: 20, 40_000: 20}
"""How many elements of both splits are before …; those of 40 s are in no window that is past."""


def ran(builder: TopologyBuilder, component: str = "counts", seconds: float = 60.0) -> list[dict[int, int]]:
    """What the tasks of a component have counted when all windows are past, or after a while."""
    simulator = Simulator(builder)
    with simulator:
        bolts = simulator.component(component)
        simulator.run(until=lambda: all(WHOLE.keys() <= bolt.counts.keys() for bolt in bolts), seconds=seconds)
        return [bolt.counts for bolt in bolts]


def built(mode: str, source: Source | None = None, tasks: int = 1) -> tuple[TopologyBuilder, Any]:
    builder = TopologyBuilder("times")
    builder.set_config({"topology.reliability.mode": mode})
    return builder, builder.add_spout("source", SourceSpout(source or TwoSpeeds()), tasks)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "tasks"), [("windows", 1), ("windows", 3), ("keyed", 1), ("timers", 1)])
def test_a_split_that_is_behind_is_waited_for(kind: str, mode: str, tasks: int) -> None:
    builder, source = built(mode, tasks=tasks)
    if kind == "timers":
        config = {**BY_SECONDS, "topology.bolts.tuple.timestamp.field.name": "time_ms"}
        builder.add_bolt("counts", Timed, 1, {source: Grouping.SHUFFLE}, config)
    else:
        builder.add_bolt("counts", TUMBLING[kind], 1, {source: Grouping.SHUFFLE}, BY_SECONDS)
    assert ran(builder) == [WHOLE]


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_bolt_that_passes_times_on_passes_their_watermarks_on(mode: str) -> None:
    builder, source = built(mode)
    field = {"topology.component.watermark.field": "at"}
    passed = builder.add_bolt("pass", Pass, 3, {source: Grouping.SHUFFLE}, field)
    windows = Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("at")
    builder.add_bolt("counts", windows, 1, {passed: Grouping.SHUFFLE}, BY_SECONDS)
    assert ran(builder) == [WHOLE]


def test_windows_pass_their_watermark_on_after_their_results() -> None:
    builder, source = built("ATMOST_ONCE")
    field = {"topology.component.watermark.field": "at"}
    first = Counts.with_tumbling_window(Duration(2000)).with_timestamp_field("time_ms")
    small = builder.add_bolt("small", first, 2, {source: Grouping.SHUFFLE}, {**BY_SECONDS, **field})
    second = Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("at")
    builder.add_bolt("counts", second, 1, {small: Grouping.SHUFFLE}, BY_SECONDS)
    (counts,) = ran(builder)
    assert counts == dict.fromkeys(WHOLE, 10), "five small windows of each of the two tasks"


def test_a_task_without_tuples_goes_on_with_the_watermark() -> None:
    builder, source = built("ATMOST_ONCE")
    windows = Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("time_ms")
    builder.add_bolt("counts", windows, 2, {source: Grouping.fields("value")}, BY_SECONDS)
    builder.add_bolt("idle", TUMBLING["windows"], 5, {source: Grouping.LOWEST}, BY_SECONDS)
    with Simulator(builder) as simulator:
        idle = simulator.component("idle")
        simulator.run(until=lambda: all(bolt.watermark_now() == SECONDS * 1000 for bolt in idle), seconds=60)
        assert {bolt.watermark_now() for bolt in idle} == {SECONDS * 1000}


class Unmarked(Spout):
    """Times without watermarks, up to a time."""

    outputs = ["value", "time_ms"]  # noqa: RUF012
    newest_s = 15

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seconds = itertools.count(1)

    def next_tuple(self) -> None:
        if (second := next(self.seconds)) <= self.newest_s:
            self.emit(["dropped", second * 1000])


def test_an_input_without_watermarks_is_waited_for_by_its_tuples() -> None:
    builder, source = built("ATMOST_ONCE")
    unmarked = builder.add_spout("unmarked", Unmarked, 1)
    inputs = {source: Grouping.SHUFFLE, unmarked: Grouping.SHUFFLE}
    builder.add_bolt("counts", TUMBLING["windows"], 1, inputs, BY_SECONDS)
    with Simulator(builder) as simulator:
        (bolt,) = simulator.component("counts")
        simulator.run(until=lambda: bolt.watermark_now() == 15_000, seconds=60)
        simulator.run(seconds=0.3)
        assert bolt.watermark_now() == 15_000
        assert bolt.counts == {10_000: 27}


def test_an_input_whose_source_is_idle_is_not_waited_for() -> None:
    builder = TopologyBuilder("idle")
    silent = builder.add_spout("silent", SourceSpout(TwoSpeeds(1), idle_after_s=0.2), 2)
    source = builder.add_spout("source", SourceSpout(TwoSpeeds()), 1)
    inputs = {source: Grouping.SHUFFLE, silent: Grouping.SHUFFLE}
    builder.add_bolt("counts", TUMBLING["windows"], 1, inputs, BY_SECONDS)
    (counts,) = ran(builder)
    assert counts == {**WHOLE, 10_000: 20}


def test_after_a_restore_windows_are_what_they_would_have_been() -> None:
    builder = TopologyBuilder("restored")
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    source = builder.add_spout("source", SourceSpout(TwoSpeeds(), idle_after_s=0.3), 1)
    builder.add_bolt("counts", TUMBLING["windows"], 1, {source: Grouping.SHUFFLE}, BY_SECONDS)
    with Simulator(builder) as simulator:
        counted: dict[int, int] = {}
        for _ in range(4):
            for _ in range(12):
                simulator.step()
            counted |= simulator.component("counts")[0].counts
            simulator.checkpoint()
            for _ in range(5):
                simulator.step()  # of no checkpoint
            simulator.restore()
        simulator.run(until=lambda: simulator.component("counts")[0].watermark_now() == SECONDS * 1000, seconds=60)
        simulator.run(seconds=0.1)
        assert counted | simulator.component("counts")[0].counts == WHOLE


class Held(BaseWindowedBolt):
    """Says with each window how many numbers it has."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.numbers = 0

    def execute(self, window: TupleWindow) -> None:
        self.numbers += len(window.get())


def test_a_spout_that_may_have_no_more_pending_has_said_how_far_it_is() -> None:
    """Else windows, which hold what is pending, would wait for a watermark, and the spout for them."""
    builder = TopologyBuilder("pending")
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 500})
    source = ListSource(range(5000), times=[at / 1000 for at in range(5000)])
    spout = builder.add_spout("source", SourceSpout(source), 1)
    windows = Held.with_tumbling_window(Duration(100)).with_timestamp_field("time_ms")
    builder.add_bolt("held", windows, 1, {spout: Grouping.SHUFFLE}, BY_SECONDS)
    with Simulator(builder) as simulator:
        (bolt,) = simulator.component("held")
        simulator.run(until=lambda: bolt.numbers >= 4900, seconds=60)
        assert bolt.numbers == 4900


class Later(Bolt):
    """Emits what comes when a timer of its own time fires, if it has one, or else at once."""

    outputs = ["value", "at"]  # noqa: RUF012

    def process(self, tup: Tuple) -> None:
        self.emit([tup["value"], tup["time_ms"]], anchors=[tup])
        self.ack(tup)

    def on_timer(self, timer: Timer) -> None:
        raise AssertionError("none is set")


class Arrivals(BaseWindowedBolt):
    """One window for each tuple, of the time of arrival."""

    outputs = ["value", "at"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        for tup in window.get():
            self.emit([tup["value"], tup["time_ms"]])


def test_a_bolt_that_is_configured_with_event_time_and_has_none_is_refused() -> None:
    builder, source = built("ATMOST_ONCE")
    field = {"topology.component.watermark.field": "at", "topology.bolts.tuple.timestamp.field.name": "at"}
    passed = builder.add_bolt("pass", Pass, 1, {source: Grouping.SHUFFLE}, field)
    windows = Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("at")
    builder.add_bolt("counts", windows, 1, {passed: Grouping.SHUFFLE})
    with pytest.raises(ConfigError, match="'pass' declares watermarks"), Simulator(builder):
        pass


@pytest.mark.parametrize(
    ("kind", "everywhere"),
    [
        (Later, {}),
        (Arrivals.with_tumbling_window(Count(1)), {}),
        (Pass, {"topology.bolts.tuple.timestamp.field.name": "at"}),
    ],
    ids=["timers", "windows", "topology"],
)
def test_a_bolt_without_event_time_passes_watermarks_on_whatever_else_it_is(kind: Any, everywhere: Any) -> None:
    builder = TopologyBuilder("times")
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", **everywhere})
    source = builder.add_spout("source", SourceSpout(TwoSpeeds()), 1)
    field = {"topology.component.watermark.field": "at"}
    passed = builder.add_bolt("pass", kind, 2, {source: Grouping.SHUFFLE}, field)
    windows = Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("at")
    builder.add_bolt("counts", windows, 1, {passed: Grouping.SHUFFLE}, BY_SECONDS)
    assert ran(builder, seconds=60) == [WHOLE]


class Reminders(Bolt):
    """Each number comes out when its timer fires, all of a second at once."""

    outputs = ["at"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.timers = context.timers

    def process(self, tup: Tuple) -> None:
        self.timers.event(tup["value"], tup["time_ms"] // 2000 * 2000 + 2000)
        self.ack(tup)

    def on_timer(self, timer: Timer) -> None:
        self.emit([timer.at_ms])


def test_timers_pass_their_watermark_on_when_all_that_are_due_have_fired() -> None:
    builder = TopologyBuilder("timers")
    times = [at / 1000 for at in range(9000)]
    source = builder.add_spout("source", SourceSpout(ListSource(range(9000), times=times)), 1)
    config = {**BY_SECONDS, "topology.bolts.tuple.timestamp.field.name": "time_ms"}
    field = {"topology.component.watermark.field": "at"}
    reminders = builder.add_bolt("reminders", Reminders, 1, {source: Grouping.SHUFFLE}, {**config, **field})
    windows = Held.with_tumbling_window(Duration(2000)).with_timestamp_field("at")
    builder.add_bolt("held", windows, 1, {reminders: Grouping.SHUFFLE}, BY_SECONDS)
    with Simulator(builder) as simulator:
        (bolt,) = simulator.component("held")
        simulator.run(until=lambda: bolt.numbers >= 6000, seconds=60)
        assert bolt.numbers == 6000


def fields_of(builder: TopologyBuilder) -> Mapping[str, str]:
    proto = builder.build().protobuf_topology
    return watermark_fields(LogicalPlan.from_proto(proto))


def test_a_bolt_sends_watermarks_only_if_all_that_it_reads_do() -> None:
    builder, source = built("ATMOST_ONCE")
    unmarked = builder.add_spout("unmarked", Unmarked, 1)
    field = {"topology.component.watermark.field": "at"}
    builder.add_bolt("all", Pass, 1, {source: Grouping.SHUFFLE}, field)
    builder.add_bolt("undeclared", Pass, 1, {source: Grouping.SHUFFLE})
    builder.add_bolt("mixed", Pass, 1, {source: Grouping.SHUFFLE, unmarked: Grouping.SHUFFLE}, field)
    derived = {**field, "topology.bolts.tuple.timestamp.field.name": "time_ms"}
    builder.add_bolt("derived", Counts.with_window(Duration(1000)), 1, {unmarked: Grouping.SHUFFLE}, derived)
    assert fields_of(builder) == {"source": "time_ms", "all": "at", "derived": "at"}


def test_a_field_that_there_is_not_is_refused_at_submit_and_a_bolt_that_sends_none_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def submitted(field: str) -> None:
        builder = TopologyBuilder("declared")
        unmarked = builder.add_spout("unmarked", Unmarked, 1)
        config = {"topology.component.watermark.field": field}
        builder.add_bolt("pass", Pass, 1, {unmarked: Grouping.SHUFFLE}, config)
        prepare(Definition.of(builder.build()), home=tmp_path, role="me")

    with pytest.raises(ConfigError, match=r"'pass': topology.component.watermark.field is 'when'"):
        submitted("when")
    assert not caplog.messages
    submitted("at")
    assert (
        "component 'pass' sends no watermarks of 'at', because it reads of some that send none: unmarked" in caplog.text
    )


def test_nothing_is_sent_to_bolts_that_follow_nothing() -> None:
    builder, source = built("ATMOST_ONCE")
    builder.add_bolt("pass", Pass, 1, {source: Grouping.SHUFFLE})
    sent = []
    with Simulator(builder) as simulator:
        simulator.component("source")[0].send_watermark = sent.append
        simulator.run(seconds=0.3)
    assert sent == []


def test_times_that_are_not_the_sources_own_are_those_of_tuples() -> None:
    builder, source = built("ATMOST_ONCE")
    passed = builder.add_bolt("pass", Pass, 1, {source: Grouping.SHUFFLE})
    windows = Counts.with_tumbling_window(Duration(10_000)).with_timestamp_field("at")
    builder.add_bolt("counts", windows, 1, {passed: Grouping.SHUFFLE}, BY_SECONDS)
    with Simulator(builder) as simulator:
        (bolt,) = simulator.component("counts")
        assert bolt.watermark_now() == NEVER
        simulator.run(until=lambda: bolt.watermark_now() == SECONDS * 1000, seconds=60)
        assert bolt.watermark_now() == SECONDS * 1000
