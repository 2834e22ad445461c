"""One Kafka for all tests of this directory, and a topic for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from heronpy.connectors import KafkaSink, KafkaTopic
from heronpy.testing import connectors_kit, positions_kit
from heronpy.testing.kafka import KafkaServer, kafka_missing

_numbers = itertools.count()
_missing = kafka_missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _missing and "tests/kafka/" in item.nodeid:
            item.add_marker(pytest.mark.skip(reason=_missing))


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kits read here comes to an end: what has nothing for a second is slow, not at its end.

    And so is a broker that has not answered yet, where a test does not say otherwise.
    """
    for kit in (connectors_kit, positions_kit):
        monkeypatch.setattr(kit, "QUIET_S", 120.0)
    for connector in (KafkaSink, KafkaTopic):
        monkeypatch.setitem(connector.__init__.__kwdefaults__, "timeout_s", 120.0)


@pytest.fixture
def make_topic(kafka: KafkaServer) -> Callable[..., str]:
    """Makes topics that no other test has."""

    def make(partitions: int = 1, **config: str) -> str:
        topic = f"topic-{next(_numbers)}"
        kafka.create_topic(topic, partitions, {name.replace("_", "."): value for name, value in config.items()})
        return topic

    return make


@pytest.fixture
def produce(kafka: KafkaServer) -> Callable[..., None]:
    """Writes messages: `produce(topic, values, partition=…, key=…, …)`."""
    from confluent_kafka import Producer

    def write(topic: str, values: Iterable[Any], **more: Any) -> None:
        failed = []
        producer = Producer({"bootstrap.servers": kafka.servers, "enable.idempotence": True})
        for value in values:
            data = value if value is None or isinstance(value, bytes) else str(value).encode()
            producer.produce(topic, data, on_delivery=lambda e, _: failed.append(e) if e else None, **more)
        assert producer.flush(60) == 0
        assert failed == []

    return write
