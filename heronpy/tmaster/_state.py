"""What the Topology Master decides: who is registered, and which physical plan is in force.

Events in, effects out: no clock, no socket, no state manager. The rules:

* Registered is a Stream Manager with an open session. Where a lost one was is only known from the plan in force, which
  keeps its address until its replacement registers: its peers go on trying to reach it.
* The first plan is made when every Stream Manager of the packing plan is registered. After that a plan is made
  whenever its content changes, and only then.
* A changed packing plan (scaling) is put into force when all its Stream Managers can be located. Until then the
  packing in force stays, but restarted Stream Managers and state changes still get through.
* Versions grow over all lives of the Topology Master: after what the state manager holds and after what any Stream
  Manager says it has, because a plan may have been sent that could not be saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heronpy.errors import TopologyError
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan, StmgrLocation, TopologyState


@dataclass(frozen=True, slots=True)
class StmgrRegistered:
    """A Stream Manager said hello on a new stream, the session."""

    session: int
    location: StmgrLocation
    plan_version: int
    """Of the plan it has; 0: none."""
    now_s: float


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    session: int
    attached: frozenset[str]
    """Ids of the instances attached now."""
    now_s: float


@dataclass(frozen=True, slots=True)
class SessionEnded:
    session: int
    now_s: float


@dataclass(frozen=True, slots=True)
class TimePassed:
    now_s: float


@dataclass(frozen=True, slots=True)
class PackingChanged:
    logical: LogicalPlan
    packing: PackingPlan
    now_s: float


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The topology was activated or deactivated, and the state manager knows it."""

    runtime: TopologyState
    now_s: float


Event = StmgrRegistered | HeartbeatReceived | SessionEnded | TimePassed | PackingChanged | StateChanged


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Save the plan, then send it to every registered Stream Manager in it."""

    plan: PhysicalPlan


@dataclass(frozen=True, slots=True)
class SendPlan:
    """Send the plan in force to one Stream Manager."""

    session: int
    plan: PhysicalPlan


@dataclass(frozen=True, slots=True)
class CloseSession:
    session: int
    stmgr_id: str
    reason: str


Effect = PublishPlan | SendPlan | CloseSession


@dataclass(frozen=True, slots=True)
class Stmgr:
    """A registered Stream Manager."""

    location: StmgrLocation
    session: int
    heard_s: float
    attached: frozenset[str] = frozenset()


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

    def receivers(self, plan: PhysicalPlan) -> list[int]:
        """Sessions of the registered Stream Managers in a plan."""
        return [self.stmgrs[s.id].session for s in plan.stmgrs if s.id in self.stmgrs]

    def check_invariants(self) -> None:
        sessions = [s.session for s in self.stmgrs.values()]
        assert len(set(sessions)) == len(sessions), "two Stream Managers share a session"
        assert all(id == s.location.id for id, s in self.stmgrs.items())
        if self.plan is None:
            assert self.missing, "all Stream Managers are registered, but there is no plan"
            return
        assert self.plan.version == self.version, "somebody has a newer plan than the one in force"
        assert self.plan.state == self.runtime
        assert [s.id for s in self.plan.stmgrs] == [c.stmgr_id for c in self.plan.packing.containers]
        for location in self.plan.stmgrs:
            stmgr = self.stmgrs.get(location.id)
            assert stmgr is None or stmgr.location == location, f"the plan has an old address of {location.id}"
        if not self.missing:
            assert self.plan.packing == self.packing, "the wanted packing could be in force"


def start(
    logical: LogicalPlan,
    packing: PackingPlan,
    runtime: TopologyState,
    saved: PhysicalPlan | None,
    *,
    timeout_s: float,
) -> tuple[State, list[Effect]]:
    """The state from what the state manager holds. `saved` stays in force unless its content is out of date.

    Raises:
        TopologyError: the packing plan is not of this topology.
    """
    check_fits(logical, packing)
    state = State(timeout_s, logical, packing, runtime, saved, saved.version if saved else 0)
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
            return _heard(state, event), []
        case SessionEnded():
            return _without(state, {id for id, s in state.stmgrs.items() if s.session == event.session}), []
        case TimePassed():
            return _time_passed(state, event)
        case PackingChanged():
            return _planned(replace(state, logical=event.logical, packing=event.packing))
        case StateChanged():
            return _planned(replace(state, runtime=event.runtime))


def _registered(state: State, event: StmgrRegistered) -> tuple[State, list[Effect]]:
    id = event.location.id
    effects: list[Effect] = []
    before = state.stmgrs.get(id)
    if before is not None:
        if event.location.incarnation < before.location.incarnation:
            # A container that was given up and replaced, and is back: its replacement has the task.
            return state, [CloseSession(event.session, id, "a newer one is registered")]
        effects.append(CloseSession(before.session, id, "it registered again"))
    stmgr = Stmgr(event.location, event.session, event.now_s)
    state = replace(state, stmgrs={**state.stmgrs, id: stmgr}, version=max(state.version, event.plan_version))
    state, published = _planned(state)
    effects += published
    if not published and state.plan is not None and event.session in state.receivers(state.plan):
        effects.append(SendPlan(event.session, state.plan))
    return state, effects


def _heard(state: State, event: HeartbeatReceived) -> State:
    for id, stmgr in state.stmgrs.items():
        if stmgr.session == event.session:
            heard = replace(stmgr, heard_s=event.now_s, attached=event.attached)
            return replace(state, stmgrs={**state.stmgrs, id: heard})
    return state  # of a session that is being closed


def _time_passed(state: State, event: TimePassed) -> tuple[State, list[Effect]]:
    silent = {id for id, s in state.stmgrs.items() if event.now_s - s.heard_s > state.timeout_s}
    effects: list[Effect] = [
        CloseSession(state.stmgrs[id].session, id, f"silent for more than {state.timeout_s:g} s")
        for id in sorted(silent)
    ]
    return _without(state, silent), effects


def _without(state: State, lost: set[str]) -> State:
    if not lost:
        return state
    return replace(state, stmgrs={id: s for id, s in state.stmgrs.items() if id not in lost})


def _planned(state: State) -> tuple[State, list[Effect]]:
    """The state with the plan that belongs to it; published if it is another one than before."""
    draft = _draft(state)
    if draft is None:
        return state, []
    if state.plan is not None and state.plan.version == state.version and _same_content(state.plan, draft):
        return state, []
    plan = replace(draft, version=state.version + 1)
    return replace(state, plan=plan, version=plan.version), [PublishPlan(plan)]


def _draft(state: State) -> PhysicalPlan | None:
    located = {s.id: s for s in state.plan.stmgrs} if state.plan is not None else {}
    located |= {id: s.location for id, s in state.stmgrs.items()}
    logical, packing = state.logical, state.packing
    if any(c.stmgr_id not in located for c in packing.containers):
        if state.plan is None:
            return None
        logical, packing = state.plan.logical, state.plan.packing
    stmgrs = tuple(located[c.stmgr_id] for c in packing.containers)
    return PhysicalPlan(state.version, logical, packing, stmgrs, state.runtime)


def _same_content(a: PhysicalPlan, b: PhysicalPlan) -> bool:
    # Compared as messages: a logical plan unpickles the user's configuration, whose objects may not compare.
    return a.to_proto().SerializeToString(deterministic=True) == replace(
        b, version=a.version
    ).to_proto().SerializeToString(deterministic=True)
