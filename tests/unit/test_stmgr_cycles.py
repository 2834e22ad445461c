"""Two Stream Managers with tiny queues and instances that feed each other: no order of steps deadlocks."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from heronpy.api import Bolt, GlobalStreamId, Grouping, Spout, TopologyBuilder
from heronpy.config import InstanceConfig, StmgrConfig
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan, feedback_edges
from heronpy.proto import stmgr_pb2
from heronpy.stmgr import StmgrCore
from heronpy.stmgr.events import (
    FrameReceived,
    FrameWritten,
    HoldReads,
    LinkOpened,
    PlanReceived,
    ReadSpill,
    ResumeReads,
    SpillRead,
    SpillWritten,
    Wake,
    WakeAt,
    WriteFrame,
    WriteReady,
    WriteSpill,
)

SEEDS, FANOUT, DEPTH, BODY = 5, 4, 2, 100
IN_MAX, OUT_MAX = 3, 3
"""Batches that an instance takes in, and that it keeps before it stops executing."""
CONFIG = StmgrConfig(outbox_bytes_high=800, outbox_bytes_low=400, frame_bytes=200, merge_interval_ms=0)
SHAPES: dict[str, dict[str, list[str]]] = {
    "itself": {"a": ["s", "a"]},
    "each other": {"a": ["s", "b"], "b": ["a"]},
    "both": {"a": ["s", "a", "b"], "b": ["a"]},
    "three": {"a": ["s", "c"], "b": ["a"], "c": ["b"]},
    "three and each with the next": {"a": ["s", "b", "c"], "b": ["a", "c"], "c": ["a", "b"]},
    "none": {"a": ["s"], "b": ["a"], "c": ["a", "b"]},
}


class Source(Spout):
    outputs = ("x",)


class Step(Bolt):
    outputs = ("x",)


def plan(inputs: dict[str, list[str]]) -> PhysicalPlan:
    """Two tasks of each bolt in two containers."""
    builder = TopologyBuilder("cycles")
    builder.add_spout("s", Source, 1)
    for name, sources in inputs.items():
        builder.add_bolt(name, Step, 2, {GlobalStreamId(source, "default"): Grouping.SHUFFLE for source in sources})
    builder.set_config({"topology.stmgrs": 2})
    logical = LogicalPlan.from_proto(builder.build().protobuf_topology)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


class Instance:
    """Executes one batch at a time. Emits one for every consumer, and several, one deeper, round a cycle."""

    def __init__(self, world: World, task: int, targets: list[tuple[int, bool]], *, spout: bool) -> None:
        self.world, self.task, self.targets = world, task, targets
        self.inbox: deque[int] = deque([0] * SEEDS if spout else [])
        self.outbox: deque[tuple[int, int]] = deque()
        self.spout = spout

    def execute(self) -> None:
        depth = self.inbox.popleft()
        self.world.executed += 1
        for target, forward in self.targets:
            if forward or depth < DEPTH:
                emitted = [(target, depth)] if forward else [(target, depth + 1)] * FANOUT
                self.outbox += emitted
                self.world.emitted += len(emitted)


class World:
    """The cores, their links and disks. Each action is one step of somebody."""

    def __init__(self, physical: PhysicalPlan, dice: random.Random) -> None:
        self.dice, self.now_ns = dice, 0
        self.executed, self.emitted = 0, SEEDS
        self.cores = {c.id: StmgrCore(c.id, CONFIG, InstanceConfig()) for c in physical.packing.containers}
        self.held: set[tuple[int, str]] = set()
        self.written: dict[tuple[int, str], bytes] = {}
        """The frame that each link is writing, by container and name."""
        self.disk: dict[tuple[int, str, int], bytes] = {}
        self.pending: list[Callable[[], None]] = []
        self.names: dict[int, str] = {}
        self.numbers: dict[tuple[int, str], int] = {}
        self.instances: dict[tuple[int, str], Instance] = {}
        back = feedback_edges(physical.logical)
        for container in physical.packing.containers:
            self.step(container.id, PlanReceived(physical, 0))
            for packed in container.instances:
                consumers = physical.logical.consumers(packed.component, "default")
                targets = [
                    (dice.choice(physical.component_tasks[bolt.name]), (packed.component, bolt.name) not in back)
                    for bolt, _ in consumers
                ]
                name = packed.instance_id(container.id)
                spout = physical.logical.components[packed.component].is_spout
                self.instances[container.id, name] = Instance(self, packed.task_id, targets, spout=spout)
                self.connect(container.id, name)
            for other in physical.packing.containers:
                if other is not container:
                    self.connect(container.id, other.stmgr_id)

    def connect(self, container: int, name: str) -> None:
        number = self.numbers[container, name] = len(self.numbers) + 1
        self.names[number] = name
        self.step(container, LinkOpened(number, name, 0))
        self.step(container, WriteReady(number, 0))

    def step(self, container: int, event: Any) -> None:
        self.now_ns += 1
        for effect in self.cores[container].step(event):
            self.carry_out(container, effect)

    def carry_out(self, container: int, effect: Any) -> None:
        match effect:
            case WriteFrame(link, data):
                self.written[container, self.names[link]] = data
            case Wake(link) | WakeAt(link):
                self.pending.append(lambda: self.step(container, WriteReady(link, self.now_ns)))
            case HoldReads(link):
                self.held.add((container, self.names[link]))
            case ResumeReads(link):
                self.held.remove((container, self.names[link]))
            case WriteSpill(outbox, segment, data):
                self.disk[container, outbox, segment] = data
                self.pending.append(lambda: self.step(container, SpillWritten(outbox, segment, self.now_ns)))
            case ReadSpill(outbox, segment):
                data = self.disk.pop((container, outbox, segment))
                self.pending.append(lambda: self.step(container, SpillRead(outbox, segment, data, self.now_ns)))

    def actions(self) -> list[Callable[[], None]]:
        """What can happen next."""
        found: list[Callable[[], None]] = []
        if self.pending:
            found.append(self.pending.pop)
        for (container, name), data in self.written.items():
            instance = self.instances.get((container, name))
            if instance is None or len(instance.inbox) < IN_MAX:
                found.append(lambda c=container, n=name, d=data: self.deliver(c, n, d))
        for (container, name), instance in self.instances.items():
            if instance.inbox and len(instance.outbox) < OUT_MAX:
                found.append(instance.execute)
            if instance.outbox and (container, name) not in self.held:
                found.append(lambda c=container, n=name: self.send(c, n))
        return found

    def deliver(self, container: int, name: str, data: bytes) -> None:
        """A frame that a core has written arrives."""
        frame = stmgr_pb2.Frame.FromString(data)
        instance = self.instances.get((container, name))
        if instance is not None:
            instance.inbox.extend(int(batch.body[:1]) for batch in frame.batches)
        else:
            other, me = int(name.removeprefix("stmgr-")), f"stmgr-{container}"
            assert (other, me) not in self.held, "a peer is never held"
            self.step(other, FrameReceived(self.numbers[other, me], frame, len(data), self.now_ns))
        del self.written[container, name]
        self.step(container, FrameWritten(self.numbers[container, name], self.now_ns))

    def send(self, container: int, name: str) -> None:
        """An instance's oldest batch leaves."""
        task, depth = self.instances[container, name].outbox.popleft()
        body = str(depth).encode() * BODY
        frame = stmgr_pb2.Frame(batches=[stmgr_pb2.Batch(dest_task=task, count=1, body=body)])
        frame = stmgr_pb2.Frame.FromString(frame.SerializeToString())
        number = self.numbers[container, name]
        self.step(container, FrameReceived(number, frame, frame.ByteSize(), self.now_ns))

    def run(self) -> None:
        """Until nothing can happen any more."""
        while actions := self.actions():
            action = self.dice.choice(actions)
            if action == self.pending.pop:
                self.pending.pop(self.dice.randrange(len(self.pending)))()
            else:
                action()
            for core in self.cores.values():
                core.check_invariants(self.now_ns)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_everything_that_was_emitted_is_executed_in_any_order_of_steps(shape: str, seed: int) -> None:
    world = World(plan(SHAPES[shape]), random.Random(seed))
    world.run()
    assert world.executed == world.emitted
    assert not world.disk
    assert not world.held
    assert all(waiting == 0 for core in world.cores.values() for waiting in core.waiting().values())
