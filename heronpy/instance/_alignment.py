"""When a task takes its snapshot of a checkpoint, and what of its inputs belongs into it: decisions only.

Chandy and Lamport, "Distributed Snapshots" (1985), as Flink has it (Carbone et al., arXiv:1506.08603). Between two
tasks everything is in order, so a marker from a source divides what that source has sent into what the snapshot covers
and what it does not. Batches of a source whose marker has come are *set aside* until the markers of the others have
come, too. Then the snapshot is taken behind everything that was delivered, and is complete by itself.

Two cases cannot wait, and need a *log* of batches that the snapshot does not cover though its sources sent them before
their markers; a restore delivers it again before anything else:

* An edge that closes a cycle would wait for itself. The task does not wait for its marker, and logs what comes over it
  until the marker has gone round.
* With a slow task or a slow source, setting aside takes too long, or more memory than there is. Then the task switches
  to *unaligned*: it takes its snapshot between two tuples, and what was delivered to it and not executed is the
  beginning of the log (the rest of the batch in hand is a batch whose first tuples are skipped). Unlike Flink's, its
  markers do not overtake what it has sent: that is bounded elsewhere.

The coordinator has one checkpoint under way, so a marker of a newer one means that the older one was aborted. There is
one `Alignment` for each restore epoch: what was set aside in an earlier one was sent before the restore, and is dropped
with it. A source that has ended says so again in each epoch,
and goes on sending markers: what was lost of it before shows by them, and nothing waits for them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SET_ASIDE_BYTES_MAX = 64 << 20
LOG_BYTES_MAX = 256 << 20
ALIGNMENT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class InputBatch:
    """What one task has sent to this one; opaque."""

    source: int
    data: bytes
    skip: int = 0
    """So many tuples at its beginning are executed already, as far as a restored task is concerned."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Put a batch behind what was delivered to the task before."""

    batch: InputBatch


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Have the task, once it has executed what was delivered before, take its snapshot and send its markers."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class SnapshotNow:
    """The same between two tuples; answered by `snapshot_taken`, with what the task has not executed."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class CompleteSnapshot:
    """Nothing more belongs into the snapshot than what the task has taken, and this log."""

    checkpoint: int
    log: tuple[InputBatch, ...]

    @property
    def unaligned(self) -> bool:
        """Whether it is not complete by itself. A task may have waited no longer and yet missed nothing."""
        return bool(self.log)


@dataclass(frozen=True, slots=True)
class FailSnapshot:
    """This task takes no part in a checkpoint any more: report that, and drop what was taken."""

    checkpoint: int
    reason: str


Effect = Deliver | Snapshot | SnapshotNow | CompleteSnapshot | FailSnapshot


class _Stage(enum.Enum):
    ALIGNING = enum.auto()
    """Waits for markers."""
    TAKING = enum.auto()
    """`SnapshotNow` is not answered yet."""
    LOGGING = enum.auto()
    """The snapshot is taken, and markers are missing."""


@dataclass(slots=True)
class _Checkpoint:
    id: int
    since_s: float
    stage: _Stage = _Stage.ALIGNING
    marked: set[int] = field(default_factory=set)
    """Sources whose markers have come."""
    aside: list[tuple[InputBatch, bool]] = field(default_factory=list)
    """What is not delivered yet, and whether it was sent before its source's marker."""
    aside_bytes: int = 0
    log: list[InputBatch] = field(default_factory=list)
    log_bytes: int = 0


