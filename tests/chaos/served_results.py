"""What the served topology is given in Kafka, and what has become of it in a topic, a table and a stream."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from served_topology import Places

from heronpy.testing import eventually_sync
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.postgres import PostgresServer
from heronpy.testing.servers import RedisServer

KEYS = 97
PARTITIONS = 3
CHUNK = 30
PACE_S = 0.1
ANSWER_S = 60.0
"""How long a server that has just been started may take for an answer."""
_FETCHED = 2_000
_QUIET_S = 0.2

Row = tuple[str, int, int]
"""A key, how often it had come, a number."""


class TooMuch(Exception):
    """Something came more often than it should: waiting does not help."""


class Place:
    """What has come in one place, a row after the other."""

    def __init__(self, name: str, *, once: bool) -> None:
        self.name = name
        self.rows = 0
        self._once = once
        self._seen: set[int] = set()
        self._counts: dict[str, set[int]] = defaultdict(set)

    def add(self, rows: Iterable[Row]) -> None:
        """Raises TooMuch if one of them is there already, and should not be."""
        for key, n, number in rows:
            self.rows += 1
            if self._once and (number in self._seen or n in self._counts[key]):
                raise TooMuch(f"{self.name}: number {number}, or {key} the {n}th time, came again")
            self._seen.add(number)
            self._counts[key].add(n)

    def check(self, count: int) -> None:
        """Raises AssertionError if not all of so many numbers have come, TooMuch if more have."""
        missing = set(range(count)) - self._seen
        assert not missing, f"{self.name}: {len(missing)} of {count} are missing, as {sorted(missing)[:5]}"
        if len(self._seen) > count:
            raise TooMuch(f"{self.name}: {sorted(self._seen)[-3:]} were never written")
        if self._once:
            for key, numbers in self._counts.items():
                if max(numbers) != len(numbers):
                    raise TooMuch(f"{self.name}: {key} was counted {max(numbers)} times, and came {len(numbers)} times")


class Results:
    """Numbers in, rows out."""

    def __init__(
        self, kafka: KafkaServer, postgres: PostgresServer, redis: RedisServer, seed: int, *, once: bool
    ) -> None:
        """Make topics and table.

        Args:
            kafka: a broker without our topics.
            postgres: a database without our table.
            redis: a server without our stream.
            seed: of the partitions that numbers go to.
            once: each row may come once only.
        """
        import psycopg
        import redis as redis_client
        from confluent_kafka import Consumer, Producer

        self.kafka = kafka
        self.places = Places(kafka.servers, "numbers", "made", postgres.url, "made", redis.url, "made")
        self.count = 0
        self._dice = random.Random(seed)
        self._partitions = {self.places.numbers: PARTITIONS, self.places.topic: 2}
        for topic, partitions in self._partitions.items():
            kafka.create_topic(topic, partitions)
        quiet = {"bootstrap.servers": kafka.servers, "log_level": 0}
        self._producer = Producer({**quiet, "enable.idempotence": True, "message.timeout.ms": 0})
        self._failed: list[Any] = []
        self._consumer = Consumer({**quiet, "group.id": "results", "isolation.level": "read_committed"})
        self._offsets: dict[int, int] = {}
        self._connect = lambda: psycopg.connect(postgres.url.replace("+psycopg", ""), connect_timeout=int(ANSWER_S))
        self._base = 0
        """No row with this id or a lower one will come any more."""
        self._ids: set[int] = set()
        with self._connect() as db:
            db.execute("CREATE TABLE made (id BIGSERIAL PRIMARY KEY, key TEXT, n BIGINT, number BIGINT)")
        self._redis = redis_client.Redis.from_url(redis.url, socket_timeout=ANSWER_S)
        self._last_entry = b"0-0"
        self._topic, self._table, self._stream = (Place(name, once=once) for name in ("topic", "table", "stream"))

    def append_until(self, done: threading.Event) -> None:
        """Write numbers at a steady pace; while the broker is away they wait in the producer."""
        while not done.is_set():
            for _ in range(CHUNK):
                self._write(self.count)
                self.count += 1
            done.wait(PACE_S)
        assert self._producer.flush(ANSWER_S) == 0, "the broker does not take the numbers"
        assert not self._failed, f"the broker has refused {self._failed[0]}"

    def _write(self, number: int) -> None:
        from confluent_kafka import KafkaError, KafkaException

        def write(partition: int) -> None:
            value = f"key-{number % KEYS} {number}"
            self._producer.produce(self.places.numbers, value, partition=partition, on_delivery=self._delivered)

        try:
            write(self._dice.randrange(self._partitions[self.places.numbers]))
        except KafkaException as e:
            if e.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            write(number % PARTITIONS)  # the producer has not heard of the new one yet
        self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def partitions(self, topic: str) -> int:
        return self._partitions[topic]

    def add_partition(self, topic: str) -> int:
        """One more; how many there are then."""
        self.kafka.add_partitions(topic, self._partitions[topic] + 1)
        self._partitions[topic] += 1
        return self._partitions[topic]

    def read(self) -> None:
        """Take what has been committed."""
        self._topic.add(self._messages())
        self._table.add(self._rows())
        self._stream.add(self._entries())

    def _messages(self) -> Iterator[Row]:
        import json

        from confluent_kafka import TopicPartition

        known = len(self._offsets)
        for partition in range(self._partitions[self.places.topic]):
            self._offsets.setdefault(partition, 0)
        if len(self._offsets) > known:
            places = [TopicPartition(self.places.topic, number, at) for number, at in self._offsets.items()]
            self._consumer.assign(places)
        more = True
        while more:
            messages = self._consumer.consume(_FETCHED, timeout=_QUIET_S)
            more = len(messages) == _FETCHED  # at least once there are always some, as long as input flows
            for message in messages:
                if message.error() is None:
                    self._offsets[message.partition()] = message.offset() + 1
                    value = json.loads(message.value())
                    yield value["key"], value["n"], value["number"]

    def _rows(self) -> Iterator[Row]:
        with self._connect() as db:
            rows = db.execute("SELECT id, key, n, number FROM made WHERE id > %s", (self._base,)).fetchall()
        for id, key, n, number in rows:
            if id not in self._ids:
                self._ids.add(id)
                yield key, n, number

    def _entries(self) -> Iterator[Row]:
        while found := self._redis.xrange(self.places.stream, b"(" + self._last_entry, count=_FETCHED):
            for id, fields in found:
                self._last_entry = id
                yield fields[b"key"].decode(), int(fields[b"n"]), int(fields[b"number"])

    def wait_more(self, rows: int) -> None:
        """Wait until so many more rows have come out."""
        self.read()
        before = self._topic.rows

        def check() -> None:
            self.read()
            assert self._topic.rows >= before + rows

        eventually_sync(check)

    def wait_exact(self, within_s: float) -> None:
        """Wait until every number is in topic, table and stream, and see that nothing else is."""

        def check() -> None:
            self.read()
            for place in (self._topic, self._table, self._stream):
                place.check(self.count)

        eventually_sync(check, within_s=within_s)
        self._base, self._ids = max(self._ids, default=self._base), set()

    def close(self) -> None:
        self._consumer.close()
        self._redis.close()
