"""Real spout and bolt tasks with snapshots, driven by hand, and the storage that their snapshots go to."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.api import (
    Bolt,
    Grouping,
    ITwoPhaseStatefulComponent,
    Spout,
    Stream,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from heronpy.checkpoints import (
    NOTHING_SAVED,
    BytesSource,
    ComponentEntry,
    Manifest,
    ObjectReader,
    ObjectRef,
    Saved,
    next_manifest,
    read_saved,
)
from heronpy.config import InstanceConfig
from heronpy.errors import UnavailableError
from heronpy.instance.checkpoints import Snapshots
from heronpy.instance.task import BoltTask, Signal, SpoutTask, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.wire import CONTROL, DATA, decode_control, decode_tuples, tuple_batch

TOPOLOGY = "snapshots"


class Numbers(Spout, ITwoPhaseStatefulComponent):
    """Emits numbers, and keeps its position."""

    outputs = ["number", Stream(["number"], name="odd")]  # noqa: RUF012  # Heron's way to declare

    def init_state(self, state: Any) -> None:
        self.calls: list[Any] = ["init_state"]
        self.state = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.calls.append("initialize")
        self.limit = 0

    def next_tuple(self) -> None:
        if (position := self.state.get("position", 0)) < self.limit:
            self.state.put("position", position + 1)
            self.emit([position], tup_id=position, stream="odd" if position % 2 else "default")

    def ack(self, tup_id: Any) -> None:
        self.calls.append(("ack", tup_id))

    def pre_save(self, checkpoint_id: str) -> None:
        self.calls.append(("pre_save", checkpoint_id))

    def post_save(self, checkpoint_id: str) -> None:
        self.calls.append(("post_save", checkpoint_id))

    def pre_restore(self, checkpoint_id: str) -> None:
        self.calls.append(("pre_restore", checkpoint_id))

    def close(self) -> None:
        self.calls.append("close")


class Count(Bolt):
    """Counts numbers by their key, and passes them on."""

    outputs = ["number", Stream(["where", "row", "reason"], name="dead_letters")]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        number = tup["number"]
        if number == "fail":
            self.fail(tup)
        elif number == "raise":
            raise ValueError("an error of user code")
        elif number == "exit":
            sys.exit("an end of user code")
        elif number == "cancelled":
            raise asyncio.CancelledError
        elif number == "away":
            raise UnavailableError("the database is out of reach")
        else:
            self.counts[number] += 1
            self.emit([number], anchors=[tup])
            self.ack(tup)


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


def plan_of(
    counts: int = 1, epoch: int = 1, mode: str = "EFFECTIVELY_ONCE", spouts: int = 1, **config: str
) -> PhysicalPlan:
    """The first tasks are spouts (task 1), the next count, the last two are sinks."""
    builder = TopologyBuilder(TOPOLOGY)
    numbers = builder.add_spout("numbers", Numbers, spouts)
    by_number = Grouping.fields("number")
    count = builder.add_bolt("count", Count, counts, {numbers: by_number, numbers["odd"]: by_number})
    builder.add_bolt("sink", Sink, 2, {count: Grouping.ALL, count["dead_letters"]: Grouping.ALL})
    builder.set_config({"topology.reliability.mode": mode, **config})
    proto = builder.build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), (), restore_epoch=epoch)


class Stored:
    """What the Checkpoint Managers have."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self.plan = plan
        self.objects: dict[str, bytes] = {}
        self.refs: list[ObjectRef] = []
        """Of the checkpoint under way."""
        self.manifests: dict[int, Manifest] = {}

    def commit(self, checkpoint: int) -> None:
        self.refs, refs = [], self.refs
        components = {ref.component: ComponentEntry(ref.tasks, 0) for ref in refs}
        previous = self.manifests[max(self.manifests)] if self.manifests else None
        self.manifests[checkpoint] = next_manifest(
            previous,
            Manifest(
                topology_id=self.plan.logical.id,
                checkpoint_id=checkpoint,
                epoch=1,
                groups=self.plan.logical.key_groups,
                components={**(previous.components if previous else {}), **components},
                objects=tuple(refs),
            ),
            [],
        )

    def saved(self, checkpoint: int, task: int) -> Saved:
        if not checkpoint:
            return NOTHING_SAVED
        component = self.plan.tasks[task][1].component
        tasks = self.plan.component_tasks[component]
        return read_saved(self.manifests[checkpoint], component, tasks.index(task), len(tasks), self.opened)

    def opened(self, ref: ObjectRef) -> ObjectReader:
        return ObjectReader(BytesSource(ref.name, self.objects[ref.name]))


