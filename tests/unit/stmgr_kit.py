"""A Stream Manager's core with links that are read and written by the test."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterable

import numpy as np
from test_outputs import plan_of

from heronpy.api import Grouping
from heronpy.config import InstanceConfig, StmgrConfig
from heronpy.plan import ContainerPacking, PackingPlan, PhysicalPlan, StmgrLocation
from heronpy.proto import stmgr_pb2, tmaster_pb2
from heronpy.stmgr import StmgrCore
from heronpy.stmgr.events import (
    CloseLink,
    DeleteSpill,
    Effect,
    Event,
    FrameReceived,
    FrameWritten,
    HoldReads,
    LinkClosed,
    LinkOpened,
    PlanReceived,
    ReadSpill,
    ResumeReads,
    SendToTmaster,
    SpillRead,
    SpillWritten,
    StopTopology,
    Wake,
    WakeAt,
    WriteFrame,
    WriteReady,
    WriteSpill,
)
from heronpy.wire import U64, tuple_batch

SOURCE, SINK, PEER = "container_1_source_1", "container_1_sink_3", "stmgr-2"
INCARNATION = 77
CONFIG = StmgrConfig(outbox_bytes_high=1000, outbox_bytes_low=500, frame_bytes=200, merge_interval_ms=0)


def plan(version: int = 1, *, epoch: int = 0, tracked: bool = False, checkpoints: bool = False) -> PhysicalPlan:
    """source_1 and sink_3 in container 1, sink_2 and sink_4 in container 2."""
    made = plan_of(sink={"default": Grouping.SHUFFLE})
    if tracked or checkpoints:
        mode = "ATLEAST_ONCE" if tracked else "EFFECTIVELY_ONCE"
        config = {**made.logical.config, "topology.reliability.mode": mode}
        if checkpoints:
            config["topology.stateful.checkpoint.interval.seconds"] = 10
        made = dataclasses.replace(made, logical=dataclasses.replace(made.logical, config=config))
    return dataclasses.replace(made, version=version, restore_epoch=epoch)


def without(before: PhysicalPlan, task: int) -> PhysicalPlan:
    containers = tuple(
        dataclasses.replace(c, instances=tuple(i for i in c.instances if i.task_id != task))
        for c in before.packing.containers
    )
    return changed(before, tuple(c for c in containers if c.instances))


def replaced(before: PhysicalPlan, incarnation: int) -> PhysicalPlan:
    """The same plan, with the Stream Manager of container 2 in an incarnation of its container."""
    return dataclasses.replace(before, stmgrs=(StmgrLocation(PEER, 2, "127.0.0.1", 1, 1, 1, incarnation),))


def changed(before: PhysicalPlan, containers: tuple[ContainerPacking, ...]) -> PhysicalPlan:
    return dataclasses.replace(before, version=before.version + 1, packing=PackingPlan(before.packing.id, containers))


def data(task: int, body: bytes = b"0123456789", **fields: bool) -> stmgr_pb2.Batch:
    return stmgr_pb2.Batch(dest_task=task, count=1, body=body, **fields)


def tracked(task: int, *roots: int) -> stmgr_pb2.Batch:
    """Tuples for a task, each with one root of task 1."""
    numbers = np.array([1 << 44 | root for root in roots], dtype=U64)
    return tuple_batch(
        src_task=1, dest_task=task, streams=["default"], count=len(roots), values=b"", ids=numbers, roots=numbers
    )


class Shell:
    """Does what the core of `stmgr-1` asks for. Links that are not `stalled` write at once."""

    def __init__(self, first: PhysicalPlan | None = None, config: StmgrConfig = CONFIG) -> None:
        self.core = StmgrCore(1, config, InstanceConfig(), INCARNATION)
        self.now_ns = 0
        self.names: dict[int, str] = {}
        self.links: dict[str, int] = {}
        self.written: dict[str, list[stmgr_pb2.Frame]] = {}
        """The frames that each instance or peer has got."""
        self.held: set[str] = set()
        self.closed: dict[str, str] = {}
        self.stalled: dict[str, bytes | None] = {}
        self.disk: dict[tuple[str, int], bytes] = {}
        self.stop_reason = ""
        self.reported: list[tmaster_pb2.StmgrMessage] = []
        """What has gone to the Topology Master."""
        self._numbers = itertools.count(1)
        self._events: deque[Event] = deque()
        if first is not None:
            self.replan(first)

    def step(self, event: Event) -> None:
        """Report an event. What follows from the effects is reported when all of them are done."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            self.now_ns += 1
            self._apply(self.core.step(self._events[0]))
            self._events.popleft()

    def replan(self, new: PhysicalPlan) -> None:
        self.step(PlanReceived(new, self.now_ns))

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteFrame(link, frame):
                    self._write(link, frame)
                case Wake(link):
                    self.step(WriteReady(link, self.now_ns))
                case WakeAt():
                    raise AssertionError("merging is off in these tests")
                case HoldReads(link):
                    self.held.add(self.names[link])
                case ResumeReads(link):
                    self.held.remove(self.names[link])
                case CloseLink(link, reason):
                    self.closed[self.names.get(link, "")] = reason
                case WriteSpill(outbox, segment, content):
                    self.disk[outbox, segment] = content
                    self.step(SpillWritten(outbox, segment, self.now_ns))
                case ReadSpill(outbox, segment):
                    self.step(SpillRead(outbox, segment, self.disk.pop((outbox, segment)), self.now_ns))
                case DeleteSpill(outbox, segment):
                    self.disk.pop((outbox, segment), None)
                case SendToTmaster(message):
                    self.reported.append(message)
                case StopTopology(reason):
                    self.stop_reason = reason
                case _:
                    pass

    def _write(self, link: int, frame: bytes) -> None:
        name = self.names[link]
        if name in self.stalled:
            assert self.stalled[name] is None, "a frame before the last one was written"
            self.stalled[name] = frame
            return
        self.written[name].append(stmgr_pb2.Frame.FromString(frame))
        self.step(FrameWritten(link, self.now_ns))

    def open(self, *names: str, stalled: bool = False, incarnation: int = 0) -> None:
        """Connect instances or peers; a stalled one reads nothing until `resume`."""
        for name in names:
            number = next(self._numbers)
            self.names[number], self.links[name] = name, number
            self.written[name] = []
            if stalled:
                self.stalled[name] = None
            self.step(LinkOpened(number, name, self.now_ns, incarnation))
            self.step(WriteReady(number, self.now_ns))

    def resume(self, name: str) -> None:
        """A stalled one reads again."""
        frame = self.stalled.pop(name)
        if frame is not None:
            self._write(self.links[name], frame)

    def lose(self, name: str) -> None:
        """The connection ends."""
        self.stalled.pop(name, None)
        self.held.discard(name)
        self.step(LinkClosed(self.links.pop(name), self.now_ns))

    def send(self, name: str, *batches: stmgr_pb2.Batch, epoch: int = 0, number: int = 0) -> None:
        """A frame comes from an instance or a peer."""
        self.receive(name, stmgr_pb2.Frame(batches=batches, epoch=epoch, number=number))

    def receive(self, name: str, frame: stmgr_pb2.Frame) -> None:
        # As bytes and back: a frame that was read shares nothing with the one that was sent.
        data = frame.SerializeToString()
        self.step(FrameReceived(self.links[name], stmgr_pb2.Frame.FromString(data), len(data), self.now_ns))
        self.core.check_invariants(self.now_ns)

    def batches(self, name: str) -> list[stmgr_pb2.Batch]:
        """All batches that an instance or a peer has got since it connected."""
        return [batch for frame in self.written[name] for batch in frame.batches]

    def bodies(self, name: str) -> list[bytes]:
        return [batch.body for batch in self.batches(name)]

    def roots(self, name: str, kind: int) -> list[int]:
        """Sequence numbers of the roots in batches of a kind."""
        found: list[int] = []
        for batch in self.batches(name):
            if batch.kind == kind:
                roots: Iterable[int] = np.frombuffer(stmgr_pb2.RootBatch.FromString(batch.body).roots, dtype=U64)
                found += [int(root) & ((1 << 44) - 1) for root in roots]
        return found
