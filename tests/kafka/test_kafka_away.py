"""A broker that is killed while a source and sinks are open, and comes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from heronpy.connectors import KafkaSink, KafkaTopic, Record
from heronpy.errors import UnavailableError
from heronpy.testing import eventually_sync
from heronpy.testing.connectors_kit import open_sink
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import opened, rest_of
from heronpy.testing.transactions_kit import open_transactional, prepared

BLOCKS_S = 2.0
"""So long no call may take; on a busy machine."""


@pytest.mark.long
def test_a_broker_that_is_killed_loses_nothing_and_repeats_nothing(
    kafka: KafkaServer,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="heronpy.connectors")
    given, made, flushed = make_topic(2), make_topic(), make_topic()
    for partition in range(2):
        produce(given, range(10), partition=partition)
    reader = opened(KafkaTopic(kafka.servers, given, group=given), f"{given}-1")
    writer = open_transactional(KafkaSink(kafka.servers, made, timeout_s=1))
    at_least_once = open_sink(KafkaSink(kafka.servers, flushed, options={"message.timeout.ms": 1000}))
    records: list[Record] = []

    def read(count: int) -> None:
        def enough() -> None:
            began_s = time.monotonic()
            records.extend(reader.read(100))
            assert time.monotonic() - began_s < BLOCKS_S
            assert len(records) == count

        eventually_sync(enough)

    read(10)
    first, second = prepared(writer, 1, [1, 2]), prepared(writer, 2, [3])
    writer.commit(first)
    kafka.kill()

    def noticed() -> None:
        assert reader.read(100) == []
        assert [record.levelname for record in caplog.records if f"'{given}'" in record.getMessage()] == ["WARNING"]

    eventually_sync(noticed)
    with pytest.raises(UnavailableError):
        writer.commit(second)
    at_least_once.write("given up by the client")
    with pytest.raises(UnavailableError):
        at_least_once.flush()
    kafka.start()
    produce(given, range(10, 15), partition=1)
    read(15)
    assert [record.value for record in records] == list(range(15))

    def committed() -> None:
        try:
            writer.commit(second)
        except UnavailableError as e:
            raise AssertionError from e

    eventually_sync(committed, within_s=120)
    writer.commit(first)

    def flushed_again() -> None:
        try:
            at_least_once.flush()
        except UnavailableError as e:
            raise AssertionError from e

    eventually_sync(flushed_again, within_s=120)
    assert values(kafka, made) == [1, 2, 3]
    assert set(values(kafka, flushed)) == {"given up by the client"}
    said = [record.levelname for record in caplog.records if f"'{given}'" in record.getMessage()]
    assert said == ["WARNING", "INFO"]
    reader.close()


def values(kafka: KafkaServer, topic: str) -> list[Any]:
    kafka.settle(topic)
    source = KafkaTopic(kafka.servers, topic, group="tests", bounded=True)
    return [record.value for record in rest_of(opened(source, f"{topic}-0"))]
