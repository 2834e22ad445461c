"""A task that is about to sleep, or was asleep, knows what waits to be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.config import InstanceConfig
from heronpy.instance.task import SpoutTask, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2


class Quiet(Spout):
    """Emits nothing by itself."""

    outputs = ["n"]  # noqa: RUF012

    def next_tuple(self) -> None:
        pass


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        pass


class Run:
    """A spout's task on a clock of its own."""

    def __init__(self) -> None:
        builder = TopologyBuilder("dozing")
        source = builder.add_spout("source", Quiet, 1)
        builder.add_bolt("sink", Sink, 1, {source: Grouping.SHUFFLE})
        builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
        proto = builder.build().protobuf_topology
        proto.state = 1
        logical = LogicalPlan.from_proto(proto)
        plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        self.now_ns = 1_000_000_000
        self.sent: list[stmgr_pb2.Batch] = []
        task = make_task(
            TaskCore(plan=plan, task_id=1, config=InstanceConfig(), send=self.sent.extend, clock=lambda: self.now_ns)
        )
        assert isinstance(task, SpoutTask)
        self.task = task
        task.open()
        apply_state(task, plan)

    def emit(self) -> None:
        self.task.user_object.emit([1], tup_id=1)  # type: ignore[union-attr]  # it is open

    def poll_for_a_second(self) -> None:
        for _ in range(10):
            self.now_ns += 100_000_000
            self.task.poll()


def by_its_own_thread(emit: Callable[[], Any]) -> None:
    emit()


def by_another_thread(emit: Callable[[], Any]) -> None:
    thread = threading.Thread(target=emit)
    thread.start()
    thread.join(300)


def test_what_waits_before_a_sleep_is_sent_though_nothing_more_is_emitted() -> None:
    run = Run()
    run.emit()
    assert not run.task.doze(True), "it must not sleep over it"
    run.poll_for_a_second()
    assert len(run.sent) == 1


@pytest.mark.parametrize("emitted", [by_its_own_thread, by_another_thread])
def test_what_is_emitted_during_a_sleep_is_sent_though_nothing_more_is(emitted: Callable[..., None]) -> None:
    run = Run()
    assert run.task.doze(True)
    emitted(run.emit)
    run.task.doze(False)
    run.poll_for_a_second()
    assert len(run.sent) == 1
    assert run.task.pending == 1
