"""Messages of a Kafka topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from heronpy.connectors._files import why
from heronpy.connectors._kafka_messages import Encode, KafkaMessage, encoder
from heronpy.connectors._kafka_producer import PART_BYTES, produce, producer, refusal, size
from heronpy.connectors._kafka_transactions import TransactionalWriter
from heronpy.connectors._row_sinks import unfit
from heronpy.connectors.kafka_client import Admin, Cluster, Errors
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.errors import ConfigError, HeronError, UnavailableError

_MESSAGE_BYTES: Final = "message.max.bytes"
_MESSAGE_BYTES_DEFAULT: Final = 1_000_000
_OVERHEAD_BYTES: Final = 512
"""Of a batch with one message, at most."""
_FLUSH_S: Final = 60.0


class Row(NamedTuple):
    """A message, encoded. In checkpoints a plain tuple."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int
    """0: when it is written."""
    partition: int
    """-1: by its key."""


class KafkaSink(Sink):
    """Messages of a Kafka topic. Elements are their values; a `KafkaMessage` has its key, headers and time with it.

    Exactly once, the messages between two checkpoints are kept in memory and in the checkpoint, and written with a
    progress record in one transaction when it is committed: consumers must read with `isolation.level=read_committed`,
    as `KafkaTopic` does. The progress topic is made if it is missing, and stays small; while it is there, nothing is
    written twice.
    """

    exactly_once = True

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        value: str | Encode = "json",
        key: str | Callable[[Any], str | bytes | None] | None = None,
        progress_topic: str | None = None,
        timeout_s: float = 15.0,
        options: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the sink; it is connected to when it is opened.

        Args:
            servers: some of the brokers, `host:port,…`.
            topic: its name. It exists.
            value: `json`, `text`, `bytes`, a `RegistryFormat` (Avro, JSON Schema, Protobuf), or a function that makes
                bytes of an element.
            key: a function that makes the key of an element, or the name of a field of dicts. Messages with equal keys
                go to one partition, by the same hash as Java's clients have.
            progress_topic: where a transaction notes which checkpoint it is of; the topic's name and
                `-heron-progress` without it.
            timeout_s: how long to wait for an answer when a task begins.
            options: more of librdkafka's configuration, for TLS, SASL and tuning. It travels with the program.
            secrets: options that must not: by the names of environment variables of the tasks that have their values.

        Raises:
            ConfigError: something of this is not so.
        """
        who = f"KafkaSink({topic!r})"
        self.cluster = Cluster(
            servers=servers,
            topic=topic,
            options=dict(options or {}),
            secrets=dict(secrets or {}),
            timeout_s=timeout_s,
            who=who,
        )
        self.progress_topic = progress_topic or f"{topic}-heron-progress"
        if self.progress_topic == topic:
            raise ConfigError(f"{who}: the progress needs a topic of its own")
        self._encode = encoder(value, who, topic, "value")
        self._key = key
        self._bytes_max = int(self.cluster.options.get(_MESSAGE_BYTES, _MESSAGE_BYTES_DEFAULT)) - _OVERHEAD_BYTES

    def __repr__(self) -> str:
        return self.cluster.who

    def open(self, context: SinkContext) -> SinkWriter:
        self.cluster.admin().describe()
        return _FlushingWriter(self)

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        partitions = _Partitions(self.cluster)
        return TransactionalWriter(
            self.cluster, self.progress_topic, lambda element: self.row(element, partitions), context
        )

    def row(self, element: Any, partitions: _Partitions | None = None) -> Row:
        """An element as it is written. What no broker would take must not be found out by a commit.

        Raises:
            ValueError: it has no such form.
            HeronError: a schema registry, or Kafka, does not answer.
        """
        message = element if isinstance(element, KafkaMessage) else KafkaMessage(element, self._key_of(element))
        try:
            value = None if message.value is None else self._encode(message.value)
            key = message.key.encode() if isinstance(message.key, str) else message.key
            headers = tuple(_header(name, data) for name, data in message.headers)
            time_ms = _time_ms(message.time_ms)
            partition = -1
            if element is message and message.partition is not None:
                partition = (partitions or _Partitions(self.cluster)).checked(message.partition)
        except HeronError:
            raise
        except Exception as e:  # it may be the user's own
            raise unfit(self, element, why(e)) from e
        if not isinstance(value, bytes | None) or not isinstance(key, bytes | None):
            raise unfit(self, element, "its value and key must become bytes")
        size = len(value or b"") + len(key or b"") + sum(len(name) + len(data or b"") + 10 for name, data in headers)
        if size > self._bytes_max:
            raise unfit(self, element, f"it takes {size} bytes: the option {_MESSAGE_BYTES} allows fewer")
        return Row(value, key, headers, time_ms, partition)

    def _key_of(self, element: Any) -> Any:
        if self._key is None:
            return None
        try:
            return element[self._key] if isinstance(self._key, str) else self._key(element)
        except Exception as e:  # it may be the user's own
            raise unfit(self, element, f"it has no key: {why(e)}") from e


class _Partitions:
    """The partitions of a topic, asked for when a message names one that is not known."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin: Admin | None = None
        self._known: frozenset[int] = frozenset()

    def checked(self, number: int) -> int:
        """A partition that is there.

        Raises:
            ValueError: it is not.
            HeronError: Kafka does not answer.
        """
        if number not in self._known:
            self._admin = self._admin or self._cluster.admin()
            self._known = frozenset(self._admin.describe()[1])
            if number not in self._known:
                raise ValueError(f"the topic has no partition {number!r}")
        return number


def _header(name: str, data: str | bytes | None) -> tuple[str, bytes | None]:
    if not isinstance(name, str) or not isinstance(data, str | bytes | None):
        raise ValueError("headers are pairs of text and bytes")
    name.encode()
    return name, data.encode() if isinstance(data, str) else data


def _time_ms(time_ms: int | None) -> int:
    if time_ms is None or time_ms == -1:  # one that was read had none
        return 0
    if not isinstance(time_ms, int) or not 0 <= time_ms < 1 << 63:
        raise ValueError(f"{time_ms!r} is no time in ms since the epoch")
    return time_ms


class _FlushingWriter(SinkWriter):
    """At least once: messages are sent as they come, and a flush waits until all of them are there.

    What librdkafka has given up on is kept, and sent again: a repeated flush acks everything when it succeeds.
    """

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._partitions = _Partitions(sink.cluster)
        self._errors = Errors(sink.cluster.who)
        self._failed: list[tuple[Any, Row]] = []
        self._waiting = 0
        """Bytes of messages that were sent since Kafka had taken all of them, at most."""
        self._producer = producer(sink.cluster, self._errors, {})

    def write(self, element: Any) -> None:
        self._send(self._sink.row(element, self._partitions))

    def _send(self, row: Row) -> None:
        self._waiting += size(row)
        if self._waiting > PART_BYTES and not self._producer.flush(_FLUSH_S):
            self._waiting = size(row)
        produce(self._producer, self._sink.cluster.topic, lambda error: self._failed.append((error, row)), *row)

    def flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        failed, self._failed = self._failed, []
        for _, row in failed:
            self._send(row)
        if failed:
            raise refusal(failed[0][0], self._sink.cluster)
        if left:
            raise UnavailableError(f"{self._sink!r}: {left} messages are not taken: {self._errors.last or 'no answer'}")
        self._errors.well()

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1.0)
