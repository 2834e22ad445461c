"""Producers of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from heronpy.connectors.kafka_client import Cluster, Errors, opened, refused, said
from heronpy.errors import CheckpointError

PART_BYTES: Final = 1_000_000
"""So much is written at once: all of it has the time of one message, `message.timeout.ms`, however slow Kafka is."""
_POLL_S: Final = 0.1
_DEFAULTS: Final = {
    "linger.ms": 5,
    "message.timeout.ms": 30_000,
    "partitioner": "murmur2_random",  # as Java's clients
}


def producer(cluster: Cluster, errors: Errors, more: Mapping[str, Any]) -> Any:
    """A producer that writes each message once for each call.

    Raises:
        ConfigError: its options are wrong.
    """
    from confluent_kafka import Producer

    config = cluster.config({"enable.idempotence": True, "error_cb": errors.on_error, **more})
    with opened(cluster.who):
        return Producer(_DEFAULTS | config)


def produce(
    producer: Any,
    topic: str,
    failed: Callable[[Any], None],
    value: bytes | None,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    time_ms: int = 0,
    partition: int = -1,
) -> None:
    """Queue a message. If it turns out later that it was not taken, `failed` is called with the error."""

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed(error)

    while True:
        try:
            producer.produce(
                topic,
                value,
                key,
                partition,
                headers=list(headers) or None,
                timestamp=time_ms,
                on_delivery=delivered,
            )
        except BufferError:  # it has enough to do
            producer.poll(_POLL_S)
            continue
        producer.poll(0)
        return


def size(row: Sequence[Any]) -> int:
    """Bytes of a message: value, key and headers."""
    return len(row[0] or b"") + len(row[1] or b"") + sum(len(name) + len(data or b"") for name, data in row[2])


def refusal(error: Any, cluster: Cluster) -> Exception:
    """Why a message was not taken, as the project's error."""
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG):
        return CheckpointError(f"{cluster.who}: the topic refuses a message: {said(error)}")
    return refused(error, cluster)
