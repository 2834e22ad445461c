"""Redis streams as a source, on a real server: nothing is lost, whoever is killed."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, TopologyBuilder, Tuple
from heronpy.connectors import Record, RedisStream, Source, SourceReader, SourceSpout
from heronpy.errors import ConfigError
from heronpy.runtime import PARENT_ENV
from heronpy.testing import Simulator, eventually_sync
from heronpy.testing.connectors_kit import Damaged, DeadLetters, SourceKit, drain, open_source
from heronpy.testing.positions_kit import RewindableSourceKit, opened, rest_of
from heronpy.testing.servers import RedisServer, redis_missing
from heronpy.wire import DATA

if reason := redis_missing():
    pytest.skip(reason, allow_module_level=True)

import redis

IDLE_S = 0.5


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is late is no server that is away, but where a test says so."""
    monkeypatch.setattr("heronpy.connectors._redis._TIMEOUT_S", 60.0)


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


def _fill(client: redis.Redis, stream: str, count: int, first: int = 0) -> list[str]:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(first, first + count):
            pipeline.xadd(stream, {"n": str(n), "text": f"é{n}"})
        return [entry_id.decode() for entry_id in pipeline.execute()]


def _pending(client: redis.Redis, stream: str = "s") -> int:
    return int(client.xpending(stream, "g")["pending"])


def _read(reader: SourceReader, count: int) -> list[Record]:
    """At least `count` records."""
    records: list[Record] = []

    def enough() -> None:
        records.extend(reader.read(50))
        assert len(records) >= count

    eventually_sync(enough)
    return records


