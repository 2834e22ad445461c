"""Windowed bolts with checkpoints: what is in their windows is in the snapshot."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Grouping,
    ITwoPhaseStatefulComponent,
    KeyedWindowBolt,
    SlidingWindowBolt,
    TopologyBuilder,
    Tuple,
    TupleWindow,
)
from heronpy.api.bolt import event_time_bolt, window_bolt
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.windows import AfterProcessingTime, Global, Pane, Session, Sliding, Tumbling
from heronpy.wire import DATA, control_batch, decode_tuples
from tests.unit.checkpointed_kit import ByHand
from tests.unit.snapshot_kit import Hand, Numbers, Stored, numbers

WINDOWED = 2
"""Task id."""


class Storms(BaseWindowedBolt, ITwoPhaseStatefulComponent):
    """Four tuples in each window; has a state of its own, and does not care for its base's."""

    outputs = ["numbers"]  # noqa: RUF012  # Heron's way to declare

    def execute(self, window: TupleWindow) -> None:
        self.emit([[tup["number"] for tup in window.get()]])

    def init_state(self, state: Any) -> None:
        self.own = state

    def pre_save(self, checkpoint_id: str) -> None:
        self.own["checkpoint"] = checkpoint_id


class Herons(SlidingWindowBolt):
    """Windows that are longer than the test."""

    outputs = ["numbers"]  # noqa: RUF012

    def processWindow(self, window_info: Any, tuples: list[Tuple]) -> None:  # Heron's name
        self.emit([[tup["number"] for tup in tuples]])


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


