"""The batch face of topics: ranges of offsets, read without a group."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import TopologyBuilder
from heronpy.connectors import JsonLinesSink, KafkaTopic
from heronpy.errors import CheckpointError
from heronpy.streamlet import Builder, Config, WindowConfig
from heronpy.streamlet.parts import add_stages
from heronpy.streamlet.runner import Program
from heronpy.testing import Simulator
from heronpy.testing.connectors_kit import DeadLetters, read_chunks
from heronpy.testing.kafka import KafkaServer

MANY = 20_500
BEGIN_MS = 1_700_000_000_000
Make = Callable[..., str]
Produce = Callable[..., None]


def refuse(where: str, row: Any, reason: str) -> None:
    raise AssertionError(f"set aside: {where}: {row!r}: {reason}")


def batch_values(source: KafkaTopic) -> list[Any]:
    return [value for chunk in read_chunks(source, 1, refuse) for value in chunk.values]


def test_ranges_of_a_partition_have_each_message_once_up_to_its_end(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(2)
    produce(topic, range(MANY), partition=1)
    source = KafkaTopic(kafka.servers, topic, group=topic)
    splits = source.splits(1)
    assert splits is not None
    assert len(splits) == 3
    produce(topic, ["later"], partition=1)
    values = [value for split in splits for chunk in split.read(refuse) for value in chunk.values]
    assert values == list(range(MANY))
    assert kafka.group_offsets(topic, topic) == {}


def test_an_empty_topic_has_no_ranges(kafka: KafkaServer, make_topic: Make) -> None:
    assert KafkaTopic(kafka.servers, make_topic(3), group="g").splits(1) == []


def test_a_batch_begins_where_start_is_and_has_no_past_from_the_latest_on(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(2)
    for n in range(4):
        produce(topic, [n], partition=n % 2, timestamp=BEGIN_MS + n)

    def source(start: Any) -> KafkaTopic:
        return KafkaTopic(kafka.servers, topic, group=topic, start=start)

    at = datetime.datetime.fromtimestamp(BEGIN_MS / 1000, datetime.UTC)
    assert sorted(batch_values(source("earliest"))) == [0, 1, 2, 3]
    assert sorted(batch_values(source(at + datetime.timedelta(milliseconds=2)))) == [2, 3]
    assert batch_values(source(at + datetime.timedelta(days=1))) == []
    assert source("latest").splits(1) is None


def test_only_what_transactions_committed_is_read(kafka: KafkaServer, make_topic: Make) -> None:
    from confluent_kafka import Producer

    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "1")
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, "2")
    assert producer.flush(60) == 0
    assert batch_values(KafkaTopic(kafka.servers, topic, group=topic)) == [1]  # the second is open
    producer.abort_transaction(60)
    assert batch_values(KafkaTopic(kafka.servers, topic, group=topic)) == [1]


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_messages_that_are_removed_before_they_are_read_fail_the_job_unless_it_may_go_on(
    kafka: KafkaServer, make_topic: Make, produce: Produce, policy: str
) -> None:
    from confluent_kafka import TopicPartition

    topic = make_topic()
    produce(topic, range(10))
    splits = KafkaTopic(kafka.servers, topic, group=topic, out_of_range=policy).splits(1)
    assert splits is not None
    for future in kafka.admin().delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(60)
    lost = "4 messages from offset 0 on were removed"
    if policy == "fail":
        with pytest.raises(CheckpointError, match=lost):
            list(splits[0].read(refuse))
        return
    dead = DeadLetters()
    assert [value for chunk in splits[0].read(dead) for value in chunk.values] == list(range(4, 10))
    ((_, _, reason),) = dead.letters
    assert lost in reason


def counting(kafka: KafkaServer, topic: str, directory: Path) -> Program:
    builder = Builder()
    source = KafkaTopic(kafka.servers, topic, group=topic, value="text", bounded=True)
    (
        builder.new_source(source)
        .set_name("words")
        .count_by_key_and_window(WindowConfig.create_tumbling_window(10), lambda word: word)
        .map(lambda counted: {"word": counted[0].key, "start": counted[0].window.start, "n": counted[1]})
        .to_sink(JsonLinesSink(directory / "live"))
    )
    config = Config()
    config.set_pipeline(directory, batch_length=20)
    return Program("Counting", config, builder.graph)


def rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.spark
def test_a_program_gives_the_same_live_and_in_a_spark_job(
    kafka: KafkaServer, make_topic: Make, produce: Produce, tmp_path: Path
) -> None:
    from heronpy.pipeline import Job, run

    topic = make_topic(3)
    for n in range(300):
        produce(topic, ["abc"[n % 7 % 3]], partition=n % 3, timestamp=BEGIN_MS + 200 * n)
    program = counting(kafka, topic, tmp_path)
    topology = TopologyBuilder(program.name)
    add_stages(topology, program.graph, program.config)

    def live() -> list[dict[str, Any]]:
        return rows((tmp_path / "live").rglob("*.jsonl"))

    with Simulator(topology) as simulator:
        simulator.run(until=lambda: sum(row["n"] for row in live()) >= 300, seconds=120)
    run(Job.of(program), until_ms=BEGIN_MS + 1_000_000)
    batch = rows((tmp_path / "sinks").rglob("*.jsonl"))
    assert Counter(map(str, batch)) == Counter(map(str, live()))
    assert sum(row["n"] for row in batch) == 300