class TestRedisStream(SourceKit, RewindableSourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": str(n), "text": f"é{n}"} for n in range(100)]

    @pytest.fixture
    def source(self, client: redis.Redis, server: RedisServer, values: Sequence[Any]) -> Source:
        _fill(client, "s", len(values))
        # No test of the kit waits for what a task left that does not come back, so none may be taken for dead here:
        # where all tasks are in one process, a machine that is late lets each find the others idle.
        return RedisStream(server.url, "s", group="g")

    @pytest.fixture
    def damaged(self, client: redis.Redis, server: RedisServer) -> Damaged:
        for n, data in enumerate([b'{"a": 1}', b"{", b'"\xff"', b"[2]"], 1):
            client.xadd("d", {"data": data}, id=f"{n}-0")
        client.xadd("d", {"other": "x"}, id="5-0")
        source = RedisStream(server.url, "d", group="g", json_field="data")
        return Damaged(source, [{"a": 1}, [2]], ["d:2-0", "d:3-0", "d:5-0"])


def test_ids_and_times_are_those_of_the_entries(client: redis.Redis, server: RedisServer) -> None:
    client.xadd("s", {"t": "x"}, id="1234567-8")
    source = RedisStream(server.url, "s", group="g", field="t")
    assert source.timed
    assert source.splits(1) is None
    assert [record[:3] for record in open_source(source).read(5)] == [("x", 1_234_567, "1234567-8")]


def test_entries_are_pending_until_they_are_acked(client: redis.Redis, server: RedisServer) -> None:
    _fill(client, "s", 10)
    reader = open_source(RedisStream(server.url, "s", group="g"))
    records = _read(reader, 10)
    assert _pending(client) == 10
    reader.ack(records[3:])
    reader.close()
    assert _pending(client) == 3


class Nothing(Bolt):
    def process(self, tup: Tuple) -> None:
        raise AssertionError("all tuples are lost on their way")


def test_at_most_once_entries_are_acked_when_they_are_emitted(client: redis.Redis, server: RedisServer) -> None:
    def emitted() -> Simulator:
        builder = TopologyBuilder("lossy")
        source = builder.add_spout("source", SourceSpout(RedisStream(server.url, "s", group="g")), 1)
        builder.add_bolt("nothing", Nothing, 1, {source: Grouping.SHUFFLE})
        builder.set_config({"topology.reliability.mode": "ATMOST_ONCE"})
        return Simulator(builder, lose=lambda batch: batch.kind == DATA)

    def emits(simulator: Simulator, count: int) -> None:
        simulator.run(until=lambda: simulator.total("__emit-count/default") >= count, seconds=60)

    _fill(client, "s", 300)
    with emitted() as simulator:
        emits(simulator, 300)
    assert _pending(client) == 0
    _fill(client, "s", 5, first=300)
    with emitted() as simulator:
        emits(simulator, 5)
        simulator.run(seconds=2 * IDLE_S)
        assert simulator.total("__emit-count/default") == 5, "nothing comes again"


def test_malformed_entries_are_acked(client: redis.Redis, server: RedisServer) -> None:
    client.xadd("s", {"data": "{"})
    reader = open_source(RedisStream(server.url, "s", group="g", json_field="data"), dead=DeadLetters())
    assert drain(reader) == []
    assert _pending(client) == 0


def test_an_entry_deleted_while_it_was_pending_is_set_aside(client: redis.Redis, server: RedisServer) -> None:
    ids = _fill(client, "s", 2)
    source = RedisStream(server.url, "s", group="g")
    assert len(open_source(source).read(5)) == 2
    client.xdel("s", ids[0])
    dead = DeadLetters()
    again = open_source(source, dead=dead)
    assert [record.id for record in drain(again)] == [ids[1]]
    assert [where for where, _, _ in dead.letters] == [f"s:{ids[0]}"]
    assert _pending(client) == 1


def test_an_entry_deleted_while_another_task_had_it_is_set_aside(client: redis.Redis, server: RedisServer) -> None:
    ids = _fill(client, "s", 3)
    source = RedisStream(server.url, "s", group="g", min_idle_s=IDLE_S)
    assert len(open_source(source, task=0, of=2).read(5)) == 3  # and it is collected, as a task that is gone
    client.xdel("s", *ids[:2])
    dead = DeadLetters()
    other = open_source(source, task=1, of=2, dead=dead)
    assert [record.id for record in _read(other, 1)] == ids[2:]
    assert [where for where, _, _ in dead.letters] == [f"s:{id}" for id in ids[:2]]


@pytest.mark.parametrize("gone", ["stream", "group"])
def test_a_group_of_entries_to_come_loses_none_when_it_has_to_be_made_again(
    client: redis.Redis, server: RedisServer, gone: str
) -> None:
    _fill(client, "s", 3)
    reader = open_source(RedisStream(server.url, "s", group="g", start="$"))
    assert reader.read(5) == []
    if gone == "stream":
        client.delete("s")
    else:
        client.xgroup_destroy("s", "g")
    ids = _fill(client, "s", 2)
    assert [record.id for record in _read(reader, 2)] == ids


def test_the_group_begins_with_the_oldest_entry_or_with_those_to_come(client: redis.Redis, server: RedisServer) -> None:
    _fill(client, "s", 3)
    assert len(drain(open_source(RedisStream(server.url, "s", group="old")))) == 3
    late = open_source(RedisStream(server.url, "s", group="new", start="$"))
    assert drain(late) == []
    (entry_id,) = _fill(client, "s", 1)
    assert [record.id for record in drain(late)] == [entry_id]


def test_a_stream_may_come_later(client: redis.Redis, server: RedisServer) -> None:
    reader = open_source(RedisStream(server.url, "later", group="g"))
    assert reader.read(10) == []
    _fill(client, "later", 2)
    assert len(drain(reader)) == 2


def test_what_is_processed_slowly_is_not_taken_over(client: redis.Redis, server: RedisServer) -> None:
    _fill(client, "s", 5)
    idle_s = 2.0
    source = RedisStream(server.url, "s", group="g", min_idle_s=idle_s)
    slow, other = open_source(source, task=0, of=2), open_source(source, task=1, of=2)
    assert len(slow.read(10)) == 5
    deadline_s = time.monotonic() + 2 * idle_s
    while time.monotonic() < deadline_s:
        before_s = time.monotonic()
        assert slow.read(0) == []  # the engine has enough
        taken_over = other.read(10)
        if time.monotonic() - before_s >= idle_s:
            pytest.skip("this process itself was held up for so long that others may take over")
        assert taken_over == []
        time.sleep(0.01)


def test_a_reader_that_is_not_called_keeps_what_it_has_and_sends_its_acks(
    client: redis.Redis, server: RedisServer
) -> None:
    _fill(client, "s", 5)
    reader = open_source(RedisStream(server.url, "s", group="g", min_idle_s=0.4))
    records = _read(reader, 5)
    idle_ms = 0

    def renewed() -> None:
        nonlocal idle_ms
        before_ms, idle_ms = idle_ms, client.xpending_range("s", "g", "-", "+", 1)[0]["time_since_delivered"]
        assert idle_ms < before_ms

    eventually_sync(renewed)
    eventually_sync(renewed)
    for record in records:  # not each of them is sent at once
        reader.ack([record])

    def acked() -> None:
        assert _pending(client) == 0

    eventually_sync(acked)
    renewals = [thread for thread in threading.enumerate() if thread.name == "redis-renewals"]
    assert renewals
    reader.close()
    del reader
    for thread in renewals:
        thread.join(60)
    assert not any(thread.is_alive() for thread in renewals), "also those of readers that nobody has any more"


def test_a_reader_that_loses_its_connection_leaves_alone_what_its_renewals_wait_for(
    client: redis.Redis, server: RedisServer
) -> None:
    _fill(client, "s", 5)
    reader = open_source(RedisStream(server.url, "s", group="g", min_idle_s=0.4))
    _read(reader, 5)
    client.client_pause(60_000, all=False)  # what writes
    waiting: dict[str, str] = {}

    def waits(*commands: str) -> None:
        waiting.update((each["cmd"], each["id"]) for each in client.client_list() if "b" in each["flags"])
        assert waiting.keys() & set(commands)

    eventually_sync(lambda: waits("xclaim"))
    reading = threading.Thread(target=reader.read, args=(5,))
    reading.start()
    eventually_sync(lambda: waits("xreadgroup", "xautoclaim"))
    client.client_kill_filter(_id=next(id for command, id in waiting.items() if command != "xclaim"))
    reading.join(60)
    client.client_unpause()
    _fill(client, "s", 1)
    _read(reader, 1)
    reader.close()


_CONSUMER = """
import os, sys
from heronpy.connectors import RedisStream
from heronpy.runtime import die_with_parent
from heronpy.testing.connectors_kit import open_source

die_with_parent()
reader = open_source(RedisStream(url_env="TEST_REDIS_URL", stream="s", group="g", min_idle_s=float(sys.argv[2])))
count, at_most = 0, int(sys.argv[3])
with open(sys.argv[1], "a") as done:
    while True:
        records = reader.read(37 if count < at_most else 0)
        for record in records:
            done.write(record.id + "\\n")
        done.flush()
        os.fsync(done.fileno())
        reader.ack(records[:-5])  # some are always on their way when it is killed
        count += len(records)
"""


def _killed_in_the_middle(server: RedisServer, done: Path, at_least: int) -> set[str]:
    """What a consumer process had processed when it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CONSUMER, str(done), str(IDLE_S), str(5 * at_least)],
        env={**os.environ, "TEST_REDIS_URL": server.url, PARENT_ENV: str(os.getpid())},
    )
    try:

        def far_enough() -> None:
            assert process.poll() is None
            assert done.exists()
            assert done.read_text().count("\n") >= at_least

        eventually_sync(far_enough)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(300)
    return {line for line in done.read_text().splitlines(keepends=True) if line.endswith("\n")}


@pytest.mark.parametrize("successor", [0, 1], ids=["the same task", "another task"])
def test_nothing_is_lost_when_a_consumer_is_killed(
    client: redis.Redis, server: RedisServer, tmp_path: Path, successor: int
) -> None:
    ids = set(_fill(client, "s", 20_000))
    processed = {line.strip() for line in _killed_in_the_middle(server, tmp_path / "done", 2000)}
    pending = _pending(client)
    assert pending >= 5
    assert len(processed) < len(ids)
    source = RedisStream(server.url, "s", group="g", min_idle_s=IDLE_S)
    reader = open_source(source, task=successor, of=2)
    seen = list(processed)

    def all_done() -> None:
        records = reader.read(1000)
        reader.ack(records)
        seen.extend(record.id for record in records)
        assert set(seen) == ids
        assert _pending(client) == 0

    eventually_sync(all_done)
    assert len(seen) - len(ids) <= pending  # twice: only what was not acked
    reader.close()


def test_a_restart_of_redis_is_survived_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="heronpy.connectors")
    with RedisServer(tmp_path / "redis", password="s3cret") as server:
        client = redis.Redis.from_url(server.url)
        ids = set(_fill(client, "s", 100))
        reader = open_source(RedisStream(server.url, "s", group="g"))
        first = _read(reader, 50)
        server.kill()
        reader.ack(first[:20])
        deadline_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s:
            began_s = time.monotonic()
            assert reader.read(10) == []
            assert time.monotonic() - began_s < 120.0
            time.sleep(0.01)
        server.start()
        rest = _read(reader, 50)
        reader.ack(first[20:] + rest)
        assert {record.id for record in first + rest} == ids
        assert len(first) + len(rest) == 100  # what was out is not read again
        reader.close()
        assert int(redis.Redis.from_url(server.url).xpending("s", "g")["pending"]) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "s3cret" not in caplog.text


def test_a_redis_that_forgot_everything_is_read_from_its_beginning(client: redis.Redis, server: RedisServer) -> None:
    _fill(client, "s", 5)
    reader = open_source(RedisStream(server.url, "s", group="g"))
    reader.ack(_read(reader, 5))
    client.flushall()
    ids = _fill(client, "s", 3)
    assert [record.id for record in _read(reader, 3)] == ids


def test_a_wrong_password_is_logged_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(tmp_path / "redis", password="s3cret") as server:
        source = RedisStream(server.url.replace("s3cret", "wr0ng"), "s", group="g")
        reader = open_source(source)
        assert reader.read(1) == []
        reader.close()
    assert "cannot be read" in caplog.text
    assert "wr0ng" not in caplog.text
    assert "wr0ng" not in repr(source)


def test_a_frozen_redis_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.connectors._redis._TIMEOUT_S", 2.0)
    with RedisServer(tmp_path / "redis") as server:
        client = redis.Redis.from_url(server.url)
        ids = _fill(client, "s", 10)
        reader = open_source(RedisStream(server.url, "s", group="g"))
        first: list[Record] = []

        def some() -> None:
            first.extend(reader.read(5 - len(first)))
            assert len(first) == 5

        eventually_sync(some)
        server.freeze()
        assert reader.read(5) == []
        server.thaw()
        assert [record.id for record in first + _read(reader, 5)] == ids
        reader.close()


def test_urls_that_are_none_are_refused_without_showing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="is not one") as error:
        open_source(RedisStream("http://:s3cret@x", "s", group="g"))
    assert "s3cret" not in str(error.value)
    with pytest.raises(ConfigError, match="environment variable NO_SUCH must have the URL"):
        open_source(RedisStream(stream="s", group="g", url_env="NO_SUCH"))
    with pytest.raises(ConfigError, match="either a url or a url_env"):
        RedisStream(stream="s", group="g")


def test_entries_that_are_trimmed_before_they_are_read_are_reported(client: redis.Redis, server: RedisServer) -> None:
    source = RedisStream(server.url, "s", group="g")
    _fill(client, "s", 10)
    reader = opened(source, "s")
    assert len(reader.read(4)) == 4
    client.xtrim("s", maxlen=8, approximate=False)
    assert len(reader.read(1)) == 1
    client.xtrim("s", maxlen=2, approximate=False)
    dead = DeadLetters()
    assert [record.value["n"] for record in rest_of(opened(source, "s", reader.position, dead))] == ["8", "9"]
    assert [reason[:9] for _, _, reason in dead.letters] == ["3 entries"]
    client.xtrim("s", maxlen=0)
    _fill(client, "s", 2, first=10)
    again = opened(source, "s", reader.position, dead := DeadLetters())
    assert [record.value["n"] for record in rest_of(again)] == ["10", "11"]
    assert [reason[:9] for _, _, reason in dead.letters] == ["5 entries"]


@pytest.mark.parametrize("start", ["0", "$"])
@pytest.mark.parametrize("trimmed_all", [False, True])
def test_entries_that_are_trimmed_before_the_group_reads_them_are_reported_once(
    client: redis.Redis, server: RedisServer, start: str, trimmed_all: bool
) -> None:
    _fill(client, "s", 10)
    client.xtrim("s", maxlen=5, approximate=False)  # before there is a group
    dead = DeadLetters()
    source = RedisStream(server.url, "s", group="g", field="n", start=start)
    readers = [open_source(source, dead=dead, task=task) for task in (0, 1)]
    read = [record.value for _ in range(9) for reader in readers for record in reader.read(2)]
    assert read == ([] if start == "$" else ["5", "6", "7", "8", "9"])
    ids = _fill(client, "s", 10, first=10)
    read = [record.value for record in readers[0].read(3)]
    client.xtrim("s", maxlen=0 if trimmed_all else 4, approximate=False)
    _fill(client, "s", 2, first=20)
    read += [record.value for _ in range(9) for reader in readers for record in reader.read(2)]
    reason = f"{7 if trimmed_all else 3} entries after {ids[2]} were removed from the stream before the group read them"
    assert dead.letters == [(f"s:{ids[2]}", None, reason)]
    between = [] if trimmed_all else ["16", "17", "18", "19"]
    assert read == ["10", "11", "12", *between, "20", "21"]
    _fill(client, "s", 3, first=30)
    client.xtrim("s", maxlen=1, approximate=False)
    assert [record.value for record in readers[1].read(9)] == ["32"]
    assert [reason.partition(" after")[0] for _, _, reason in dead.letters[1:]] == ["2 entries"]


def test_entries_that_are_deleted_when_they_are_done_are_not_missed(client: redis.Redis, server: RedisServer) -> None:
    reader = open_source(RedisStream(server.url, "s", group="g", field="n"))
    for number in range(20):
        _fill(client, "s", 3, first=3 * number)
        records = _read(reader, 3)
        reader.ack(records)
        if done := [record.id for record in records if int(record.value) % 4]:
            client.xdel("s", *done)
    assert list(reader.read(9)) == []


def test_without_the_right_to_count_entries_are_read_and_that_is_logged_once(
    client: redis.Redis, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    _fill(client, "s", 4)
    client.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-eval")
    reader = open_source(RedisStream(server.url.replace("://", "://reader:secret@"), "s", group="g", field="n"))
    assert [record.value for _ in range(6) for record in reader.read(1)] == ["0", "1", "2", "3"]
    assert caplog.text.count("what is removed before it is read is not counted") == 1
    reader.close()
    client.execute_command("ACL", "DELUSER", "reader")


@pytest.mark.parametrize("later", [2, 6])
def test_a_stream_that_was_made_again_is_read_and_what_was_not_read_of_the_other_is_reported(
    client: redis.Redis, server: RedisServer, later: int
) -> None:
    source = RedisStream(server.url, "s", group="g")
    _fill(client, "s", 10)
    dead = DeadLetters()
    reader = opened(source, "s", None, dead)
    assert len(reader.read(4)) == 4
    client.delete("s")
    _fill(client, "s", later, first=10)
    numbers = [str(number) for number in range(10, 10 + later)]
    assert [record.value["n"] for record in rest_of(reader)] == numbers
    assert [reason[:25] for _, _, reason in dead.letters] == ["the stream was made again"]


def test_a_stream_read_from_its_end_has_what_comes_later(client: redis.Redis, server: RedisServer) -> None:
    source = RedisStream(server.url, "s", group="g", start="$")
    for first in (0, 5):
        reader = opened(source, "s")
        assert reader.read(100) == []
        _fill(client, "s", 5, first)
        position = reader.position
        assert b"heronpy" not in pickle.dumps(position), "what is in checkpoints must outlive a change of names"
        assert [record.value["n"] for record in rest_of(reader)] == [str(n) for n in range(first, first + 5)]
        assert len(rest_of(opened(source, "s", position))) == 5


def test_a_position_outlives_a_redis_that_is_away(client: redis.Redis, server: RedisServer) -> None:
    source = RedisStream(server.url, "s", group="g")
    _fill(client, "s", 10)
    reader = opened(source, "s")
    assert len(reader.read(4)) == 4
    server.kill()
    assert reader.read(4) == []
    server.start()
    assert len(rest_of(reader)) == 6
