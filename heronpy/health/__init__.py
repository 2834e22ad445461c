"""Health: the one definition of how a topology is, for every view of it.

The Topology Master assesses; the CLI, the Tracker, the UI and Prometheus show what it found. The thresholds are the
constants of `_assess.py`. A topology whose Topology Master does not answer is `unreachable()`, whatever found out.
"""

from heronpy.health._assess import (
    BACKPRESSURE_SHARE,
    CRASH_LOOP_RESTARTS,
    FAILURE_SHARE_DEGRADED,
    FAILURE_SHARE_UNHEALTHY,
    FAILURES_UNHEALTHY_MIN,
    HELD_BACK_SHARE,
    NOT_READY_UNHEALTHY_S,
    SILENT_UNHEALTHY_S,
    WINDOW_S,
    Observed,
    Outcomes,
    Silence,
    assess,
)
from heronpy.health._capacity import capacity
from heronpy.health._checkpoints import (
    AGE_DEGRADED_S,
    AGE_UNHEALTHY_S,
    INTERVALS_DEGRADED,
    INTERVALS_UNHEALTHY,
    ROLLBACKS_DEGRADED,
    CheckpointProgress,
)
from heronpy.health._restarts import (
    OVER_RAM_METRIC,
    RECENT_RESTARTS_METRIC,
    RESTART_WINDOW_S,
    RESTARTS_METRIC,
    RestartLog,
)
from heronpy.health._verdict import START_S, Health, HealthState, Kind, Reason, unreachable

__all__ = [
    "AGE_DEGRADED_S",
    "AGE_UNHEALTHY_S",
    "BACKPRESSURE_SHARE",
    "CRASH_LOOP_RESTARTS",
    "FAILURES_UNHEALTHY_MIN",
    "FAILURE_SHARE_DEGRADED",
    "FAILURE_SHARE_UNHEALTHY",
    "HELD_BACK_SHARE",
    "INTERVALS_DEGRADED",
    "INTERVALS_UNHEALTHY",
    "NOT_READY_UNHEALTHY_S",
    "OVER_RAM_METRIC",
    "RECENT_RESTARTS_METRIC",
    "RESTARTS_METRIC",
    "RESTART_WINDOW_S",
    "ROLLBACKS_DEGRADED",
    "SILENT_UNHEALTHY_S",
    "START_S",
    "WINDOW_S",
    "CheckpointProgress",
    "Health",
    "HealthState",
    "Kind",
    "Observed",
    "Outcomes",
    "Reason",
    "RestartLog",
    "Silence",
    "assess",
    "capacity",
    "unreachable",
]
