"""The Topology Master's side of checkpoints: decisions only, which no process runs yet.

`CheckpointCoordinator` is fed with events and says what is to be done; see `_coordinator` for how it goes.
"""

from heronpy.tmaster.checkpoints._coordinator import CheckpointCoordinator, Phase
from heronpy.tmaster.checkpoints._events import (
    INITIAL,
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    DiscardCheckpoints,
    Effect,
    Event,
    FenceChanged,
    RaiseRestoreEpoch,
    RestoreTasks,
    ResumeTasks,
    RollbackRequested,
    StmgrDisconnected,
    StmgrReported,
    TaskPhase,
    TasksChanged,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TaskStatus,
    TimePassed,
)
from heronpy.tmaster.checkpoints._members import Members
from heronpy.tmaster.checkpoints._record import Record
from heronpy.tmaster.checkpoints._settings import CheckpointCounts, CheckpointSettings, Failure

__all__ = [
    "INITIAL",
    "AbortCheckpoint",
    "AnnounceCommit",
    "BeginCheckpoint",
    "CheckLeadership",
    "CheckpointCoordinator",
    "CheckpointCounts",
    "CheckpointSettings",
    "DiscardCheckpoints",
    "Effect",
    "Event",
    "Failure",
    "FenceChanged",
    "Members",
    "Phase",
    "RaiseRestoreEpoch",
    "Record",
    "RestoreTasks",
    "ResumeTasks",
    "RollbackRequested",
    "StmgrDisconnected",
    "StmgrReported",
    "TaskPhase",
    "TaskSnapshotFailed",
    "TaskSnapshotted",
    "TaskStatus",
    "TasksChanged",
    "TimePassed",
]
