"""The Topology Master without sockets, clocks, threads and files: events in, effects out.

    standby --owns the node, has the next term--> leader --has read the state back--> active --another term--> ended

`Leadership` says whether it may act, `_state` which plan is in force, `PlanPublisher` when that is saved and sent,
`DurableNodes` what the state manager has lost, and `Checkpointing` when checkpoints are taken and restored, if they are
(effectively once). This is where they meet: it routes the answers of the state manager, and
makes every write depend on the term. Once the leadership is lost there is one effect, `Finish`, and then none.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import Struct, structs

from heronpy.config import CheckpointsConfig
from heronpy.errors import HeronError, NotFoundError, ReadFailedError, StateError, TopologyError
from heronpy.plan import TopologyState
from heronpy.statemgr import Kind, records
from heronpy.tmaster import _durable
from heronpy.tmaster._checkpoint_calls import CheckpointAsked, CheckpointCalls, RequestWithdrawn, hopeless, problem_of
from heronpy.tmaster._checkpointing import KIND as CHECKPOINTS
from heronpy.tmaster._checkpointing import Checkpointing, KeepCopy
from heronpy.tmaster._core_events import Activated, Effect, Event, Finish, Reply, RestoreRequested, StateRequested
from heronpy.tmaster._core_known import KnownTopology
from heronpy.tmaster._durable import DurableNodes
from heronpy.tmaster._leadership import Role
from heronpy.tmaster._preparation import KIND as NEXT
from heronpy.tmaster._preparation import Preparation
from heronpy.tmaster._publisher import SAVE_WAIT_S, PlanPublisher
from heronpy.tmaster._state import (
    HeartbeatReceived,
    RestoreEpochRaised,
    SpoutsHeld,
    StateChanged,
    StmgrRegistered,
    TimePassed,
    check_fits,
    start,
)
from heronpy.tmaster._store_effects import (
    NodeChanged,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    StoreFailed,
    WriteNode,
)
from heronpy.tmaster._trial import Trials, refusal
from heronpy.tmaster._update import PlanUpdate, Stage, UpdateRequested
from heronpy.tmaster.checkpoints import (
    CheckpointDamaged,
    CheckpointLost,
    CheckpointSettings,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
    RollbackRequested,
    StmgrReported,
    TaskSnapshotFailed,
    TaskSnapshotted,
)

log = logging.getLogger(__name__)

RETRY_S = 1.0
ROLLBACK_S = 60.0
"""How long the write of a rollback is tried before it is begun again."""
NO_CALLER = 0
"""The number of a request that no caller waits for."""
_READ_ALL = ReadNodes((*_durable.KINDS, Kind.PPLANS, NEXT))


class _Change(Struct):
    """A request for another state that is under way."""

    request: StateRequested
    write: WriteNode
    durable: bool = False
    version: int = 0
    """Once it is durable: of the plan that has the new state; 0: there is no plan yet."""
    deadline_s: float = 0.0


class Core(KnownTopology):
    """The decisions of one Topology Master."""

    def __init__(
        self,
        *,
        topology: str,
        topology_id: str,
        location: bytes,
        stmgr_timeout_s: float,
        retained: int = CheckpointsConfig().retained,
        copy: Mapping[Kind, bytes | ReadFailedError] | None = None,
    ) -> None:
        """Begin as a standby.

        Args:
            topology: The topology's name, for messages.
            topology_id: What distinguishes this submission from others of the same name.
            location: This Topology Master's serialized TmasterLocation; unique.
            stmgr_timeout_s: A Stream Manager that is silent for longer is lost.
            retained: So many committed checkpoints are kept.
            copy: The values of earlier `KeepCopy` effects; the error in place of one that cannot be read now.
        """
        super().__init__(topology, topology_id, location, copy or {})
        self._stmgr_timeout_s, self._retained = stmgr_timeout_s, retained
        self._loading = False
        self._load_s = 0.0
        self.stop_reason = ""
        """Why a Stream Manager has had the topology paused; empty: none has."""
        self._requests: deque[StateRequested] = deque()
        self._change: _Change | None = None
        self._update: PlanUpdate | None = None
        self._preparation = Preparation(b"")
        self._trials = Trials()
        self.code_failure = ""
        """Why this Topology Master has rolled back new code the last time."""
        self._checkpoint_calls = CheckpointCalls()
        self._finished = False

    @property
    def active(self) -> bool:
        return self._state is not None and not self._finished

    @property
    def due_s(self) -> float | None:
        """When something is to be done next, apart from lost Stream Managers: feed `TimePassed` then."""
        due = [self.leadership.due_s, self._publisher.due_s, self._nodes.due_s]
        if self._state is None and self.leadership.role is Role.LEADER and not self._loading:
            due.append(self._load_s)
        if self.checkpoints is not None:
            due.append(self.checkpoints.due_s)
        if self._change is not None and self._change.durable:
            due.append(self._change.deadline_s)
        if self._update is not None:
            due.append(self._update.due_s)
        due += [self._preparation.due_s, self._trials.due_s]
        due.append(self._checkpoint_calls.due_s)
        return min((at for at in due if at is not None), default=None)

    def step(self, event: Event) -> list[Effect]:
        """Take an event; what is to be done."""
        if self._finished:
            return []
        try:
            effects = [*self._take(event), *self._advance(event.now_s)]
        except HeronError as error:
            return self._finish(error)
        if self.leadership.role is Role.DEPOSED:
            return self._finish(StateError(f"{self._topology!r}: {self.leadership.deposed_because}: this one ends"))
        return effects

    def check_invariants(self) -> None:
        if self._state is not None:
            self._state.check_invariants()
            assert self.leadership.role in (Role.LEADER, Role.DEPOSED), "active without being the leader"
            assert self._publisher.published_version <= self._state.version
        if self.checkpoints is not None:
            self.checkpoints.check_invariants()

    def _finish(self, error: HeronError) -> list[Effect]:
        self._finished = True
        return [Finish(error)]

    def _take(self, event: Event) -> Iterable[Effect]:
        match event:
            case NodeClaimed() | NodesRead() | NodeWritten() | StoreFailed():
                return [*self.leadership.on(event), *self._answered(event)]
            case NodeChanged():
                return [*self.leadership.on(event), *self._changed(event)]
            case StateRequested():
                self._requests.append(event)
                return []
            case UpdateRequested():
                return self._begin_update(event)
            case CheckpointAsked():
                return self._ask_checkpoint(event)
            case RequestWithdrawn():
                divisible = self._checkpoint_calls.divisible
                self._checkpoint_calls.withdraw(event.call)
                if self._update is not None and self._update.request.call == event.call:
                    self._update.withdrawn = True
                return self._release_spouts(divisible, event.now_s)
            case RestoreRequested():
                self.leadership.raise_restore_epoch(self.leadership.restore_epoch + 1)
                return []
            case StmgrRegistered():
                self._raise_to(event.restore_epoch)
                return self._topology_event(event)
            case HeartbeatReceived():
                self._stop_if_asked(event)
                return self._topology_event(event)
            case TimePassed():
                return self._topology_event(event) if self._state is not None else []
            case (
                StmgrReported()
                | TaskSnapshotted()
                | TaskSnapshotFailed()
                | RollbackRequested()
                | CheckpointDamaged()
                | CheckpointLost()
                | IntactFound()
                | IntactUnknown()
                | ManifestWritten()
                | ManifestFailed()
            ):
                if isinstance(event, RollbackRequested):
                    self._trials.failed(event)
                return self.checkpoints.on(event) if self.checkpoints is not None else []
            case _:
                return self._topology_event(event)

    def _advance(self, now_s: float) -> list[Effect]:
        effects: list[Effect] = [*self.leadership.advance(now_s)]
        if self.leadership.role is not Role.LEADER:
            return effects
        if self._state is None:
            if not self._loading and now_s >= self._load_s:
                self._loading = True
                effects.append(_READ_ALL)
            return effects
        if self.leadership.restore_epoch > self._state.restore_epoch:
            effects += self._topology_event(RestoreEpochRaised(self.leadership.restore_epoch, now_s))
        if self._state.lacks_epoch:
            self.leadership.raise_restore_epoch(self._state.packing_epoch)
            effects += self.leadership.advance(now_s)
        effects += self._published(self._publisher.advance(now_s))
        effects += self._nodes.advance(now_s)
        effects += self._change_state(now_s)
        effects += self._end_trial(now_s)
        effects += self._update_plan(now_s)
        effects += self._prepare(now_s)
        effects += self._answer_checkpoint_calls(now_s)
        if self.checkpoints is not None:
            published = self._publisher.published_version == self._state.version
            updating = (self._update is not None and self._update.divides_state) or self._checkpoint_calls.divisible
            begun = self.checkpoints.coordinator.newest_begun
            yields = self._update is not None and self._update.yields(self._state.present, begun=begun)
            effects += self.checkpoints.advance(
                self._state, now_s, published=published, updating=updating, yields=yields
            )
        return effects

    # -- changes that are asked for ----------------------------------------------------------------------------------

    def _change_state(self, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        change = self._change
        if change is not None and change.durable:
            if self._publisher.published_version < change.version and now_s < change.deadline_s:
                return effects
            effects.append(Reply(change.request.call, ""))
            change = self._change = None
        if change is None and self._requests:
            request = self._requests.popleft()
            topology = records.definition(self._topology, self._nodes.values[Kind.TOPOLOGIES])
            topology.state = request.runtime.name  # type: ignore[assignment]  # the setter takes names
            value = topology.SerializeToString()
            write = WriteNode(Kind.TOPOLOGIES, value, self.leadership.fence, Kind.EPOCHS)
            self._change = _Change(request, write)
            effects.append(write)
        return effects

    def _begin_update(self, request: UpdateRequested) -> list[Effect]:
        state = self.state
        if self._update is not None:
            return [Reply(request.call, "another update is under way")]
        if self._checkpoint_calls.divisible:
            return [Reply(request.call, "a checkpoint that was asked for is under way: ask again")]
        if request.base != state.packing:
            return [Reply(request.call, "the packing plan has changed meanwhile: ask again")]
        if request.packing == state.packing:
            return [Reply(request.call, "")]
        if why := refusal(request, checkpoints=self.checkpoints is not None):
            return [Reply(request.call, why)]
        try:
            check_fits(state.logical.with_parallelism(request.packing.parallelism), request.packing)
        except TopologyError as e:
            return [Reply(request.call, str(e))]
        request = structs.replace(request, packing=replace(request.packing, revision=state.packing.revision + 1))
        self._update = PlanUpdate.begin(request, checkpoints=self.checkpoints is not None)
        if self.checkpoints is not None:
            self._update.lasting = self.checkpoints.coordinator.counts.lasting
        if request.packing.trial is not None:
            self.code_failure = ""
        return []

    def _end_trial(self, now_s: float) -> list[Effect]:
        """Have the old code come back if the new one was not accepted in time, or has failed."""
        in_force = self.state.plan is not None and self.state.plan.packing == self.state.packing
        self._trials.follow(self.state.packing if in_force else None, self.state.restore_epoch, now_s)
        if self._update is not None or not (why := self._trials.failure(now_s)):
            return []
        packing, self.code_failure = self.state.packing, why
        log.error("code %s is rolled back: %s", ", ".join(sorted(packing.versions)), why)
        return self._begin_update(UpdateRequested(NO_CALLER, packing, packing.rolled_back(), ROLLBACK_S, now_s))

    def _update_plan(self, now_s: float) -> list[Effect]:
        update = self._update
        if update is None:
            return []
        effects: list[Effect] = []
        if self.state.packing == update.request.packing and update.undecided:
            update.durable(now_s)
            effects.append(Reply(update.request.call, ""))
        if update.may_end and (why := self._given_up(update, now_s)):
            return [*effects, *self._end_unchanged(update, why, now_s)]
        in_force = self.state.plan is not None and self.state.plan.packing == update.request.packing
        if update.stage is Stage.STARTING and (in_force or now_s >= update.deadline_s):
            return [*effects, *self._end_update(now_s)]
        if self.checkpoints is not None:
            coordinator = self.checkpoints.coordinator
            reads, rests = self.checkpoints.read_for(update, self.state, now_s)
            effects += reads
            if rests:
                update.settle(coordinator.newest_begun if coordinator.is_read else None)
                effects += self._topology_event(SpoutsHeld(held=True, now_s=now_s))
        if update.stage is Stage.SETTLING and self.checkpoints is not None:
            coordinator = self.checkpoints.coordinator
            if update.checkpoint is None and coordinator.is_read:
                update.settle(coordinator.newest_begun)
            update.problem = problem_of(coordinator)
            restores = coordinator.restorable_with(update.request.packing.parallelism)
            update.committed(coordinator.record.newest, restored=restores)
            resting = self._publisher.published_version == self.state.version
            if resting and update.wants_checkpoint(now_s) and not coordinator.in_progress:
                effects += self.checkpoints.request(now_s)
        if update.stage is Stage.WRITING and update.write is None and (why := self._undivided(update)):
            return [*effects, *self._end_unchanged(update, why, now_s)]
        return [*effects, *update.next_write(self.leadership.fence, now_s)]

    def _given_up(self, update: PlanUpdate, now_s: float) -> str:
        """Why nothing comes of an update; empty: something may."""
        if update.withdrawn:
            return "its caller has gone"
        if now_s >= update.deadline_s:
            return update.problem or f"it was not written within {update.request.timeout_s:g} s"
        if self.checkpoints is None or update.stage is Stage.WRITING:
            return ""
        coordinator = self.checkpoints.coordinator
        if coordinator.restorable_with(update.request.packing.parallelism):
            return ""  # that is what it begins with: it needs no checkpoint
        return hopeless(coordinator, update.lasting)

    def _end_unchanged(self, update: PlanUpdate, why: str, now_s: float) -> list[Effect]:
        log.warning("the packing plan is not changed: %s", why)
        return [Reply(update.request.call, f"nothing was changed: {why}"), *self._end_update(now_s)]

    def _prepare(self, now_s: float) -> list[WriteNode]:
        if self._update is not None:
            wanted = self._update.to_prepare
        else:
            wanted = self.state.packing if self._preparation.names(self.state.packing) else None
        return self._preparation.advance(wanted, self.leadership.fence, now_s)

    def _undivided(self, update: PlanUpdate) -> str:
        """Why what is committed cannot be restored after an update; empty: it can, as far as is known."""
        if self.checkpoints is None:
            return ""
        wanted = update.request.packing.parallelism
        for component, has in sorted(self.checkpoints.coordinator.record.undivided.items()):
            if wanted.get(component, has.tasks) != has.tasks:
                return (
                    f"component {component!r} cannot have another number of tasks than {has.tasks}: it has {has.state}"
                )
        return ""

    def _end_update(self, now_s: float) -> list[Effect]:
        update, self._update = self._update, None
        if self.checkpoints is not None:
            self.checkpoints.coordinator.shares = {}
            if update is not None and update.undecided:
                self.checkpoints.coordinator.being_read.clear()
        return self._topology_event(SpoutsHeld(held=False, now_s=now_s))

    def _ask_checkpoint(self, asked: CheckpointAsked) -> list[Effect]:
        if self.checkpoints is None:
            return [Reply(asked.call, "the topology takes no checkpoints")]
        if self.state.packing.trial is not None:
            return [Reply(asked.call, "new code is on trial, and no checkpoint is taken meanwhile: ask again")]
        if asked.divisible and self._update is not None:
            return [Reply(asked.call, "an update is under way: ask again")]
        self._checkpoint_calls.add(asked, self.checkpoints.coordinator)
        return self._topology_event(SpoutsHeld(held=True, now_s=asked.now_s)) if asked.divisible else []

    def _answer_checkpoint_calls(self, now_s: float) -> list[Effect]:
        calls = self._checkpoint_calls
        if self.checkpoints is None or not calls:
            return []
        effects: list[Effect] = []
        divisible = calls.divisible
        for call, error in calls.answered(self.checkpoints.coordinator, now_s):
            effects.append(Reply(call, error))
        effects += self._release_spouts(divisible, now_s)
        resting = self._publisher.published_version == self.state.version
        if resting and calls.wants_one(now_s) and not self.checkpoints.coordinator.in_progress:
            effects += self.checkpoints.request(now_s)
        return effects

    def _release_spouts(self, divisible: bool, now_s: float) -> list[Effect]:
        """Have the spouts go on if somebody had them rest for a checkpoint, and nobody does any more."""
        if not divisible or self._checkpoint_calls.divisible:
            return []
        return self._topology_event(SpoutsHeld(held=False, now_s=now_s))

    def _stop_if_asked(self, event: HeartbeatReceived) -> None:
        """Pause the topology when a Stream Manager cannot go on, and keep its reason until somebody activates it."""
        if event.stop_reason and self.state.runtime is TopologyState.RUNNING and event.stop_reason != self.stop_reason:
            log.error("the topology is paused: %s", event.stop_reason)
            self.stop_reason = event.stop_reason
            self._requests.append(StateRequested(NO_CALLER, TopologyState.PAUSED, event.now_s))

    # -- the state manager ---------------------------------------------------------------------------------------------

    def _answered(self, event: NodeClaimed | NodesRead | NodeWritten | StoreFailed) -> list[Effect]:
        if self.checkpoints is not None and self.checkpoints.is_answer(event):
            return [*self.checkpoints.answered(event)]
        if self._preparation.take(event):
            return []
        match event:
            case NodesRead(read, values, now_s) if read == _READ_ALL and self._loading:
                self._loading = False
                return self._loaded(values, now_s)
            case StoreFailed(effect, reason, now_s) if effect == _READ_ALL and self._loading:
                log.warning("the state cannot be read back yet: %s", reason)
                self._loading, self._load_s = False, now_s + RETRY_S
            case NodeWritten(write, done, _):
                if not self._nodes.answered(event):
                    return self._written(write, "" if done else "this Topology Master's term has changed", event.now_s)
            case StoreFailed(WriteNode() as write, reason, now_s):
                if not self._nodes.answered(event):
                    return self._written(write, reason, now_s)
            case _:
                pass
        return []

    def _written(self, write: WriteNode, error: str, now_s: float) -> list[Effect]:
        """Take the answer to a write that depended on the term."""
        if error:
            self.leadership.check()
        if self._plan_write is not None and write == self._plan_write[0]:
            plan, self._plan_write = self._plan_write[1], None
            if error:
                self._publisher.failed(error, now_s)
                return []
            self._plan_saved = write.value
            return self._published(self._publisher.saved(plan, now_s))
        if (update := self._update) is not None and write == update.write:
            if error:
                update.failed(error, now_s)
                return []
            update.write = None
            repacked = self._repacked(self._topology_message(), write.value, now_s)
            return self._keep(Kind.PACKINGPLANS, write.value) + self._topology_event(repacked)
        change = self._change
        if change is None or write != change.write or change.durable:
            return []
        if error:
            self._change = None
            if change.request.call == NO_CALLER:
                self.stop_reason = ""  # the next heartbeat asks again
            return [Reply(change.request.call, error)]
        log.info("the topology is %s", change.request.runtime.name)
        if change.request.runtime is TopologyState.RUNNING:
            self.stop_reason = ""
        effects = self._keep(Kind.TOPOLOGIES, write.value)
        effects += self._topology_event(StateChanged(change.request.runtime, now_s))
        change.durable, change.deadline_s = True, now_s + 2 * SAVE_WAIT_S
        change.version = self.state.plan.version if self.state.plan is not None else 0
        return effects

    def _loaded(self, values: Mapping[Kind, bytes | None], now_s: float) -> list[Effect]:
        sound, damaged = _durable.sorted_out(values, self._copy, self._unreadable, self._topology)
        self._nodes = DurableNodes(sound, self._copy, damaged)
        self._preparation = Preparation(values.get(NEXT) or b"")
        topology = self._topology_message()
        raw = self._nodes.values.get(Kind.PACKINGPLANS)
        if raw is None:
            raise NotFoundError(f"the state manager has no packing plan of {self._topology!r}: submit it again")
        saved = self._saved_plan(values.get(Kind.PPLANS))
        if saved is not None and saved.logical.id != topology.id:
            saved = None  # left behind by an earlier topology of the same name
        self._publisher = PlanPublisher(saved)
        logical, packing = records.plans(self._topology, topology, raw)
        check_fits(logical, packing)
        self._state, effects = start(
            logical.with_parallelism(packing.parallelism),
            packing,
            TopologyState(topology.state),
            saved,
            timeout_s=self._stmgr_timeout_s,
            restore_epoch=self.leadership.restore_epoch,
        )
        if (settings := CheckpointSettings.of(self._state.logical.config, self._retained)) is not None:
            copy = self._unreadable.get(CHECKPOINTS, self._copy.get(CHECKPOINTS))
            self.checkpoints = Checkpointing(self._topology_id, settings, self.leadership, copy)
        self._raise_to(self._state.restore_epoch)
        log.info("%s is %s, plan %d", self._topology, self._state.runtime.name, self._state.version)
        copies = [KeepCopy(kind, value) for kind, value in self._nodes.values.items() if self._copy.get(kind) != value]
        follow = (*_durable.KINDS, Kind.PPLANS, NEXT, *([CHECKPOINTS] if self.checkpoints is not None else []))
        return [*copies, Activated(follow), *self._applied(effects, now_s)]

    def _changed(self, event: NodeChanged) -> list[Effect]:
        if self._state is None or self._preparation.take(event):
            return []
        if event.kind is Kind.PPLANS:
            return self._plan_changed(event)
        if event.kind not in _durable.KINDS:
            return [*self.checkpoints.answered(event)] if self.checkpoints is not None else []
        if event.value is None:
            self._nodes.changed(event)
            return []
        why = _durable.damage(event.kind, self._topology, event.value)
        why = why or _durable.outdated(event.kind, self._topology, event.value, self._nodes.values.get(event.kind))
        if why is not None:
            self._nodes.damaged(event.kind, event.value, why)
            return []
        if event.kind is not Kind.PACKINGPLANS:
            self._nodes.changed(event)
            return self._keep(event.kind, event.value)
        defined = self._topology_message()
        try:
            repacked = self._repacked(defined, event.value, event.now_s)
        except (TopologyError, StateError) as e:
            log.error("the new packing plan is not used: %s", e)
            return []
        self._nodes.changed(event)
        return self._keep(event.kind, event.value) + self._topology_event(repacked)
