"""The Topology Master's side of checkpoints: decisions only.

`CheckpointCoordinator` is fed with events and says what is to be done; see `_coordinator` for how it goes.
"""

from heronpy.tmaster.checkpoints._coordinator import CheckpointCoordinator, Phase
from heronpy.tmaster.checkpoints._counts import BegunRestore, CheckpointCounts, CheckpointSize, EndedCheckpoint
from heronpy.tmaster.checkpoints._events import (
    INITIAL,
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    CheckpointDamaged,
    CheckpointRequested,
    DiscardCheckpoints,
    Effect,
    Event,
    FenceChanged,
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
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
    WriteManifest,
)
from heronpy.tmaster.checkpoints._members import Members
from heronpy.tmaster.checkpoints._messages import instance_reported, order_of, stmgr_reported
from heronpy.tmaster.checkpoints._poison import Poisoned
from heronpy.tmaster.checkpoints._record import Record
from heronpy.tmaster.checkpoints._settings import CheckpointSettings, Failure

__all__ = [
    "INITIAL",
    "AbortCheckpoint",
    "AnnounceCommit",
    "BeginCheckpoint",
    "BegunRestore",
    "CheckLeadership",
    "CheckpointCoordinator",
    "CheckpointCounts",
    "CheckpointDamaged",
    "CheckpointRequested",
    "CheckpointSettings",
    "CheckpointSize",
    "DiscardCheckpoints",
    "Effect",
    "EndedCheckpoint",
    "Event",
    "Failure",
    "FenceChanged",
    "FindIntact",
    "IntactFound",
    "IntactUnknown",
    "ManifestFailed",
    "ManifestWritten",
    "Members",
    "Phase",
    "Poisoned",
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
    "WriteManifest",
    "instance_reported",
    "order_of",
    "stmgr_reported",
]
