"""A task's side of checkpoints.

`Alignment` says when a task takes its snapshot and what of its inputs belongs into it, `CommitLedger` which tuples a
spout may be told of, `Snapshots` takes them in the task's thread.
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
from heronpy.instance._commit_ledger import ROOTS_MAX, CommitLedger
from heronpy.instance._snapshots import UNSAVED_BYTES_MAX, EpochEnded, RollbackNeeded, SnapshotReports, Snapshots

__all__ = [
    "ALIGNMENT_TIMEOUT_S",
    "LOG_BYTES_MAX",
    "ROOTS_MAX",
    "SET_ASIDE_BYTES_MAX",
    "UNSAVED_BYTES_MAX",
    "Alignment",
    "CommitLedger",
    "CompleteSnapshot",
    "Deliver",
    "Effect",
    "EpochEnded",
    "FailSnapshot",
    "InputBatch",
    "RollbackNeeded",
    "Snapshot",
    "SnapshotNow",
    "SnapshotReports",
    "Snapshots",
]
