"""Storm's windowed bolts: configuration, windows of arrival and of event time, late tuples, acks and anchors."""

from __future__ import annotations

import datetime
import logging
import time
from typing import Any, ClassVar
from unittest import mock

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Count,
    Duration,
    Grouping,
    Spout,
    TopologyBuilder,
    TupleWindow,
    api_constants,
    tick_interval_s,
    without_effect,
)
from heronpy.api.bolt import event_time_bolt
from heronpy.api.bolt.windowed_bolt import LATE_TUPLE_FIELD, LATE_TUPLES, OUTLIER_TUPLES, WindowedBoltBuilder
from heronpy.api.topology_context import StreamId
from heronpy.api.tuple import Detached, Tuple, TupleHelper
from heronpy.errors import ConfigError
from heronpy.testing import Simulator

TICK = TupleHelper.make_tick_tuple()
SECOND = datetime.timedelta(seconds=1)


class Engine:
    """The engine's side of a bolt: remembers what was acked and emitted."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("test")
        self.acked: list[Any] = []
        self.emitted: list[tuple[Any, str, Any]] = []

    def ack(self, tup: Tuple) -> None:
        self.acked.append(tup.values[0])

    def emit(self, tup: Any, stream: str, anchors: Any, *_: Any) -> list[int]:
        self.emitted.append((list(tup), stream, None if anchors is None else [a.values[0] for a in anchors]))
        return []


class Context:
    def __init__(self, *streams: str) -> None:
        self.streams = ["default", *streams]
        self.metrics: dict[str, Any] = {}

    def register_metric(self, name: str, metric: Any, _seconds: int) -> Any:
        self.metrics[name] = metric
        return metric

    def get_this_sources(self) -> dict[StreamId, int]:
        return {StreamId("default", "numbers"): 0}

    def feedback_sources(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def watermark_sources(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def sends_watermarks(self) -> bool:
        return False

    def get_this_streams(self) -> list[str]:
        return self.streams


class Windows(BaseWindowedBolt):
    def execute(self, window: TupleWindow) -> None:
        numbers = [[tup.values[0] for tup in part] for part in (window.get(), window.get_new(), window.get_expired())]
        self.__dict__.setdefault("seen", []).append(
            (window.get_start_timestamp(), window.get_end_timestamp(), *numbers)
        )
        self.emit([numbers[0]])


class Running:
    """A bolt with a clock that is moved by hand."""

    def __init__(
        self,
        builder: WindowedBoltBuilder,
        *,
        streams: tuple[str, ...] = (),
        **config: Any,
    ) -> None:
        self.engine, self.context, self.now_s = Engine(), Context(*streams), 0.0
        self.bolt: Any = builder.bolt(self.engine)
        self.config = {"topology.reliability.mode": "ATLEAST_ONCE", **builder.config, **config}
        with mock.patch.object(event_time_bolt, "wall_clock_s", return_value=lambda: self.now_s):
            self.bolt.initialize(self.config, self.context)

    def take(self, *numbers: int, at_s: float | None = None, ms: Any = 0) -> None:
        self.now_s = self.now_s if at_s is None else at_s
        for number in numbers:
            self.bolt.process(Tuple([number, ms], Detached("numbers", "default", 1, ("number", "at")), 0))

    def tick(self, at_s: float) -> list[list[int]]:
        """Returns what is in the windows that became due."""
        self.now_s, before = at_s, len(self.seen)
        self.bolt.process_tick(TICK)
        return [elements for _, _, elements, _, _ in self.seen[before:]]

    @property
    def seen(self) -> list[Any]:
        return list(self.bolt.__dict__.get("seen", []))


def test_the_last_three_every_two_tuples() -> None:
    running = Running(Windows.with_window(Count(3), Count(2)))
    running.take(1, 2, 3, 4, 5)
    assert [parts for _, _, *parts in running.seen] == [[[1, 2], [1, 2], []], [[2, 3, 4], [3, 4], [1]]]
    assert running.engine.acked == [1, 2, 3], "3 is in no window to come, which has 4, 5 and 6"
    assert running.engine.emitted == [([[1, 2]], "default", [1, 2]), ([[2, 3, 4]], "default", [2, 3, 4])]


def test_without_a_slide_every_tuple_has_a_window() -> None:
    running = Running(Windows.with_window(Count(2)))
    running.take(1, 2, 3)
    assert [elements for _, _, elements, _, _ in running.seen] == [[1], [1, 2], [2, 3]]


def test_spans_of_arrival() -> None:
    running = Running(Windows.with_window(4 * SECOND, 2 * SECOND))
    running.take(1, at_s=0.5)
    assert running.tick(2.0) == [[1]]
    running.take(2, at_s=3)
    assert running.tick(4.1) == [[1, 2]]
    assert running.engine.acked == [1]
    assert running.tick(60) == [[2]]
    assert running.engine.acked == [1, 2]
    assert [(start, end) for start, end, *_ in running.seen] == [(-2000, 2000), (0, 4000), (2000, 6000)]


def test_the_last_two_seconds_for_every_tuple_and_what_is_older_is_acked_by_ticks() -> None:
    running = Running(Windows.with_window(2 * SECOND))
    assert tick_interval_s(running.config) == 1
    running.take(1, at_s=0)
    running.take(2, at_s=1.5)
    assert [elements for _, _, elements, _, _ in running.seen] == [[1], [1, 2]]
    running.tick(2)
    assert running.engine.acked == [1]


def event_time(**config: Any) -> Running:
    builder = Windows.with_window(20 * SECOND, 10 * SECOND).with_timestamp_field("at").with_lag(5 * SECOND)
    return Running(builder, **config)


def test_windows_of_event_time_are_due_when_the_watermark_has_passed_them() -> None:
    running = event_time()
    assert tick_interval_s(running.config) == 1
    for number, at_s in enumerate((3, 5, 7, 18, 26, 36), start=1):
        running.take(number, ms=at_s * 1000)
    assert running.tick(1) == [[1, 2, 3], [1, 2, 3, 4], [4, 5]]
    for number, at_s in enumerate((8425, 8426, 8427, 8439), start=7):
        running.take(number, ms=at_s * 1000)
    assert running.tick(2) == [[5, 6], [6], [7, 8, 9]]
    assert running.engine.acked == [1, 2, 3, 4, 5, 6]


def test_late_tuples_go_to_their_stream_and_are_acked_and_counted() -> None:
    builder = Windows.with_tumbling_window(10 * SECOND).with_timestamp_field("at").with_late_tuple_stream("late")
    running = Running(builder, streams=("late",))
    running.take(1, 2, ms=15_000)
    assert running.tick(1) == []
    running.take(3, ms=14_999)
    running.take(4, ms=15_000)
    ((values, stream, anchors),) = running.engine.emitted
    assert (values[0].values[0], stream, anchors) == (3, "late", [3])
    assert running.engine.acked == [3]
    assert running.context.metrics[LATE_TUPLES].value == 1
    running.take(5, 6, ms=30_000)
    assert running.tick(2) == [[1, 2, 4]]


def test_a_late_tuple_without_a_stream_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    running = event_time()
    running.take(1, 2, ms=50_000)
    running.tick(1)
    with caplog.at_level("INFO"):
        running.take(3, ms=44_999)
    assert "is late: 44999 ms" in caplog.text
    assert running.engine.acked == [3]


def test_one_time_far_in_the_future_makes_no_other_late() -> None:
    running = event_time()
    running.take(1, 2, ms=1000)
    running.take(3, ms=4_000_000_000_000)
    assert running.engine.acked == [3]
    assert running.context.metrics[OUTLIER_TUPLES].value == 1
    running.tick(1)
    running.take(4, ms=2000)
    running.take(5, ms=16_000)
    assert running.tick(2) == [[1, 2, 4]]


@pytest.mark.parametrize("at", [None, "noon", float("nan"), float("inf"), True])
def test_a_tuple_without_a_usable_timestamp_is_set_aside(at: Any) -> None:
    running = event_time()
    running.take(1, ms=at)
    assert running.engine.acked == [1]
    assert running.context.metrics[OUTLIER_TUPLES].value == 1


def test_timestamps_are_extracted() -> None:
    noon = datetime.datetime(1970, 1, 1, 12)
    builder = Windows.with_tumbling_window(10 * SECOND).with_timestamp_extractor(
        lambda tup: noon + tup["number"] * SECOND
    )
    running = Running(builder)
    running.take(1, 2, 3, 11)
    assert running.tick(1) == [[1, 2, 3]]
    assert running.seen[0][:2] == (12 * 3600 * 1000, 12 * 3600 * 1000 + 10_000)


def test_windows_are_configured_by_storms_keys() -> None:
    spec = (
        Windows.with_window(Count(30), Duration(500))
        .with_timestamp_field("at")
        .with_lag(Duration(250))
        .with_watermark_interval(SECOND / 2)
        .with_idle_after(SECOND)
        .with_late_tuple_stream("late")
        .spec(name="windows", inputs=None, config={"mine": 1})
    )
    assert spec.custom_config == {
        "topology.component.windows.hold.tuples": True,
        "topology.bolts.window.length.count": 30,
        "topology.bolts.window.sliding.interval.duration.ms": 500,
        "topology.bolts.tuple.timestamp.field.name": "at",
        "topology.bolts.tuple.timestamp.max.lag.ms": 250,
        "topology.bolts.watermark.event.interval.ms": 500,
        "topology.bolts.watermark.idle.after.ms": 1000,
        "topology.bolts.late.tuple.stream": "late",
        "mine": 1,
    }
    assert spec.get_out_streamids() == {"late"}
    assert not without_effect(spec.custom_config)


def test_keys_may_be_set_without_the_builder() -> None:
    running = Running(WindowedBoltBuilder(Windows), **{api_constants.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT: 2})
    running.take(1, 2)
    assert [elements for _, _, elements, _, _ in running.seen] == [[1], [1, 2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Running(WindowedBoltBuilder(Windows)), "needs topology.bolts.window.length.count"),
        (lambda: Windows.with_window(5), "must be a Count, a Duration or a timedelta"),
        (lambda: Windows.with_window(Count(1), Count(2)).spec(), "slide"),
        (lambda: Windows.with_tumbling_window(datetime.timedelta(0)), "at least 1 ms"),
        (lambda: Windows.with_tumbling_window(datetime.timedelta(microseconds=1500)), "of whole ones"),
        (lambda: Windows.with_window(Duration(10), Duration(2.5)), "of whole ones"),
        (lambda: Windows.with_window(Count(1)).with_late_tuple_stream("late").spec(), "needs a timestamp"),
        (lambda: Windows.with_window(Count(1)).with_timestamp_extractor("at"), "takes a function"),
        (
            lambda: Windows.with_window(Count(1)).with_timestamp_field("at").with_timestamp_extractor(len).spec(),
            "not both",
        ),
        (
            lambda: Running(Windows.with_window(Count(1)).with_timestamp_field("at").with_late_tuple_stream("late")),
            "not declared",
        ),
    ],
)
def test_windows_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


class Numbers(Spout):
    outputs: ClassVar[list[str]] = ["number", "at"]
    acked: ClassVar[list[int]] = []

    def initialize(self, config: Any, context: Any) -> None:
        # A late one, and one that closes the windows before it: a clock believes two in a row.
        self.left = [(n, n * 100) for n in range(100)] + [(100, 60_000), (101, 60_000), (102, 0)]

    def next_tuple(self) -> None:
        if self.left and (self.left[0][0] != 102 or len(Results.late) + len(Results.sums) >= 10):
            number, at = self.left.pop(0)
            self.emit([number, at], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)


class Sums(BaseWindowedBolt):
    outputs: ClassVar[list[str]] = ["sum"]

    def execute(self, window: TupleWindow) -> None:
        self.emit([sum(tup["number"] for tup in window.get())])


class Results(Bolt):
    sums: ClassVar[list[int]] = []
    late: ClassVar[list[Any]] = []

    def process(self, tup: Tuple) -> None:
        if tup.stream == "late":
            self.late.append(tup[LATE_TUPLE_FIELD]["number"])
        else:
            self.sums.append(tup["sum"])
        self.ack(tup)


def test_a_topology_with_windows_acks_what_was_in_them_and_what_was_late() -> None:
    Numbers.acked, Results.sums, Results.late = [], [], []
    builder = TopologyBuilder("windows")
    numbers = builder.add_spout("numbers", Numbers, 1)
    windows = (
        Sums.with_tumbling_window(SECOND)
        .with_timestamp_field("at")
        .with_late_tuple_stream("late")
        .with_watermark_interval(SECOND / 100)
    )
    sums = builder.add_bolt("sums", windows, 1, {numbers: Grouping.SHUFFLE})
    builder.add_bolt("results", Results, 1, {sums: Grouping.SHUFFLE, sums["late"]: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
    end = time.monotonic() + 300
    with Simulator(builder) as simulator:
        simulator.run(until=lambda: len(Numbers.acked) == 101 or time.monotonic() > end)
    assert Results.sums == [sum(range(n, n + 10)) for n in range(0, 100, 10)]
    assert Results.late == [102]
    assert sorted(Numbers.acked) == [*range(100), 102], "those of the last window wait for the watermark"
