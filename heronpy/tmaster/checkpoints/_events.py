"""What the checkpoint coordinator takes (events, in the past tense) and asks for (effects).

Stream Managers report levels, not edges: every report says all that its sender knows, after each change and with every
heartbeat. So a report that is lost, repeated or late costs time and nothing else. Only a snapshot is reported once; one
whose report is lost makes its checkpoint time out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct

from heronpy.tmaster._store_effects import NodeChanged, NodesRead, NodeWritten, ReadNodes, StoreFailed, WriteNode
from heronpy.tmaster.checkpoints._counts import SIZE_UNKNOWN, CheckpointSize

INITIAL = 0
"""The checkpoint of a topology that has none yet: every task begins without state."""


class TaskPhase(enum.IntEnum):
    """How far a task is in its restore epoch."""

    STARTED = 0
    """It has restored nothing yet."""
    RESTORED = 1
    """It has its state, and waits until all others have theirs."""
    RUNNING = 2


class TaskStatus(Struct, frozen=True):
    """What a task says of itself."""

    incarnation: int
    """Distinguishes its process from an earlier one; unique."""
    epoch: int
    """The restore epoch that the phase belongs to."""
    phase: TaskPhase
    committed: int = 0
    """The newest checkpoint of whose commit it knows, `post_save` included."""
    read_ahead: int = 0
    """That of the last `ReadAhead` that it has done, or cannot do; 0: none since its last restore."""
    read_share: tuple[int, int] = (0, 0)
    """Its share in that: it may be of an update that came to nothing."""


# -- events ------------------------------------------------------------------------------------------------------------


class FenceChanged(Struct, frozen=True):
    """This Topology Master leads, and the node `epochs` holds this value as long as it does."""

    fence: bytes
    epoch: int
    """The restore epoch, durable."""
    now_s: float


class TasksChanged(Struct, frozen=True):
    """The physical plan has these tasks, the first one included."""

    tasks: Mapping[int, str]
    """Every task, and the Stream Manager of its container."""
    now_s: float
    components: Mapping[str, int] = {}
    """How many tasks each component has."""
    component_of: Mapping[int, str] = {}
    """Of each task."""


class StmgrReported(Struct, frozen=True):
    """A Stream Manager said hello, or sent a heartbeat."""

    stmgr_id: str
    incarnation: int
    epoch: int
    """The restore epoch in whose restore it took part; 0: none, it is new."""
    taint: str
    """Why something may be lost or repeated in that epoch (a gap between frames, an instance that died, a batch that
    was refused); empty: nothing is. It stays until the next epoch."""
    tasks: Mapping[int, TaskStatus]
    """Of the attached instances."""
    now_s: float


class StmgrDisconnected(Struct, frozen=True):
    """The session of a Stream Manager has ended. It may be alive."""

    stmgr_id: str
    now_s: float


class TaskSnapshotted(Struct, frozen=True):
    """The snapshot of a task is stored, with all that belongs to it."""

    task: int
    incarnation: int
    checkpoint: int
    epoch: int
    now_s: float
    unaligned: bool = False
    """What was sent before its sources' markers is in its log, not in its state."""
    objects: tuple[bytes, ...] = ()
    """How the manifest names what was stored; opaque."""
    aligned_s: float = 0.0
    """From the task's first marker to its last."""
    undivided: str = ""
    """A state of which only this number of tasks can be restored, in words; empty: there is none."""
    whole: bool = True
    """It needs nothing that an earlier checkpoint has."""


class ManifestWritten(Struct, frozen=True):
    """The manifest of a checkpoint is stored."""

    checkpoint: int
    epoch: int
    now_s: float
    size: CheckpointSize = SIZE_UNKNOWN


class ManifestFailed(Struct, frozen=True):
    """The manifest of a checkpoint is not stored, as far as is known."""

    checkpoint: int
    epoch: int
    reason: str
    now_s: float
    damage: bool = False
    """Something that it would be made of is damaged: maybe the checkpoint before."""
    lasting: bool = False
    """The next one is bound to fail, too."""


class CheckpointLost(Struct, frozen=True):
    """The newest committed checkpoint is not whole any more."""

    checkpoint: int
    reason: str
    now_s: float


class TaskSnapshotFailed(Struct, frozen=True):
    """A task cannot take part in a checkpoint."""

    task: int
    checkpoint: int
    epoch: int
    reason: str
    now_s: float
    lasting: bool = False
    """The next one is bound to fail, too."""


class RollbackRequested(Struct, frozen=True):
    """User code of a task failed in a way that only a restore undoes."""

    task: int
    epoch: int
    reason: str
    now_s: float
    tuple: bytes = b""
    """What distinguishes the tuple that failed from others; empty: it was none."""
    lasting: bool = False
    """It was none, and nothing out of reach: what failed is bound to fail again."""


class CheckpointRequested(Struct, frozen=True):
    """A checkpoint is wanted as soon as there is none under way, and not only when the next is due."""

    now_s: float


