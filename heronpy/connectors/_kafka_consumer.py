"""One consumer of Kafka for all partitions that a task reads."""

# librdkafka takes some threads and connections for a consumer, so there is one for a task, not one for a partition. It
# gives out messages of all partitions in one order; those of a partition whose turn it is not wait here. When its turn
# does not come, because it is not read, the partition is paused, so that the others are not held up.

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from heronpy.connectors.kafka_client import Cluster, Errors, opened, refused, said
from heronpy.errors import CheckpointError

_log = logging.getLogger(__name__)
WAITING_MAX: Final = 1000
"""So many messages wait here, and a few more."""


class OutOfRangeError(CheckpointError):
    """The messages at a position are gone."""


class _Queue:
    """What waits of one partition."""

    __slots__ = ("asked", "end", "failure", "messages", "paused")

    def __init__(self) -> None:
        self.asked = 0
        """In which call of `take` the last time; 0: never."""
        self.messages: deque[Any] = deque()
        self.end = -1
        """Offset of the partition's end, when it was last reached."""
        self.failure: Exception | None = None
        self.paused = False


class PartitionConsumer:
    """Reads the partitions that are open; commits offsets for tools to see."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        """Connects in the background."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        self._cluster = cluster
        self._error, self._place = KafkaError, TopicPartition
        self._errors = Errors(cluster.who)
        self._queues: dict[int, _Queue] = {}
        self._waiting = 0
        self._takes = 0
        self._commits: dict[int, int] = {}
        self._unsaid = True
        """Whether commits went well lately."""
        defaults = {
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 16_384,
            "fetch.wait.max.ms": 100,
        }
        ours = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self._errors.on_error,
            "on_commit": self._committed,
        }
        with opened(cluster.who):
            self._consumer = Consumer(defaults | cluster.config(ours))

    def open(self, partition: int, offset: int, leader_epoch: int) -> None:
        """Read a partition from an offset on."""
        assert partition not in self._queues
        self._queues[partition] = _Queue()
        place = self._place(self._cluster.topic, partition, offset, leader_epoch=leader_epoch)
        self._consumer.incremental_assign([place])

    def shut(self, partition: int) -> bool:
        """Read it no more. Whether none is left."""
        queue = self._queues.pop(partition)
        self._waiting -= 0 if queue.paused else len(queue.messages)
        self._consumer.incremental_unassign([self._place(self._cluster.topic, partition)])
        return not self._queues

    def finish(self, partition: int) -> None:
        """Fetch no more of it; it is still open, for commits. What waits of it must not keep others from being read."""
        queue = self._queues[partition]
        if not queue.paused:
            queue.paused = True
            self._waiting -= len(queue.messages)
            self._consumer.pause([self._place(self._cluster.topic, partition)])
        queue.messages.clear()

    def take(self, partition: int, limit: int) -> Sequence[Any]:
        """The next messages of a partition; at most `limit`, empty if there are none now.

        Raises:
            OutOfRangeError: those at its position are gone.
            HeronError: it cannot be read; one line.
        """
        queue = self._queues[partition]
        if queue.paused:
            queue.paused = False
            self._waiting += len(queue.messages)
            self._consumer.resume([self._place(self._cluster.topic, partition)])
        if not queue.messages:
            if self._waiting >= WAITING_MAX:
                self._pause_unread(queue.asked)
            if self._waiting < WAITING_MAX:
                self._poll(limit)
        self._takes += 1
        queue.asked = self._takes
        messages = queue.messages
        if not messages:
            if queue.failure is not None:
                failure, queue.failure = queue.failure, None
                raise failure
            return ()
        taken = [messages.popleft() for _ in range(min(limit, len(messages)))]
        self._waiting -= len(taken)
        return taken

    def end_of(self, partition: int) -> int:
        """The end of a partition of which everything has been taken; -1: there is more, or it is not known yet."""
        queue = self._queues[partition]
        return -1 if queue.messages else queue.end

    def commit(self, partition: int, offset: int) -> None:
        """What is before an offset need not be read again. Sent with the next `take`."""
        self._commits[partition] = offset

    def close(self) -> None:
        """Sends what is to be committed, and lets go."""
        self._send_commits()
        self._consumer.close()

    def _poll(self, limit: int) -> None:
        self._send_commits()
        for message in self._consumer.consume(limit, 0):
            queue = self._queues.get(message.partition())
            error = message.error()
            if error is not None:
                self._note(queue, message, error)
            elif queue is not None:
                queue.messages.append(message)
                self._waiting += 1
                self._errors.well()

    def _note(self, queue: _Queue | None, message: Any, error: Any) -> None:
        code = error.code()
        if code == self._error._PARTITION_EOF:
            if queue is not None:
                queue.end = message.offset()
            self._errors.well()
        elif code in (self._error._AUTO_OFFSET_RESET, self._error.OFFSET_OUT_OF_RANGE, self._error._LOG_TRUNCATION):
            if queue is not None:
                queue.failure = OutOfRangeError(said(error))
        elif code in (
            self._error.UNKNOWN_TOPIC_OR_PART,
            self._error._UNKNOWN_TOPIC,
            self._error._UNKNOWN_PARTITION,
            self._error.TOPIC_AUTHORIZATION_FAILED,
            self._error.GROUP_AUTHORIZATION_FAILED,
        ):
            raise refused(error, self._cluster)
        else:
            self._errors.on_error(error)

    def _pause_unread(self, since: int) -> None:
        """Pause those that were not read since a call of `take`: what waits of them does not count from now on."""
        for partition, queue in self._queues.items():
            if queue.messages and queue.asked < since and not queue.paused:
                queue.paused = True
                self._waiting -= len(queue.messages)
                self._consumer.pause([self._place(self._cluster.topic, partition)])

    def _send_commits(self) -> None:
        if self._commits:
            places = [self._place(self._cluster.topic, number, offset) for number, offset in self._commits.items()]
            self._commits = {}
            self._consumer.commit(offsets=places, asynchronous=True)

    def _committed(self, error: Any, places: Any) -> None:
        if error is None:
            self._unsaid = True
        elif self._unsaid:
            self._unsaid = False
            _log.warning("%s: offsets cannot be committed to its group: %s", self._cluster.who, said(error))
