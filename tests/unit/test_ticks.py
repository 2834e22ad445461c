"""Ticks of a bolt that always has a batch: it is never polled, and its gateway need not prompt it."""

from __future__ import annotations

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.config import InstanceConfig
from heronpy.instance.task import BoltTask, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan, TopologyState
from heronpy.proto import stmgr_pb2
from heronpy.wire import tuple_batch

MS = 1_000_000
DRAIN_MS = 5


class Source(Spout):
    outputs = ["n"]  # noqa: RUF012

    def next_tuple(self) -> None:
        pass


class Ticking(Bolt):
    ticks = 0

    def process(self, tup: Tuple) -> None:
        pass

    def process_tick(self, tup: Tuple) -> None:
        self.ticks += 1


class Run:
    def __init__(self) -> None:
        builder = TopologyBuilder("ticking")
        source = builder.add_spout("source", Source, 1)
        builder.add_bolt("sink", Ticking, 1, {source: Grouping.SHUFFLE}, config={"topology.tick.tuple.freq.secs": 1})
        proto = builder.build().protobuf_topology
        proto.state = TopologyState.RUNNING.value
        logical = LogicalPlan.from_proto(proto)
        plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        tasks = {instance.component: task for task, (_, instance) in plan.tasks.items()}
        self.now_ns = 1_000_000_000
        self._source = tasks["source"]
        self._sent: list[stmgr_pb2.Batch] = []
        core = TaskCore(
            plan=plan,
            task_id=tasks["sink"],
            config=InstanceConfig(drain_interval_ms=DRAIN_MS),
            send=self._sent.extend,
            clock=lambda: self.now_ns,
        )
        task = make_task(core)
        assert isinstance(task, BoltTask)
        task.open()
        apply_state(task, plan)
        self.task = task

    def execute(self, every_ms: int, for_ms: int) -> int:
        """Execute a batch every so often, and nothing between two of them. Returns how many ticks came."""
        values = self.task.core.serialize([(1,)])
        before = self.task.user_object.ticks
        for _ in range(for_ms // every_ms):
            self.now_ns += every_ms * MS
            self.task.offer(
                tuple_batch(
                    src_task=self._source, dest_task=self.task.core.task_id, streams=["default"], count=1, values=values
                )
            )
        return int(self.task.user_object.ticks - before)


def test_a_bolt_that_always_has_a_batch_ticks() -> None:
    assert Run().execute(every_ms=20, for_ms=5_000) == 5


def test_what_is_due_is_looked_for_every_drain_interval_however_short_the_batches_are() -> None:
    assert Run().execute(every_ms=1, for_ms=3_000) == 3
