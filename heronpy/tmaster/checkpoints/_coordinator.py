"""The checkpoint coordinator of a Topology Master: events in, effects out.

    standby --leads--> loading --> adopting --all run in this epoch--> running <--all have restored-- restoring
                          ^            |                                  |                               ^  |
                          |            +--somebody does not---+-----------+--something was lost           |  |
                          |                                   v                                           |  |
                          +--the epoch is raised, durably-- raising <--something was lost again-----------|--+
                          |                                                                               |
                          +--the record is read back, and says what was committed-------------------------+

A checkpoint is begun durably, so that no id is used twice; collects one snapshot from each task of the plan; has its
manifest stored, without which it could not be read; and is committed by a write that depends on the fence, which holds
term *and* restore epoch. Three things follow from that:

* A Topology Master whose term is over begins and commits nothing.
* Once the epoch is raised, no checkpoint of an earlier one can be committed any more, not even by a write of our own
  whose answer was lost. So what to restore is read back *after* the raise, and is then final: one epoch restores one
  checkpoint, the last that was committed.
* What may have been lost or repeated (`taint`) costs the checkpoint that is under way, and never a committed one.

A checkpoint has what changed since the newest, unless that turns out to be lost or damaged while all run: then the next
one has the whole state, which tasks still have. Each says of its snapshot whether it is whole, so who has not heard of
it only costs another try.

A new Topology Master aborts what its predecessor had under way, and rolls nothing back if every member still runs in
the epoch. When somebody does not, or the predecessor died between "all have restored" and the last resume, it begins a
newer epoch, because it cannot know what ran in between.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heronpy.statemgr import Kind
from heronpy.tmaster._store_effects import NodeChanged, NodesRead, NodeWritten, ReadNodes, StoreFailed, WriteNode
from heronpy.tmaster.checkpoints._counts import SIZE_UNKNOWN, CheckpointCounts, CheckpointSize
from heronpy.tmaster.checkpoints._events import (
    INITIAL,
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    CheckpointDamaged,
    CheckpointLost,
    CheckpointRequested,
    DiscardCheckpoints,
    Effect,
    Event,
    FenceChanged,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
    RaiseRestoreEpoch,
    ReadAhead,
    RestoreTasks,
    ResumeTasks,
    RollbackRequested,
    Shares,
    StmgrDisconnected,
    StmgrReported,
    TaskPhase,
    TasksChanged,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TimePassed,
    WriteManifest,
)
from heronpy.tmaster.checkpoints._fallback import Fallback
from heronpy.tmaster.checkpoints._members import Members
from heronpy.tmaster.checkpoints._pace import Pace
from heronpy.tmaster.checkpoints._poison import Poison
from heronpy.tmaster.checkpoints._record import Record, Undivided, record_of
from heronpy.tmaster.checkpoints._settings import CheckpointSettings, Failure

log = logging.getLogger(__name__)

RETRY_S = 1.0
_WHOLE_TRIES = 3
"""So many whole checkpoints may fail because something is damaged. Then an older one is looked for."""
_FIRST_EPOCH = 1
"""Of a topology that starts: there is nothing to roll back."""
_READ = ReadNodes((Kind.STATEFULCHECKPOINTS,))


class Phase(enum.Enum):
    STANDBY = "standby"
    LOADING = "loading"
    """The record is being read."""
    ADOPTING = "adopting"
    """A new Topology Master finds out whether everybody runs in the epoch."""
    RAISING = "raising"
    """A newer epoch is being made durable."""
    RESTORING = "restoring"
    RUNNING = "running"


@dataclass(slots=True)
class _Checkpoint:
    """The one under way."""

    id: int
    began_s: float
    members: dict[int, int]
    """Incarnation of each task that must report."""
    missing: set[int]
    begun: bool = False
    """Durably: markers may be sent."""
    unaligned: bool = False
    objects: list[bytes] = field(default_factory=list)
    """Of the snapshots that were reported."""
    aligned_s: float = 0.0
    whole: bool = True
    size: CheckpointSize = SIZE_UNKNOWN
    undivided: dict[str, Undivided] = field(default_factory=dict)


class CheckpointCoordinator:
    """Takes checkpoints one at a time, and restores the last one. At most one of its writes is under way."""

    def __init__(self, topology_id: str, settings: CheckpointSettings) -> None:
        self.phase = Phase.STANDBY
        self.counts = CheckpointCounts()
        self.record = Record(topology_id)
        """As the state manager has it."""
        self.is_read = False
        """Whether the record was ever read back: before, it is not known what was begun."""
        self.epoch = 0
        self.restoring = INITIAL
        """What this epoch was, or is being, restored from. Not known to a Topology Master that has adopted it."""
        self.divisible = False
        """Whether only checkpoints are committed that another number of tasks can restore: without logs, whose batches
        are for tasks of this number."""
        self.suspended = False
        """No checkpoint is begun: new code is on trial."""
        self.yields = False
        """No checkpoint is begun: an update has the spouts rest as soon as the one under way has ended."""
        self.shares: Shares = {}
        """What tasks are to read ahead, for an update."""
        self.being_read: set[int] = set()
        """Committed checkpoints that they were told to read ahead. They stay until all have been restored."""
        self.decided: Mapping[str, int] = {}
        """The numbers of tasks that are decided upon and not in force: what is committed must suit them, too."""
        self.fallback = Fallback(self.counts, allow_empty=settings.allow_empty)
        self._newest_began_s = float("-inf")
        """When the newest committed checkpoint began; long ago if that is not known."""
        self._falls_back = False
        """The record is being changed to an older checkpoint; then a newer epoch restores that."""
        self._whole_tries = 0
        """How often a whole checkpoint was wanted, because none can follow the newest; 0: one can, as it seems."""
        self._poison = Poison()
        self._pace = Pace()
        self._loss = ""
        """Why the last epoch that this Topology Master has ended was over."""
        self._settings = settings
        self._members = Members()
        self._fence = b""
        self._adopt = True
        self._current: _Checkpoint | None = None
        self._last_id = 0
        """The newest that was tried, durable or not."""
        self._wanted: Record | None = None
        """To be made durable."""
        self._sent: tuple[WriteNode, Record] | None = None
        """The write under way. There is no other beside it: they could overtake each other."""
        self._reading = False
        self._retry_s = 0.0
        self._due_s = 0.0

    @property
    def connected(self) -> list[str]:
        """Stream Managers that orders can be sent to."""
        return self._members.connected

    @property
    def in_progress(self) -> int:
        """The checkpoint under way; 0: none."""
        return self._current.id if self._current is not None else 0

    @property
    def newest_begun(self) -> int:
        """The newest that was tried, durable or not; 0: none, as far as `is_read`."""
        return self._last_id

    @property
    def known_everywhere(self) -> int:
        """The newest committed checkpoint if every task knows of the commit, `post_save` included; else 0."""
        members, newest = self._members, self.record.newest
        if self.phase is not Phase.RUNNING or [*members.behind(TaskPhase.RUNNING)]:
            return INITIAL
        return INITIAL if any(members.unaware(id, newest) for id in members.connected) else newest

    def has_read_ahead(self, checkpoint: int | None = None) -> bool:
        """Whether no task of the plan is to read ahead any more, or just now: a checkpoint, or the newest."""
        wanted = self.record.newest if checkpoint is None else checkpoint
        return self.phase is not Phase.RUNNING or not any(self._yet_to_read(id, wanted) for id in self.shares)

    def behind_s(self, now_s: float) -> float:
        """How long ago the checkpoint began that tasks read ahead; 0 if they are to read nothing, or just now."""
        reads = self.phase is Phase.RUNNING and self.record.newest and any(self.shares.values())
        return now_s - self._newest_began_s if reads else 0.0

    @property
    def interval_s(self) -> float:
        """From the beginning of a checkpoint to that of the next, as it is wanted."""
        return self._settings.interval_s

    @property
    def began_s(self) -> float | None:
        """When the checkpoint under way began; None: there is none."""
        return self._current.began_s if self._current is not None else None

    @property
    def missing(self) -> list[int]:
        """Tasks that have not reported their snapshots."""
        return sorted(self._current.missing) if self._current is not None else []

    def component_of(self, task: int) -> str:
        """The component of a task of the plan."""
        return self._members.component_of.get(task, "")

    @property
    def due_s(self) -> float | None:
        """When `TimePassed` has something to do next."""
        if self._reading or self._sent is not None:
            return None
        if self._wanted is not None or self.phase is Phase.LOADING:
            return self._retry_s
        if self._current is not None:
            return self._current.began_s + self._settings.timeout_s
        return self._due_s if self._may_begin else None

    @property
    def _may_begin(self) -> bool:
        return self._current is None and self.phase is Phase.RUNNING and not self.suspended and not self.yields

    def restorable_with(self, tasks: Mapping[str, int]) -> bool:
        """Whether everything waits just now to be restored, and these numbers of tasks can restore it, too."""
        if self.phase is not Phase.RESTORING or self.restoring != self.record.newest:
            return False
        logged = self.fallback.logged_tasks
        if logged:
            return all(tasks.get(component) == number for component, number in logged.items())
        return self.restoring == self.record.settled

    @property
    def _logged_for(self) -> Mapping[str, int]:
        """For which numbers of tasks the logs of what is restored may be."""
        return {} if self.divisible else self._members.components

    def step(self, event: Event) -> list[Effect]:
        """Take an event; what is to be done, in this order.

        Raises:
            StateError: what was committed is not known any more.
        """
        return [*self._take(event), *self._advance(event.now_s)]

    def _take(self, event: Event) -> Iterable[Effect]:
        match event:
            case FenceChanged():
                return self._fence_changed(event)
            case TasksChanged():
                before = bool(self._members.tasks)
                changed = self._members.changed(event)
                return self._lost("the plan has other tasks", event.now_s) if before and changed else ()
            case StmgrReported():
                return self._reported(event)
            case StmgrDisconnected():
                return self._disconnected(event)
            case RollbackRequested():
                return self._rollback_requested(event)
            case CheckpointDamaged():
                wanted = (event.epoch, event.checkpoint) == (self.epoch, self.restoring)
                damaged = wanted and self.phase is Phase.RESTORING and not self._falls_back
                return self.fallback.damaged(event, self.record, self._logged_for) if damaged else ()
            case IntactFound() | IntactUnknown():
                return self._looked(event)
            case TaskSnapshotted():
                return self._snapshotted(event)
            case TaskSnapshotFailed():
                return self._snapshot_failed(event)
            case ManifestWritten():
                return self._manifest_written(event)
            case ManifestFailed():
                return self._manifest_failed(event)
            case CheckpointLost():
                return self._newest_lost(event)
            case NodesRead():
                return self._read(event)
            case NodeWritten():
                return self._written(event)
            case StoreFailed():
                return self._store_failed(event)
            case NodeChanged():
                return self._vanished() if event.kind is Kind.STATEFULCHECKPOINTS and event.value is None else ()
            case CheckpointRequested():
                self._due_s = min(self._due_s, event.now_s)
                return ()
            case TimePassed():
                return ()

    def _advance(self, now_s: float) -> Iterable[Effect]:
        """What is due."""
        if self.phase is Phase.LOADING and not self._reading and now_s >= self._retry_s:
            self._reading = True
            return [_READ]
        if self._sent is not None:
            return ()
        if self._wanted is not None:
            return self._send(self._wanted) if now_s >= self._retry_s else ()
        current = self._current
        if current is not None and now_s >= current.began_s + self._settings.timeout_s:
            waiting = ", ".join(map(str, self.missing[:10]))
            missing = f"snapshot of {len(current.missing)} tasks: {waiting}" if waiting else "manifest"
            return self._abort(Failure.TIMEOUT, f"no {missing}", now_s)
        if self._may_begin and now_s >= self._due_s:
            return self._begin(now_s)
        return ()

    # -- epochs --------------------------------------------------------------------------------------------------------

    def _fence_changed(self, event: FenceChanged) -> Iterable[Effect]:
        if event.fence == self._fence:
            return ()
        # Whatever was being written depended on the old fence: it has happened by now, or never will.
        self._adopt = not self._fence or event.epoch == self.epoch
        self._fence, self.epoch = event.fence, event.epoch
        self.phase, self._reading, self._retry_s = Phase.LOADING, False, event.now_s
        self._wanted = self._sent = None
        self._falls_back, self._whole_tries = False, 0
        self.fallback.entered()
        self._members.enter(event.epoch)
        return ()

    def _read(self, event: NodesRead) -> Iterable[Effect]:
        if event.read != _READ or self.phase is not Phase.LOADING or not self._reading:
            return ()
        self._reading = False
        value = event.values[Kind.STATEFULCHECKPOINTS]
        found = record_of(value, self.record)
        lost_or_damaged = found is self.record and found.last_id > 0
        effects: list[Effect] = []
        current, self._current = self._current, None
        if current is not None and found.newest == current.id:
            self._count_commit(current, event.now_s)  # its answer was lost, or overtaken by the raise
        elif current is not None:
            self._count_failure(current.id, Failure.LOSS, "a restore has begun", event.now_s, current.began_s)
        elif self._adopt and found.in_progress:
            reason = "its successor cannot know who has reported"
            self._count_failure(found.in_progress, Failure.LEADER, reason, event.now_s)
        self.record, self._last_id, self.is_read = found, max(self._last_id, found.last_id), True
        if self._adopt and not (self._poison.loaded and self._poison.found):
            self._poison.load(found.poisoned)
        elif found.poisoned != self._poison.found:
            self._wanted = replace(found, poisoned=self._poison.found)
        self._due_s = event.now_s + self._settings.interval_s
        if lost_or_damaged and self._wanted is None:
            self._wanted = found
        if found.committed:
            effects.append(self._discard(found, found.newest))
        if self._adopt:
            self.phase = Phase.ADOPTING
            return [*effects, *self._adopted(event.now_s)]
        self.phase, self.restoring = Phase.RESTORING, found.newest
        if self.epoch > _FIRST_EPOCH:
            self.counts.restore(self.epoch, self.restoring, self._loss, event.now_s)
        log.info("restore epoch %d: checkpoint %d is restored", self.epoch, self.restoring)
        if lost := [*self._checked(event.now_s)]:
            return [*effects, *lost]
        return [*effects, *self._orders_to_all()]

    def _adopted(self, now_s: float) -> Iterable[Effect]:
        """Go on in the epoch of the Topology Master before, if everybody does."""
        if not self._members.tasks:
            return ()
        if strangers := self._members.strangers():
            return self._lost(f"not in restore epoch {self.epoch}: {', '.join(strangers[:10])}", now_s)
        if lost := [*self._checked(now_s)]:
            return lost
        if not self._members.awaited():
            self.phase = Phase.RUNNING
            self.counts.run(now_s)
            log.info("everybody runs in restore epoch %d", self.epoch)
            return [*self._to_all(AbortCheckpoint, self._last_id, self.epoch), *self._orders_to_all()]
        return ()

    def _reported(self, event: StmgrReported) -> Iterable[Effect]:
        self._members.reported(event)
        if max((event.epoch, *(status.epoch for status in event.tasks.values()))) > self.epoch:
            return [CheckLeadership()] if self._fence else ()  # somebody else has raised it
        effects = [*self._checked(event.now_s)]
        if self.phase not in (Phase.ADOPTING, Phase.RESTORING, Phase.RUNNING):
            return effects
        if self.phase is Phase.ADOPTING:
            effects += self._adopted(event.now_s)
        restored = self.phase is Phase.RESTORING and not self._falls_back
        if restored and not [*self._members.behind(TaskPhase.RESTORED)]:
            self.fallback.entered()
            log.info("restore epoch %d: all have restored checkpoint %d, and resume", self.epoch, self.restoring)
            self.phase, self._due_s = Phase.RUNNING, event.now_s + self._settings.interval_s
            self.being_read.clear()
            self.counts.run(event.now_s)
            return self._orders_to_all()
        if (current := self._current) is not None:
            for task in self._members.tasks_of(event.stmgr_id):
                if not self._members.is_member(task, current.members[task]):
                    effects += self._abort(Failure.TASK, f"task {task} was restarted", event.now_s)
                    break
        return [*effects, *self._orders(event.stmgr_id)]

    def _disconnected(self, event: StmgrDisconnected) -> Iterable[Effect]:
        self._members.disconnected(event.stmgr_id)
        if not set(self._members.tasks_of(event.stmgr_id)).intersection(self.missing):
            return ()
        # A snapshot is reported once, and the report may be lost with the session: better another checkpoint soon.
        return self._abort(Failure.SESSION, event.stmgr_id, event.now_s)

    def _orders(self, stmgr_id: str) -> Iterable[Effect]:
        """What the tasks behind a Stream Manager have not done yet; repeated with each report until they have."""
        members, effects = self._members, list[Effect]()
        if stmgr_id not in members.connected or self.phase not in (Phase.RESTORING, Phase.RUNNING):
            return effects
        if self.phase is Phase.RESTORING and [*members.behind(TaskPhase.RESTORED, stmgr_id)]:
            effects.append(self._restore_order(stmgr_id))
        if self.phase is Phase.RUNNING:
            if [*members.behind(TaskPhase.RUNNING, stmgr_id)]:
                effects.append(ResumeTasks(stmgr_id, self.epoch, members.incarnations(stmgr_id)))
            if self.record.newest and members.unaware(stmgr_id, self.record.newest):
                effects.append(AnnounceCommit(stmgr_id, self.record.newest))
            if self._yet_to_read(stmgr_id, self.record.newest):
                effects.append(self.read_ahead_order(stmgr_id))
        return effects

    def read_ahead_order(self, stmgr_id: str) -> ReadAhead:
        """For the tasks behind a Stream Manager, also if it is not in the plan yet."""
        self.being_read.add(self.record.newest)
        return ReadAhead(stmgr_id, self.epoch, self.record.newest, self.shares.get(stmgr_id, {}))

    def _yet_to_read(self, stmgr_id: str, checkpoint: int) -> bool:
        """Whether tasks of the plan behind a Stream Manager have not read a checkpoint ahead, or a newer one."""
        members, shares = self._members, self.shares.get(stmgr_id, {})
        tasks = shares.keys() & members.tasks_of(stmgr_id)
        return any(members.read_ahead(task, shares[task]) < checkpoint for task in tasks)

    def _restore_order(self, stmgr_id: str) -> RestoreTasks:
        tasks = frozenset(self._members.tasks_of(stmgr_id))
        return RestoreTasks(stmgr_id, self.epoch, self.restoring, tasks, self._poison.set_aside)

    def _orders_to_all(self) -> list[Effect]:
        return [effect for id in self._members.connected for effect in self._orders(id)]

    def _checked(self, now_s: float) -> Iterable[Effect]:
        problem = self._members.problem
        return self._lost(problem, now_s) if problem else ()

    def _lost(self, reason: str, now_s: float) -> Iterable[Effect]:
        """Something that was sent in this epoch may be lost or repeated: begin a newer one."""
        if self.phase not in (Phase.ADOPTING, Phase.RESTORING, Phase.RUNNING):
            return ()
        log.warning("restore epoch %d ends: %s", self.epoch, reason)
        effects = self._abort(Failure.LOSS, reason, now_s)
        self.phase, self._loss = Phase.RAISING, reason
        return [*effects, RaiseRestoreEpoch(self.epoch, reason)]

    def _rollback_requested(self, event: RollbackRequested) -> Iterable[Effect]:
        if not event.tuple and not self._pace.allows(event.now_s):
            return ()
        if event.epoch == self.epoch:
            if not self.suspended:  # else the code is to blame, and the old one executes the tuple
                self._poison.rolled_back(event)
            self._members.reject(f"task {event.task}: {event.reason}")
        lost = [*self._checked(event.now_s)]
        if lost and event.lasting:
            self.counts.meet_again(self._loss)
        if lost and not event.tuple and not self.suspended:
            self._pace.rolled_back(event.now_s)
        return lost

    def _looked(self, event: IntactFound | IntactUnknown) -> Iterable[Effect]:
        running = self.phase is Phase.RUNNING
        if event.epoch != self.epoch or not (running or self.phase is Phase.RESTORING) or self._falls_back:
            return ()
        if isinstance(event, IntactUnknown):
            self.fallback.unknown(event)
            return ()
        if running and (self._current is not None or self._sent is not None):
            self.fallback.look_again()  # when the checkpoint that is under way meanwhile fails, too
            return ()
        record = self.fallback.found(event, self.record, running=running)
        if record is None:
            return ()
        self._falls_back = True
        return self._save(record)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _begin(self, now_s: float) -> Iterable[Effect]:
        members = self._members
        if [*members.behind(TaskPhase.RUNNING)]:
            self._due_s = now_s + RETRY_S  # somebody is out of reach, or resumes just now
            return ()
        self._last_id += 1
        incarnations = {task: i for id in members.connected for task, i in members.incarnations(id).items()}
        self._current = _Checkpoint(self._last_id, now_s, incarnations, set(members.tasks))
        self._due_s = now_s + self._settings.interval_s
        return self._save(self.record.begun(self._last_id))

    def _snapshotted(self, event: TaskSnapshotted) -> Iterable[Effect]:
        current = self._current
        if current is None or not self._is_current(event) or event.task not in current.missing:
            return ()
        if current.members[event.task] != event.incarnation:
            return ()
        current.missing.discard(event.task)
        current.unaligned |= event.unaligned
        current.whole &= event.whole
        current.aligned_s = max(current.aligned_s, event.aligned_s)
        current.objects += event.objects
        component = self._members.component_of.get(event.task, "")
        if event.undivided and component:
            undivided = Undivided(self._members.components[component], event.undivided)
            current.undivided[component] = undivided
            if self.decided.get(component, undivided.tasks) != undivided.tasks:
                return self._abort(Failure.UNDIVIDED, f"component {component!r} has {event.undivided}", event.now_s)
        if self.divisible and current.unaligned:
            why = f"task {event.task} has not executed all in time: it is slow, or they go round in a cycle"
            return self._abort(Failure.IN_FLIGHT, why, event.now_s)
        if current.missing:
            return ()
        if self._whole_tries and not current.whole:
            return self._abort(Failure.STORAGE, "not all tasks have written their whole state", event.now_s)
        objects, previous = tuple(current.objects), INITIAL if self._whole_tries else self.record.newest
        tasks, duration_s = self._members.components, event.now_s - current.began_s
        return [WriteManifest(current.id, self.epoch, previous, objects, tasks, duration_s)]

    def _snapshot_failed(self, event: TaskSnapshotFailed) -> Iterable[Effect]:
        if not self._is_current(event) or event.task not in self.missing:
            return ()
        aborted = [*self._abort(Failure.TASK, f"task {event.task}: {event.reason}", event.now_s)]
        if event.lasting:
            self.counts.meet_again(self.counts.last_failure)
        return aborted

    def _manifest_written(self, event: ManifestWritten) -> Iterable[Effect]:
        current = self._current
        if current is None or not self._is_current(event) or self.phase is not Phase.RUNNING or self._committing:
            return ()
        if self.divisible and current.unaligned:
            return self._abort(Failure.IN_FLIGHT, "a task has a log", event.now_s)
        assert not current.missing, "a manifest names the objects of all tasks"
        current.size = event.size
        record = self.record.with_commit(
            current.id, self._settings.retained, unaligned=current.unaligned, undivided=current.undivided
        )
        return self._save(record)

    def _manifest_failed(self, event: ManifestFailed) -> Iterable[Effect]:
        if not self._is_current(event):
            return ()
        if event.damage and self.record.newest:
            self._want_whole(event.reason)
        aborted = [*self._abort(Failure.STORAGE, event.reason, event.now_s)]
        if 0 < self._whole_tries <= _WHOLE_TRIES:
            return aborted
        if event.lasting:
            self.counts.meet_again(self.counts.last_failure)
        return [*aborted, *self.fallback.not_followed(event, self.record, self._logged_for)]

    def _is_current(self, event: TaskSnapshotted | TaskSnapshotFailed | ManifestWritten | ManifestFailed) -> bool:
        return (event.checkpoint, event.epoch) == (self.in_progress, self.epoch)

    def _abort(self, failure: Failure, reason: str, now_s: float) -> Iterable[Effect]:
        """Give up the checkpoint under way. Not while its commit is being written: that may have happened."""
        current = self._current
        if current is None or self._committing:
            return ()
        self._current = self._wanted = None
        self._count_failure(current.id, failure, reason, now_s, current.began_s)
        return self._to_all(AbortCheckpoint, current.id, self.epoch, self._whole_tries > 0)

    def _newest_lost(self, event: CheckpointLost) -> Iterable[Effect]:
        if event.checkpoint != self.record.newest or self.phase is not Phase.RUNNING or self._committing:
            return ()
        if self._whole_tries:
            return ()
        self._want_whole(event.reason)
        self._due_s = min(self._due_s, event.now_s + RETRY_S)
        if self._current is not None:
            return self._abort(Failure.STORAGE, event.reason, event.now_s)
        return self._to_all(AbortCheckpoint, self._last_id, self.epoch, True)

    def _want_whole(self, reason: str) -> None:
        self._whole_tries += 1
        self.fallback.lost(self.record.newest, reason)

    def _committed(self, record: Record, now_s: float) -> Iterable[Effect]:
        current, self._current = self._current, None
        assert current is not None, "only what is under way is committed"
        self._count_commit(current, now_s)
        return [
            *(AnnounceCommit(id, record.newest) for id in self._members.connected),
            self._discard(record, record.newest),
        ]

    def _discard(self, record: Record, before: int) -> DiscardCheckpoints:
        """Have deleted what is older and neither kept nor being read."""
        return DiscardCheckpoints(tuple(sorted({*record.committed, *self.being_read})), before)

    def _count_commit(self, checkpoint: _Checkpoint, now_s: float) -> None:
        took_s = now_s - checkpoint.began_s
        self._newest_began_s = checkpoint.began_s
        self.counts.commit(checkpoint.id, took_s, checkpoint.aligned_s, checkpoint.size, now_s)
        self._poison.committed()
        self._pace.committed()
        self.fallback.committed()
        if self._whole_tries:
            self._whole_tries = 0
            self.fallback.made_anew(checkpoint.id, now_s)
        log.info("checkpoint %d is committed after %.1f s", checkpoint.id, took_s)

    def _count_failure(
        self, checkpoint: int, failure: Failure, reason: str, now_s: float, began_s: float | None = None
    ) -> None:
        self.counts.fail(checkpoint, failure, reason, 0.0 if began_s is None else now_s - began_s, now_s)
        log.warning("%s", self.counts.last_failure)

    def _to_all(self, effect: type[BeginCheckpoint | AbortCheckpoint], *args: Any) -> list[Effect]:
        return [effect(id, *args) for id in self._members.connected]

    # -- the state manager ---------------------------------------------------------------------------------------------

    @property
    def _committing(self) -> bool:
        """Whether the checkpoint under way is being committed: from here on only the state manager knows its end."""
        return self._wanted is not None and self.in_progress == self._wanted.newest != INITIAL

    def _save(self, record: Record) -> Iterable[Effect]:
        self._wanted = record
        return self._send(record) if self._sent is None else ()

    def _send(self, record: Record) -> Iterable[Effect]:
        value = record.to_proto().SerializeToString()
        write = WriteNode(Kind.STATEFULCHECKPOINTS, value, self._fence, Kind.EPOCHS)
        self._sent = write, record
        return [write]

    def _written(self, event: NodeWritten) -> Iterable[Effect]:
        if self._sent is None or event.write != self._sent[0]:
            return ()
        record, self._sent = self._sent[1], None
        if not event.done:
            self._retry_s = event.now_s + RETRY_S
            return [CheckLeadership()]
        self.record = record
        if record != self._wanted:
            return ()  # what is wanted by now is written next
        committing, self._wanted = self._committing, None
        if self._falls_back:
            return self._lost(self.fallback.used, event.now_s)
        if committing:
            return self._committed(record, event.now_s)
        if (current := self._current) is not None and not current.begun:
            current.begun = True
            effects: list[Effect] = self._to_all(BeginCheckpoint, current.id, self.epoch)
            if current.id > record.newest + 1:
                # What was aborted since the last commit never is committed: this record says so, durably.
                effects.append(self._discard(record, current.id))
            return effects
        return ()

    def _store_failed(self, event: StoreFailed) -> Iterable[Effect]:
        if event.effect == _READ and self._reading:
            log.warning("the checkpoints cannot be read back yet: %s", event.reason)
            self._reading, self._retry_s = False, event.now_s + RETRY_S
            return ()
        if self._sent is None or event.effect != self._sent[0]:
            return ()
        self._sent, self._retry_s = None, event.now_s + RETRY_S
        if self._current is not None and not self._current.begun:
            return self._abort(Failure.STORE, event.reason, event.now_s)
        log.warning("the record of checkpoints cannot be written yet: %s", event.reason)
        return ()

    def _vanished(self) -> Iterable[Effect]:
        """The state manager has lost the record: write it again."""
        if self._wanted is not None or self.phase in (Phase.STANDBY, Phase.LOADING) or not self.record.last_id:
            return ()
        log.warning("the record of checkpoints has vanished from the state manager: it is written again")
        return self._save(self.record)

    def check_invariants(self) -> None:
        self._members.check_invariants()
        assert self._last_id >= self.record.last_id >= self.record.newest
        assert list(self.record.committed) == sorted(set(self.record.committed)), "commits are out of order"
        assert self._wanted is None or self._wanted.last_id >= self.record.last_id
        if (current := self._current) is not None:
            assert self.phase in (Phase.RUNNING, Phase.RAISING, Phase.LOADING)
            assert len(current.objects) == 0 or current.begun, "a snapshot of a checkpoint that is not durable"
            assert self.phase is Phase.RUNNING or self._committing or self.phase is Phase.LOADING
