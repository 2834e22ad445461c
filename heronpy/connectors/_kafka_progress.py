"""Which writers a Kafka sink has, and which checkpoints of it are written: a topic with two partitions."""

# Partition 0 has the writers: who opened the sink as which task in which restore epoch. It is read to its end, also
# what is in open transactions: of two that open at the same time, both write first and read then, so at least one sees
# the other. Partition 1 has, for each task, the newest checkpoint whose messages are there, and is read as consumers of
# the messages see them: up to the first open transaction. Kafka compacts both.

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from heronpy.connectors.kafka_client import LATEST, Admin, Cluster, Errors, opened
from heronpy.errors import UnavailableError

WRITERS: Final = 0
PROGRESS: Final = 1
_CONFIG: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "600000"}
_CATCH_UP_S: Final = 90.0
"""A transaction of a process that died ends after a minute, unless it was a large one."""
_POLL_S: Final = 0.1


class Writer(NamedTuple):
    """Who writes, or wrote; one key of partition 0."""

    sink: str
    task: int
    epoch: int

    @property
    def transactional_id(self) -> str:
        return f"heron-{self.sink}-{self.task}-{self.epoch}"


def make_topic(admin: Any, topic: str) -> None:
    """Make the topic unless it is there. What goes wrong shows when it is read."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    with contextlib.suppress(KafkaException):
        admin.create_topics([NewTopic(topic, 2, -1, config=dict(_CONFIG))])[topic].result(_CATCH_UP_S)


class ProgressLog:
    """What is in the topic, as far as it was read."""

    def __init__(self, cluster: Cluster, admin: Admin, errors: Errors) -> None:
        """`cluster.topic` is the progress topic, and `admin` about it."""
        self._admin = admin
        self.writers: dict[Writer, str] = {}
        """Those that are not fenced, with the name of each."""
        self.checkpoints: dict[tuple[str, int], int] = {}
        """By sink and task; -1: none yet."""
        self._all = _Reader(cluster, errors, WRITERS, "read_uncommitted")
        self._committed = _Reader(cluster, errors, PROGRESS, "read_committed")

    def read_writers(self) -> None:
        """Everything that is there now. Raises HeronError if it cannot be read."""
        self._all.read_to(self._end_of(WRITERS), self._note_writer)

    def read_progress(self) -> None:
        """As `read_writers`. Waits for transactions that are open."""
        self._committed.read_to(self._end_of(PROGRESS), self._note_progress)

    def close(self) -> None:
        self._all.close()
        self._committed.close()

    def _end_of(self, partition: int) -> int:
        return self._admin.offsets([partition], LATEST)[partition]

    def _note_writer(self, key: bytes, value: bytes | None) -> None:
        writer = Writer(*msgspec.json.decode(key, type=tuple[str, int, int]))
        if value is None:
            self.writers.pop(writer, None)
        else:
            self.writers[writer] = value.decode()

    def _note_progress(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            sink, task = msgspec.json.decode(key, type=tuple[str, int])
            self.checkpoints[sink, task] = max(int(value), self.checkpoints.get((sink, task), -1))


class _Reader:
    """Reads one partition from its beginning."""

    def __init__(self, cluster: Cluster, errors: Errors, partition: int, isolation: str) -> None:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        self._cluster, self._errors = cluster, errors
        self._eof = KafkaError._PARTITION_EOF
        self._offset = 0
        config = {
            "group.id": "heron-progress",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "error_cb": errors.on_error,
        }
        with opened(cluster.who):
            self._consumer = Consumer(cluster.config({"isolation.level": isolation, "fetch.wait.max.ms": 50, **config}))
        self._consumer.assign([TopicPartition(cluster.topic, partition, 0)])

    def read_to(self, end: int, note: Callable[[bytes, bytes | None], None]) -> None:
        deadline_s = time.monotonic() + _CATCH_UP_S
        while self._offset < end:
            # `consume` would wait until it has as many as it was asked for.
            first = self._consumer.poll(_POLL_S)
            for message in [first, *self._consumer.consume(1000, 0)] if first is not None else ():
                if (error := message.error()) is None:
                    note(message.key(), message.value())
                    self._offset = message.offset() + 1
                elif error.code() == self._eof:
                    self._offset = max(self._offset, message.offset())
                else:
                    self._errors.on_error(error)
            if time.monotonic() > deadline_s:
                reason = self._errors.last or "a transaction is open"
                raise UnavailableError(f"{self._cluster.who}: the topic cannot be read to its end: {reason}")

    def close(self) -> None:
        self._consumer.close()
