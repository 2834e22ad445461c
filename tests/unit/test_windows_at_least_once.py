"""Windows at least once with checkpoints: they are state, so that their tuples are acked long before they close."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    Grouping,
    KeyedWindowBolt,
    SlidingWindowBolt,
    Spout,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.connectors import ListSource, SourceSpout
from heronpy.testing import Simulator
from heronpy.windows import Pane, Tumbling

CHECKPOINTS = {
    "topology.reliability.mode": "ATLEAST_ONCE",
    "topology.stateful.checkpoint.interval.seconds": 3600,  # by hand
}
EVENT_TIME = {
    "topology.bolts.tuple.timestamp.field.name": "at",
    "topology.bolts.watermark.event.interval.ms": 1,
    "topology.bolts.tuple.timestamp.max.lag.ms": 1000,  # what is replayed comes in another order
}
WINDOW = 100


class Replaying(Spout):
    """Numbers up to a goal, and again those that fail."""

    outputs = ["at"]  # noqa: RUF012  # Heron's way to declare
    goal = 0

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.at, self.acked, self.failed = 0, set[int](), list[int]()

    def next_tuple(self) -> None:
        if self.failed:
            at = self.failed.pop()
        elif self.at < self.goal:
            at, self.at = self.at, self.at + 1
        else:
            return
        self.emit([at], tup_id=at)

    def ack(self, tup_id: Any) -> None:
        self.acked.add(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.failed.append(tup_id)


class Storms(BaseWindowedBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        self.emit([[tup["at"] for tup in window.get()]])


class Panes(KeyedWindowBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def value(self, tup: Tuple) -> Any:
        return tup["at"]

    def on_pane(self, pane: Pane) -> None:
        self.emit([list(pane.value)])


class Herons(SlidingWindowBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def processWindow(self, window_info: Any, tuples: list[Tuple]) -> None:  # Heron's name
        self.emit([[tup["at"] for tup in tuples]])


class Values(BaseWindowedBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        self.emit([[tup["value"] for tup in window.get()]])


class Collect(Bolt):
    """Has in its state what was in windows."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = context.task_state("numbers", default=list)

    def process(self, tup: Tuple) -> None:
        self.numbers.value += tup["numbers"]
        self.ack(tup)


HOUR = {SlidingWindowBolt.WINDOW_DURATION_SECS: 3600}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "storms": (Storms.with_tumbling_window(Duration(WINDOW)), EVENT_TIME),
    "keyed": (Panes.with_windows(Tumbling(WINDOW)), EVENT_TIME),
    "herons": (Herons, HOUR),
}


def built(kind: str, **config: Any) -> TopologyBuilder:
    builder = TopologyBuilder("windows")
    source = builder.add_spout("source", Replaying, 1)
    bolt, own = KINDS[kind]
    windows = builder.add_bolt("windows", bolt, 1, {source: Grouping.fields("at")}, {**own, **config})
    builder.add_bolt("collect", Collect, 1, {windows: Grouping.SHUFFLE})
    builder.set_config(CHECKPOINTS)
    return builder


def settle(simulator: Simulator) -> None:
    """Until nothing moves, however long that takes."""
    while simulator.step():
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_tuples_in_open_windows_are_acked_with_a_commit(kind: str) -> None:
    with Simulator(built(kind)) as simulator:
        source = simulator.component("source")[0]
        source.goal = 10
        settle(simulator)
        assert source.acked == set()
        simulator.checkpoint()
        settle(simulator)
        assert source.acked == set(range(10))
        source.goal = 20
        settle(simulator)
        simulator.restore()
        settle(simulator)
        assert source.acked == set(range(10))
        simulator.checkpoint()
        settle(simulator)
        assert source.acked == set(range(20)), "what no commit had covered was emitted again"
        if kind == "herons":
            (bolt,) = simulator.component("windows")
            assert sorted(tup["at"] for tup, _ in bolt.current_tuples) == list(range(20))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["storms", "keyed"])
