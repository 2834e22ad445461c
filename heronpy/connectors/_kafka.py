"""Topics of Kafka."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.connectors._kafka_batch import offset_ranges
from heronpy.connectors._kafka_messages import Decode, Decoder, decoder
from heronpy.connectors._kafka_reader import KafkaReader
from heronpy.connectors._kafka_splits import FAIL, PartitionReader, Partitions, Reading
from heronpy.connectors.kafka_client import EARLIEST, LATEST, Cluster, Partition
from heronpy.connectors.spi import Source, SourceContext, SourceReader, Split, SplitReader, StreamSplit
from heronpy.errors import ConfigError


class KafkaTopic(Source):
    """The messages of a Kafka topic, in each partition in their order.

    Records are the value, decoded, or the whole message; their time is the message's, their id `partition:offset`. A
    message that cannot be decoded is a dead letter.

    Effectively once, offsets are in the checkpoint, and committed to the group after it, for tools to see. Otherwise
    the group has them: what is acked without a gap. Tasks divide the partitions among themselves without the group's
    protocol, so no other consumer may be subscribed in this group. Partitions that are added are found while it runs.

    While Kafka is away there are no records. What is in transactions is read when they are committed.

    A batch job reads ranges of offsets, from `start` to where the partitions end when it begins, whatever the group has
    committed. With `start="latest"` it has no past.
    """

    timed = True
    rewindable = True
    interleaved = True

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        group: str,
        value: str | Decode = "json",
        key: str | Decode = "text",
        whole: bool = False,
        start: str | datetime.datetime = EARLIEST,
        out_of_range: str = FAIL,
        bounded: bool = False,
        discover_every_s: float = 30.0,
        timeout_s: float = 15.0,
        options: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the topic; it is connected to when the source is opened.

        Args:
            servers: some of the brokers, `host:port,…`.
            topic: its name. It exists.
            group: the consumer group. What it has committed is where a topology without a checkpoint begins.
            value: `json`, `text`, `bytes`, a `RegistryFormat` (Avro, JSON Schema, Protobuf), or a function of the
                bytes. What it raises makes the message a dead letter, unless it is a `HeronError`.
            key: the same, for `whole`.
            whole: records are `KafkaMessage`s, with key, headers and offset.
            start: where a group begins that has committed nothing: `earliest`, `latest`, or a time (with its zone).
            out_of_range: what to do when messages were removed before they were read: `fail`, or go on at the
                `earliest` or `latest` that there are, with a dead letter that says what is missing.
            bounded: end where each partition ends when the source is opened; look for no new ones.
            discover_every_s: how often to look for new partitions.
            timeout_s: how long to wait for an answer when a task begins.
            options: more of librdkafka's configuration, for TLS, SASL and tuning. It travels with the program.
            secrets: options that must not: by the names of environment variables of the tasks that have their values,
                as `{"sasl.password": "KAFKA_PASSWORD"}`.

        Raises:
            ConfigError: something of this is not so.
        """
        who = f"KafkaTopic({topic!r}, group={group!r})"
        if not group:
            raise ConfigError(f"{who} takes the name of a consumer group")
        if isinstance(start, datetime.datetime):
            if start.tzinfo is None:
                raise ConfigError(f"{who}: the time of start needs a time zone")
        elif start not in (EARLIEST, LATEST):
            raise ConfigError(f"{who}: start is 'earliest', 'latest' or a time, not {start!r}")
        if out_of_range not in (FAIL, EARLIEST, LATEST):
            raise ConfigError(f"{who}: out_of_range is 'fail', 'earliest' or 'latest', not {out_of_range!r}")
        if discover_every_s <= 0:
            raise ConfigError(f"{who}: discover_every_s must be more than 0, not {discover_every_s!r}")
        self._reading = Reading(
            cluster=Cluster(
                servers=servers,
                topic=topic,
                options=dict(options or {}),
                secrets=dict(secrets or {}),
                timeout_s=timeout_s,
                who=who,
            ),
            group=group,
            decoder=Decoder(decoder(value, who, topic, "value"), decoder(key, who, topic, "key"), whole=whole),
            start=start if isinstance(start, str) else round(start.timestamp() * 1000),
            out_of_range=out_of_range,
            bounded=bounded,
        )
        self.discover_every_s = None if bounded else discover_every_s
        self._partitions: Partitions | None = None

    def __repr__(self) -> str:
        return self._reading.cluster.who

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_partitions": None}

    def open(self, context: SourceContext) -> SourceReader:
        return KafkaReader(Partitions(self._reading), context, discover_every_s=self.discover_every_s)

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        """The partitions: all of them the first time, later those that are known."""
        if self._partitions is None:
            self._partitions = Partitions(self._reading)
        topic = self._reading.cluster.topic
        return {
            f"{topic}-{number}": _PartitionSplit(self._partitions, partition)
            for number, partition in self._partitions.known().items()
        }

    def splits(self, target_bytes: int) -> Sequence[Split] | None:
        return None if self._reading.start == LATEST else offset_ranges(self._reading, target_bytes)


@dataclass(frozen=True, slots=True)
class _PartitionSplit:
    partitions: Partitions
    partition: Partition

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        return PartitionReader(self.partitions, self.partition, position, context.dead_letter)
