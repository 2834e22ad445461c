"""A busy bolt sends acks when there is a decent batch for the task of each spout, or after a time."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.config import InstanceConfig
from heronpy.instance.task import SpoutTask, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan, TopologyState
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK

BATCH = 1024
DECENT = 4096
MS = 1_000_000
WITHIN_MS = 200


class Source(Spout):
    outputs = ["n"]  # noqa: RUF012

    def next_tuple(self) -> None:
        pass


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


class Run:
    """A busy bolt's task behind tasks of a spout."""

    def __init__(self, spouts: int) -> None:
        self.now_ns = 1_000_000_000
        self.sent: list[stmgr_pb2.Batch] = []
        builder = TopologyBuilder("paced")
        source = builder.add_spout("source", Source, spouts)
        builder.add_bolt("sink", Sink, 1, {source: Grouping.SHUFFLE})
        builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 1_000_000})
        proto = builder.build().protobuf_topology
        proto.state = TopologyState.RUNNING.value
        logical = LogicalPlan.from_proto(proto)
        self._plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        tasks = {instance.component: task for task, (_, instance) in self._plan.tasks.items()}
        self._spout, self._bolt = self._task(tasks["source"]), self._task(tasks["sink"])
        assert isinstance(self._spout, SpoutTask)

    def _task(self, task_id: int) -> Any:
        config = InstanceConfig(drain_interval_ms=10)
        core = TaskCore(
            plan=self._plan, task_id=task_id, config=config, send=self.sent.extend, clock=lambda: self.now_ns
        )
        task = make_task(core)
        task.open()
        apply_state(task, self._plan)
        return task

    def execute(self, after_ms: int) -> int:
        """Have the bolt execute a batch and stay busy. Returns how many tuples are acked then."""
        for n in range(BATCH):
            self._spout.user_object.emit((n,), tup_id=n)
        self._spout.flush()
        batches, self.sent[:] = self.sent[:], []
        self.now_ns += after_ms * MS
        for batch in batches:
            self._bolt.offer(stmgr_pb2.Batch.FromString(batch.SerializeToString()))
        acks, self.sent[:] = [batch for batch in self.sent if batch.kind == ACK], []
        return sum(batch.count for batch in acks)


@pytest.mark.parametrize(("spouts", "wanted"), [(1, DECENT), (4, 4 * DECENT), (40, 8 * DECENT)])
def test_acks_wait_until_there_is_a_decent_batch_for_each_spout(spouts: int, wanted: int) -> None:
    run = Run(spouts)
    run.execute(0)  # the first are sent at once: nothing was sent before
    executed = 0
    while not (acked := run.execute(after_ms=6)):
        executed += BATCH
        assert executed < 10 * DECENT, "acks never leave"
    assert acked >= wanted
    assert acked < wanted + 2 * BATCH


@pytest.mark.parametrize("spouts", [1, 4])
def test_acks_of_a_slow_bolt_leave_in_time(spouts: int) -> None:
    run = Run(spouts)
    run.execute(0)
    assert run.execute(after_ms=WITHIN_MS + 1)
