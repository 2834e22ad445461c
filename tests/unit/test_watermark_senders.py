"""Who sends watermarks, and how far they are: bolts with windows and timers, tasks that go, sources that send none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    Grouping,
    Spout,
    Timer,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.connectors import ListSource, SourceSpout
from heronpy.loader import Definition
from heronpy.plan import LogicalPlan, watermark_fields
from heronpy.submit import prepare
from heronpy.testing import Simulator
from heronpy.windows import END, NEVER, Upstream
from heronpy.wire import CONTROL, decode_control

FIELD = "topology.component.watermark.field"
LATE = "late-tuple-count"


class Both(BaseWindowedBolt):
    """Emits each number with its window, and again with a timer of its own time."""

    outputs = ["number", "at"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.timers = context.timers

    def process(self, tup: Tuple) -> None:
        self.timers.event(tup["value"], tup["time_ms"])
        super().process(tup)

    def execute(self, window: TupleWindow) -> None:
        for tup in window.get():
            self.emit([tup["value"], window.get_end_timestamp() - 1])

    def on_timer(self, timer: Timer) -> None:
        self.emit([timer.key, timer.at_ms])


class Received(BaseWindowedBolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.numbers: list[int] = []
        self.late = 0

    def execute(self, window: TupleWindow) -> None:
        self.numbers += [tup["number"] for tup in window.get()]

    def came_late(self, tup: Tuple, at_ms: int) -> None:
        self.late += 1
        super().came_late(tup, at_ms)


def test_a_bolt_with_windows_and_timers_sends_its_watermark_when_both_are_emitted() -> None:
    count = 400
    builder = TopologyBuilder("both")
    times = [at / 10 for at in range(count)]
    source = builder.add_spout("source", SourceSpout(ListSource(range(count), times=times)), 1)
    own = {"topology.bolts.watermark.event.interval.ms": 20, FIELD: "at"}  # the timers' clock is looked at in between
    both = Both.with_tumbling_window(Duration(1000)).with_timestamp_field("time_ms")
    sent = builder.add_bolt("both", both, 1, {source: Grouping.SHUFFLE}, own)
    second = Received.with_tumbling_window(Duration(1000)).with_timestamp_field("at")
    often = {"topology.bolts.watermark.event.interval.ms": 1}
    builder.add_bolt("received", second, 1, {sent: Grouping.SHUFFLE}, often)
    with Simulator(builder) as simulator:
        (bolt,) = simulator.component("received")
        simulator.run(until=lambda: len(bolt.numbers) + bolt.late >= 2 * (count - 20), seconds=30)
        assert bolt.late == 0
        assert len(bolt.numbers) >= 2 * (count - 20)


class Told(Spout):
    """Five numbers, and that there are no more."""

    outputs = ["value", "time_ms"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.left = [*range(1, 6)]

    def next_tuple(self) -> None:
        if self.left:
            number = self.left.pop(0)
            self.emit([number, number])
            if not self.left:
                self.send_watermark(END)


class Reminders(Bolt):
    outputs = ["number", "at"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.timers = context.timers

    def process(self, tup: Tuple) -> None:
        self.timers.event(tup["value"], tup["time_ms"])

    def on_timer(self, timer: Timer) -> None:
        self.emit([timer.key, timer.at_ms])


def test_a_bolt_whose_inputs_have_ended_says_so_after_its_last_timers() -> None:
    builder = TopologyBuilder("ended")
    source = builder.add_spout("source", Told, 1, {FIELD: "time_ms"})
    own = {FIELD: "at", "topology.bolts.tuple.timestamp.field.name": "time_ms"}
    reminders = builder.add_bolt("reminders", Reminders, 1, {source: Grouping.SHUFFLE}, own)
    windows = Received.with_tumbling_window(Duration(1000)).with_timestamp_field("at")
    builder.add_bolt("received", windows, 1, {reminders: Grouping.SHUFFLE})
    sent: list[int | str] = []
    now_ns = 0

    def seen(batch: Any) -> bool:
        if batch.dest_task == received:
            sent.append(decode_control(batch.body).watermark if batch.kind == CONTROL else "tuples")
        return False

    simulator = Simulator(builder, clock=lambda: now_ns, lose=seen)
    (received,) = simulator.plan.component_tasks["received"]
    with simulator:
        for _ in range(100):
            now_ns += 50_000_000
            simulator.step()
    assert "tuples" in sent
    assert sent.index(END) > max(place for place, what in enumerate(sent) if what == "tuples")


def test_a_task_that_is_gone_is_waited_for_no_more() -> None:
    upstream = Upstream([1, 2])
    upstream.mark(1, 50)
    assert upstream.low == NEVER
    upstream.follow([1])
    assert upstream.low == 50
    upstream.follow([1, 3])
    assert upstream.low == NEVER
    upstream.follow([])
    assert upstream.low == END


def test_a_source_with_event_times_may_send_no_watermarks(tmp_path: Path) -> None:
    builder = TopologyBuilder("silent")
    source = SourceSpout(ListSource([1], times=[1.0]))
    told = builder.add_spout("told", source, 1)
    silent = builder.add_spout("silent", source, 1, {FIELD: ""})
    windows = Received.with_tumbling_window(Duration(1000)).with_timestamp_field("time_ms")
    builder.add_bolt("received", windows, 1, {told: Grouping.SHUFFLE, silent: Grouping.SHUFFLE})
    topology = builder.build()
    assert watermark_fields(LogicalPlan.from_proto(topology.protobuf_topology)) == {"told": "time_ms"}
    prepare(Definition.of(topology), home=tmp_path, role="me")
