"""How many trees a spout may have on their way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.bolt.window_bolt import TumblingWindowBolt
from heronpy.instance.task import PENDING_MAX, PENDING_MIN, WINDOW_NS, PendingLimit
from heronpy.testing import Simulator
from heronpy.wire import ACK


def simulate(limit: PendingLimit, *, per_s: float, latency_ns: int, seconds: int) -> int:
    """A topology that executes `per_s` trees a second, after `latency_ns` when it is idle. Returns the most pending."""
    step_ns = 5_000_000
    pending = most = 0
    begun: list[tuple[int, int]] = []
    served = 0.0
    for now_ns in range(0, seconds * 10**9, step_ns):
        served = min(served + per_s * step_ns / 1e9, max(per_s * step_ns / 1e9, pending))
        while begun and begun[0][0] + latency_ns <= now_ns and served >= 1:
            since_ns, count = begun[0]
            done = min(count, int(served))
            served -= done
            pending -= done
            limit.acked(done)
            begun[0] = (since_ns, count - done)
            if not begun[0][1]:
                del begun[0]
        room = limit.room(pending, now_ns)
        if room > 0:
            pending += room
            begun.append((now_ns, room))
        most = max(most, pending)
    return most


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 10**10)), max_size=30))
def test_a_configured_limit_never_changes_nor_is_exceeded(fixed: int, events: list[tuple[int, int]]) -> None:
    limit = PendingLimit(fixed)
    now_ns = 0
    for acked, passed_ns in events:
        now_ns += passed_ns
        limit.acked(acked)
        for pending in (0, fixed // 2, fixed, fixed + 1):
            assert pending + max(0, limit.room(pending, now_ns)) <= max(fixed, pending)
        assert limit.limit == fixed


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**10)), max_size=30))
def test_a_limit_that_adapts_stays_within_its_bounds(events: list[tuple[int, int]]) -> None:
    limit = PendingLimit(None)
    now_ns = 0
    for acked, passed_ns in events:
        now_ns += passed_ns
        limit.acked(acked)
        limit.room(0, now_ns)
        assert PENDING_MIN <= limit.limit <= PENDING_MAX


def test_a_spout_at_its_limit_goes_on_when_trees_have_ended() -> None:
    limit = PendingLimit(100)
    assert limit.room(100, 0) <= 0
    assert limit.room(0, 0) == 100
    one = PendingLimit(1)
    assert [one.room(1, 0), one.room(0, 0)] == [0, 1]


def test_a_fast_topology_may_have_many_and_a_slow_one_few() -> None:
    fast, slow = PendingLimit(None), PendingLimit(None)
    simulate(fast, per_s=400_000, latency_ns=20_000_000, seconds=4)
    simulate(slow, per_s=1000, latency_ns=1_000_000, seconds=4)
    assert fast.limit > 50_000
    assert slow.limit == PENDING_MIN


def test_what_waits_in_a_saturated_topology_is_about_a_window_of_work() -> None:
    limit = PendingLimit(None)
    most = simulate(limit, per_s=100_000, latency_ns=5_000_000, seconds=8)
    assert most < 2 * 100_000 * WINDOW_NS / 1e9


@pytest.mark.parametrize("fixed", [None, 500])
def test_bolts_that_report_in_turn_are_not_starved_while_a_slow_one_sends_acks(fixed: int | None) -> None:
    limit = PendingLimit(fixed)
    before = limit.limit
    for ms in range(0, 10_000, 20):
        if ms % 100 == 0:
            limit.acked(10)
        assert limit.held(ms // 20 % 10, "join", 3, limit.limit, ms * 1_000_000) == (0, None)
    assert limit.limit == before


def test_a_bolt_is_starved_if_nothing_is_acked_between_its_reports() -> None:
    limit = PendingLimit(500)
    limit.acked(10)
    advice = [limit.held(task, "join", 3, 500, at_ms * 1_000_000) for at_ms in (0, 200, 400) for task in (1, 2)]
    assert [text is not None for _, text in advice] == [False, False, True, False, False, False]
    assert limit.starves(400_000_000)
    limit.acked(1)
    limit.held(1, "join", 3, 500, 600_000_000)
    assert not limit.starves(600_000_000)


class Numbers(Spout):
    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.emitted = 0

    def next_tuple(self) -> None:
        self.emit([self.emitted], tup_id=self.emitted)
        self.emitted += 1


class Windows(TumblingWindowBolt):
    def processWindow(self, window_info: Any, tuples: list[Any]) -> None:
        """Nothing: what counts is that it holds them until then."""


class Holds(Bolt):
    def process(self, tup: Any) -> None:
        """Nothing, and no ack."""


WINDOW = {TumblingWindowBolt.WINDOW_DURATION_SECS: 3600}


CHECKPOINTS = {"topology.stateful.checkpoint.interval.seconds": 3600}


@pytest.mark.parametrize(
    ("bolt", "config", "settings", "reached"),
    [
        (Windows, WINDOW, {}, True),
        (Windows, WINDOW, {"topology.max.spout.pending": 50}, False),
        (Windows, WINDOW, CHECKPOINTS, False),
        (Holds, {"topology.component.holds.tuples": True}, {}, True),
        (Holds, {"topology.component.holds.tuples": True}, CHECKPOINTS, True),
        (Holds, {}, {}, False),
    ],
    ids=[
        "a window",
        "a window and a limit",
        "a window in checkpoints",
        "a bolt that says so",
        "a bolt that says so, with checkpoints",
        "a bolt that does not",
    ],
)
def test_where_a_bolt_holds_tuples_the_limit_is_high(
    bolt: type[Bolt], config: dict[str, Any], settings: dict[str, Any], reached: bool
) -> None:
    builder = TopologyBuilder("held")
    numbers = builder.add_spout("numbers", Numbers, 1)
    builder.add_bolt("bolt", bolt, 1, {numbers: Grouping.SHUFFLE}, config=config)
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", **settings})
    with Simulator(builder, lose=lambda batch: batch.kind == ACK) as simulator:
        (spout,) = simulator.component("numbers")
        for _ in range(200):
            simulator.step()
            if spout.emitted > 2 * PENDING_MIN:
                break
        assert (spout.emitted > 2 * PENDING_MIN) == reached


class Counted(Spout):
    outputs = ["n"]  # noqa: RUF012
    count = 20_000

    def initialize(self, config: Any, context: Any) -> None:
        self.next = self.acked = self.failed = 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit([self.next], tup_id=self.next)
            self.next += 1

    def ack(self, tup_id: int) -> None:
        self.acked += 1

    def fail(self, tup_id: int) -> None:
        self.failed += 1


class Batching(Bolt):
    """Acks five thousand tuples at a time, and does not say that it holds any."""

    def initialize(self, config: Any, context: Any) -> None:
        self.collected: list[Any] = []

    def process(self, tup: Any) -> None:
        self.collected.append(tup)
        if len(self.collected) == 5000:
            for each in self.collected:
                self.ack(each)
            self.collected.clear()


def batching(**config: Any) -> TopologyBuilder:
    builder = TopologyBuilder("batching")
    numbers = builder.add_spout("numbers", Counted, 1)
    builder.add_bolt("batching", Batching, 1, {numbers["default"]: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", **config})
    return builder


def test_a_bolt_that_collects_more_than_the_limit_is_not_starved(caplog: pytest.LogCaptureFixture) -> None:
    with Simulator(batching(**{"topology.message.timeout.secs": 600})) as simulator:
        (spout,) = simulator.component("numbers")
        simulator.run(until=lambda: spout.acked == Counted.count or spout.failed > 0, seconds=300)
    assert (spout.acked, spout.failed) == (Counted.count, 0)
    assert "batching holds 1" in caplog.text
    assert "topology.component.holds.tuples" in caplog.text


def test_a_configured_limit_that_starves_a_bolt_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with Simulator(batching(**{"topology.max.spout.pending": 100})) as simulator:
        simulator.run(until=lambda: "topology.max.spout.pending = 100" in caplog.text, seconds=300)
        simulator.run(seconds=0.6)
    assert caplog.text.count("topology.max.spout.pending = 100") == 1
