"""Questions to a broker that is not ready to answer them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from heronpy.connectors.kafka_client import LATEST, Cluster, answered
from heronpy.errors import UnavailableError
from heronpy.testing.kafka import KafkaServer

Make = Callable[..., str]


class Asked:
    """Stands before a client's question: the first answers are an error, the others the broker's.

    A broker says most of these for moments that no test can hold it in.
    """

    def __init__(self, ask: Callable[..., Any], code: int, times: int) -> None:
        self._ask, self._error, self._left = ask, KafkaError(code), times

    def __call__(self, places: Any, **options: Any) -> Any:
        if not self._left:
            return self._ask(places, **options)
        self._left -= 1
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(self._error))
        return dict.fromkeys(places, answer)


def cluster(kafka: KafkaServer, topic: str, timeout_s: float = 60.0) -> Cluster:
    return Cluster(servers=kafka.servers, topic=topic, options={}, secrets={}, timeout_s=timeout_s, who="it")


@pytest.mark.parametrize(
    "name",
    [
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PART",
        "UNSTABLE_OFFSET_COMMIT",
    ],
)
def test_a_broker_that_is_only_taking_office_is_asked_again(
    kafka: KafkaServer, make_topic: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    admin = cluster(kafka, make_topic()).admin()
    monkeypatch.setattr(admin.client, "list_offsets", Asked(admin.client.list_offsets, getattr(KafkaError, name), 2))
    assert admin.offsets([0], LATEST) == {0: 0}


def test_a_broker_that_never_takes_office_is_asked_until_the_time_is_over(
    kafka: KafkaServer, make_topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = cluster(kafka, make_topic(), timeout_s=0.5).admin()
    asked = Asked(admin.client.list_offsets, KafkaError.UNKNOWN_LEADER_EPOCH, 10**6)
    monkeypatch.setattr(admin.client, "list_offsets", asked)
    with pytest.raises(UnavailableError, match="Leader epoch is newer"):
        admin.offsets([0], LATEST)


def test_an_error_that_stays_is_said_at_once(
    kafka: KafkaServer, make_topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = cluster(kafka, make_topic()).admin()
    asked = Asked(admin.client.list_offsets, KafkaError.UNSUPPORTED_VERSION, 1)
    monkeypatch.setattr(admin.client, "list_offsets", asked)
    with pytest.raises(UnavailableError):
        admin.offsets([0], LATEST)


def test_offsets_that_an_open_transaction_commits_are_not_taken_for_none(kafka: KafkaServer, make_topic: Make) -> None:
    """The group would begin anew: what came before would be read twice, or never."""
    topic = make_topic(2)
    cluster(kafka, topic).admin().commit_group(topic, {0: 0, 1: 0})
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": topic})
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), 60)
    consumer.close()
    with pytest.raises(UnavailableError, match="Failed to get committed offsets"):
        cluster(kafka, topic, timeout_s=1.0).admin().group_offsets(topic, [0, 1])
    producer.commit_transaction(60)
    assert cluster(kafka, topic).admin().group_offsets(topic, [0, 1]) == {0: 7, 1: 0}


def test_a_partition_without_an_answer_is_not_one_without_an_offset() -> None:
    fine = TopicPartition("a", 0, 7)
    assert answered([fine]) == [fine]
    bad = SimpleNamespace(error=KafkaError(KafkaError.NOT_COORDINATOR))
    with pytest.raises(KafkaException):
        answered([fine, bad])
