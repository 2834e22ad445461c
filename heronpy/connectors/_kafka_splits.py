"""The partitions of a topic as splits: read from positions that others keep."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from heronpy.connectors._kafka_consumer import OutOfRangeError, PartitionConsumer
from heronpy.connectors._kafka_messages import Decoder, shown
from heronpy.connectors.kafka_client import EARLIEST, LATEST, Admin, Cluster, Partition, locate
from heronpy.connectors.spi import Record, SplitReader
from heronpy.errors import CheckpointError, HeronError, NotFoundError, UnavailableError

_log = logging.getLogger(__name__)
FAIL: Final = "fail"
_NO_EPOCH = -1
_DECODE_AGAIN_S: Final = 1.0
_MISSED: Final = 2
"""So often in a row a topic must not be found to be gone: a broker that has just begun may not know it yet."""


class PartitionPosition(NamedTuple):
    """How far a partition is read. In checkpoints a plain tuple."""

    offset: int
    """Of the next message."""
    leader_epoch: int
    """Of the last one; by it Kafka notices that it has lost messages. -1: not known."""
    topic_id: str
    """A topic that was deleted and made again has another."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a topic is read."""

    cluster: Cluster
    group: str
    decoder: Decoder
    start: str | int
    out_of_range: str
    bounded: bool


