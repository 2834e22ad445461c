"""Tasks, a state manager and storage around one checkpoint coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.proto import state_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import NodesRead, NodeWritten, ReadNodes, StoreFailed, WriteNode
from heronpy.tmaster.checkpoints import (
    CheckpointCoordinator,
    CheckpointDamaged,
    CheckpointSettings,
    Effect,
    Event,
    FenceChanged,
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestWritten,
    Phase,
    RaiseRestoreEpoch,
    Record,
    RestoreTasks,
    ResumeTasks,
    StmgrReported,
    TaskPhase,
    TasksChanged,
    TaskSnapshotted,
    TaskStatus,
    TimePassed,
    WriteManifest,
)

TASKS = {1: "stmgr-1", 2: "stmgr-1", 3: "stmgr-2"}
COMPONENTS = {"word": 1, "count": 2}
INTERVAL_S, TIMEOUT_S = 10.0, 60.0


class World:
    """Coordinators one after the other, their state manager, and the tasks, which do at once what they are told."""

    def __init__(self, retained: int = 1, **settings: Any) -> None:
        self.settings = CheckpointSettings(interval_s=INTERVAL_S, timeout_s=TIMEOUT_S, retained=retained, **settings)
        self.damaged: set[int] = set()
        """Checkpoints that no task can restore."""
        self.unreadable: set[int] = set()
        """Those that are intact, and have logs that no task can read."""
        self.logged: dict[int, int] = {}
        """Those with logs, and the number of tasks of "count" that these are for."""
        self.storage_away = self.looks_are_held = False
        self.now_s = 0.0
        self.term = self.epoch = 0
        self.record: bytes | None = None
        self.away = self.loses_answers = False
        self.held: list[WriteNode] | None = None
        """Writes that are answered later, if it is a list."""
        self.stores_manifests = True
        self.obeys = True
        self.stmgr_epochs = dict.fromkeys(("stmgr-1", "stmgr-2"), 0)
        self.stmgr_incarnations = dict.fromkeys(("stmgr-1", "stmgr-2"), 1)
        self.taints = dict.fromkeys(("stmgr-1", "stmgr-2"), "")
        self.tasks = {task: TaskStatus(100 + task, 0, TaskPhase.STARTED) for task in TASKS}
        self.effects: list[Effect] = []
        self.become_leader()

    def become_leader(self) -> None:
        """A new Topology Master takes over."""
        self.term += 1
        self.coordinator = CheckpointCoordinator("words-1", self.settings)
        self.feed(TasksChanged(TASKS, self.now_s, COMPONENTS))
        self.feed(FenceChanged(self.fence, self.epoch, self.now_s))

    @property
    def fence(self) -> bytes:
        return f"term {self.term} epoch {self.epoch}".encode()

    @property
    def durable(self) -> Record:
        return Record.from_proto(state_pb2.Checkpoints.FromString(self.record or b""))

    def feed(self, event: Event) -> list[Effect]:
        effects = self.coordinator.step(event)
        self.coordinator.check_invariants()
        self.effects += effects
        for effect in effects:
            self.carry_out(effect)
        return effects

    def carry_out(self, effect: Any) -> None:
        match effect:
            case ReadNodes():
                if self.away:
                    self.feed(StoreFailed(effect, "it is away", self.now_s))
                else:
                    self.feed(NodesRead(effect, {Kind.STATEFULCHECKPOINTS: self.record}, self.now_s))
            case WriteNode():
                if self.held is not None:
                    self.held.append(effect)
                else:
                    self.write(effect)
            case WriteManifest(checkpoint, epoch) if self.stores_manifests:
                self.feed(ManifestWritten(checkpoint, epoch, self.now_s))
            case RaiseRestoreEpoch(above) if self.obeys:
                self.epoch = above + 1
                self.feed(FenceChanged(self.fence, self.epoch, self.now_s))
            case RestoreTasks(id, epoch, _, tasks) if self.obeys:
                if effect.checkpoint in self.damaged | self.unreadable:
                    unreadable = effect.checkpoint in self.unreadable
                    why = "no one can read its log" if unreadable else "a wrong checksum"
                    self.feed(CheckpointDamaged(1, epoch, effect.checkpoint, why, self.now_s, unreadable))
                    return
                before = dict(self.tasks), dict(self.stmgr_epochs)
                self.stmgr_epochs[id], self.taints[id] = epoch, ""
                for task, status in self.tasks_of(id):
                    if status.epoch < epoch and task in tasks:
                        self.tasks[task] = TaskStatus(status.incarnation, epoch, TaskPhase.RESTORED)
                if before != (self.tasks, self.stmgr_epochs):
                    self.report(id)
            case FindIntact() if self.looks_are_held:
                pass
            case FindIntact(epoch) if self.storage_away:
                self.feed(IntactUnknown(epoch, "no route to host", self.now_s))
            case FindIntact(epoch, committed, tasks):
                unfit = {id for id, logged in self.logged.items() if tasks.get("count") != logged} - self.damaged
                intact = max((id for id in committed if id not in self.damaged | unfit), default=0)
                whys = {id: "a wrong checksum" if id in self.damaged else "batches in flight" for id in committed}
                refused = tuple(f"{id}: {why}" for id, why in whys.items() if id > intact)
                needed = {"count": self.logged[max(unfit)]} if unfit else {}
                self.feed(IntactFound(epoch, intact, refused, self.now_s, needed))
            case ResumeTasks(id, epoch, incarnations) if self.obeys:
                for task, status in self.tasks_of(id):
                    if (incarnations.get(task), epoch) == (status.incarnation, status.epoch):
                        self.tasks[task] = TaskStatus(status.incarnation, epoch, TaskPhase.RUNNING, status.committed)
                self.report(id)

    def write(self, write: WriteNode) -> None:
        if self.away:
            self.feed(StoreFailed(write, "it is away", self.now_s))
            return
        done = write.expected == self.fence
        if done:
            self.record = write.value
        if self.loses_answers:
            self.feed(StoreFailed(write, "the answer was lost", self.now_s))
        else:
            self.feed(NodeWritten(write, done, self.now_s))

    def tasks_of(self, id: str) -> list[tuple[int, TaskStatus]]:
        return [(task, status) for task, status in self.tasks.items() if TASKS[task] == id]

    def report(self, id: str) -> list[Effect]:
        tasks, incarnation = dict(self.tasks_of(id)), self.stmgr_incarnations[id]
        return self.feed(
            StmgrReported(id, incarnation, self.stmgr_epochs[id], self.taints[id], tasks, self.now_s),
        )

    def all_report(self) -> None:
        self.report("stmgr-1")
        self.report("stmgr-2")

    def pass_time(self, seconds: float = INTERVAL_S) -> None:
        self.now_s += seconds
        self.feed(TimePassed(self.now_s))

    def snapshot(self, task: int, checkpoint: int, *, whole: bool = True) -> None:
        status = self.tasks[task]
        self.feed(TaskSnapshotted(task, status.incarnation, checkpoint, status.epoch, self.now_s, whole=whole))

    def restart(self, task: int) -> None:
        self.tasks[task] = TaskStatus(self.tasks[task].incarnation + 1000, 0, TaskPhase.STARTED)

    def restart_stmgr(self, id: str) -> None:
        self.stmgr_incarnations[id] += 1
        self.stmgr_epochs[id] = 0

    def commit(self, checkpoint: int) -> None:
        self.pass_time()
        for task in TASKS:
            self.snapshot(task, checkpoint)
        assert self.durable.newest == checkpoint

    def take(self, kind: type) -> list[Any]:
        """The effects of a kind since the last call; all others are forgotten."""
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = []
        return found


@pytest.fixture
def world() -> World:
    """Everybody runs in the first epoch, without a checkpoint."""
    world = World()
    world.all_report()
    assert world.coordinator.phase is Phase.RUNNING
    world.take(object)
    return world


def world_with_commits(*, damaged: set[int], **settings: Any) -> World:
    world = World(retained=3, **settings)
    world.all_report()
    for checkpoint in (1, 2, 3):
        world.commit(checkpoint)
    world.damaged = damaged
    world.take(object)
    return world
