"""Entries of Redis streams, exactly once, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from heronpy.connectors import RedisStreamSink, Sink
from heronpy.errors import CheckpointError, ConfigError, FencedError, UnavailableError
from heronpy.testing.connectors_kit import open_sink
from heronpy.testing.servers import RedisServer, redis_missing
from heronpy.testing.transactions_kit import TransactionalSinkKit, open_transactional, prepared

if reason := redis_missing():
    pytest.skip(reason, allow_module_level=True)

import redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(server.url)
    client.flushall()
    yield client
    client.close()


class Interrupted(RedisStreamSink):
    """Lets others act between what a commit reads and what it writes."""

    before: ClassVar[list[Callable[[], None]]] = []

    def add(self, pipeline: Any, entry: dict[str, Any]) -> None:
        while self.before:
            self.before.pop()()
        super().add(pipeline, entry)


class TestRedisStreamSink(TransactionalSinkKit):
    kills_max = 30

    @pytest.fixture
    def sink(self, server: RedisServer, client: redis.Redis) -> Sink:
        self._client = client
        return RedisStreamSink(server.url, "s")

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": n, "text": f"é{n}"} for n in range(11)]

    @pytest.fixture
    def expected(self) -> Sequence[Any]:
        return [{"n": str(n), "text": f"é{n}"} for n in range(11)]

    @pytest.fixture
    def unfit(self) -> Any:
        return {"n": None}

    def visible(self) -> list[Any]:
        return [
            {name.decode(): value.decode() for name, value in fields.items()} for _, fields in self._client.xrange("s")
        ]

    def test_entries_are_in_the_order_in_which_they_were_written(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        for number, cut in enumerate(range(0, 11, 4)):
            writer.commit(prepared(writer, number, elements[cut : cut + 4]))
        assert self.visible() == list(expected)

    def test_there_is_one_key_for_each_task_and_one_for_all(self, sink: Sink, elements: Sequence[Any]) -> None:
        for epoch in range(1, 5):
            for task in range(2):
                writer = open_transactional(sink, task=task, epoch=epoch)
                writer.commit(prepared(writer, epoch, elements[:1]))
        assert len(self._client.keys("heron:*")) == 3

    def test_a_lost_progress_key_is_an_error(self, sink: Sink, elements: Sequence[Any]) -> None:
        writer = open_transactional(sink)
        output = prepared(writer, 1, elements[:1])
        self._client.flushall()
        with pytest.raises(CheckpointError, match="it is unknown"):
            writer.commit(output)
        for epoch in (2, 3):  # nor does a rollback make it known
            with pytest.raises(CheckpointError, match="it is unknown"):
                open_transactional(sink, epoch=epoch).recover([output])
        self.check([])
        again = open_transactional(sink, epoch=4)
        again.recover([])
        again.commit(prepared(again, 2, elements[:1]))
        assert len(self.visible()) == 1

    def test_a_key_of_another_type_is_an_error_and_nothing_is_committed(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        output = prepared(writer, 1, elements[:1])
        self._client.set("s", "text")
        with pytest.raises(CheckpointError, match="has a string"):
            writer.commit(output)
        self._client.delete("s")
        writer.commit(output)
        self.check(expected[:1])

    def test_a_server_that_is_away_is_unavailable_and_a_commit_is_repeated(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any], server: RedisServer
    ) -> None:
        writer = open_transactional(sink)
        first, second = prepared(writer, 1, elements[:2]), prepared(writer, 2, elements[2:4])
        writer.commit(first)
        server.kill()
        with pytest.raises(UnavailableError):
            writer.commit(second)
        server.start()
        writer.commit(second)
        writer.commit(first)
        self.check(expected[:4])

    def test_a_writer_that_is_fenced_within_its_commit_adds_nothing(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any], server: RedisServer
    ) -> None:
        old = open_transactional(Interrupted(server.url, "s"))
        output = prepared(old, 1, elements[:2])
        Interrupted.before.append(lambda: open_transactional(sink, epoch=2).recover([output]))
        with pytest.raises(FencedError):
            old.commit(output)
        self.check(expected[:2])

    @pytest.mark.parametrize(
        "bad", [{"n": "\ud800"}, {"\ud800": 1}, {"n": 1 << 20_000}], ids=["text", "name", "number"]
    )
    def test_what_cannot_be_encoded_is_refused_when_it_comes_and_not_by_the_commit(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any], bad: Any
    ) -> None:
        writer, flushing = open_transactional(sink), open_sink(sink)
        for each in (writer, flushing):
            with pytest.raises(ValueError, match="cannot hold"):
                each.write(bad)
        writer.commit(prepared(writer, 1, elements[:2]))
        self.check(expected[:2])

    def test_at_least_once_a_flush_makes_entries_visible(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_sink(sink)
        for element in elements:
            writer.write(element)
        self.check([])
        writer.flush()
        writer.flush()
        self.check(expected)
        writer.close()


@pytest.mark.parametrize(
    ("options", "element", "fields"),
    [
        ({"field": "text"}, "é", {b"text": "é".encode()}),
        ({"json_field": "data"}, {"a": [1, None]}, {b"data": b'{"a":[1,null]}'}),
    ],
)
def test_elements_may_be_one_field(
    server: RedisServer, client: redis.Redis, options: dict[str, Any], element: Any, fields: dict[bytes, bytes]
) -> None:
    writer = open_sink(RedisStreamSink(server.url, "one", **options))
    writer.write(element)
    with pytest.raises(ValueError, match="cannot hold"):
        writer.write(object())
    writer.flush()
    assert [entry for _, entry in client.xrange("one")] == [fields]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="url"):
        RedisStreamSink(stream="s")
    with pytest.raises(ConfigError, match="stream"):
        RedisStreamSink("redis://127.0.0.1")
    with pytest.raises(ConfigError, match="field"):
        RedisStreamSink("redis://127.0.0.1", "s", field="a", json_field="b")
