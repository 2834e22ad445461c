"""Windowed bolts with checkpoints: what is in their windows is in the snapshot."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Grouping,
    SlidingWindowBolt,
    TopologyBuilder,
    Tuple,
    TupleWindow,
)
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.wire import DATA, control_batch, decode_tuples
from tests.unit.checkpointed_kit import ByHand
from tests.unit.snapshot_kit import Numbers, Stored, numbers

WINDOWED = 2
"""Task id."""


class Storms(BaseWindowedBolt):
    """Four tuples in each window."""

    outputs = ["numbers"]  # noqa: RUF012  # Heron's way to declare

    def execute(self, window: TupleWindow) -> None:
        self.emit([[tup["number"] for tup in window.get()]])


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
    return [window for body in bodies for (window,) in pickle.loads(decode_tuples(body).values)]


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
