"""At least once with state: which complete trees a spout may be told of. Decisions only.

A tree that is complete has been executed, but what it did to state is durable only with a checkpoint that covers it.
Where all tasks were aligned, that is any whose marker the spout sent after the tree was complete: every task took its
snapshot after that marker, and had executed its part before. `Spout.ack` is called when such a checkpoint is committed.

A task that switched to unaligned took its snapshot earlier, and what it executed between that and the marker is in its
log, as effects on others may be in none of their snapshots. At least once, tasks that are alive are not put back and do
not deliver their logs again. So an unaligned checkpoint settles only the trees that were complete before the spout's
marker of the last *committed* one before: all of that was over before this one was begun anywhere. (A marker of an
aborted one says nothing: the spout may have sent it when the next one had long begun elsewhere.) The coordinator says
with each commit which marker counts.

A restore takes state back to the last commit. Whatever no commit covers is failed, and replayed by its source; what is
still pending fails with the epoch, as everything under way is dropped.

Between the end of a tree and the commit its root is neither pending nor subject to the message timeout. So that this is
bounded when no checkpoint is committed for long, a spout is to emit nothing new while the ledger is `full`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
ROOTS_MAX = 1_000_000


class CommitLedger(Generic[T]):
    """The complete roots of one spout task that no commit covers yet."""

    def __init__(self, roots_max: int = ROOTS_MAX) -> None:
        """Start with none.

        Args:
            roots_max: With so many the ledger is full. It still takes what was under way.
        """
        self._roots_max = roots_max
        self._open: list[T] = []
        """Complete since the last marker."""
        self._closed: deque[tuple[int, list[T]]] = deque()
        """Complete before the marker of each checkpoint, and after the one before."""
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= self._roots_max

    def completed(self, roots: Iterable[T]) -> None:
        """Trees are complete."""
        before = len(self._open)
        self._open.extend(roots)
        self.count += len(self._open) - before

    def marker_sent(self, checkpoint: int) -> None:
        """The spout's marker is on its way, after everything before.

        A checkpoint that is aborted needs no call of its own: what it would have covered, the next commit covers.
        """
        assert not self._closed or checkpoint > self._closed[-1][0], "checkpoints come in order"
        self._closed.append((checkpoint, self._open))
        self._open = []

    def committed(self, settled: int) -> list[T]:
        """A checkpoint is committed. Returns what may be acked, in order.

        Args:
            settled: The checkpoint before whose marker they must have been complete.
        """
        acked: list[T] = []
        while self._closed and self._closed[0][0] <= settled:
            acked += self._closed.popleft()[1]
        self.count -= len(acked)
        return acked

    def restored(self, settled: int) -> tuple[list[T], list[T]]:
        """State is that of a checkpoint again, of whose commit nobody may have been told. Returns (acked, failed)."""
        acked = self.committed(settled)
        failed = [root for _, roots in self._closed for root in roots] + self._open
        self._closed.clear()
        self._open, self.count = [], 0
        return acked, failed

    def check_invariants(self) -> None:
        assert self.count == len(self._open) + sum(len(roots) for _, roots in self._closed)
