"""From Kafka to Kafka, effectively once, with checkpoints in S3, while hosts vanish and are cut off and replaced.

Kafka and S3 have a host of their own, which fails as little as such services do elsewhere.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts_scene import CONTAINERS, QUICK, START_S, WITHIN_S, Fault, Scene, replace_cut_off, running, vanish

from heronpy.checkpoints import open_storage
from heronpy.examples import exactly_once_kafka
from heronpy.submit import kill
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.kafka import KafkaServer, kafka_missing
from heronpy.testing.servers import S3Server, s3_missing, zookeeper_missing

MISSING = hosts_missing() or zookeeper_missing() or s3_missing() or kafka_missing()

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(1800)]
PARTITIONS = 4
WORDS = 97
AT_ONCE = 3000


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts("one", "two", "three", "store") as hosts:
        yield hosts


@pytest.fixture
def store(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    with S3Server(hosts["store"].directory / "s3", place=hosts["store"]) as server:
        yield server


@pytest.fixture
def kafka(hosts: Hosts) -> Iterator[KafkaServer]:
    with KafkaServer(hosts["store"].directory / "kafka", place=hosts["store"]) as server:
        server.create_topic("lines", PARTITIONS)
        server.create_topic("counts", PARTITIONS)
        yield server


class OneOfThree(random.Random):
    """Does not choose the host of the stores."""

    def choice(self, sequence: Any) -> Any:
        return super().choice([one for one in sequence if getattr(one, "name", "") != "store"])


class Lines:
    """What was produced to the one topic, and what can be read of the other."""

    def __init__(self, kafka: KafkaServer) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0, "enable.idempotence": True})
        options = {"group.id": "test", "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": kafka.servers, **options})
        self._consumer.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
        self.given: Counter[str] = Counter()
        self.counted: Counter[tuple[str, int]] = Counter()

    def give(self, number: int) -> None:
        """Produce so many words, two a line."""
        names = "abcdefghijklmnopqrstuvwxyz"
        words = [f"{names[n % 26]}{names[n * n % WORDS % 26]}{names[n % WORDS % 26]}" for n in range(number)]
        for n in range(0, number, 2):
            self._producer.produce("lines", " ".join(words[n : n + 2]), partition=n // 2 % PARTITIONS)
        assert self._producer.flush(60) == 0
        self.given.update(words)

    def read(self) -> None:
        """Take what is committed by now."""
        while message := self._consumer.poll(0.5):
            assert message.error() is None, message.error()
            value = json.loads(message.value())
            self.counted[value["word"], value["n"]] += 1

    def wait_counted(self, number: int, *, within_s: float) -> None:
        def check() -> None:
            self.read()
            assert self.counted.total() >= number, f"{self.counted.total()} of {number} words are counted"

        eventually_sync(check, within_s=within_s)

    def wait_exact(self, *, within_s: float) -> None:
        """Wait until each number of each word is committed, and fail if one is there twice, or was never given."""
        expected = {(word, n) for word, times in self.given.items() for n in range(1, times + 1)}

        def check() -> None:
            self.read()
            missing = expected - self.counted.keys()
            assert not missing, f"{len(missing)} of {len(expected)} are missing, e.g. {sorted(missing)[:3]}"

        eventually_sync(check, within_s=within_s)
        assert [count for count, times in self.counted.items() if times > 1] == []
        assert self.counted.keys() == expected

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("fault", [vanish, replace_cut_off])
def test_counts_from_kafka_to_kafka_are_exact_with_checkpoints_in_s3(
    hosts: Hosts, store: S3Server, kafka: KafkaServer, tmp_path: Path, fault: Fault
) -> None:
    flags = ["--servers", kafka.servers, "--from-topic", "lines", "--to-topic", "counts", "--spouts", "2"]
    arguments = exactly_once_kafka.arguments_of(["kafka-words", *flags, "--containers", str(CONTAINERS)])
    config = {
        **QUICK,
        "heron.uploader.url": store.url("packages"),
        "heron.statefulstorage.url": store.url("checkpoints"),
    }
    lines = Lines(kafka)
    topology = exactly_once_kafka.topology(arguments)
    with running(topology, hosts, tmp_path, workers=3, config=config) as (launch, cluster, zookeepers):
        scene = Scene(launch, hosts, cluster, zookeepers, OneOfThree(1))
        scene.wait_running(START_S)
        lines.give(AT_ONCE)
        lines.wait_counted(1, within_s=WITHIN_S)
        lines.give(AT_ONCE)
        what, since_s = fault(scene)
        lines.give(AT_ONCE)
        lines.wait_exact(within_s=WITHIN_S)
        scene.wait_running()
        print(f"\n{what}: exact after {time.monotonic() - since_s:.1f} s", flush=True)
        scene.repair()
        lines.give(AT_ONCE)
        lines.wait_exact(within_s=WITHIN_S)
        kill(launch)
        lines.wait_exact(within_s=WITHIN_S)
    lines.close()
    for bucket in ("packages", "checkpoints"):
        with open_storage(store.url(bucket)) as storage:
            assert storage.names("") == []
