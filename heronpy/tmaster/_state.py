"""What the Topology Master decides: who is registered, and which physical plan is in force.

Events in, effects out: no clock, no socket, no state manager. The rules:

* Registered is a Stream Manager with an open session. A lost one stays in the plan with its last known address until
  its replacement registers: its peers go on trying to reach it. Last known is the newest incarnation in the plan in
  force and in what registered Stream Managers say of their peers: a plan that was sent but not saved may be newer.
* The first plan is made when every Stream Manager of the packing plan is registered. After that a plan is made
  whenever its content changes, and only then.
* A changed packing plan (scaling) is put into force when all its Stream Managers can be located. Until then the
  packing in force stays, but restarted Stream Managers and state changes still get through.
* A packing is another one if it has other tasks, has them elsewhere, or has them run other code. Whether that code is
  accepted makes none.
* With checkpoints it comes into force together with a restore epoch in which no plan has had the packing before: what
  is routed by one packing never meets state that is divided by another, whichever process dies between the two.
* Versions grow over all incarnations of the Topology Master: after what the state manager holds and after what any
  Stream Manager says it has, because a plan may have been sent that could not be saved. Restore epochs are durable
  before any plan has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec import Struct

from heronpy.config import takes_checkpoints
from heronpy.errors import TopologyError
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan, StmgrLocation, TopologyState


class StmgrRegistered(Struct, frozen=True):
    """A Stream Manager said hello on a new stream, the session."""

    session: int
    location: StmgrLocation
    plan_version: int
    """Of the plan it has; 0: none."""
    now_s: float
    restore_epoch: int = 0
    """Of that plan."""
    peers: tuple[StmgrLocation, ...] = ()
    """The addresses in that plan."""


class HeartbeatReceived(Struct, frozen=True):
    session: int
    attached: frozenset[str]
    """Ids of the instances attached now."""
    now_s: float
    stop_reason: str = ""
    """Why the topology is to be stopped; empty: it is not."""
    waiting: frozenset[str] = frozenset()
    """Ids of instances that wait for a plan that has them."""


class SessionEnded(Struct, frozen=True):
    session: int
    now_s: float


class TimePassed(Struct, frozen=True):
    now_s: float


class PackingChanged(Struct, frozen=True):
    logical: LogicalPlan
    packing: PackingPlan
    now_s: float


class SpoutsHeld(Struct, frozen=True):
    """Spouts are to rest for a while, whatever the topology's state is, or to go on. Nothing of it is durable."""

    held: bool
    now_s: float


class StateChanged(Struct, frozen=True):
    """The topology was activated or deactivated, and the state manager knows it."""

    runtime: TopologyState
    now_s: float


class RestoreEpochRaised(Struct, frozen=True):
    """A restore begins, and the state manager knows its epoch."""

    restore_epoch: int
    now_s: float


Event = (
    StmgrRegistered
    | HeartbeatReceived
    | SessionEnded
    | TimePassed
    | PackingChanged
    | SpoutsHeld
    | StateChanged
    | RestoreEpochRaised
)


class PublishPlan(Struct, frozen=True):
    """Save the plan, then send it to every registered Stream Manager in it."""

    plan: PhysicalPlan


class SendPlan(Struct, frozen=True):
    """Send the plan in force to one Stream Manager."""

    session: int
    plan: PhysicalPlan


class CloseSession(Struct, frozen=True):
    session: int
    stmgr_id: str
    reason: str


Effect = PublishPlan | SendPlan | CloseSession


