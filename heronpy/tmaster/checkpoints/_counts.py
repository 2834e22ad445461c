"""What has become of checkpoints and restores, as far as this Topology Master knows."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from heronpy.tmaster.checkpoints._settings import Failure

ENDED_MAX = 50
"""So many of the last checkpoints are known, and as many of the last restores."""


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """Bytes of a checkpoint; all 0: not known."""

    total: int = 0
    added: int = 0
    """What it has more than the one before."""
    logged: int = 0
    """What tasks had yet to execute."""


SIZE_UNKNOWN = CheckpointSize()


@dataclass(frozen=True, slots=True)
class EndedCheckpoint:
    """A checkpoint that was committed, or failed."""

    id: int
    ended_s: float
    took_s: float
    """From its beginning; 0: not known."""
    failure: str = ""
    """Why it was not committed; empty: it was."""
    aligned_s: float = 0.0
    """The longest that a task waited from its first marker to its last."""
    size: CheckpointSize = SIZE_UNKNOWN


@dataclass(frozen=True, slots=True)
class BegunRestore:
    """A restore of the tasks. The start of a topology is none."""

    epoch: int
    checkpoint: int
    """0: nothing was committed yet."""
    began_s: float
    reason: str
    """What was lost; empty: another Topology Master knew."""


@dataclass(slots=True)
class CheckpointCounts:
    """Counts since this Topology Master began, and the last checkpoints and restores, oldest first."""

    committed: int = 0
    failed: Counter[Failure] = field(default_factory=Counter)
    restores: int = 0
    last_failure: str = ""
    lasting: int = 0
    """Failures that the next checkpoint is bound to meet again: of user code, of a value, of a storage that refuses."""
    lasting_reason: str = ""
    """Of the last of these."""
    last_took_s: float = 0.0
    last_size: CheckpointSize = SIZE_UNKNOWN
    """Of the last that was committed."""
    damaged: int = 0
    """Checkpoints that could not be restored."""
    since_s: float | None = None
    """When the last one was committed; before that, when all tasks began to run; None: they never did."""
    ended: deque[EndedCheckpoint] = field(default_factory=lambda: deque(maxlen=ENDED_MAX))
    restored: deque[BegunRestore] = field(default_factory=lambda: deque(maxlen=ENDED_MAX))

    def run(self, now_s: float) -> None:
        """All tasks run."""
        if self.since_s is None:
            self.since_s = now_s

    def commit(self, id: int, took_s: float, aligned_s: float, size: CheckpointSize, now_s: float) -> None:
        """Count a checkpoint that was committed."""
        self.committed += 1
        self.last_took_s, self.last_size, self.since_s = took_s, size, now_s
        self.ended.append(EndedCheckpoint(id, now_s, took_s, aligned_s=aligned_s, size=size))

    def fail(self, id: int, failure: Failure, reason: str, took_s: float, now_s: float) -> None:
        """Count a checkpoint that failed."""
        self.failed[failure] += 1
        why = f"{failure.value}: {reason}"
        self.last_failure = f"checkpoint {id}: {why}"
        self.ended.append(EndedCheckpoint(id, now_s, took_s, why))

    def meet_again(self, reason: str) -> None:
        """Count a failure that the next checkpoint is bound to meet again."""
        self.lasting += 1
        self.lasting_reason = reason

    def restore(self, epoch: int, checkpoint: int, reason: str, now_s: float) -> None:
        """Count a restore that begins."""
        self.restores += 1
        self.restored.append(BegunRestore(epoch, checkpoint, now_s, reason))
