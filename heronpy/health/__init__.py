"""Health: the one definition of how a topology is, for every view of it.

The Topology Master assesses; the CLI, the Tracker, the UI and Prometheus show what it found. The thresholds are the
constants of `_assess.py`. A topology whose Topology Master does not answer is `unreachable()`, whoever found out.
"""

from heronpy.health._assess import (
    BACKPRESSURE_SHARE,
    CRASH_LOOP_RESTARTS,
    FAILURE_SHARE_DEGRADED,
    FAILURE_SHARE_UNHEALTHY,
    FAILURES_UNHEALTHY_MIN,
    NOT_READY_UNHEALTHY_S,
    SILENT_UNHEALTHY_S,
    START_S,
    WINDOW_S,
    Observed,
    Outcomes,
    Silence,
    assess,
)
from heronpy.health._capacity import capacity
from heronpy.health._restarts import RECENT_RESTARTS_METRIC, RESTART_WINDOW_S, RESTARTS_METRIC, RestartLog
from heronpy.health._verdict import Health, HealthState, Kind, Reason, unreachable

__all__ = [
    "BACKPRESSURE_SHARE",
    "CRASH_LOOP_RESTARTS",
    "FAILURES_UNHEALTHY_MIN",
    "FAILURE_SHARE_DEGRADED",
    "FAILURE_SHARE_UNHEALTHY",
    "NOT_READY_UNHEALTHY_S",
    "RECENT_RESTARTS_METRIC",
    "RESTARTS_METRIC",
    "RESTART_WINDOW_S",
    "SILENT_UNHEALTHY_S",
    "START_S",
    "WINDOW_S",
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
