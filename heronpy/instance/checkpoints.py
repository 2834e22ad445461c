"""A task's side of checkpoints: decisions only, which no process runs yet.

`Alignment` says when a task takes its snapshot and what of its inputs belongs into it, `CommitLedger` which complete
trees a spout may be told of.
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

__all__ = [
    "ALIGNMENT_TIMEOUT_S",
    "LOG_BYTES_MAX",
    "ROOTS_MAX",
    "SET_ASIDE_BYTES_MAX",
    "Alignment",
    "CommitLedger",
    "CompleteSnapshot",
    "Deliver",
    "Effect",
    "FailSnapshot",
    "InputBatch",
    "Snapshot",
    "SnapshotNow",
]