class Partitions:
    """The partitions of a topic that a task knows, and the consumer that it reads them with."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._known: dict[int, Partition] | None = None
        self._admin: Admin | None = None
        self._search: threading.Thread | None = None
        self._missed = 0
        """How often in a row there was no such topic."""
        self._gone: HeronError | None = None
        """What to say of a topic that is not the one that was found first."""
        self._consumer: PartitionConsumer | None = None

    def known(self) -> Mapping[int, Partition]:
        """All that were found. The first call asks Kafka; the others let it be asked in the background.

        Raises:
            HeronError: it does not answer, or refuses; only of the first call. Or the topic is deleted.
        """
        if self._gone is not None:
            gone, self._gone = self._gone, None
            raise gone
        if self._known is None:
            self._admin = self.reading.cluster.admin()
            self._known = self._located()
        elif self._search is None or not self._search.is_alive():
            self._search = threading.Thread(target=self._look_again, name="kafka-partitions", daemon=True)
            self._search.start()
        return self._known

    def consumer(self) -> PartitionConsumer:
        """The consumer of all of them; made if there is none."""
        if self._consumer is None:
            self._consumer = PartitionConsumer(self.reading.cluster, self.reading.group)
        return self._consumer

    def shut(self, partition: int) -> None:
        """Read a partition no more. The last one closes the consumer."""
        assert self._consumer is not None
        if self._consumer.shut(partition):
            self._consumer.close()
            self._consumer = None

    def offset_of(self, partition: int, at: str) -> int:
        """The first or the last offset there is now."""
        if self._admin is None:
            self._admin = self.reading.cluster.admin()
        return self._admin.offsets([partition], at)[partition]

    def _located(self, known: Collection[int] = ()) -> dict[int, Partition]:
        assert self._admin is not None
        reading = self.reading
        return locate(self._admin, reading.group, reading.start, reading.bounded, known)

    def _look_again(self) -> None:
        assert self._known is not None
        assert self._admin is not None
        try:
            topic_id, _ = self._admin.describe()
            found = self._located(self._known)
        except NotFoundError as e:
            self._missed += 1
            if self._missed >= _MISSED:
                self._gone = e
            return
        except HeronError as e:
            _log.warning("new partitions cannot be looked for, trying again: %s", e)
            return
        self._missed = 0
        if any(partition.topic_id != topic_id for partition in self._known.values()):
            who = self.reading.cluster.who
            self._gone = CheckpointError(f"{who}: the topic was deleted, and made again, while it was read")
            return
        self._known = found | self._known


class PartitionReader(SplitReader):
    """While Kafka is away there are no records."""

    def __init__(
        self,
        partitions: Partitions,
        partition: Partition,
        position: tuple[Any, ...] | None,
        dead_letter: Callable[[str, Any, str], None],
    ) -> None:
        """Read from a position on; None: where the group begins."""
        self._partitions = partitions
        self._reading = partitions.reading
        self._partition = partition
        self._number = partition.number
        self._dead_letter = dead_letter
        self._consumer = partitions.consumer()
        begin = PartitionPosition(partition.start, _NO_EPOCH, partition.topic_id)
        at = begin if position is None else PartitionPosition(*position)
        self._offset, self._leader_epoch = at.offset, at.leader_epoch
        self._ended = partition.end is not None and self._offset >= partition.end
        self._undecoded: Sequence[Any] = ()
        """Messages whose schema could not be had."""
        self._decode_s = 0.0
        """When they are tried again."""
        if at.topic_id != partition.topic_id:
            self._lost("the topic was deleted, and made again", 0)
        self._consumer.open(self._number, self._offset, self._leader_epoch)

    @property
    def position(self) -> tuple[Any, ...]:
        return (self._offset, self._leader_epoch, self._partition.topic_id)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def where(self) -> str:
        return f"{self._reading.cluster.topic}/{self._number}"

    def committed(self, position: Any) -> None:
        self._consumer.commit(self._number, position[0])

    def close(self) -> None:
        self._partitions.shut(self._number)

    def read(self, limit: int) -> Sequence[Record]:
        if self._ended or limit <= 0:
            return []
        if self._undecoded:
            return self._decoded(self._undecoded, limit) if time.monotonic() >= self._decode_s else []
        try:
            messages = self._consumer.take(self._number, limit)
        except OutOfRangeError as e:
            self._go_on_elsewhere(str(e))
            return []
        return self._decoded(messages, limit)

    def _decoded(self, messages: Sequence[Any], limit: int) -> Sequence[Record]:
        """At most `limit` of them; the others wait."""
        end = self._partition.end
        records: list[Record] = []
        waited, self._undecoded = bool(self._undecoded), messages[limit:]
        for index, message in enumerate(messages[:limit]):
            offset = message.offset()
            if end is not None and offset >= end:
                self._ended = True
                break
            try:
                value = self._reading.decoder.decode(message)
            except ValueError as e:
                self._pass(message)
                self._dead_letter(f"{self.where}@{offset}", shown(message), str(e))
                continue
            except UnavailableError as e:
                if index or not waited:
                    _log.warning("%s@%d cannot be decoded now, trying again: %s", self.where, offset, e)
                self._undecoded, self._decode_s = messages[index:], time.monotonic() + _DECODE_AGAIN_S
                break
            self._pass(message)
            records.append(Record(value, message.timestamp()[1], f"{self._number}:{offset}"))
        if not self._undecoded and (reached := self._consumer.end_of(self._number)) > self._offset:
            self._offset = reached  # behind what is no message: where transactions ended
        if end is not None and self._offset >= end:
            self._ended = True
        if self._ended:
            self._consumer.finish(self._number)
        return records

    def _pass(self, message: Any) -> None:
        """The position is behind it."""
        self._offset = message.offset() + 1
        self._leader_epoch = epoch if (epoch := message.leader_epoch()) is not None else _NO_EPOCH

    def _go_on_elsewhere(self, reason: str) -> None:
        """What is at the position is gone: as `out_of_range` has it."""
        first = self._partitions.offset_of(self._number, EARLIEST)
        if first > self._offset:
            # What is behind the end is for others to read, and to miss.
            end = first if self._partition.end is None else min(first, self._partition.end)
            reason = f"{end - self._offset} messages from offset {self._offset} on were removed before they were read"
        self._consumer.shut(self._number)
        try:
            self._lost(reason, first)
        finally:
            self._consumer.open(self._number, self._offset, self._leader_epoch)

    def _lost(self, reason: str, first: int) -> None:
        at = f"{self.where}@{self._offset}"
        match self._reading.out_of_range:
            case "earliest":
                self._offset = first
            case "latest":
                self._offset = self._partitions.offset_of(self._number, LATEST)
            case _:
                raise CheckpointError(f"{at}: {reason}; out_of_range='earliest' or 'latest' would go on there")
        self._leader_epoch = _NO_EPOCH
        end = self._partition.end
        self._ended = end is not None and self._offset >= end
        then = f"reading ends at offset {end}" if self._ended else f"reading goes on at offset {self._offset}"
        self._dead_letter(at, None, f"{reason}; {then}")
