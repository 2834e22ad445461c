"""How many tuples of each split may be on their way, where splits are read in turn and their number is limited.

Windows hold what a split gives that is ahead of another until that has come as far. If a split could take up the limit
alone, the other could not be read any more, and both would wait for ever. So each may take up its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from heronpy.connectors.spi import SourceReader

PENDING_MAX: Final = 1_000_000
"""What the engine lets spouts have on their way where windows hold tuples, and nothing else is configured."""
READS_PER_SHARE: Final = 4


class SplitShares:
    """The tuples of one task that are emitted and neither acked nor failed, by split."""

    def __init__(self, pending_max: int) -> None:
        """None are.

        Args:
            pending_max: how many there may be of all splits.
        """
        self._pending_max = pending_max
        self._pending: Counter[str] = Counter()

    def emitted(self, split: str, tuples: int = 1) -> None:
        """So many tuples of it are on their way."""
        self._pending[split] += tuples

    def settled(self, split: str) -> None:
        """One was acked, or failed."""
        self._pending[split] -= 1

    def forget(self) -> None:
        """What was on its way will not be settled."""
        self._pending.clear()

    def divide(self, reader: SourceReader, limit: int, each: int = 1) -> tuple[int, Collection[str]]:
        """Have the reader pause the splits that have their share on the way. Nothing may wait to be emitted.

        If all have, those with the fewest tuples on the way go on, as far as there is room. The engine enforces the
        limit itself, and only where it is reached do tuples time out that windows hold.

        Args:
            reader: whose splits.
            limit: how many records to read at most.
            each: how many tuples are made of a record.

        Returns:
            How many to read now, so that none exceeds its share while others have room; and those that pause.
        """
        splits = reader.splits()
        if not splits:
            return limit, ()
        share = max(1, self._pending_max // len(splits))
        limit = min(limit, max(1, share // (READS_PER_SHARE * each)))
        paused = [split for split in splits if self._pending[split] > share - limit * each]
        if len(paused) == len(splits) and self._pending.total() < self._pending_max:
            fewest = min(self._pending[split] for split in splits)
            paused = [split for split in splits if self._pending[split] > fewest]
        reader.pause(paused)
        return limit, paused
