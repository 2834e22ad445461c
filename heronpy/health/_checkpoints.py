"""Whether checkpoints get on."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from heronpy.health._restarts import RESTART_WINDOW_S
from heronpy.health._verdict import HealthState, Kind, Reason, duration

INTERVALS_DEGRADED = 5
"""So many intervals without a checkpoint are a fault ..."""
AGE_DEGRADED_S = 60.0
"""... but not sooner than this: a busy machine is slow."""
INTERVALS_UNHEALTHY = 20
AGE_UNHEALTHY_S = 300.0
ROLLBACKS_DEGRADED = 3
"""Within RESTART_WINDOW_S."""


class CheckpointProgress(Struct, frozen=True, kw_only=True):
    """How checkpoints get on, in a topology that takes them."""

    interval_s: float
    """From one to the next, as it is wanted."""
    age_s: float | None
    """Since the last commit, or since all tasks began to run; None: they never did."""
    obstacle: str = ""
    """What the one under way waits for, or why the last one failed; empty: nothing is known."""
    rollbacks: int = 0
    """Within RESTART_WINDOW_S."""
    last_rollback: str = ""
    """Why."""


def checkpoint_reasons(progress: CheckpointProgress) -> Iterator[Reason]:
    """What is wrong with checkpoints."""
    if progress.age_s is not None and progress.age_s > _late_s(progress.interval_s):
        late = progress.age_s > max(INTERVALS_UNHEALTHY * progress.interval_s, AGE_UNHEALTHY_S)
        state = HealthState.UNHEALTHY if late else HealthState.DEGRADED
        text = f"no checkpoint for {duration(progress.age_s)}, and one is wanted every {duration(progress.interval_s)}"
        yield Reason(Kind.CHECKPOINTS, state, text + _because(progress.obstacle))
    if progress.rollbacks >= ROLLBACKS_DEGRADED:
        text = f"rolled back {progress.rollbacks} times in the last {duration(RESTART_WINDOW_S)}"
        yield Reason(Kind.CHECKPOINTS, HealthState.DEGRADED, text + _because(progress.last_rollback))


def _late_s(interval_s: float) -> float:
    return max(INTERVALS_DEGRADED * interval_s, AGE_DEGRADED_S)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
