"""The checkpoint coordinator in the core of a Topology Master: who feeds it, and what becomes of what it asks for.

It lives from the time at which the state is read back. Its orders go to the session of a Stream Manager, its record to
the state manager under the same rules as everything else of the core: written in this Topology Master's term only, and
kept as a copy, which stands in when the state manager has lost it.
"""

from __future__ import annotations

import logging
from typing import assert_never

from msgspec import Struct

from heronpy.errors import ReadFailedError, StateError
from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster._leadership import Leadership, Role
from heronpy.tmaster._state import State
from heronpy.tmaster._store_effects import (
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    StoreEvent,
    StoreFailed,
    WriteNode,
)
from heronpy.tmaster._update import PlanUpdate, Stage
from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    CheckpointCoordinator,
    CheckpointDamaged,
    CheckpointLost,
    CheckpointRequested,
    CheckpointSettings,
    DiscardCheckpoints,
    FenceChanged,
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
    Phase,
    RaiseRestoreEpoch,
    ReadAhead,
    RestoreTasks,
    ResumeTasks,
    RollbackRequested,
    StmgrDisconnected,
    StmgrReported,
    TasksChanged,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TimePassed,
    WriteManifest,
    is_newer,
    order_of,
)
from heronpy.tmaster.checkpoints import Event as CoordinatorEvent

log = logging.getLogger(__name__)

KIND = Kind.STATEFULCHECKPOINTS

CheckpointEvent = (
    StmgrReported
    | TaskSnapshotted
    | TaskSnapshotFailed
    | RollbackRequested
    | CheckpointDamaged
    | CheckpointLost
    | ManifestWritten
    | ManifestFailed
    | IntactFound
    | IntactUnknown
)
"""What comes from outside, apart from what the core takes anyway."""


class SendOrder(Struct, frozen=True):
    """Have the instances of a Stream Manager do something. Orders and plans of a session are sent in order."""

    session: int
    order: checkpoint_pb2.CheckpointOrder


class KeepCopy(Struct, frozen=True):
    """Keep the value of a node where it survives the loss of the state manager's data and of this process."""

    kind: Kind
    value: bytes


Effect = SendOrder | WriteManifest | DiscardCheckpoints | FindIntact | KeepCopy | ReadNodes | WriteNode


