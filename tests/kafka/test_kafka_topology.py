"""From topic to topic effectively once: whatever is rolled back, and whatever dies, every message counts once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple
from heronpy.connectors import KafkaSink, KafkaTopic, SinkBolt, SourceSpout
from heronpy.testing import LocalCluster, Simulator, TopologyHandle, eventually_sync
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import opened, rest_of

WORDS = ["a", "b", "c", "d", "e"]
PARTITIONS = 3
PACE_S = 0.05
"""Between two chunks: so that some are committed, some prepared and some on their way when a process dies."""
BROKER_AWAY_S = 5.0
"""So that checkpoints come and go meanwhile: their commits fail, and tasks are rolled back."""
Make = Callable[..., str]
Produce = Callable[..., None]


class Numbering(Bolt):
    """Emits each word with how often it has come."""

    outputs = ["word", "n"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        word = tup["value"]
        self.counts[word] += 1
        self.emit((word, self.counts[word]))


def numbering(kafka: KafkaServer, given: str, made: str, **settings: Any) -> type[Any]:
    builder = TopologyBuilder("numbering")
    source = KafkaTopic(kafka.servers, given, group=given, value="text")
    words = builder.add_spout("words", SourceSpout(source), 2)
    numbered = builder.add_bolt("numbering", Numbering, 2, {words: Grouping.fields("value")})
    sink = KafkaSink(kafka.servers, made, key="word")
    builder.add_bolt("out", SinkBolt(sink), 2, {numbered: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", **settings})
    return builder.build()


class Words:
    """What is written, and what comes out."""

    def __init__(self, kafka: KafkaServer, produce: Produce, given: str, made: str) -> None:
        self.kafka, self.given, self.made = kafka, given, made
        self._produce = produce
        self.count: Counter[str] = Counter()

    def produce(self, number: int) -> None:
        for partition in range(PARTITIONS):
            words = [WORDS[n % len(WORDS)] for n in range(number + partition)]
            self._produce(self.given, words, partition=partition)
            self.count.update(words)

    def out(self) -> Counter[tuple[str, int]]:
        """What committed messages say."""
        self.kafka.settle(self.made)
        source = KafkaTopic(self.kafka.servers, self.made, group="tests", bounded=True)
        records = [record for name in source.stream_splits() for record in rest_of(opened(source, name))]
        return Counter((record.value["word"], record.value["n"]) for record in records)

    def exact(self) -> bool:
        """Whether each word came out with each number once. Never is one of them there twice."""
        found = self.out()
        assert set(found.values()) <= {1}, f"more than once: {found.most_common(5)}"
        return found.keys() == {(word, n + 1) for word, count in self.count.items() for n in range(count)}

    def committed(self) -> int:
        """How many messages the group has behind it."""
        return sum(self.kafka.group_offsets(self.given, self.given).values())


@pytest.fixture
def words(kafka: KafkaServer, make_topic: Make, produce: Produce) -> Words:
    return Words(kafka, produce, make_topic(PARTITIONS), make_topic(2))


def test_every_message_counts_once_though_all_is_rolled_back(kafka: KafkaServer, words: Words) -> None:
    words.produce(100)
    topology = numbering(kafka, words.given, words.made, **{"topology.stateful.checkpoint.interval.seconds": 3600})
    with Simulator(topology) as simulator:

        def count_all() -> None:
            def counted() -> bool:
                tasks = simulator.component("numbering")
                return sum(sum(task.counts.values()) for task in tasks) == words.count.total()

            simulator.run(until=counted, seconds=60)
            assert counted()
            simulator.drain()

        count_all()
        assert words.out().total() == 0
        simulator.checkpoint()
        assert words.exact()
        words.produce(50)
        count_all()
        simulator.restore()
        count_all()
        simulator.checkpoint(commit=False)
        words.produce(50)
        count_all()
        simulator.checkpoint(tell=False)
        assert not words.exact()
        simulator.restore()  # who restores it commits it
        assert words.exact()
        words.produce(20)
        count_all()
        simulator.checkpoint()
        assert words.exact()

        def shown() -> None:
            simulator.step()
            assert words.committed() == words.count.total()

        eventually_sync(shown)


@pytest.fixture(scope="module")
def topics(kafka: KafkaServer) -> tuple[str, str]:
    kafka.create_topic("given", PARTITIONS)
    kafka.create_topic("made", 2)
    return "given", "made"


@pytest.fixture(scope="module")
def topology(kafka: KafkaServer, topics: tuple[str, str]) -> Iterator[TopologyHandle]:
    settings = {"topology.stateful.checkpoint.interval.seconds": 0.5, "topology.stmgrs": 2}
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        yield cluster.submit(numbering(kafka, *topics, **settings)).wait_running(180)


@pytest.fixture(scope="module")
def running_words(kafka: KafkaServer, topics: tuple[str, str]) -> Words:
    def produce(topic: str, values: list[str], partition: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": kafka.servers, "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0

    return Words(kafka, produce, *topics)


@pytest.mark.long
@pytest.mark.parametrize("process", ["", "words", "numbering", "out", "stmgr-1", "tmaster", "kafka"])
def test_every_message_counts_once_though_a_process_is_killed(
    kafka: KafkaServer, topology: TopologyHandle, running_words: Words, process: str
) -> None:
    for chunk in range(30):
        if process == "kafka" and chunk == 15:
            kafka.kill()
            time.sleep(BROKER_AWAY_S)
            kafka.start()
            continue
        running_words.produce(20)
        time.sleep(PACE_S)
        if process and chunk == 15:
            running = topology.processes()
            name = next(id for id in sorted(running) if id == process or f"_{process}_" in id)
            os.kill(running[name], signal.SIGKILL)

    def exact() -> None:
        assert running_words.exact()

    eventually_sync(exact, within_s=120)