def test_each_number_is_in_its_window_whatever_is_restored_in_between(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    with Simulator(built(kind)) as simulator:
        source = simulator.component("source")[0]
        while source.at < 10 * WINDOW or not source.acked >= set(range(10 * WINDOW)):
            source.goal = min(source.at + rng.randrange(WINDOW), 10 * WINDOW)
            for _ in range(rng.randrange(1, 30)):
                simulator.step()
            rng.choice([simulator.checkpoint, simulator.restore, lambda: None])()
        source.goal = 12 * WINDOW + 1000
        simulator.run(
            until=lambda: set(simulator.component("collect")[0].numbers.value) >= set(range(10 * WINDOW)), seconds=60
        )
        found = simulator.component("collect")[0].numbers.value
        assert set(found) >= set(range(10 * WINDOW))


@pytest.mark.parametrize("seed", range(2))
def test_what_a_source_emits_again_is_not_late(seed: int) -> None:
    """The bolt that has lost it follows the watermark of the source, which was further than that already."""
    rng = random.Random(seed)
    builder = TopologyBuilder("windows")
    times = [at / 1000 for at in range(20 * WINDOW)]
    source = builder.add_spout("source", SourceSpout(ListSource(range(20 * WINDOW), times=times)), 1)
    config = {"topology.bolts.watermark.event.interval.ms": 1}
    bolt = Values.with_tumbling_window(Duration(WINDOW)).with_timestamp_field("time_ms")
    windows = builder.add_bolt("windows", bolt, 1, {source: Grouping.SHUFFLE}, config)
    builder.add_bolt("collect", Collect, 1, {windows: Grouping.SHUFFLE})
    builder.set_config({**CHECKPOINTS, "topology.max.spout.pending": 500})
    whole = set(range(19 * WINDOW))
    with Simulator(builder) as simulator:
        for _ in range(12):
            for _ in range(rng.randrange(1, 30)):
                simulator.step()
            if rng.randrange(3) == 0:
                time.sleep(0.2)  # or no watermark is sent
            rng.choice([simulator.checkpoint, simulator.restore])()
        simulator.checkpoint()
        simulator.run(until=lambda: whole <= set(simulator.component("collect")[0].numbers.value), seconds=60)
        assert whole <= set(simulator.component("collect")[0].numbers.value)


def test_what_is_late_is_anchored_to_the_tuple() -> None:
    late = {"topology.bolts.late.tuple.stream": "late", "topology.bolts.tuple.timestamp.max.lag.ms": 0}
    builder = TopologyBuilder("late")
    source = builder.add_spout("source", Replaying, 1)
    bolt, own = KINDS["storms"]
    windows = builder.add_bolt("windows", bolt, 1, {source: Grouping.SHUFFLE}, {**own, **late})
    builder.add_bolt("refused", Refuses, 1, {windows["late"]: Grouping.SHUFFLE})
    builder.set_config(CHECKPOINTS)
    with Simulator(builder) as simulator:
        source = simulator.component("source")[0]
        source.goal = 300
        settle(simulator)
        simulator.run(until=lambda: simulator.component("windows")[0].watermark_now() > 200, seconds=60)
        source.failed.append(5)
        simulator.run(until=lambda: simulator.component("refused")[0].refused >= 2, seconds=60)
        assert simulator.component("refused")[0].refused >= 2, "it came again"


class AnchoredStorms(BaseWindowedBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        self.emit([[tup["at"] for tup in window.get()]], anchors=window.get())


class AnchoredHerons(SlidingWindowBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def processWindow(self, window_info: Any, tuples: list[Tuple]) -> None:  # Heron's name
        self.emit([[tup["at"] for tup in tuples]], anchors=tuples)


class Slow(Bolt):
    """Acks when it is told to."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.waiting: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.waiting.append(tup)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (AnchoredStorms.with_tumbling_window(Duration(WINDOW)), EVENT_TIME),
        (AnchoredHerons, {SlidingWindowBolt.WINDOW_DURATION_SECS: 0.1}),
    ],
    ids=["storms", "herons"],
)
def test_what_is_anchored_to_tuples_of_a_window_leaves_their_trees_alone(kind: Any, config: dict[str, Any]) -> None:
    """They are acked already: a child that comes later would keep the tree from ever being complete."""
    builder = TopologyBuilder("anchored")
    source = builder.add_spout("source", Replaying, 1)
    windows = builder.add_bolt("windows", kind, 1, {source: Grouping.fields("at")}, config)
    builder.add_bolt("slow", Slow, 1, {source: Grouping.SHUFFLE})
    builder.add_bolt("collect", Collect, 1, {windows: Grouping.SHUFFLE})
    builder.set_config(CHECKPOINTS)
    with Simulator(builder) as simulator:
        source, collect, slow = (simulator.component(name)[0] for name in ("source", "collect", "slow"))
        source.goal = 10
        settle(simulator)
        source.goal = 3000
        simulator.run(until=lambda: set(range(WINDOW)) <= set(collect.numbers.value), seconds=60)
        simulator.run(until=lambda: len(slow.waiting) >= 3000, seconds=60)
        settle(simulator)
        for tup in slow.waiting:
            slow.ack(tup)
        settle(simulator)
        simulator.checkpoint()
        settle(simulator)
        assert source.acked == set(range(3000))


class Refuses(Bolt):
    refused = 0

    def process(self, tup: Tuple) -> None:
        self.refused += 1
        if self.refused < 3:
            self.fail(tup)
        else:
            self.ack(tup)