@dataclass(frozen=True, slots=True)
class Stmgr:
    """A registered Stream Manager."""

    location: StmgrLocation
    session: int
    last_heartbeat_s: float
    attached: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """Everything the Topology Master knows about its topology."""

    timeout_s: float
    """A Stream Manager that is silent for longer is lost."""
    logical: LogicalPlan
    packing: PackingPlan
    """What is wanted; the plan in force may still have the one before."""
    runtime: TopologyState
    plan: PhysicalPlan | None
    version: int
    """The highest plan version that anybody is known to have."""
    stmgrs: Mapping[str, Stmgr] = field(default_factory=dict)
    """The registered ones, by id."""
    known: Mapping[str, StmgrLocation] = field(default_factory=dict)
    """The newest known location of every Stream Manager that is registered or was in a plan, by id."""
    restore_epoch: int = 0
    packing_epoch: int = 0
    """With checkpoints: no plan of this restore epoch, or of a newer one, has another packing than the wanted one."""
    held: bool = False
    """The spouts rest, though the topology may be running."""

    @property
    def lacks_epoch(self) -> bool:
        """Whether a raise of the restore epoch is all that keeps the wanted packing from being in force."""
        begun = self.plan is not None or self.restore_epoch > 0
        return begun and self._located and self.restore_epoch < self.packing_epoch

    @property
    def _located(self) -> bool:
        return all(c.stmgr_id in self.known for c in self.packing.containers)

    @property
    def missing(self) -> list[str]:
        """Stream Managers of the packing plan that are not registered."""
        return [c.stmgr_id for c in self.packing.containers if c.stmgr_id not in self.stmgrs]

    @property
    def ready(self) -> bool:
        """Every Stream Manager is registered, every instance attached, and the wanted packing is in force."""
        if self.plan is None or self.plan.packing != self.packing or self.missing:
            return False
        return all(
            self.stmgrs[c.stmgr_id].attached.issuperset(i.instance_id(c.id) for i in c.instances)
            for c in self.packing.containers
        )

    @property
    def present(self) -> frozenset[str]:
        """Ids of the instances that are attached, or wait for a plan that has them."""
        return frozenset[str]().union(*(stmgr.attached | stmgr.waiting for stmgr in self.stmgrs.values()))

    def receivers(self, plan: PhysicalPlan) -> list[int]:
        """Sessions of the registered Stream Managers in a plan."""
        return [self.stmgrs[s.id].session for s in plan.stmgrs if s.id in self.stmgrs]

    def check_invariants(self) -> None:
        sessions = [s.session for s in self.stmgrs.values()]
        assert len(set(sessions)) == len(sessions), "two Stream Managers share a session"
        assert all(id == s.location.id for id, s in self.stmgrs.items())
        if self.plan is None:
            assert self.missing or self.lacks_epoch, "all Stream Managers are registered, but there is no plan"
            return
        assert self.plan.version == self.version, "somebody has a newer plan than the one in force"
        assert self.plan.state == (TopologyState.PAUSED if self.held else self.runtime)
        assert self.plan.restore_epoch == self.restore_epoch
        assert [s.id for s in self.plan.stmgrs] == [c.stmgr_id for c in self.plan.packing.containers]
        for location in self.plan.stmgrs:
            assert self.known[location.id] == location, f"the plan has an old address of {location.id}"
        for id, stmgr in self.stmgrs.items():
            assert self.known[id] == stmgr.location
        if not self.missing and not self.lacks_epoch:
            assert self.plan.packing == self.packing, "the wanted packing could be in force"


def start(
    logical: LogicalPlan,
    packing: PackingPlan,
    runtime: TopologyState,
    saved: PhysicalPlan | None,
    *,
    timeout_s: float,
    restore_epoch: int = 0,
) -> tuple[State, list[Effect]]:
    """The state from what the state manager holds. `saved` stays in force unless its content is out of date.

    Raises:
        TopologyError: the packing plan is not of this topology.
    """
    check_fits(logical, packing)
    state = State(timeout_s, logical, packing, runtime, saved, saved.version if saved else 0)
    if saved is not None:
        restore_epoch = max(restore_epoch, saved.restore_epoch)
        state = replace(state, known={location.id: location for location in saved.stmgrs})
    state = replace(state, restore_epoch=restore_epoch)
    if saved is None or not saved.packing.runs_like(packing):
        # The predecessor may have sent a plan of this very epoch, with the packing before, that it could not save.
        state = _for_next_epoch(state)
    return _planned(state)


def check_fits(logical: LogicalPlan, packing: PackingPlan) -> None:
    """Refuse a packing plan that is not of this topology.

    Raises:
        TopologyError: it is empty, or packs a component that the topology does not have.
    """
    if not packing.containers:
        raise TopologyError(f"the packing plan of {logical.name!r} is empty: there is nothing to run")
    packed = {i.component for c in packing.containers for i in c.instances}
    if unknown := packed - set(logical.components):
        raise TopologyError(
            f"the packing plan of {logical.name!r} has component {min(unknown)!r}, the topology does not"
        )


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    """The state after an event, and what is to be done."""
    match event:
        case StmgrRegistered():
            return _registered(state, event)
        case HeartbeatReceived():
            return _heartbeat_received(state, event), []
        case SessionEnded():
            return _without(state, {id for id, s in state.stmgrs.items() if s.session == event.session}), []
        case TimePassed():
            return _time_passed(state, event)
        case PackingChanged():
            if not event.packing.runs_like(state.packing):
                state = _for_next_epoch(state)
            return _planned(replace(state, logical=event.logical, packing=event.packing))
        case SpoutsHeld():
            return _planned(replace(state, held=event.held))
        case StateChanged():
            return _planned(replace(state, runtime=event.runtime))
        case RestoreEpochRaised():
            return _planned(replace(state, restore_epoch=max(state.restore_epoch, event.restore_epoch)))


