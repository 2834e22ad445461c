"""At least once with state: which complete trees may be reported to a spout. Decisions only.

A tree that is complete has been executed, but what it did to state is durable only with a checkpoint that covers it.
That is any whose marker the spout sent after the tree was complete: what came of the tree was sent before the markers
that follow from this one, and so is in the snapshots of the tasks that executed it, or, if a task took its snapshot
earlier, in its log, which a restore delivers again. `Spout.ack` is called when such a checkpoint is committed.

A restore takes all state back to the last commit. Whatever no commit covers is failed, and replayed by its source; what
is still pending fails with the epoch, as everything under way is dropped.

Between the end of a tree and the commit its root is neither pending nor subject to the message timeout. So that this is
bounded when no checkpoint is committed for long, a spout is to emit nothing new while the ledger is `full`.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
ROOTS_MAX = 1_000_000


class CommitLedger(Generic[T]):
    """The complete roots of one spout task that no commit covers yet, in the groups in which they became so."""

    def __init__(self, roots_max: int = ROOTS_MAX) -> None:
        """Start with none.

        Args:
            roots_max: With so many the ledger is full. It still takes what was under way.
        """
        self._roots_max = roots_max
        self._open: list[T] = []
        """Complete since the last marker."""
        self._open_count = 0
        self._closed: deque[tuple[int, list[T], int]] = deque()
        """For each checkpoint, what was complete before its marker and after the one before, and how many roots."""
        self.count = 0
        """How many roots wait for a commit."""

    @property
    def full(self) -> bool:
        return self.count >= self._roots_max

    def completed(self, group: T, count: int) -> None:
        """The trees of a group of so many roots are complete."""
        self._open.append(group)
        self._open_count += count
        self.count += count

    def marker_sent(self, checkpoint: int) -> None:
        """The spout's marker is on its way, after everything before.

        A checkpoint that is aborted needs no call of its own: what it would have covered, the next commit covers.
        """
        assert not self._closed or checkpoint > self._closed[-1][0], "checkpoints come in order"
        self._closed.append((checkpoint, self._open, self._open_count))
        self._open, self._open_count = [], 0

    def committed(self, checkpoint: int) -> list[T]:
        """A checkpoint is committed, and with it all before. Returns what may be acked, in order."""
        acked: list[T] = []
        while self._closed and self._closed[0][0] <= checkpoint:
            _, groups, count = self._closed.popleft()
            acked += groups
            self.count -= count
        return acked

    def restored(self, checkpoint: int) -> tuple[list[T], list[T]]:
        """State is that of a checkpoint again, whose commit may be unreported to spouts. Returns (acked, failed)."""
        acked = self.committed(checkpoint)
        failed = [group for _, groups, _ in self._closed for group in groups] + self._open
        self._closed.clear()
        self._open, self._open_count, self.count = [], 0, 0
        return acked, failed

    def check_invariants(self) -> None:
        assert self.count == self._open_count + sum(count for _, _, count in self._closed)
