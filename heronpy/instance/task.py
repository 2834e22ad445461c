"""The tasks themselves, without process, thread or socket: what the simulator and the tests drive.

Beside them the parts that a task is made of, each of which is tested alone.
"""

from heronpy.instance._anchors import ANCHORS_MAX, Anchors, anchored, anchored_to_many
from heronpy.instance._bolt import BoltTask
from heronpy.instance._capacity import QueueCapacity, TimedCapacity
from heronpy.instance._channel import OUT_HARD, Command, ThreadChannel
from heronpy.instance._core import Signal, TaskCore, TaskFailed
from heronpy.instance._edges import Edge, Pair, Taken
from heronpy.instance._error_log import KINDS_MAX, PER_SECOND, ErrorLog
from heronpy.instance._grouping import Chooser, chooser, for_all, partial_key
from heronpy.instance._grouping import custom as custom_grouping
from heronpy.instance._holding import RENEWALS_PER_TIMEOUT, TimeoutRenewals
from heronpy.instance._ids import generator as random_ids
from heronpy.instance._inbatch import ACKED, FAILED, OPEN, InBatch, root_batches
from heronpy.instance._intake import Intake
from heronpy.instance._metrics import TaskMetrics
from heronpy.instance._outputs import Outputs, as_values
from heronpy.instance._pacing import IdlePause, Ramp
from heronpy.instance._pending import PENDING_MAX, PENDING_MIN, WINDOW_NS, PendingLimit
from heronpy.instance._progress import ProgressMeter
from heronpy.instance._prompter import Prompter
from heronpy.instance._roots import CAPACITY_MIN, Finished, RootRing
from heronpy.instance._runner import Runner, make_runner, make_task
from heronpy.instance._serializing import Rejected, pickled, serialized
from heronpy.instance._set_aside import FailedTuple, SetAside, Unreadable
from heronpy.instance._settling import settles_tuples
from heronpy.instance._spout import SpoutTask
from heronpy.instance._thread import apply_plan, apply_state

__all__ = [
    "ACKED",
    "ANCHORS_MAX",
    "CAPACITY_MIN",
    "FAILED",
    "KINDS_MAX",
    "OPEN",
    "OUT_HARD",
    "PENDING_MAX",
    "PENDING_MIN",
    "PER_SECOND",
    "RENEWALS_PER_TIMEOUT",
    "WINDOW_NS",
    "Anchors",
    "BoltTask",
    "Chooser",
    "Command",
    "Edge",
    "ErrorLog",
    "FailedTuple",
    "Finished",
    "IdlePause",
    "InBatch",
    "Intake",
    "Outputs",
    "Pair",
    "PendingLimit",
    "ProgressMeter",
    "Prompter",
    "QueueCapacity",
    "Ramp",
    "Rejected",
    "RootRing",
    "Runner",
    "SetAside",
    "Signal",
    "SpoutTask",
    "Taken",
    "TaskCore",
    "TaskFailed",
    "TaskMetrics",
    "ThreadChannel",
    "TimedCapacity",
    "TimeoutRenewals",
    "Unreadable",
    "anchored",
    "anchored_to_many",
    "apply_plan",
    "apply_state",
    "as_values",
    "chooser",
    "custom_grouping",
    "for_all",
    "make_runner",
    "make_task",
    "partial_key",
    "pickled",
    "random_ids",
    "root_batches",
    "serialized",
    "settles_tuples",
]