class Reports:
    """What a task's snapshots are told; keeps their objects."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.unsaved_bytes = 0
        self.said: list[tuple[Any, ...]] = []
        self._pieces: list[bytes] = []
        self._name = ""

    def taken(self, checkpoint: int, begun: int, name: str, undivided: str, whole: bool) -> None:
        self.said.append(("taken", checkpoint, begun))
        self._pieces, self._name = [], name

    def written(self, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        self._pieces += pieces
        if ref is not None:
            assert ref.name == self._name
            self.stored.objects[ref.name] = b"".join(self._pieces)
            self.stored.refs.append(ref)
            self.said.append(("written", checkpoint))

    def failed(self, checkpoint: int, reason: str, *, lasting: bool = False) -> None:
        self.said.append(("failed", checkpoint, reason))

    def committed(self, checkpoint: int) -> None:
        self.said.append(("committed", checkpoint))


class Hand:
    """One task with its snapshots, in one epoch."""

    def __init__(self, stored: Stored, task_id: int, checkpoint: int = 0, *, epoch: int = 1) -> None:
        self.stored = stored
        self.now_ns = 1_000_000_000
        self.sent: list[stmgr_pb2.Batch] = []
        self.signal = Signal()
        plan = stored.plan
        core = TaskCore(
            plan=plan,
            task_id=task_id,
            config=InstanceConfig(),
            send=self.sent.extend,
            signal=self.signal,
            clock=lambda: self.now_ns,
            saved=stored.saved(checkpoint, task_id),
        )
        self.task: SpoutTask | BoltTask = make_task(core)
        self.reports = Reports(stored)
        self.task.open()
        self.pause: Callable[[float], Any] = lambda seconds: None
        self.snapshots = Snapshots(self.task, self.signal, self.reports, epoch, pause=lambda s: self.pause(s))
        apply_state(self.task, plan)

    @property
    def user(self) -> Any:
        return self.task.user_object

    def checkpoint(self, checkpoint: int) -> None:
        """Take a snapshot, and write it."""
        self.snapshots.take(checkpoint)
        while self.snapshots.write():
            pass

    def emit(self, count: int) -> None:
        """Have the spout emit so many numbers more."""
        self.user.limit = self.user.state.get("position", 0) + count
        while self.user.state.get("position", 0) < self.user.limit:
            self.task.poll()

    def contents(self) -> list[Any]:
        """What was sent, in order: (destination, numbers) and (destination, "marker", checkpoint)."""
        found: list[Any] = []
        for batch in self.sent:
            if batch.kind == DATA:
                values = decode_tuples(batch.body).deserialized(pickle.loads)
                found.append((batch.dest_task, [value for (value,) in values]))
            elif batch.kind == CONTROL:
                found.append((batch.dest_task, "marker", decode_control(batch.body).marker))
        self.sent.clear()
        return found


def numbers(values: Sequence[Any], dest: int = 2, stream: str = "default", source: int = 1) -> stmgr_pb2.Batch:
    """A batch of a spout's."""
    data = pickle.dumps([[value] for value in values])
    return tuple_batch(src_task=source, dest_task=dest, streams=[stream], count=len(values), values=data)
