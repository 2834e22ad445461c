"""A task's side of checkpoints.

`GatewayCheckpoints` decides for the gateway; its `Alignment` says when the task takes its snapshot and what of its
inputs belongs into it. In the task's thread, `RestorableThread` replaces the component at a restore, `Snapshots` takes
its snapshots, and `CommitLedger` says which tuples a spout may be informed of. `CheckpointedTask` is their shell.
"""

from heronpy.instance._alignment import (
    ALIGNMENT_TIMEOUT_S,
    LOG_BYTES_MAX,
    SET_ASIDE_BYTES_MAX,
    Alignment,
    CompleteSnapshot,
    Deliver,
    Effect,
    FailSnapshot,
    InputBatch,
    Snapshot,
    SnapshotNow,
)
from heronpy.instance._checkpoint_runner import BETWEEN_SLICES_S, make_checkpoint_runner
from heronpy.instance._checkpointed import CheckpointedTask
from heronpy.instance._commit_ledger import ROOTS_MAX, CommitLedger
from heronpy.instance._gateway_checkpoints import RESTORED, RUNNING, STARTED, GatewayCheckpoints, TaskBatch
from heronpy.instance._logged import from_log, logged
from heronpy.instance._reading_ahead import KEPT_S, ReadingAhead
from heronpy.instance._restore import RestorableThread
from heronpy.instance._snapshots import UNSAVED_BYTES_MAX, EpochEnded, RollbackNeeded, SnapshotReports, Snapshots

__all__ = [
    "ALIGNMENT_TIMEOUT_S",
    "BETWEEN_SLICES_S",
    "KEPT_S",
    "LOG_BYTES_MAX",
    "RESTORED",
    "ROOTS_MAX",
    "RUNNING",
    "SET_ASIDE_BYTES_MAX",
    "STARTED",
    "UNSAVED_BYTES_MAX",
    "Alignment",
    "CheckpointedTask",
    "CommitLedger",
    "CompleteSnapshot",
    "Deliver",
    "Effect",
    "EpochEnded",
    "FailSnapshot",
    "GatewayCheckpoints",
    "InputBatch",
    "ReadingAhead",
    "RestorableThread",
    "RollbackNeeded",
    "Snapshot",
    "SnapshotNow",
    "SnapshotReports",
    "Snapshots",
    "TaskBatch",
    "from_log",
    "logged",
    "make_checkpoint_runner",
]
