"""The batch face of a topic: ranges of offsets, up to where the partitions end when they are asked for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from heronpy.connectors._kafka_splits import PartitionReader, Partitions, Reading
from heronpy.connectors.kafka_client import EARLIEST, LATEST, Partition
from heronpy.connectors.spi import Chunk
from heronpy.errors import UnavailableError

_MESSAGE_BYTES: Final = 1024
"""Kafka reports how many messages there are, not how long they are: about."""
_MESSAGES_MIN: Final = 10_000
"""A consumer takes longer to connect than to read fewer."""
_CHUNK_MESSAGES: Final = 1000
_SILENCE_MAX_S: Final = 120.0
_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages of a partition from an offset up to another, as a split. No group knows that they are read."""

    reading: Reading
    partition: Partition

    @property
    def size_bytes(self) -> int:
        assert self.partition.end is not None
        return (self.partition.end - self.partition.start) * _MESSAGE_BYTES

    def read(self, dead_letter: Callable[[str, Any, str], None]) -> Iterator[Chunk]:
        """Its records; see `Split.read`.

        Raises:
            HeronError: they cannot be read, or have been removed meanwhile; one line.
        """
        reader = PartitionReader(Partitions(self.reading), self.partition, None, dead_letter)
        try:
            received_s = time.monotonic()
            while not reader.ended:
                before = reader.position
                if records := reader.read(_CHUNK_MESSAGES):
                    yield Chunk([record.value for record in records], [record.time_ms for record in records])
                if reader.position != before:
                    received_s = time.monotonic()
                elif time.monotonic() > received_s + _SILENCE_MAX_S:
                    what = f"nothing of {reader.where}@{before[0]} came in {_SILENCE_MAX_S:g} s"
                    raise UnavailableError(f"{self.reading.cluster.who}: {what}")
                else:
                    time.sleep(_POLL_S)
        finally:
            reader.close()


def offset_ranges(reading: Reading, target_bytes: int) -> Sequence[OffsetRange]:
    """All messages from where `start` is to the ends of the partitions, without those of open transactions.

    Raises:
        HeronError: as `Admin.describe`.
    """
    admin = reading.cluster.admin()
    topic_id, numbers = admin.describe()
    if not numbers:
        return []
    begins, ends = admin.offsets(numbers, reading.start), admin.offsets(numbers, LATEST, committed_only=True)
    if reading.out_of_range == LATEST:  # a job reads what there is
        reading = dataclasses.replace(reading, out_of_range=EARLIEST)
    step = max(_MESSAGES_MIN, target_bytes // _MESSAGE_BYTES)
    return [
        OffsetRange(reading, Partition(number, topic_id, begin, min(begin + step, ends[number])))
        for number in numbers
        for begin in range(begins[number], ends[number], step)
    ]