class Checkpointing:
    """The coordinator of one topology, fed by a core."""

    def __init__(
        self,
        topology_id: str,
        settings: CheckpointSettings,
        leadership: Leadership,
        copy: bytes | ReadFailedError | None,
    ) -> None:
        """Begin without knowing anybody.

        Args:
            topology_id: What distinguishes this submission from others of the same name.
            settings: How checkpoints are taken.
            leadership: Of the core.
            copy: The value of the last `KeepCopy`; the error if it cannot be read now.
        """
        self.coordinator = CheckpointCoordinator(topology_id, settings)
        self._leadership, self._copy = leadership, copy
        self._fence = b""
        self._plan: PhysicalPlan | None = None
        self._sessions: dict[str, int] = {}

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next."""
        return self.coordinator.due_s

    def advance(self, state: State, now_s: float, *, published: bool, updating: bool, yields: bool) -> list[Effect]:
        """Take note of what has changed in the core.

        Args:
            state: Of the core.
            now_s: The time.
            published: Whether Stream Managers were sent the newest plan. No order of its epoch must reach them sooner:
                tasks would restore what was theirs by the plan before.
            updating: Whether another packing plan is wanted.
            yields: Whether no checkpoint is to begin after the one under way.
        """
        effects: list[Effect] = []
        sessions = {id: stmgr.session for id, stmgr in state.stmgrs.items()}
        gone = [id for id, session in self._sessions.items() if sessions.get(id) != session]
        self._sessions = sessions
        for id in gone:
            effects += self._feed(StmgrDisconnected(id, now_s))
        decided = state.plan is not None and state.plan.packing != state.packing
        self.coordinator.divisible = updating or decided
        self.coordinator.suspended = state.packing.trial is not None
        self.coordinator.yields = yields
        self.coordinator.decided = state.packing.parallelism if decided else {}
        if published and state.plan is not None and state.plan is not self._plan:
            self._plan = state.plan
            effects += self._feed(_tasks_changed(state.plan, now_s))
        leadership = self._leadership
        if published and leadership.role is Role.LEADER and leadership.fence != self._fence:
            self._fence = leadership.fence
            effects += self._feed(FenceChanged(self._fence, leadership.restore_epoch, now_s))
        if self.due_s is not None and now_s >= self.due_s:
            effects += self._feed(TimePassed(now_s))
        return effects

    def request(self, now_s: float) -> list[Effect]:
        """Have a checkpoint taken as soon as there is none under way."""
        return self._feed(CheckpointRequested(now_s))

    def read_for(self, update: PlanUpdate, state: State, now_s: float) -> tuple[list[Effect], bool]:
        """Have tasks read ahead for an update, also those that wait for a plan that has them.

        Returns:
            What is to be done, and whether the spouts are to rest now.
        """
        coordinator, effects = self.coordinator, list[Effect]()
        if update.read(state.present, checkpoint=coordinator.in_progress, now_s=now_s):
            coordinator.shares = update.shares(state.logical)
        if update.orders_reading(coordinator.record.newest):
            effects += self._read_orders()
        if update.stage is Stage.READING and coordinator.has_read_ahead(update.first):
            update.first_read = True
        running = coordinator.phase is Phase.RUNNING
        waits = coordinator.in_progress or update.awaits_checkpoint(coordinator.newest_begun)
        has_read = coordinator.has_read_ahead() and not (running and waits)
        behind_s = coordinator.behind_s(now_s)
        if has_read and update.catches_up(behind_s=behind_s, begun=coordinator.newest_begun):
            has_read = False
            effects += self.request(now_s)
        rests = update.rests(has_read=has_read, now_s=now_s)
        if rests:
            coordinator.shares = {}
            log.info("the spouts rest: %.1f s are left to be read, after %d more checkpoints", behind_s, update.rounds)
        return effects, rests

    def _read_orders(self) -> list[Effect]:
        """Only while all run: before, the epoch may begin with an older checkpoint than the newest that is known."""
        coordinator = self.coordinator
        if not coordinator.record.newest or coordinator.phase is not Phase.RUNNING:
            return []
        return [
            SendOrder(self._sessions[id], order_of(coordinator.read_ahead_order(id)))
            for id, of_stmgr in coordinator.shares.items()
            if of_stmgr and id in self._sessions
        ]

    def on(self, event: CheckpointEvent) -> list[Effect]:
        """Take what a Stream Manager, or the Checkpoint Manager, has reported."""
        if isinstance(event, StmgrReported) and event.stmgr_id not in self._sessions:
            return []  # of a session that is being closed
        return self._feed(event)

    def is_answer(self, event: StoreEvent) -> bool:
        """Whether an answer of the state manager is for the coordinator."""
        match event:
            case NodesRead(ReadNodes(kinds)) | StoreFailed(ReadNodes(kinds)):
                return kinds == (KIND,)
            case NodeWritten(WriteNode(kind)) | StoreFailed(WriteNode(kind)):
                return kind is KIND
            case _:
                return False

    def answered(self, event: StoreEvent) -> list[Effect]:
        """Take an answer that is for the coordinator, or a change of its node."""
        effects: list[Effect] = []
        match event:
            case NodeClaimed():
                return []
            case NodesRead(read, values, now_s):
                value, copy = values[KIND], self._copy
                if value is None:
                    event = NodesRead(read, {KIND: self._readable_copy()}, now_s)
                elif isinstance(copy, bytes) and is_newer(copy, value):
                    log.error("the record of checkpoints is damaged, or of an old backup: the copy is used")
                    event = NodesRead(read, {KIND: copy}, now_s)
                else:
                    effects += self._keep(value)
            case NodeWritten(write, True):
                effects += self._keep(write.value)
            case _:
                pass
        return [*effects, *self._feed(event)]

    def _readable_copy(self) -> bytes | None:
        """What the state manager has lost, if it was ever written.

        Raises:
            StateError: the copy may be there, and cannot be read now: to begin without it would lose all state.
        """
        if isinstance(self._copy, ReadFailedError):
            raise StateError(f"the state manager has no record of checkpoints, and the copy: {self._copy}")
        return self._copy

    def _keep(self, value: bytes) -> list[Effect]:
        if value == self._copy:
            return []
        self._copy = value
        return [KeepCopy(KIND, value)]

    def _feed(self, event: CoordinatorEvent) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self.coordinator.step(event):
            match effect:
                case ReadNodes() | WriteNode() | WriteManifest() | DiscardCheckpoints() | FindIntact():
                    effects.append(effect)
                case RaiseRestoreEpoch(above):
                    self._leadership.raise_restore_epoch(above + 1)
                case CheckLeadership():
                    self._leadership.check()
                case (
                    BeginCheckpoint()
                    | AbortCheckpoint()
                    | AnnounceCommit()
                    | RestoreTasks()
                    | ResumeTasks()
                    | ReadAhead()
                ):
                    if (session := self._sessions.get(effect.stmgr_id)) is not None:
                        effects.append(SendOrder(session, order_of(effect)))
                case _:
                    assert_never(effect)
        return effects

    def check_invariants(self) -> None:
        self.coordinator.check_invariants()
        assert set(self.coordinator.connected) <= self._sessions.keys()


def _tasks_changed(plan: PhysicalPlan, now_s: float) -> TasksChanged:
    tasks = {task: container.stmgr_id for task, (container, _) in plan.tasks.items()}
    components = {name: len(of) for name, of in plan.component_tasks.items()}
    component_of = {task: instance.component for task, (_, instance) in plan.tasks.items()}
    return TasksChanged(tasks, now_s, components, component_of)
