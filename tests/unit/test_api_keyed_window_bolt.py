"""Bolts with windows of any kind by key: sessions, triggers, lateness; with restores, and at least once."""

from __future__ import annotations

import operator
import pickle
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, KeyedWindowBolt, Spout, TopologyBuilder, Tuple
from heronpy.errors import ConfigError
from heronpy.instance.task import TaskFailed
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.testing import Simulator
from heronpy.windows import (
    AfterCount,
    AfterWatermark,
    Global,
    KeepLast,
    Pane,
    Reduce,
    Session,
    Sliding,
    Tumbling,
)
from heronpy.wire import tuple_batch
from tests.unit.snapshot_kit import Hand, Stored

VISITS = 2
"""Task id."""
MS = timedelta(milliseconds=1)


class Pages(Spout):
    outputs = ["user", "at", "page"]  # noqa: RUF012  # Heron's way to declare


class Visits(KeyedWindowBolt):
    """How many pages a user saw."""

    outputs = ["user", "pages"]  # noqa: RUF012
    fold = Reduce(operator.add)

    def value(self, tup: Tuple) -> Any:
        return tup["page"]

    def on_pane(self, pane: Pane) -> None:
        self.emit([pane.key, pane.value])


class Latest(KeyedWindowBolt):
    """The last two pages."""

    outputs = ["user", "pages"]  # noqa: RUF012
    fold = KeepLast(2)

    def on_pane(self, pane: Pane) -> None:
        self.emit([pane.key, [page for _, _, page in pane.value]])