def _registered(state: State, event: StmgrRegistered) -> tuple[State, list[Effect]]:
    id = event.location.id
    effects: list[Effect] = []
    before, known = state.stmgrs.get(id), state.known.get(id)
    if known is not None and event.location.container_incarnation < known.container_incarnation:
        # A container that was given up and replaced, and is back: its replacement has the tasks, registered or not.
        return state, [CloseSession(event.session, id, "its container has a newer incarnation")]
    if before is not None:
        if event.location.order < before.location.order:
            return state, [CloseSession(event.session, id, "a newer one is registered")]
        effects.append(CloseSession(before.session, id, "it registered again"))
    stmgr = Stmgr(event.location, event.session, event.now_s)
    state = replace(
        state,
        stmgrs={**state.stmgrs, id: stmgr},
        known={**_with_peers(state, event.peers), id: event.location},
        version=max(state.version, event.plan_version),
    )
    state, published = _planned(state)
    effects += published
    if not published and state.plan is not None and event.session in state.receivers(state.plan):
        effects.append(SendPlan(event.session, state.plan))
    return state, effects


def _with_peers(state: State, peers: tuple[StmgrLocation, ...]) -> dict[str, StmgrLocation]:
    known = dict(state.known)
    for peer in peers:
        if peer.id in state.stmgrs:
            continue  # it speaks for itself
        if peer.id not in known or known[peer.id].order < peer.order:
            known[peer.id] = peer
    return known


def _heartbeat_received(state: State, event: HeartbeatReceived) -> State:
    for id, stmgr in state.stmgrs.items():
        if stmgr.session == event.session:
            alive = replace(stmgr, last_heartbeat_s=event.now_s, attached=event.attached, waiting=event.waiting)
            return replace(state, stmgrs={**state.stmgrs, id: alive})
    return state  # of a session that is being closed


def _time_passed(state: State, event: TimePassed) -> tuple[State, list[Effect]]:
    silent = {id for id, s in state.stmgrs.items() if event.now_s - s.last_heartbeat_s > state.timeout_s}
    effects: list[Effect] = [
        CloseSession(state.stmgrs[id].session, id, f"silent for more than {state.timeout_s:g} s")
        for id in sorted(silent)
    ]
    return _without(state, silent), effects


def _without(state: State, lost: set[str]) -> State:
    if not lost:
        return state
    planned = {location.id for location in state.plan.stmgrs} if state.plan is not None else set()
    return replace(
        state,
        stmgrs={id: s for id, s in state.stmgrs.items() if id not in lost},
        known={id: location for id, location in state.known.items() if id in planned or id not in lost},
    )


def _for_next_epoch(state: State) -> State:
    """Have the wanted packing wait for the restore epoch after this one, if there are any."""
    if not takes_checkpoints(state.logical.config):
        return state
    return replace(state, packing_epoch=state.restore_epoch + 1)


def _planned(state: State) -> tuple[State, list[Effect]]:
    """The state with the plan that belongs to it; published if it is another one than before."""
    draft = _draft(state)
    if draft is None:
        return state, []
    if not draft.packing.runs_like(state.packing):
        state = _for_next_epoch(state)
    if state.plan is not None and state.plan.version == state.version and _same_content(state.plan, draft):
        return state, []
    plan = replace(draft, version=state.version + 1)
    return replace(state, plan=plan, version=plan.version), [PublishPlan(plan)]


def _draft(state: State) -> PhysicalPlan | None:
    logical, packing = state.logical, state.packing
    if not state._located or state.lacks_epoch:
        if state.plan is None:
            return None
        logical, packing = state.plan.logical, state.plan.packing
    stmgrs = tuple(state.known[c.stmgr_id] for c in packing.containers)
    runtime = TopologyState.PAUSED if state.held else state.runtime
    return PhysicalPlan(state.version, logical, packing, stmgrs, runtime, state.restore_epoch)


def _same_content(a: PhysicalPlan, b: PhysicalPlan) -> bool:
    # Compared as messages: a logical plan unpickles the user's configuration, whose objects may not compare.
    return a.to_proto().SerializeToString(deterministic=True) == replace(
        b, version=a.version
    ).to_proto().SerializeToString(deterministic=True)
