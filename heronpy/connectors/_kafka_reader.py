"""The partitions of one task of a consumer group that divides them by number."""

# Partitions are assigned by hand, not by the group's protocol: partition n is read by task n modulo the number of
# tasks, also while others are being restarted, and nothing stops for a rebalance. The group only keeps the offsets.

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from heronpy.connectors._kafka_splits import PartitionReader, Partitions
from heronpy.connectors.spi import Record, SourceContext, SourceReader

_COMMIT_EVERY_S = 1.0


class _Acked:
    """How far a partition is acked without a gap."""

    def __init__(self, reader: PartitionReader) -> None:
        self.reader = reader
        self.out: dict[int, None] = {}
        """Offsets that are not acked, the smallest first."""
        self.over = False
        """It has ended, and was asked again since it gave its last record."""
        self.sent = -1

    def commit(self) -> None:
        offset = next(iter(self.out)) if self.out else self.reader.position[0]
        if offset != self.sent:
            self.sent = offset
            self.reader.committed((offset,))


class KafkaReader(SourceReader):
    """Commits what is acked without a gap to the group, every second."""

    def __init__(
        self,
        partitions: Partitions,
        context: SourceContext,
        *,
        discover_every_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._partitions = partitions
        self._context = context
        self._every_s = discover_every_s
        self._clock = clock
        self._mine: dict[int, _Acked] = {}
        self._turn: deque[_Acked] = deque()
        self._paused: Collection[_Acked] = ()
        self._committed_s = clock()
        self._discover()

    def read(self, limit: int) -> Sequence[Record]:
        if self._every_s is not None and self._clock() >= self._discovered_s + self._every_s:
            self._discover()
        self._commit_if_due()
        for _ in range(len(self._turn)):
            acked = self._turn[0]
            self._turn.rotate(-1)
            if acked in self._paused:
                continue
            records = acked.reader.read(limit)
            acked.over = not records and acked.reader.ended
            if records:
                tokens = [tuple(map(int, record.id.split(":"))) for record in records]
                acked.out.update((offset, None) for _, offset in tokens)
                return [record._replace(token=token) for record, token in zip(records, tokens, strict=True)]
        return []

    def ack(self, records: Sequence[Record]) -> None:
        for record in records:
            partition, offset = record.token
            if partition in self._mine:  # else it is of a reader before this one, with other partitions
                self._mine[partition].out.pop(offset, None)
        self._commit_if_due()

    def splits(self) -> Collection[str]:
        return [str(number) for number, acked in self._mine.items() if not acked.over]

    def pause(self, splits: Collection[str]) -> None:
        self._paused = {self._mine[int(split)] for split in splits}

    def split_of(self, record: Record) -> str:
        return str(record.token[0])

    @property
    def ended(self) -> bool:
        return all(acked.reader.ended for acked in self._turn)

    def close(self) -> None:
        for acked in self._turn:
            acked.commit()
        for acked in self._turn:
            acked.reader.close()
        self._turn.clear()

    def _commit_if_due(self) -> None:
        if self._clock() >= self._committed_s + _COMMIT_EVERY_S:
            self._committed_s = self._clock()
            for acked in self._turn:
                acked.commit()

    def _discover(self) -> None:
        self._discovered_s = self._clock()
        for number, partition in self._partitions.known().items():
            if number % self._context.num_tasks == self._context.task_index and number not in self._mine:
                reader = PartitionReader(self._partitions, partition, None, self._context.dead_letter)
                self._mine[number] = _Acked(reader)
                self._turn.append(self._mine[number])
