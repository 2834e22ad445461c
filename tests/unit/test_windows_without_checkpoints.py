"""What windows hold at least once without checkpoints does not time out, nor keep back what they wait for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Count,
    Duration,
    Grouping,
    Spout,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.connectors import ListSource, Record, Source, SourceContext, SourceReader, SourceSpout
from heronpy.streamlet import Builder, WindowConfig
from heronpy.testing import Simulator
from heronpy.wire import ACK
from tests.unit.streamlet_kit import WRITTEN, ListSink, config, topology

DAYS = 24 * 3600
TIMEOUT_S = 30
EVENT_TIME = {"topology.bolts.watermark.event.interval.ms": 1, "topology.bolts.watermark.idle.after.ms": 3_600_000}


class Counting(BaseWindowedBolt):
    """Counts how often each value came, and is in windows."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.came, self.counted = Counter[Any](), Counter[Any]()

    def process(self, tup: Tuple) -> None:
        self.came[tup["value"]] += 1
        super().process(tup)

    def execute(self, window: TupleWindow) -> None:
        self.counted.update(tup["value"] for tup in window.get())


class Clock:
    """Time that passes only by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def passes(self, simulator: Simulator, seconds: float) -> bool:
        for _ in range(int(seconds * 2)):
            self.now_ns += 500_000_000
            for _ in range(4):
                simulator.step()
        return False


def built(source: Source, window: Any, **config: Any) -> TopologyBuilder:
    builder = TopologyBuilder("held")
    builder.set_config(
        {"topology.reliability.mode": "ATLEAST_ONCE", "topology.message.timeout.secs": TIMEOUT_S, **config}
    )
    spout = builder.add_spout("source", SourceSpout(source), 1)
    builder.add_bolt("windows", window, 1, {spout: Grouping.SHUFFLE}, EVENT_TIME)
    return builder


def test_an_element_far_in_the_future_comes_once_however_long_it_waits() -> None:
    times = [*(at / 1000 for at in range(100)), 1000 * DAYS]
    windows = Counting.with_tumbling_window(Duration(10)).with_timestamp_field("time_ms")
    clock = Clock()
    with Simulator(built(ListSource(range(101), times=times), windows), clock=clock) as simulator:
        (bolt,) = simulator.component("windows")
        clock.passes(simulator, 10 * TIMEOUT_S)
        assert bolt.came == dict.fromkeys(range(101), 1)
        assert simulator.total("__timeout-count/default") == 0


def test_a_tuple_whose_ack_is_lost_times_out_and_those_in_the_open_window_do_not() -> None:
    lost: list[Any] = []

    def lose(batch: Any) -> bool:
        if batch.kind == ACK and not lost:
            lost.append(batch)
            return True
        return False

    windows = Counting.with_tumbling_window(Count(50)).with_timestamp_field("time_ms")
    clock = Clock()
    source = ListSource(range(75), times=[at / 1000 for at in range(75)])
    with Simulator(built(source, windows), clock=clock, lose=lose) as simulator:
        (bolt,) = simulator.component("windows")
        simulator.run(
            until=lambda: bool(lost) or clock.passes(simulator, 0.5), seconds=30
        )  # sources have another clock
        assert lost
        clock.passes(simulator, 3 * TIMEOUT_S)
        assert simulator.total("__timeout-count/default") >= 1, "those whose acks were lost"
        assert {bolt.came[value] for value in range(50, 75)} == {1}, "those in the open window"
        assert min(bolt.came[value] for value in range(50)) >= 1


def test_windows_that_wait_for_what_the_limit_keeps_back_are_told_of_and_time_out() -> None:
    windows = Counting.with_tumbling_window(Duration(1000)).with_timestamp_field("time_ms")
    source = ListSource(range(1500), times=[at / 1000 for at in range(1500)])
    clock = Clock()
    with Simulator(built(source, windows, **{"topology.max.spout.pending": 100}), clock=clock) as simulator:
        clock.passes(simulator, TIMEOUT_S - 10)
        held_back_s = simulator.total("__held-back-time-ns/windows") / 1e9
        assert TIMEOUT_S - 20 < held_back_s < TIMEOUT_S - 10
        assert simulator.total("__timeout-count/default") == 0
        clock.passes(simulator, TIMEOUT_S)
        assert simulator.total("__timeout-count/default") >= 80, "they would wait for ever"


def test_a_spout_below_its_limit_is_not_said_to_keep_anything_back() -> None:
    windows = Counting.with_tumbling_window(Duration(1000)).with_timestamp_field("time_ms")
    source = ListSource(range(50), times=[at / 1000 for at in range(50)])
    clock = Clock()
    with Simulator(built(source, windows, **{"topology.max.spout.pending": 100}), clock=clock) as simulator:
        clock.passes(simulator, TIMEOUT_S)
        assert simulator.total("__emit-count/default") == 50
        assert simulator.total("__held-back-time-ns/windows") == 0


class InTurn(SourceReader):
    """Splits that are read in turn, each with an element every second from its own beginning on."""

    def __init__(self, begin_s: dict[str, int], count: int) -> None:
        self._left = {name: deque((begin + n) * 1000 for n in range(count)) for name, begin in begin_s.items()}
        self._turn = deque(begin_s)
        self._paused: Collection[str] = ()

    def read(self, limit: int) -> Sequence[Record]:
        for _ in range(len(self._turn)):
            self._turn.rotate(-1)
            name = self._turn[0]
            left = self._left[name]
            if left and name not in self._paused:
                times = [left.popleft() for _ in range(min(limit, len(left)))]
                return [Record(name, time_ms, f"{name}:{time_ms}") for time_ms in times]
        return ()

    def splits(self) -> Collection[str]:
        return [*self._left]

    def split_of(self, record: Record) -> str:
        return str(record.value)

    def pause(self, splits: Collection[str]) -> None:
        self._paused = splits


class Skewed(Source):
    timed = True

    def __init__(self, begin_s: dict[str, int], count: int) -> None:
        self._make: Callable[[], SourceReader] = lambda: InTurn(begin_s, count)

    def open(self, context: SourceContext) -> SourceReader:
        return self._make()


@pytest.mark.parametrize("pending", [40, 8])
def test_a_split_that_is_far_ahead_leaves_room_for_the_one_that_windows_wait_for(pending: int) -> None:
    windows = Counting.with_tumbling_window(Duration(2000)).with_timestamp_field("time_ms")
    source = Skewed({"behind": 0, "ahead": 1000}, 100)
    clock = Clock()
    builder = built(source, windows, **{"topology.max.spout.pending": pending})
    with Simulator(builder, clock=clock) as simulator:
        (bolt,) = simulator.component("windows")
        clock.passes(simulator, TIMEOUT_S)
        assert bolt.counted["behind"] >= 98
        assert bolt.came["ahead"] <= pending
        assert max(simulator.total(f"__{what}-count/default") for what in ("timeout", "fail")) == 0


@pytest.mark.parametrize(("pending", "copies"), [(40, 1), (240, 3)])
def test_so_it_does_in_streamlets(pending: int, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in ("_bolts", "_spout", "_task", "_window_bolts"):
        monkeypatch.setattr(f"heronpy.streamlet.{module}.now_ms", lambda: clock.now_ns // 1_000_000)
    builder = Builder()
    source = builder.new_source(Skewed({"behind": 0, "ahead": 1000}, 100)).set_name("source")
    copied = source.flat_map(lambda name: [name] * copies)
    copied.count_by_key_and_window(WindowConfig(2, 2), str).set_name("counts").to_sink(ListSink("counts"))
    settings = config(**{"topology.max.spout.pending": pending})
    settings.set_max_lateness(0)
    with Simulator(topology(builder, settings), clock=clock) as simulator:
        clock.passes(simulator, TIMEOUT_S)
        counted = Counter[str]()
        for keyed_window, count in WRITTEN["counts"]:
            counted[keyed_window.key] += count
        assert counted["behind"] >= 98 * copies
        assert simulator.total("__emit-count/default") <= 100 * copies + pending
        assert max(simulator.total(f"__{what}-count/default") for what in ("timeout", "fail")) == 0


@pytest.mark.parametrize("splits", [1, 7, 60])
def test_windows_time_out_when_all_splits_have_their_share_of_a_limit_that_is_too_low(splits: int) -> None:
    windows = Counting.with_tumbling_window(Duration(10_000_000)).with_timestamp_field("time_ms")
    source = Skewed({f"split-{n}": 0 for n in range(splits)}, 300)
    clock = Clock()
    with Simulator(built(source, windows, **{"topology.max.spout.pending": 100}), clock=clock) as simulator:
        clock.passes(simulator, TIMEOUT_S - 10)
        assert simulator.total("__emit-count/default") == 100
        assert simulator.total("__held-back-time-ns/windows") > 0
        clock.passes(simulator, 2 * TIMEOUT_S)
        assert simulator.total("__timeout-count/default") > 0, "they would wait for ever"


class Endless(Spout):
    outputs = ["value"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.failed = 0

    def next_tuple(self) -> None:
        self.emit([0], tup_id=0)

    def fail(self, tup_id: Any) -> None:
        self.failed += 1


def test_tuples_of_all_spouts_time_out_that_keep_back_what_windows_wait_for() -> None:
    builder = TopologyBuilder("held")
    builder.set_config(
        {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": TIMEOUT_S,
            "topology.max.spout.pending": 10,
        }
    )
    spout = builder.add_spout("source", Endless, 40)
    builder.add_bolt("windows", Counting.with_tumbling_window(Count(10_000)), 1, {spout: Grouping.SHUFFLE}, EVENT_TIME)
    clock = Clock()
    with Simulator(builder, clock=clock) as simulator:
        clock.passes(simulator, 3 * TIMEOUT_S)
        assert all(each.failed for each in simulator.component("source"))
