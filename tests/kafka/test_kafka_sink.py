"""Topics as sinks, exactly once and at least once, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from heronpy.connectors import KafkaMessage, KafkaSink, KafkaTopic, Sink
from heronpy.errors import CheckpointError, ConfigError, NotFoundError, UnavailableError
from heronpy.testing.connectors_kit import open_sink
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import opened, rest_of
from heronpy.testing.transactions_kit import TransactionalSinkKit, open_transactional, prepared

Make = Callable[..., str]


def messages(kafka: KafkaServer, topic: str, **options: Any) -> list[Any]:
    """What consumers of committed messages see."""
    kafka.settle(topic)
    source = KafkaTopic(kafka.servers, topic, group="tests", bounded=True, **options)
    names = sorted(source.stream_splits())
    return [record.value for name in names for record in rest_of(opened(source, name))]


def slow(kafka: KafkaServer, client: str) -> tuple[dict[str, Any], list[str]]:
    """Options of a producer with a quota, and elements that take 8 s to write.

    The broker takes 4 MB at once, because there was nothing for ten seconds, and then 0.4 MB a second.
    """
    kafka.limit_producers(client, 400_000)
    return {"client.id": client, "message.timeout.ms": 4_000}, [f"{n:05}" + "x" * 9_995 for n in range(720)]


class TestKafkaSink(TransactionalSinkKit):
    kills_max = 30
    long = (
        "test_a_failed_checkpoint_is_committed_with_the_next",
        "test_what_was_not_prepared_is_gone_with_its_writer",
        "test_an_abort_after_the_commit_changes_nothing",
        "test_an_older_checkpoint_is_restored_again",
        "test_tasks_do_not_mind_each_other",
        "test_another_submission_begins_anew",
        "test_another_submission_starts_from_a_savepoint",
        "test_a_commit_of_one_task_spares_what_another_has_to_recover",
        "test_a_commit_that_comes_late_from_a_fenced_writer_counts_once",
        "test_what_was_aborted_is_never_visible",
        "test_what_older_writers_left_is_removed",
        "test_a_race_between_two_commits_once",
        "test_the_output_is_exact_wherever_the_process_is_killed",
    )

    @pytest.fixture(autouse=True)
    def topic(self, kafka: KafkaServer, make_topic: Make) -> str:
        self._kafka, self._topic = kafka, make_topic()
        return self._topic

    @pytest.fixture
    def sink(self, kafka: KafkaServer, topic: str) -> Sink:
        return KafkaSink(kafka.servers, topic, key="n")

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": str(n), "text": f"é{n}"} for n in range(11)]

    @pytest.fixture
    def unfit(self) -> Any:
        return {"n": 1}

    def visible(self) -> list[Any]:
        return messages(self._kafka, self._topic)

    def leftovers(self) -> Sequence[Any]:
        self._kafka.settle(f"{self._topic}-heron-progress")
        source = KafkaTopic(
            self._kafka.servers, f"{self._topic}-heron-progress", group="tests", value="text", whole=True, bounded=True
        )
        writers = {
            each.value.key: each.value.value for each in rest_of(opened(source, f"{self._topic}-heron-progress-0"))
        }
        return [key for key, owner in writers.items() if owner is not None and json.loads(key)[2] != 3]

    def test_messages_are_in_the_order_in_which_they_were_written(self, sink: Sink, elements: Sequence[Any]) -> None:
        writer = open_transactional(sink)
        for number, cut in enumerate(range(0, 11, 4)):
            writer.commit(prepared(writer, number, elements[cut : cut + 4]))
        assert self.visible() == list(elements)

    def test_a_lost_progress_is_an_error(self, sink: Sink, elements: Sequence[Any], kafka: KafkaServer) -> None:
        output = prepared(open_transactional(sink), 1, elements[:1])
        progress = f"{self._topic}-heron-progress"
        kafka.delete_topic(progress)
        other = KafkaSink(kafka.servers, self._topic, progress_topic=f"{progress}-2")
        with pytest.raises(CheckpointError, match="it is unknown"):
            open_transactional(other, task=1, epoch=2).recover([output])
        for epoch in (3, 4):  # nor does it make it known that its own task opens the sink again
            with pytest.raises(CheckpointError, match="it is unknown"):
                open_transactional(sink, epoch=epoch).recover([output])
        self.check([])
        again = open_transactional(sink, epoch=5)
        again.recover([])
        again.commit(prepared(again, 2, elements[:1]))
        assert self.visible() == list(elements[:1])

    def test_a_message_that_the_topic_refuses_is_an_error_and_nothing_is_committed(
        self, kafka: KafkaServer, make_topic: Make
    ) -> None:
        self._topic = make_topic(max_message_bytes="1000")
        writer = open_transactional(KafkaSink(kafka.servers, self._topic))
        output = prepared(writer, 1, ["a", "b" * 2000])
        with pytest.raises(CheckpointError, match="refuses a message"):
            writer.commit(output)
        writer.commit(prepared(writer, 2, ["c"]))
        assert self.visible() == ["c"]

    def test_a_commit_may_take_longer_than_a_message(self, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("heronpy.connectors._kafka_transactions.PART_BYTES", 100_000)
        options, elements = slow(kafka, "transactions")
        writer = open_transactional(KafkaSink(kafka.servers, self._topic, value="text", options=options))
        writer.commit(prepared(writer, 1, elements))
        assert messages(kafka, self._topic, value="text") == elements

    def test_a_large_commit_may_take_as_long_as_the_brokers_allow(
        self, sink: Sink, elements: Sequence[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("_PER_MB", 1_000_000_000), ("_MAX", 3_000_000)):  # they allow 900 s
            monkeypatch.setattr(f"heronpy.connectors._kafka_transactions._TRANSACTION_MS{name}", value)
        writer = open_transactional(sink)
        writer.commit(prepared(writer, 1, elements))
        assert self.visible() == list(elements)

    def test_a_time_that_the_brokers_do_not_allow_is_named(self, kafka: KafkaServer) -> None:
        options = {"transaction.timeout.ms": 1_000_000}
        with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms: .*larger"):
            open_transactional(KafkaSink(kafka.servers, self._topic, options=options))


@pytest.mark.parametrize(
    "bad",
    [
        KafkaMessage("a", partition=2),
        KafkaMessage("a", partition=-7),
        KafkaMessage("a", partition=1 << 40),
        KafkaMessage("a", headers=(("\ud800", b"x"),)),
        KafkaMessage("a", headers=(("x", "\ud800"),)),  # type: ignore[arg-type]  # it is wrong
        KafkaMessage("a", headers=(("x", 1),)),  # type: ignore[arg-type]  # it is wrong
        KafkaMessage("a", time_ms=1 << 70),
        KafkaMessage("a", time_ms=-5),
        KafkaMessage("a", time_ms="noon"),  # type: ignore[arg-type]  # it is wrong
    ],
    ids=lambda bad: " ".join(f"{name} {value}" for name, value in bad._asdict().items() if value and name != "value"),
)
def test_a_message_that_no_commit_could_write_is_refused_when_it_comes(
    kafka: KafkaServer, make_topic: Make, bad: KafkaMessage
) -> None:
    topic = make_topic(2)
    sink = KafkaSink(kafka.servers, topic)
    writer, flushing = open_transactional(sink), open_sink(sink)
    for each in (writer, flushing):
        with pytest.raises(ValueError, match="cannot hold"):
            each.write(bad)
    writer.commit(prepared(writer, 1, ["b", KafkaMessage("c", partition=1), KafkaMessage("d", partition=0)]))
    assert sorted(messages(kafka, topic)) == ["b", "c", "d"]


def test_at_least_once_a_flush_makes_messages_visible(kafka: KafkaServer, make_topic: Make) -> None:
    topic = make_topic()
    writer = open_sink(KafkaSink(kafka.servers, topic))
    for n in range(100):
        writer.write(n)
    writer.flush()
    writer.flush()
    assert messages(kafka, topic) == list(range(100))
    writer.close()


@pytest.mark.long
def test_at_least_once_a_flush_may_take_longer_than_a_message(
    kafka: KafkaServer, make_topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.connectors._kafka_sink.PART_BYTES", 100_000)
    topic, (options, elements) = make_topic(), slow(kafka, "flushes")
    writer = open_sink(KafkaSink(kafka.servers, topic, value="text", options=options))
    for element in elements:
        writer.write(element)
    writer.flush()
    assert messages(kafka, topic, value="text") == elements


def test_at_least_once_a_message_that_was_not_taken_is_in_no_later_flush(kafka: KafkaServer, make_topic: Make) -> None:
    """Whoever calls it again would ack it."""
    topic = make_topic(max_message_bytes="1000")
    writer = open_sink(KafkaSink(kafka.servers, topic))
    writer.write("a")
    writer.flush()
    writer.write("b" * 2000)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="refuses a message"):
            writer.flush()
    assert messages(kafka, topic) == ["a"]
    writer.close()


def first_letter(element: str) -> str:
    return element[:1]


def test_a_whole_message_is_written_as_it_is_and_keys_decide_the_partition(
    kafka: KafkaServer, make_topic: Make
) -> None:
    topic = make_topic(3)
    writer = open_sink(KafkaSink(kafka.servers, topic, value="text", key=first_letter))
    given = KafkaMessage("v", "k", (("h", b"\xff"), ("h", None)), 1_700_000_000_123, 2)
    for element in (given, KafkaMessage(None, b"gone", partition=2), "alpha", "beta", "also"):
        writer.write(element)
    writer.flush()
    writer.close()
    found = messages(kafka, topic, value="text", whole=True)
    whole = [message for message in found if message.key in ("k", "gone")]
    assert [message._replace(offset=None) for message in whole[:1]] == [given]
    assert (whole[1].value, whole[1].partition) == (None, 2)
    by_key = {message.value: (message.key, message.partition) for message in found if message not in whole}
    assert {value: key for value, (key, _) in by_key.items()} == {"alpha": "a", "beta": "b", "also": "a"}
    assert by_key["alpha"][1] == by_key["also"][1]


@pytest.mark.parametrize(
    ("options", "element"),
    [
        ({}, object()),
        ({"value": "text"}, 1),
        ({"value": "bytes"}, "text"),
        ({"value": lambda element: 1}, "text"),
        ({"key": "word"}, {"n": 1}),
        ({"options": {"message.max.bytes": 1000}}, "x" * 1000),
    ],
)
def test_what_cannot_be_a_message_is_refused(kafka: KafkaServer, options: dict[str, Any], element: Any) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        KafkaSink(kafka.servers, "any", **options).row(element)


def test_a_topic_that_is_missing_is_named(kafka: KafkaServer) -> None:
    for open_it in (open_sink, open_transactional):
        with pytest.raises(NotFoundError, match="has no topic 'nowhere'"):
            open_it(KafkaSink(kafka.servers, "nowhere"))


def test_a_kafka_that_is_away_is_named() -> None:
    for open_it in (open_sink, open_transactional):
        with pytest.raises(UnavailableError, match=r"127.0.0.1:1 does not answer"):
            open_it(KafkaSink("127.0.0.1:1", "t", timeout_s=0.5))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="transactional"):
        KafkaSink("h:1", "t", options={"transactional.id": "x"})
    with pytest.raises(ConfigError, match="topic of its own"):
        KafkaSink("h:1", "t", progress_topic="t")
    with pytest.raises(ConfigError, match="format"):
        KafkaSink("h:1", "t", value="avro")
