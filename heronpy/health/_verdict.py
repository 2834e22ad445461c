"""What an assessment says: a state, and the reasons for it in words."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from msgspec import Struct

from heronpy.proto import tmaster_pb2


class HealthState(enum.IntEnum):
    """From well to badly; the numbers are those of the metric `__health`."""

    HEALTHY = 0
    STARTING = 1
    DEGRADED = 2
    UNHEALTHY = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Kind(enum.StrEnum):
    """What a reason is about."""

    TMASTER = "tmaster"
    STOPPED = "stopped"
    STATE = "state"
    CHECKPOINTS = "checkpoints"
    READY = "ready"
    RESTARTS = "restarts"
    FAILURES = "failures"
    SILENCE = "silence"
    BACKPRESSURE = "backpressure"
    PENDING = "pending"
    DEAD_LETTERS = "dead-letters"


class Reason(Struct, frozen=True):
    """One thing that is wrong, and how bad it alone is."""

    kind: Kind
    state: HealthState
    text: str


class Health(Struct, frozen=True):
    """How a topology is."""

    state: HealthState
    reasons: tuple[Reason, ...] = ()
    """The worst first; none if it is healthy."""
    restarts: int = 0
    """Of all its processes, in the last RESTART_WINDOW_S."""

    @classmethod
    def of(cls, reasons: Iterable[Reason], restarts: int = 0) -> Health:
        """As bad as the worst of the reasons."""
        found = tuple(sorted(reasons, key=lambda reason: -reason.state))
        return cls(found[0].state if found else HealthState.HEALTHY, found, restarts)

    @classmethod
    def from_proto(cls, proto: tmaster_pb2.Health) -> Health:
        reasons = tuple(Reason(Kind(r.kind), HealthState[r.state.upper()], r.text) for r in proto.reasons)
        return cls(HealthState[(proto.state or "healthy").upper()], reasons, proto.restarts)

    def to_proto(self) -> tmaster_pb2.Health:
        reasons = [tmaster_pb2.HealthReason(kind=r.kind, state=r.state.word, text=r.text) for r in self.reasons]
        return tmaster_pb2.Health(state=self.state.word, reasons=reasons, restarts=self.restarts)


START_S = 60
"""So long after the start it is not a fault that something is missing."""


def unreachable(detail: str, awaited_s: float | None = None) -> Health:
    """The health of a topology whose Topology Master does not answer.

    Args:
        detail: Since when, or why; put behind the sentence.
        awaited_s: How long ago the topology was submitted, while no Topology Master has come up; None: one had.
    """
    if awaited_s is not None and awaited_s <= START_S:
        text = f"the Topology Master is not up yet, {duration(max(0.0, awaited_s))} after the submit"
        return Health.of([Reason(Kind.TMASTER, HealthState.STARTING, text)])
    text = f"the Topology Master does not answer: {detail}" if detail else "the Topology Master does not answer"
    return Health.of([Reason(Kind.TMASTER, HealthState.UNHEALTHY, text)])


def duration(seconds: float) -> str:
    """Seconds as text: `40 s`, `10 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
