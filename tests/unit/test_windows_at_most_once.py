"""Windows at most once: a task that dies takes its windows with it, and nothing is in windows twice."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    Grouping,
    KeyedWindowBolt,
    Spout,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.api.bolt import window_bolt
from heronpy.config import InstanceConfig
from heronpy.instance.task import BoltTask, Signal, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.windows import Pane, Tumbling
from heronpy.wire import DATA, decode_tuples

COUNT = 100
DIES_AT = 45
EVENT_TIME = {"topology.bolts.tuple.timestamp.field.name": "at"}


class Numbers(Spout):
    outputs = ["at"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < COUNT:
            self.emit([self.at], tup_id=self.at)
            self.at += 1

    def fail(self, tup_id: Any) -> None:
        raise AssertionError("nothing is replayed")


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


class Herons(window_bolt.TumblingWindowBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def processWindow(self, window_info: Any, tuples: list[Tuple]) -> None:  # Heron's name
        self.emit([[tup["at"] for tup in tuples]])


class Drop(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "storms": (Storms.with_tumbling_window(Duration(10)), EVENT_TIME),
    "keyed": (Panes.with_windows(Tumbling(10)), EVENT_TIME),
    "herons": (Herons, {Herons.WINDOW_DURATION_SECS: 10}),
}


class Tasks:
    """Tasks of a topology, and what they send."""

    def __init__(self, kind: str) -> None:
        bolt, config = KINDS[kind]
        builder = TopologyBuilder("windows")
        source = builder.add_spout("source", Numbers, 1)
        windows = builder.add_bolt("windows", bolt, 1, {source: Grouping.SHUFFLE}, config)
        builder.add_bolt("out", Drop, 1, {windows: Grouping.SHUFFLE})
        builder.set_config({"topology.reliability.mode": "ATMOST_ONCE"})
        proto = builder.build().protobuf_topology
        proto.state = 1
        logical = LogicalPlan.from_proto(proto)
        self.plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        self._sent: list[stmgr_pb2.Batch] = []

    def started(self, component: str) -> Any:
        (id,) = self.plan.component_tasks[component]
        core = TaskCore(plan=self.plan, task_id=id, config=InstanceConfig(), send=self._sent.extend, signal=Signal())
        task = make_task(core)
        task.open()
        apply_state(task, self.plan)
        return task

    def batches(self, task: Any) -> list[stmgr_pb2.Batch]:
        """Those that it has sent since the last call."""
        task.flush()
        sent = [batch for batch in self._sent if batch.kind == DATA]
        self._sent.clear()
        return sent

    def numbers(self, task: BoltTask) -> list[int]:
        rows = [row for batch in self.batches(task) for row in decode_tuples(batch.body).deserialized(pickle.loads)]
        return [number for (numbers,) in rows for number in numbers]


def numbers_of(batches: Sequence[stmgr_pb2.Batch]) -> list[int]:
    return [row[0] for batch in batches for row in decode_tuples(batch.body).deserialized(pickle.loads)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_dies_takes_its_windows_with_it_and_the_next_one_has_all_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(window_bolt, "wall_clock_s", lambda: lambda: now_s)
    tasks = Tasks(kind)
    source = tasks.started("source")
    given: list[stmgr_pb2.Batch] = []
    first = tasks.started("windows")
    while len(numbers_of(given)) < DIES_AT:
        source.poll()
        given += tasks.batches(source)
    for batch in given:
        first.offer(batch)
    first.user_object.process_tick(None)
    before = tasks.numbers(first)

    second = tasks.started("windows")
    rest: list[stmgr_pb2.Batch] = []
    while len(numbers_of([*given, *rest])) < COUNT:
        source.poll()
        rest += tasks.batches(source)
    for batch in rest:
        second.offer(batch)
    now_s += 10
    second.user_object.process_tick(None)
    after = tasks.numbers(second)

    gone, left = numbers_of(given), numbers_of(rest)
    assert [*gone, *left] == list(range(COUNT)), "each is sent once"
    if kind == "herons":
        assert (before, after) == ([], left)
    else:
        past = (len(gone) - 1) // 10 * 10
        assert (before, after) == (list(range(past)), [number for number in left if number < 90])