def plan_of(bolt: type[Bolt], config: dict[str, Any]) -> PhysicalPlan:
    builder = TopologyBuilder("windows")
    spout = builder.add_spout("numbers", Numbers, 1)
    windowed = builder.add_bolt("windowed", bolt, 1, {spout: Grouping.SHUFFLE}, config=config)
    builder.add_bolt("sink", Sink, 1, {windowed: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    proto = builder.build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


def windows(hand: ByHand) -> list[list[int]]:
    assert hand.thread.runner is not None
    hand.thread.runner.task.flush()
    bodies = [batch.body for _, batch in hand.queues.sent if batch.kind == DATA]
    return [window for body in bodies for (window,) in decode_tuples(body).deserialized(pickle.loads)]


STORMS = {
    "topology.bolts.window.length.count": 4,
    "topology.bolts.window.sliding.interval.count": 4,
}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_window_of_storms_spans_a_restore(elsewhere: bool) -> None:
    plan = plan_of(Storms, STORMS)
    hand = ByHand(plan, WINDOWED, Stored(plan))
    hand.start()
    hand.received([numbers([1, 2, 3], WINDOWED), control_batch(1, WINDOWED, marker=1)], number=1)
    hand.received([numbers([9], WINDOWED)], number=2)
    hand.settle()
    assert [stored.checkpoint for stored in hand.said("stored")] == [1]
    hand.stored.commit(1)
    assert windows(hand) == [[1, 2, 3, 9]]
    hand.queues.sent.clear()
    if elsewhere:
        hand = ByHand(plan, WINDOWED, hand.stored)
    hand.start(1, epoch=2)
    hand.settle()
    hand.received([numbers([4, 5], WINDOWED)], epoch=2, number=1)
    hand.settle()
    assert windows(hand) == [[1, 2, 3, 4]]


def test_the_tuples_in_a_window_of_herons_are_restored() -> None:
    spans = {SlidingWindowBolt.WINDOW_DURATION_SECS: 1000, SlidingWindowBolt.WINDOW_SLIDEINTERVAL_SECS: 500}
    plan = plan_of(Herons, spans)
    hand = ByHand(plan, WINDOWED, Stored(plan))
    hand.start()
    hand.received([numbers([1, 2], WINDOWED), control_batch(1, WINDOWED, marker=1)], number=1)
    hand.settle()
    hand.stored.commit(1)
    hand.start(1, epoch=2)
    hand.received([numbers([3], WINDOWED)], epoch=2, number=1)
    hand.settle()
    assert [tup["number"] for tup, _ in hand.user.current_tuples] == [1, 2, 3]


class Timed(BaseWindowedBolt):
    """Windows of event time, which is the number."""

    outputs = ["numbers"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        parts = (window.get(), window.get_new(), window.get_expired())
        self.emit([[[tup["number"] for tup in part] for part in parts]])


def executed(hand: Hand, batch: Any) -> list[Any]:
    """What a bolt emits for a batch, and a tick after it."""
    hand.task.offer(batch)  # type: ignore[union-attr]  # it is a bolt
    hand.user.process_tick(None)
    hand.task.flush()
    return [window for sent in hand.contents() if len(sent) == 2 for window in sent[1]]


def test_what_comes_while_a_snapshot_is_written_is_not_in_it() -> None:
    stored = Stored(plan_of(Storms, STORMS))
    hand = Hand(stored, WINDOWED)
    executed(hand, numbers([1, 2], WINDOWED))
    hand.snapshots.take(1)
    executed(hand, numbers([3], WINDOWED))
    while hand.snapshots.write():
        pass
    stored.commit(1)
    restored = Hand(stored, WINDOWED, 1, epoch=2)
    assert executed(restored, numbers([3, 4], WINDOWED)) == [[1, 2, 3, 4]]


def test_a_checkpoint_has_only_the_tuples_that_came_since_the_last() -> None:
    stored = Stored(plan_of(Storms, dict.fromkeys(STORMS, 100_000)))
    hand = Hand(stored, WINDOWED)
    hand.task.offer(numbers(range(20_000), WINDOWED))  # type: ignore[union-attr]
    hand.checkpoint(1)
    stored.commit(1)
    hand.snapshots.commit(1)
    hand.task.offer(numbers([1, 2, 3], WINDOWED))  # type: ignore[union-attr]
    hand.checkpoint(2)
    (first, second) = (len(data) for data in stored.objects.values())
    assert second < first / 20


EVENTS = {
    "topology.bolts.window.length.duration.ms": 20,
    "topology.bolts.window.sliding.interval.duration.ms": 10,
    "topology.bolts.tuple.timestamp.field.name": "number",
}


@pytest.mark.parametrize("at", range(5))
def test_windows_of_event_time_are_the_same_with_a_restore(at: int) -> None:
    """Also what is late, what is an outlier, and what of a window is new or gone."""
    far = 10**12
    batches = [[3, 5, 12], [21, far, 22], [2, 35], [far, 41, 44], [39, 60, 61]]

    def run(restored_at: int | None) -> tuple[list[Any], list[int]]:
        stored = Stored(plan_of(Timed, EVENTS))
        hand, said, set_aside = Hand(stored, WINDOWED), [], []
        for number, batch in enumerate(batches):
            if number == restored_at:
                hand.checkpoint(1)
                hand.task.offer(numbers([70], WINDOWED))  # type: ignore[union-attr]  # of no checkpoint
                stored.commit(1)
                hand = Hand(stored, WINDOWED, 1, epoch=2)
            hand.user._set_aside = lambda tup, _reason, by=hand.user: (set_aside.append(tup["number"]), by.ack(tup))
            said += executed(hand, numbers(batch, WINDOWED))
        return said, set_aside

    calm = run(None)
    assert calm[0][0] == [[3, 5], [3, 5], []]
    assert calm[1] == [far, 2, far, 39]
    assert run(at) == calm


def test_tuples_are_acked_on_arrival() -> None:
    hand = Hand(Stored(plan_of(Storms, STORMS)), WINDOWED)
    acked: list[int] = []
    hand.user.ack = lambda tup: acked.append(tup["number"])
    hand.task.offer(numbers([1, 2, 3, 4, 5], WINDOWED))  # type: ignore[union-attr]
    assert acked == [1, 2, 3, 4, 5]


class Panes(KeyedWindowBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def value(self, tup: Tuple) -> int:
        return tup["number"]  # type: ignore[no-any-return]

    def on_pane(self, pane: Pane) -> None:
        self.emit([pane.value])


TEN_SECONDS_MS = {key: 10_000 for key in EVENTS if key.endswith(".ms")}
LAST_TEN = {"topology.bolts.window.length.count": 10}
TEN_SECONDS = {SlidingWindowBolt.WINDOW_DURATION_SECS: 10}
ON_TEN = AfterProcessingTime(timedelta(seconds=10))


def keyed(windows: Any, **more: Any) -> dict[str, Any]:
    return dict(Panes.with_windows(windows, **more).config)


@pytest.mark.parametrize(
    ("bolt", "config"),
    [
        (Storms, TEN_SECONDS_MS),
        (Storms, {**LAST_TEN, "topology.bolts.window.sliding.interval.duration.ms": 10_000}),
        (Storms, {**TEN_SECONDS_MS, "topology.bolts.window.sliding.interval.duration.ms": 5000}),
        (Herons, TEN_SECONDS),
        (Panes, keyed(Tumbling(10_000))),
        (Panes, keyed(Sliding(10_000, 5000))),
        (Panes, keyed(Session(10_000))),
        (Panes, keyed(Global(), trigger=ON_TEN)),
        (Panes, {**keyed(Global(), trigger=ON_TEN), "topology.bolts.tuple.timestamp.field.name": "number"}),
        (Panes, {**keyed(Session(10), trigger=ON_TEN), "topology.bolts.tuple.timestamp.field.name": "number"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_windows_do_not_wait_for_a_clock_that_was_a_day_ahead(
    bolt: Any, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 2_000_000_000.0 + 86_400

    def clock() -> float:
        return now_s

    with (
        mock.patch.object(window_bolt, "wall_clock_s", return_value=clock),
        mock.patch.object(event_time_bolt, "wall_clock_s", return_value=clock),
    ):
        stored = Stored(plan_of(bolt, config))
        hand = Hand(stored, WINDOWED)
        said = [executed(hand, numbers([1], WINDOWED))]
        now_s += 3
        said.append(executed(hand, numbers([2], WINDOWED)))
        hand.checkpoint(1)
        stored.commit(1)
        now_s -= 86_400  # on another host, or it was put right
        restored = Hand(stored, WINDOWED, 1, epoch=2)
        for number in range(3, 7):
            now_s += 5
            said.append(executed(restored, numbers([number], WINDOWED)))
        now_s += 15
        said.append(executed(restored, numbers([], WINDOWED)))
    seen = {number for windows in said for window in windows for number in window}
    assert seen >= {1, 2, 3, 4, 5}, "each is in a window, within its time"
    by_arrival = "topology.bolts.tuple.timestamp.field.name" not in config
    assert ("s behind that of the checkpoint" in caplog.text) == by_arrival