class CheckpointDamaged(Struct, frozen=True):
    """A task cannot restore a checkpoint. It will try again."""

    task: int
    epoch: int
    checkpoint: int
    reason: str
    now_s: float
    unreadable: bool = False
    """What is stored is intact, but batches in its log cannot be deserialized: only an older one can be restored."""


class IntactFound(Struct, frozen=True):
    """All checkpoints that are kept were looked at."""

    epoch: int
    checkpoint: int
    """The newest that can be restored; 0: none."""
    refused: tuple[str, ...]
    """Why each newer one cannot."""
    now_s: float
    logged_tasks: Mapping[str, int] = {}
    """How many tasks some components must have for the newest that is refused for nothing but batches in its logs."""


class IntactUnknown(Struct, frozen=True):
    """They cannot be looked at now."""

    epoch: int
    reason: str
    now_s: float


class TimePassed(Struct, frozen=True):
    now_s: float


Event = (
    FenceChanged
    | TasksChanged
    | StmgrReported
    | StmgrDisconnected
    | TaskSnapshotted
    | TaskSnapshotFailed
    | ManifestWritten
    | ManifestFailed
    | CheckpointLost
    | RollbackRequested
    | CheckpointRequested
    | CheckpointDamaged
    | IntactFound
    | IntactUnknown
    | TimePassed
    | NodesRead
    | NodeWritten
    | NodeChanged
    | StoreFailed
)

# -- effects -----------------------------------------------------------------------------------------------------------


class BeginCheckpoint(Struct, frozen=True):
    """Have the tasks without inputs behind a Stream Manager take their snapshots, and send markers."""

    stmgr_id: str
    checkpoint: int
    epoch: int


class AbortCheckpoint(Struct, frozen=True):
    """Have all tasks let go of a checkpoint that will not be committed."""

    stmgr_id: str
    checkpoint: int
    epoch: int
    whole: bool = False
    """What is committed is lost or damaged: the next snapshots have all that there is."""


class WriteManifest(Struct, frozen=True):
    """Store what names all objects of a checkpoint; answered by `ManifestWritten` or `ManifestFailed`."""

    checkpoint: int
    epoch: int
    previous: int
    """The last that was committed, whose objects may still be needed; 0: none."""
    objects: tuple[bytes, ...]
    """Of all tasks' snapshots."""
    tasks: Mapping[str, int]
    """How many tasks each component has."""
    duration_s: float
    """Since the checkpoint began."""


class AnnounceCommit(Struct, frozen=True):
    """Have all tasks notified that this checkpoint is committed, and all before it are done with."""

    stmgr_id: str
    checkpoint: int


class RestoreTasks(Struct, frozen=True):
    """Have tasks that are not in this epoch yet enter it with the state of a checkpoint, and then wait.

    All others wait for an order of their own: a task may not restore on its own account.
    """

    stmgr_id: str
    epoch: int
    checkpoint: int
    tasks: frozenset[int]
    """Whom it concerns."""
    set_aside: Mapping[bytes, str] = {}
    """The tuples that are not to be executed any more, and why each has failed."""


class ResumeTasks(Struct, frozen=True):
    """Have tasks that have restored this epoch run, if they are these incarnations."""

    stmgr_id: str
    epoch: int
    incarnations: Mapping[int, int]


Shares = Mapping[str, Mapping[int, tuple[int, int]]]
"""By Stream Manager and task, the index of the task in its component, and how many tasks that has."""


class ReadAhead(Struct, frozen=True):
    """Have tasks read what is committed, for numbers of tasks that may be restored soon. Nothing is decided."""

    stmgr_id: str
    epoch: int
    checkpoint: int
    shares: Mapping[int, tuple[int, int]]
    """As in `Shares`."""


class RaiseRestoreEpoch(Struct, frozen=True):
    """Make the restore epoch larger than this one, durably; answered by `FenceChanged`."""

    above: int
    reason: str


class DiscardCheckpoints(Struct, frozen=True):
    """Checkpoints older than this one may be deleted, except for those that are kept: the others were committed and are
    kept no longer, or were aborted for good. Answered by `CheckpointLost` if the newest that is kept is incomplete."""

    keep: tuple[int, ...]
    before: int


class FindIntact(Struct, frozen=True):
    """Find the newest of these checkpoints that can be restored; answered by `IntactFound` or `IntactUnknown`."""

    epoch: int
    committed: tuple[int, ...]
    tasks: Mapping[str, int]
    """How many each component will have: batches in logs are for as many as there were. Empty: that is not known, so
    one with logs cannot be restored."""


class CheckLeadership(Struct, frozen=True):
    """A write was refused: check whether this Topology Master still leads."""


Effect = (
    BeginCheckpoint
    | AbortCheckpoint
    | WriteManifest
    | AnnounceCommit
    | RestoreTasks
    | ResumeTasks
    | ReadAhead
    | RaiseRestoreEpoch
    | DiscardCheckpoints
    | FindIntact
    | CheckLeadership
    | ReadNodes
    | WriteNode
)
