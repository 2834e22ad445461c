"""The parts of the Topology Master behind its core, each of which is tested alone."""

from heronpy.tmaster._aggregation import Rule, rule_of
from heronpy.tmaster._checkpoint_calls import CheckpointAsked, RequestWithdrawn
from heronpy.tmaster._checkpoint_views import CheckpointMetrics, checkpoint_progress, checkpoint_status
from heronpy.tmaster._exceptions import ExceptionLog, class_name
from heronpy.tmaster._history import MINUTE_MS, MINUTES
from heronpy.tmaster._log_levels import changed as changed_levels
from heronpy.tmaster._log_levels import check as check_level
from heronpy.tmaster._log_levels import in_force as levels_in_force
from heronpy.tmaster._manifests import HOLD_EVERY_S, HOLD_S, RestoreHold
from heronpy.tmaster._queries import answer as answer_metrics
from heronpy.tmaster._sessions import Session
from heronpy.tmaster._state import Effect as StateEffect
from heronpy.tmaster._state import Event as StateEvent
from heronpy.tmaster._state import PackingChanged, PublishPlan, StateChanged, start, step
from heronpy.tmaster._status import Metrics
from heronpy.tmaster._update import READ_WAIT_S

__all__ = [
    "HOLD_EVERY_S",
    "HOLD_S",
    "MINUTES",
    "MINUTE_MS",
    "READ_WAIT_S",
    "CheckpointAsked",
    "CheckpointMetrics",
    "ExceptionLog",
    "Metrics",
    "PackingChanged",
    "PublishPlan",
    "RequestWithdrawn",
    "RestoreHold",
    "Rule",
    "Session",
    "StateChanged",
    "StateEffect",
    "StateEvent",
    "answer_metrics",
    "changed_levels",
    "check_level",
    "checkpoint_progress",
    "checkpoint_status",
    "class_name",
    "levels_in_force",
    "rule_of",
    "start",
    "step",
]