class Late(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


def plan_of(bolt: Any, grouping: Any = None, mode: str = "EFFECTIVELY_ONCE", tasks: int = 1) -> PhysicalPlan:
    builder = TopologyBuilder("visits")
    pages = builder.add_spout("pages", Pages, 1)
    grouping = Grouping.fields("user") if grouping is None else grouping
    visits = builder.add_bolt("visits", bolt, tasks, {pages: grouping})
    if "topology.bolts.late.tuple.stream" in bolt.config:
        builder.add_bolt("late", Late, 1, {visits["late"]: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode})
    proto = builder.build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


class Running:
    """One task, restored as often as wished."""

    def __init__(self, bolt: Any, grouping: Any = None, mode: str = "EFFECTIVELY_ONCE") -> None:
        self.stored = Stored(plan_of(bolt, grouping, mode))
        self.hand = Hand(self.stored, VISITS)
        self.emitted: list[Any] = []
        self.checkpoint = 0
        self.listen()

    def listen(self) -> None:
        def emit(values: Any, stream: str = "default", *_: Any, **__: Any) -> None:
            self.emitted.append(list(values) if stream == "default" else (stream, values[0].values))

        self.hand.user.emit = emit

    def receive(self, *pages: tuple[str, int, Any]) -> list[Any]:
        """What is emitted for these, and a tick after them."""
        data = pickle.dumps([list(page) for page in pages])
        batch = tuple_batch(src_task=1, dest_task=VISITS, streams=["default"], count=len(pages), values=data)
        self.emitted.clear()
        self.hand.task.offer(batch)  # type: ignore[union-attr]  # it is a bolt
        self.hand.user.process_tick(None)
        return list(self.emitted)

    def restore(self) -> None:
        self.checkpoint += 1
        self.hand.checkpoint(self.checkpoint)
        self.receive(("of no checkpoint", 10**6, 1), ("of no checkpoint", 10**6, 1))
        self.stored.commit(self.checkpoint)
        self.hand = Hand(self.stored, VISITS, self.checkpoint, epoch=self.checkpoint + 1)
        self.listen()


def timed(bolt: Any, *args: Any, **options: Any) -> Any:
    return bolt.with_windows(*args, **options).with_timestamp_field("at")


@pytest.mark.parametrize("restored", [False, True])
def test_sessions_merge_and_close_also_with_restores(restored: bool) -> None:
    running = Running(timed(Visits, Session(10)).with_lag(20 * MS))
    rounds = [
        [("ann", 0, 1), ("bob", 3, 1), ("ann", 15, 1)],  # two of Ann's
        [("ann", 8, 1), ("ann", 34, 1)],  # which are one now
        [("bob", 52, 5), ("ann", 53, 1)],
        [("bob", 100, 1), ("bob", 101, 1)],
    ]
    emitted = []
    for pages in rounds:
        emitted.append(sorted(running.receive(*pages)))
        if restored:
            running.restore()
    assert emitted == [[], [["bob", 1]], [["ann", 3]], [["ann", 1], ["ann", 1], ["bob", 5]]]
    assert list(running.hand.user._engine.state) == ["bob"], "what is closed leaves nothing behind"


@pytest.mark.parametrize("restored", [False, True])
def test_early_and_late_panes_accumulate(restored: bool) -> None:
    trigger = AfterWatermark(early=AfterCount(2))
    running = Running(timed(Visits, Tumbling(10), trigger=trigger, accumulating=True, lateness=50 * MS))
    assert running.receive(("ann", 1, 1), ("ann", 2, 1), ("ann", 3, 1)) == [["ann", 2]]
    if restored:
        running.restore()
    assert running.receive(("ann", 12, 1)) == [["ann", 3]]
    if restored:
        running.restore()
    assert running.receive(("ann", 4, 1)) == [["ann", 4]], "late, and within the lateness"


def test_what_is_too_late_goes_to_the_late_stream() -> None:
    bolt = timed(Visits, Tumbling(10), lateness=5 * MS).with_late_tuple_stream("late")
    running = Running(bolt)
    running.receive(("ann", 1, 1), ("ann", 14, 1))
    assert running.receive(("ann", 2, 1), ("ann", 16, 1)) == [["ann", 1]]
    assert running.receive(("ann", 3, 1)) == [("late", ["ann", 3, 1])]


@pytest.mark.parametrize("restored", [False, True])
def test_a_global_window_fires_by_number_and_evicts(restored: bool) -> None:
    running = Running(Latest.with_windows(Global(), trigger=AfterCount(3), accumulating=True))
    assert running.receive(("ann", 1, "a"), ("ann", 2, "b")) == []
    if restored:
        running.restore()
    assert running.receive(("ann", 3, "c"), ("bob", 3, "x")) == [["ann", ["b", "c"]]]


def test_inputs_that_are_not_grouped_by_key_have_windows_of_the_task() -> None:
    running = Running(timed(Visits, Tumbling(10)), Grouping.SHUFFLE)
    running.receive(("ann", 1, 1), ("bob", 2, 1))
    running.restore()
    assert running.receive(("bob", 3, 1), ("cat", 12, 1)) == [[None, 3]]


def test_a_fold_that_fails_fails_its_tuple() -> None:
    running = Running(timed(Visits, Session(10)))
    with pytest.raises(TaskFailed):
        running.receive(("ann", 1, 1), ("ann", 2, "one"))


def test_windows_are_needed() -> None:
    builder = TopologyBuilder("visits")
    pages = builder.add_spout("pages", Pages, 1)
    builder.add_bolt("visits", Visits, 1, {pages: Grouping.SHUFFLE})
    with pytest.raises(ConfigError, match=r"Visits needs windows: see KeyedWindowBolt.with_windows\(\)"):
        Simulator(builder).__enter__()


class Numbered(Spout):
    """A page each time, with its number for the time."""

    outputs = ["user", "at", "page"]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.next, self.acked = 0, Counter[int]()

    def next_tuple(self) -> None:
        if self.next < 1000:
            self.emit([f"user {self.next % 3}", self.next, 1], tup_id=self.next)
            self.next += 1

    def ack(self, tup_id: int) -> None:
        self.acked[tup_id] += 1


class Seen(Bolt):
    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup.values)
        self.ack(tup)


@pytest.mark.parametrize("windows", [Tumbling(100), Sliding(100, 25)])
def test_at_least_once_tuples_are_acked_when_their_last_window_is_closed(windows: Any) -> None:
    builder = TopologyBuilder("visits")
    pages = builder.add_spout("pages", Numbered, 1)
    bolt = timed(Visits, windows).with_watermark_interval(10 * MS)
    visits = builder.add_bolt("visits", bolt, 1, {pages: Grouping.fields("user")})
    builder.add_bolt("seen", Seen, 1, {visits: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.message.timeout.secs": 300})
    with Simulator(builder) as simulator:
        (spout,) = simulator.component("pages")
        simulator.run(until=lambda: len(spout.acked) >= 900, seconds=300)
        assert sorted(spout.acked) == list(range(900)), "those of the last windows are held"
        assert set(spout.acked.values()) == {1}
        (seen,) = simulator.component("seen")
        whole = [pages for _, pages in seen.seen if pages in (33, 34)]
        assert len(whole) >= 3 * 9