class Alignment:
    """The inputs of one task in one restore epoch."""

    def __init__(
        self,
        inputs: Iterable[int],
        back: Iterable[int] = (),
        *,
        set_aside_bytes_max: int = SET_ASIDE_BYTES_MAX,
        log_bytes_max: int = LOG_BYTES_MAX,
        timeout_s: float = ALIGNMENT_TIMEOUT_S,
    ) -> None:
        """Begin with no checkpoint under way.

        Args:
            inputs: All tasks that send to this one.
            back: Those among them whose edge closes a cycle (`plan.feedback_edges`).
            set_aside_bytes_max: With more than that set aside, the task switches to unaligned.
            log_bytes_max: With more than that to be logged, it fails the checkpoint.
            timeout_s: So long after the first marker, the task switches to unaligned.
        """
        self._open = set(inputs)
        """Sources that have not ended."""
        self._back = frozenset(back)
        assert self._back <= self._open, "an edge leads back from a task that is no input"
        self._set_aside_bytes_max, self._log_bytes_max = set_aside_bytes_max, log_bytes_max
        self._timeout_s = timeout_s
        self._current: _Checkpoint | None = None
        self._done = 0
        """The newest checkpoint that this task is done with, one way or another."""
        self._begun = 0
        """The newest that the coordinator is known to have begun."""

    @property
    def in_progress(self) -> int:
        """The checkpoint under way; 0: none."""
        return self._current.id if self._current is not None else 0

    @property
    def set_aside_bytes(self) -> int:
        return self._current.aside_bytes if self._current is not None else 0

    @property
    def full(self) -> bool:
        """Whether nothing more is to be read from the inputs: the task is about to answer `SnapshotNow`."""
        current = self._current
        taking = current is not None and current.stage is _Stage.TAKING
        return taking and self.set_aside_bytes > self._set_aside_bytes_max

    @property
    def due_s(self) -> float | None:
        """When `time_passed` has something to do."""
        if self._current is None or self._current.stage is not _Stage.ALIGNING:
            return None
        return self._current.since_s + self._timeout_s

    # -- events --------------------------------------------------------------------------------------------------------

    def restored(self, log: Sequence[InputBatch]) -> list[Effect]:
        """The task has its state back. What its snapshot did not cover comes before everything else."""
        assert self._current is None, "a restore is the beginning of an epoch"
        return [Deliver(batch) for batch in log]

    def received(self, batch: InputBatch) -> list[Effect]:
        """A batch has come."""
        current = self._current
        if current is None:
            return [Deliver(batch)]
        before = batch.source not in current.marked
        if current.stage is _Stage.TAKING or (current.stage is _Stage.ALIGNING and not before):
            current.aside.append((batch, before))
            current.aside_bytes += len(batch.data)
            if current.stage is _Stage.ALIGNING and current.aside_bytes > self._set_aside_bytes_max:
                return self._switch(current)
            return []
        if current.stage is _Stage.LOGGING and before:
            return [Deliver(batch), *self._log(current, [batch])]
        return [Deliver(batch)]

    def marked(self, source: int, checkpoint: int, now_s: float) -> list[Effect]:
        """The marker of a checkpoint has come from a source."""
        if checkpoint <= self._done or checkpoint < self.in_progress or source not in self._open:
            return []
        effects = self._start(checkpoint, now_s)
        current = self._current
        assert current is not None
        current.marked.add(source)
        return [*effects, *self._advance(current)]

    def begun(self, checkpoint: int, now_s: float) -> list[Effect]:
        """The coordinator has begun a checkpoint. A task without inputs has no marker to wait for."""
        self._begun = max(self._begun, checkpoint)
        if self._begun <= self._done or self._begun <= self.in_progress or self._open - self._back:
            return []
        effects = self._start(self._begun, now_s)
        assert self._current is not None
        return [*effects, *self._advance(self._current)]

    def ended(self, source: int, now_s: float) -> list[Effect]:
        """A source has sent its last batch. No task waits for its markers from now on."""
        self._open.discard(source)
        if self._current is not None:
            return self._advance(self._current)
        return self.begun(self._begun, now_s)

    def aborted(self, checkpoint: int) -> list[Effect]:
        """The coordinator has aborted a checkpoint, and all before it have ended as well."""
        self._done = max(self._done, checkpoint)
        if self._current is None or self._current.id > checkpoint:
            return []
        return self._give_up(self._current, "it was aborted")

    def time_passed(self, now_s: float) -> list[Effect]:
        """Check whether an alignment takes too long."""
        if self._current is None or self.due_s is None or now_s < self.due_s:
            return []
        return self._switch(self._current)

    def snapshot_taken(self, checkpoint: int, unexecuted: Sequence[InputBatch]) -> list[Effect]:
        """The task has taken a snapshot between two tuples.

        Args:
            checkpoint: As in `SnapshotNow`.
            unexecuted: What was delivered and is not covered by the snapshot, in order.
        """
        current = self._current
        if current is None or current.id != checkpoint or current.stage is not _Stage.TAKING:
            return []
        current.stage = _Stage.LOGGING
        log = [*unexecuted, *(batch for batch, before in current.aside if before)]
        effects = self._release(current)
        return [*effects, *self._log(current, log), *(self._advance(current) if self._current is current else [])]

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _start(self, checkpoint: int, now_s: float) -> list[Effect]:
        """Make a checkpoint the one under way, unless it is."""
        effects: list[Effect] = []
        if self._current is not None and self._current.id < checkpoint:
            effects = self._give_up(self._current, f"checkpoint {checkpoint} has begun")
        if self._current is None:
            self._current = _Checkpoint(checkpoint, now_s)
        return effects

    def _advance(self, current: _Checkpoint) -> list[Effect]:
        """Take the snapshot when no task is left to wait for; end when every marker has come."""
        effects: list[Effect] = []
        missing = self._open - current.marked
        if current.stage is _Stage.ALIGNING and missing <= self._back:
            current.stage = _Stage.LOGGING
            effects = [Snapshot(current.id), *self._release(current)]
        if current.stage is _Stage.LOGGING and not missing:
            self._done, self._current = current.id, None
            effects.append(CompleteSnapshot(current.id, tuple(current.log)))
        return effects

    def _switch(self, current: _Checkpoint) -> list[Effect]:
        """Wait no longer."""
        current.stage = _Stage.TAKING
        return [SnapshotNow(current.id)]

    def _log(self, current: _Checkpoint, batches: Sequence[InputBatch]) -> list[Effect]:
        current.log += batches
        current.log_bytes += sum(len(batch.data) for batch in batches)
        if current.log_bytes <= self._log_bytes_max:
            return []
        missing = ", ".join(map(str, sorted(self._open - current.marked)[:10]))
        return self._give_up(current, f"more than {self._log_bytes_max} bytes came before the markers of {missing}")

    def _release(self, current: _Checkpoint) -> list[Effect]:
        """Deliver what was set aside."""
        aside, current.aside, current.aside_bytes = current.aside, [], 0
        return [Deliver(batch) for batch, _ in aside]

    def _give_up(self, current: _Checkpoint, reason: str) -> list[Effect]:
        self._done, self._current = max(self._done, current.id), None
        return [FailSnapshot(current.id, reason), *self._release(current)]

    def check_invariants(self) -> None:
        current = self._current
        if current is None:
            return
        assert current.id > self._done
        assert current.aside_bytes == sum(len(batch.data) for batch, _ in current.aside)
        assert current.log_bytes == sum(len(batch.data) for batch in current.log) <= self._log_bytes_max
        missing = self._open - current.marked
        if current.stage is _Stage.ALIGNING:
            assert missing - self._back, "it waits for no task"
            assert not current.log
            assert all(batch.source in current.marked and not before for batch, before in current.aside)
            assert current.aside_bytes <= self._set_aside_bytes_max
        elif current.stage is _Stage.LOGGING:
            assert missing, "it waits for no task"
            assert not current.aside, "what was set aside is forgotten"


__all__ = [
    "ALIGNMENT_TIMEOUT_S",
    "LOG_BYTES_MAX",
    "SET_ASIDE_BYTES_MAX",
    "Alignment",
    "CompleteSnapshot",
    "Deliver",
    "Effect",
    "FailSnapshot",
    "InputBatch",
    "Snapshot",
    "SnapshotNow",
]
