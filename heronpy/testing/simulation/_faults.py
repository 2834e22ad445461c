"""Faults as plain values: a schedule of them can be printed, made smaller, and pasted into a test."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for a process, or for all of `container_<n>`. It is started again after a while."""

    process: str
    down_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP, and SIGCONT later."""

    process: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Replace:
    """A container with a Stream Manager stops, is taken for dead, and is started again on a host whose clock is behind.

    The old Stream Manager goes on after a while, and never ends. Not in random schedules.
    """

    container: int
    stopped_s: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The link between two hosts delivers nothing for a while; one way only from `a` to `b`."""

    a: str
    b: str
    for_s: float
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """All connections between two hosts are reset."""

    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Detach:
    """All connections of one process are reset."""

    process: str


@dataclass(frozen=True, slots=True)
class StateAway:
    """The state manager is out of reach for a while."""

    for_s: float


@dataclass(frozen=True, slots=True)
class StateEmptied:
    """The state manager comes back without any data."""


@dataclass(frozen=True, slots=True)
class Expire:
    """A process loses its session with the state manager, and gets another one after a while."""

    process: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """The topology is deactivated, and activated later."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore begins: the restore epoch is raised, and everything on its way is dropped."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A component gets another number of instances, from what it has."""

    component: str
    to: int


@dataclass(frozen=True, slots=True)
class StorageAway:
    """The storage of checkpoints answers no request for a while."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Damage:
    """What a component has in the newest committed checkpoint is damaged, unless all before it are already."""

    component: str


@dataclass(frozen=True, slots=True)
class Save:
    """Somebody asks for a checkpoint that any number of tasks can restore."""


Fault = (
    Kill
    | Stop
    | Replace
    | Cut
    | Break
    | Detach
    | StateAway
    | StateEmptied
    | Expire
    | Pause
    | Restore
    | Scale
    | StorageAway
    | Damage
    | Save
)
Schedule = Sequence[tuple[float, Fault]]
"""Faults, each with the time in simulated seconds at which it happens."""

FIRST_S, LAST_S = 1.0, 16.0


def schedule(
    rng: random.Random,
    *,
    hosts: Sequence[str],
    processes: Sequence[str],
    without: Collection[type[Fault]] = (),
) -> list[tuple[float, Fault]]:
    """A random schedule. Half of the faults follow soon after the one before.

    Each schedule leaves out some kinds of faults and has more of others (Groce et al., Swarm Testing, 2012): what only
    shows after several restores, say, would hardly show if every schedule had a little of everything.
    """
    weights = [weight * rng.choice((0, 1, 4)) for weight in _KINDS.values()]
    if not any(weights):
        weights = list(_KINDS.values())
    at_s = rng.uniform(FIRST_S, LAST_S / 2)
    made: list[tuple[float, Fault]] = []
    for _ in range(rng.randint(1, 7)):
        (kind,) = rng.choices(list(_KINDS), weights)
        if kind not in without:
            made.append((round(at_s, 4), _fault(kind, rng, hosts, processes)))
        close = rng.random()
        at_s += rng.uniform(0, 0.05) if close < 0.25 else rng.uniform(0, 1.0) if close < 0.6 else rng.uniform(1, 5)
        if at_s > LAST_S:
            break
    return made


_KINDS: dict[type[Fault], int] = {
    Kill: 20,
    Stop: 10,
    Cut: 8,
    Break: 8,
    Detach: 8,
    StateAway: 5,
    StateEmptied: 4,
    Expire: 5,
    Pause: 6,
    Scale: 8,
    Restore: 8,
}
"""How often each kind comes, in relation to the others."""


def _fault(kind: type[Fault], rng: random.Random, hosts: Sequence[str], processes: Sequence[str]) -> Fault:
    def for_s() -> float:
        return round(rng.choice((0.01, 0.3, 2.0, 8.0)) * rng.uniform(0.2, 1.5), 3)

    a, b = rng.sample(list(hosts), 2)
    if kind is Kill or kind is Stop:
        return kind(_process(rng, processes), for_s())
    if kind is Cut:
        return Cut(a, b, for_s(), one_way=rng.random() < 0.5)
    if kind is Break:
        return Break(a, b)
    if kind is Detach:
        return Detach(_process(rng, processes))
    if kind is Expire:
        return Expire(_process(rng, [name for name in processes if "tmaster" in name]), for_s())
    if kind is Scale:
        return Scale(rng.choice(("relay", "sink")), rng.randint(1, 4))
    if kind is StateAway or kind is Pause:
        return kind(for_s())
    return StateEmptied() if kind is StateEmptied else Restore()


def _process(rng: random.Random, processes: Sequence[str]) -> str:
    """One of them; Topology and Stream Managers as often as all others together."""
    managers = [name for name in processes if "tmaster" in name or "stmgr" in name]
    return rng.choice(managers if rng.random() < 0.5 and managers else list(processes))


def storage_schedule(rng: random.Random) -> list[tuple[float, Fault]]:
    """Faults of the storage of checkpoints, in half of all schedules none."""
    kinds = rng.choices((StorageAway, Damage, Save), (1, 1, 1), k=rng.choice((0, 0, 0, 1, 2, 3)))
    return [(round(rng.uniform(FIRST_S, LAST_S), 4), _storage_fault(kind, rng)) for kind in kinds]


def _storage_fault(kind: type[Fault], rng: random.Random) -> Fault:
    if kind is Damage:
        return Damage(rng.choice(("source", "relay", "sink")))
    return StorageAway(round(rng.uniform(0.1, 8), 2)) if kind is StorageAway else Save()


def shrunk(
    faults: Sequence[tuple[float, Fault]], fails: Callable[[Sequence[tuple[float, Fault]]], bool]
) -> list[tuple[float, Fault]]:
    """A smallest schedule that still fails: without any one of its faults it does not.

    Delta debugging (Zeller, Hildebrandt 2002): halves are left out, then quarters, down to single faults. Then
    times are rounded, as far as it still fails.
    """
    now = list(faults)
    size = len(now)
    while size >= 1:
        start = 0
        while start < len(now):
            without = now[:start] + now[start + size :]
            if fails(without):
                now = without
            else:
                start += size
        size //= 2
    for digits in (0, 1, 2):
        for index, (at_s, fault) in enumerate(now):
            rounded = [*now[:index], (round(at_s, digits), fault), *now[index + 1 :]]
            if rounded != now and fails(rounded):
                now = rounded
    return now
