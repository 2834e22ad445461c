"""What makes a topology healthy, degraded or unhealthy. Pure: observations in, a verdict with reasons out.

| reason       | degraded                                            | unhealthy                                       |
|--------------|-----------------------------------------------------|-------------------------------------------------|
| stopped      |                                                     | the engine itself had to pause it               |
| state        | an older checkpoint was restored lately             | no checkpoint can be restored                   |
| checkpoints  | none for 5 intervals, or rolled back 3 times        | none for 20 intervals                           |
| ready        | something is not registered or attached             | for more than NOT_READY_UNHEALTHY_S             |
| restarts     | any process was restarted in the last 10 minutes    | one of them CRASH_LOOP_RESTARTS times           |
| failures     | more than FAILURE_SHARE_DEGRADED of the tuples fail | more than FAILURE_SHARE_UNHEALTHY, and not few  |
| silence      | a process that is attached does not report          | for more than SILENT_UNHEALTHY_S                |
| backpressure | a culprit throttled the spouts BACKPRESSURE_SHARE   | never: the topology does what its slowest can   |
| pending      | a spout's limit keeps back what a bolt waits for    | never: what comes of it are failures            |
| dead-letters | something was set aside                             | never: the rest goes on                         |

`starting` is a topology that is not ready yet, for at most START_S after its Topology Master began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from heronpy.health._checkpoints import CheckpointProgress, checkpoint_reasons
from heronpy.health._restarts import RESTART_WINDOW_S
from heronpy.health._verdict import START_S, Health, HealthState, Kind, Reason, duration

WINDOW_S = 300
"""Failures and backpressure are those of the last so many seconds."""
NOT_READY_UNHEALTHY_S = 60
CRASH_LOOP_RESTARTS = 3
"""Of one process within RESTART_WINDOW_S."""
FAILURE_SHARE_DEGRADED = 0.01
FAILURE_SHARE_UNHEALTHY = 0.1
FAILURES_UNHEALTHY_MIN = 10
"""Fewer failed tuples than this may be chance."""
SILENT_UNHEALTHY_S = 120
BACKPRESSURE_SHARE = 0.2
HELD_BACK_SHARE = 0.2
NAMES_SHOWN = 3
"""A reason names so many processes, and counts the others."""


class Outcomes(Struct, frozen=True):
    """What became of the tuples of a component within WINDOW_S."""

    done: float
    """Acked and failed of a spout; executed of a bolt."""
    failed: float


class Silence(Struct, frozen=True):
    """A process that should report and does not."""

    process: str
    silent_s: float


class Observed(Struct, frozen=True, kw_only=True):
    """What is known of a topology at one time."""

    unregistered: Sequence[str] = ()
    """Stream Managers without a session."""
    detached: Sequence[str] = ()
    """Instances that are not attached to their Stream Manager, of those that are registered."""
    stop_reason: str = ""
    """Why the engine itself has paused the topology; empty: it has not."""
    state_problem: str = ""
    """Why its state cannot be restored, so that nothing runs; empty: it can."""
    state_fallback: str = ""
    """Which older checkpoint was restored lately, since the newest was damaged; empty: none."""
    checkpoints: CheckpointProgress | None = None
    """None: it takes none."""
    ready: bool = True
    """Nothing is missing, and the wanted packing plan is in force."""
    not_ready_s: float = 0.0
    """For how long that has not been so."""
    was_ready: bool = False
    """It was ready at some time since its Topology Master started."""
    restarts: Mapping[str, int] = {}
    """By process, within RESTART_WINDOW_S."""
    over_ram: Mapping[str, str] = {}
    """Of those, which were killed for their RAM the last time, in words."""
    outcomes: Mapping[str, Outcomes] = {}
    """By component."""
    silent: Sequence[Silence] = ()
    throttled: Mapping[str, float] = {}
    """Share of WINDOW_S for which each culprit throttled the spouts."""
    dead_letters: Mapping[str, float] = {}
    """By component: what it has set aside within WINDOW_S."""
    held_back: Mapping[tuple[str, str], float] = {}
    """By spout and bolt: share of WINDOW_S for which the spout's limit of pending tuples kept back what the bolt, which
    holds what it got, waited for."""


def assess(observed: Observed) -> Health:
    """The verdict on what was observed."""
    reasons = (
        *_stopped(observed),
        *_state(observed),
        *(checkpoint_reasons(observed.checkpoints) if observed.checkpoints is not None else ()),
        *_readiness(observed),
        *_restarts(observed.restarts, observed.over_ram),
        *_failures(observed.outcomes),
        *_silence(observed.silent),
        *_backpressure(observed.throttled),
        *_held_back(observed.held_back),
        *_dead_letters(observed.dead_letters),
    )
    return Health.of(reasons, sum(observed.restarts.values()))


def _stopped(observed: Observed) -> Iterator[Reason]:
    if observed.stop_reason:
        yield Reason(Kind.STOPPED, HealthState.UNHEALTHY, f"paused by the engine: {observed.stop_reason}")


def _state(observed: Observed) -> Iterator[Reason]:
    if observed.state_problem:
        yield Reason(Kind.STATE, HealthState.UNHEALTHY, observed.state_problem)
    elif observed.state_fallback:
        yield Reason(Kind.STATE, HealthState.DEGRADED, observed.state_fallback)


def _readiness(observed: Observed) -> Iterator[Reason]:
    if observed.ready:
        return
    if not observed.was_ready and observed.not_ready_s <= START_S:
        state = HealthState.STARTING
    else:
        late = observed.not_ready_s > NOT_READY_UNHEALTHY_S
        state = HealthState.UNHEALTHY if late else HealthState.DEGRADED
    parts = []
    if observed.unregistered:
        parts.append(f"not registered: {_named(observed.unregistered)}")
    if observed.detached:
        parts.append(f"not attached: {_named(observed.detached)}")
    what = "; ".join(parts) or "the new packing plan is not in force yet"
    yield Reason(Kind.READY, state, f"not ready for {duration(observed.not_ready_s)}: {what}")


def _restarts(restarts: Mapping[str, int], over_ram: Mapping[str, str]) -> Iterator[Reason]:
    looping = {process: n for process, n in restarts.items() if n >= CRASH_LOOP_RESTARTS}
    within = f"in the last {duration(RESTART_WINDOW_S)}"
    if looping:
        worst = sorted(looping.items(), key=lambda found: -found[1])
        times = [f"{p} ({n} restarts{'; ' if p in over_ram else ''}{over_ram.get(p, '')})" for p, n in worst]
        yield Reason(Kind.RESTARTS, HealthState.UNHEALTHY, f"crash loop {within}: {_named(times)}")
    others = [process for process in restarts if process not in looping]
    if others:
        names = [f"{p} ({over_ram[p]})" if p in over_ram else p for p in sorted(others)]
        yield Reason(Kind.RESTARTS, HealthState.DEGRADED, f"restarted {within}: {_named(names)}")


def _failures(outcomes: Mapping[str, Outcomes]) -> Iterator[Reason]:
    failing = {
        component: found.failed / found.done
        for component, found in outcomes.items()
        if found.done > 0 and found.failed / found.done > FAILURE_SHARE_DEGRADED
    }
    for component, share in sorted(failing.items(), key=lambda found: -found[1]):
        found = outcomes[component]
        bad = share > FAILURE_SHARE_UNHEALTHY and found.failed >= FAILURES_UNHEALTHY_MIN
        state = HealthState.UNHEALTHY if bad else HealthState.DEGRADED
        count = f"{found.failed:,.0f} of {found.done:,.0f} tuples"
        text = f"{percent(share)} of the tuples of {component} failed in the last {duration(WINDOW_S)}: {count}"
        yield Reason(Kind.FAILURES, state, text)


def _silence(silent: Sequence[Silence]) -> Iterator[Reason]:
    if not silent:
        return
    longest = max(found.silent_s for found in silent)
    state = HealthState.UNHEALTHY if longest > SILENT_UNHEALTHY_S else HealthState.DEGRADED
    names = _named([found.process for found in sorted(silent, key=lambda found: -found.silent_s)])
    yield Reason(Kind.SILENCE, state, f"no reports for {duration(longest)}: {names}")


def _backpressure(throttled: Mapping[str, float]) -> Iterator[Reason]:
    for culprit, share in sorted(throttled.items(), key=lambda found: -found[1]):
        if share >= BACKPRESSURE_SHARE:
            text = f"{culprit} throttled the spouts for {percent(share)} of the last {duration(WINDOW_S)}"
            yield Reason(Kind.BACKPRESSURE, HealthState.DEGRADED, text)


def _held_back(held_back: Mapping[tuple[str, str], float]) -> Iterator[Reason]:
    for (spout, bolt), share in sorted(held_back.items(), key=lambda found: -found[1]):
        if share >= HELD_BACK_SHARE:
            text = (
                f"{bolt} holds tuples and waited for more for {percent(share)} of the last {duration(WINDOW_S)}, while "
                f"{spout} could emit none: topology.max.spout.pending is too low for it, or it never acks"
            )
            yield Reason(Kind.PENDING, HealthState.DEGRADED, text)


def _dead_letters(dead_letters: Mapping[str, float]) -> Iterator[Reason]:
    for component, count in sorted(dead_letters.items(), key=lambda found: -found[1]):
        if count:
            letters = "1 dead letter" if count == 1 else f"{count:,.0f} dead letters"
            text = f"{component} has set aside {letters} in the last {duration(WINDOW_S)}"
            yield Reason(Kind.DEAD_LETTERS, HealthState.DEGRADED, text)


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def percent(share: float) -> str:
    """A share as text: `0.4 %`, `12 %`."""
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * min(share, 1.0):.0f} %"
