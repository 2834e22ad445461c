"""Sinks whose writer dies between prepare and commit, and is replaced an hour later.

The writer is a process that is killed. Its clock is an hour behind, and so are the times of its files: for those who
commits what it has prepared, an hour has passed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import re
import signal
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest import mock

from heronpy.connectors import (
    CsvSink,
    JsonLinesSink,
    KafkaSink,
    ParquetSink,
    RedisStreamSink,
    Sink,
    SinkContext,
    SqlSink,
    TextSink,
)
from heronpy.errors import UnavailableError
from heronpy.testing.kafka import KafkaServer, kafka_missing
from heronpy.testing.servers import RedisServer, redis_missing

HOUR_S: Final = 3600
CHECKPOINTS: Final = 5
"""The third is the one that is committed an hour later."""
ELEMENTS: Final = 1000
"""Between two checkpoints."""
TABLE: Final = "counts"
PARTITIONS: Final = 3
_READ_S: Final = 60.0


def changed_outputs(lose: bool = False, without: Collection[str] = ()) -> Iterator[tuple[str, bool | str]]:
    """Each sink's name, and whether its output differs from that of a run without a failure; or why it has none.

    Args:
        lose: Forget what was prepared, as a mistake would.
        without: Names of sinks that are left out.
    """
    for name, opened in _SINKS.items():
        if name in without:
            continue
        with tempfile.TemporaryDirectory(prefix="heron-sinks-") as scratch, contextlib.ExitStack() as stack:
            opened_or_missing = opened(stack, Path(scratch) / "server")
            if isinstance(opened_or_missing, str):
                yield name, opened_or_missing
                continue
            make, read = opened_or_missing
            found = []
            for run in ("undisturbed", "killed"):
                directory = Path(scratch) / run
                directory.mkdir()
                sink = make(directory)
                if run == "undisturbed":
                    _write(sink, 1, range(CHECKPOINTS), commit_last=True)
                else:
                    prepared = _prepared_by_the_dead(sink, directory)
                    _write(sink, 2, range(3, CHECKPOINTS), commit_last=True, pending=() if lose else prepared)
                found.append(read(directory))
            assert len(found[0]) >= CHECKPOINTS, f"{name}: what was committed is not found"
            yield name, found[0] != found[1]


def _write(
    sink: Sink, epoch: int, checkpoints: range, *, commit_last: bool, pending: tuple[Any, ...] = ()
) -> tuple[Any, ...]:
    """Write with a checkpoint after every few elements. Returns what is prepared and not committed."""
    writer = sink.open_transactional(
        SinkContext(name="sink", task_index=0, config={}, topology_id="bench-1", epoch=epoch)
    )
    writer.recover(list(pending))
    for checkpoint in checkpoints:
        for number in range(checkpoint * ELEMENTS, (checkpoint + 1) * ELEMENTS):
            writer.write({"key": f"key-{number}", "n": number})
        prepared = writer.prepare(checkpoint + 1)
        if checkpoint == checkpoints[-1] and not commit_last:
            return (prepared,)
        writer.commit(prepared)
    writer.close()
    return ()


def _prepared_by_the_dead(sink: Sink, directory: Path) -> tuple[Any, ...]:
    """What a process has prepared that was then killed, an hour ago."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        now, now_ns = time.time, time.time_ns
        try:
            with (
                mock.patch("time.time", side_effect=lambda: now() - HOUR_S),
                mock.patch("time.time_ns", side_effect=lambda: now_ns() - HOUR_S * 1_000_000_000),
                open(start, "wb") as pipe,
            ):
                pipe.write(pickle.dumps(_write(sink, 1, range(3), commit_last=False)))
                pipe.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:  # said here: nothing of the parent must go on in its copy
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(start)
    with open(end, "rb") as pipe:
        saved = pipe.read()
    os.waitpid(child, 0)
    if not saved:
        raise UnavailableError(f"{sink!r} could not be written")
    for path in directory.rglob("*"):
        found = path.stat()
        os.utime(path, (found.st_atime - HOUR_S, found.st_mtime - HOUR_S))
    prepared: tuple[Any, ...] = pickle.loads(saved)
    return prepared


Opened = tuple[Callable[[Path], Sink], Callable[[Path], list[Any]]]
"""What makes the sink of a run, by the run's directory, and what reads what it has committed."""


def _files(make: Callable[[Path], Sink]) -> Callable[[contextlib.ExitStack, Path], Opened]:
    return lambda stack, server: (make, _committed)


def _committed(directory: Path) -> list[Any]:
    """Bytes of the files that readers see, by checkpoint."""
    files = ((re.fullmatch(r"part-0-(\d+)-.*", path.name), path) for path in directory.iterdir() if path.is_file())
    return sorted((int(match[1]), path.read_bytes()) for match, path in files if match)


def _parquet(stack: contextlib.ExitStack, server: Path) -> Opened | str:
    return (ParquetSink, _committed) if importlib.util.find_spec("pyarrow") else "pyarrow is not installed"


def _sql(stack: contextlib.ExitStack, server: Path) -> Opened | str:
    return (_table, _rows) if importlib.util.find_spec("sqlalchemy") else "sqlalchemy is not installed"


def _table(directory: Path) -> Sink:
    with closing(sqlite3.connect(directory / "db")) as database:
        database.execute(f"CREATE TABLE {TABLE} (key TEXT, n INTEGER)")
        database.commit()
    return SqlSink(f"sqlite:///{directory}/db", TABLE)


def _rows(directory: Path) -> list[Any]:
    with closing(sqlite3.connect(directory / "db")) as database:
        return database.execute(f"SELECT key, n FROM {TABLE} ORDER BY rowid").fetchall()


def _redis(stack: contextlib.ExitStack, server: Path) -> Opened | str:
    if missing := redis_missing():
        return missing
    import redis

    url = stack.enter_context(RedisServer(server)).url
    client = stack.enter_context(closing(redis.Redis.from_url(url)))
    return (
        lambda directory: RedisStreamSink(url, directory.name),
        lambda directory: [fields for _, fields in client.xrange(directory.name) or ()],
    )


def _kafka(stack: contextlib.ExitStack, server: Path) -> Opened | str:
    if missing := kafka_missing():
        return missing
    broker = stack.enter_context(KafkaServer(server))

    def make(directory: Path) -> Sink:
        broker.create_topic(directory.name, partitions=PARTITIONS)
        return KafkaSink(broker.servers, directory.name, key="key")

    return make, lambda directory: _messages(broker.servers, directory.name)


def _messages(servers: str, topic: str) -> list[tuple[int, bytes, bytes]]:
    """Partition, key and value of the messages that were committed, in the order of each partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[tuple[int, bytes, bytes]] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        until_s = time.monotonic() + _READ_S
        while len(ended) < PARTITIONS:
            if time.monotonic() > until_s:
                raise UnavailableError(f"topic {topic} is not read to its end within {_READ_S:g} s")
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is None:
                found.append((message.partition(), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise UnavailableError(f"topic {topic} is not read: {error.str()}")
    return sorted(found, key=lambda message: message[0])


_SINKS: Final[Mapping[str, Callable[[contextlib.ExitStack, Path], Opened | str]]] = {
    "JsonLinesSink": _files(JsonLinesSink),
    "TextSink": _files(TextSink),
    "CsvSink": _files(lambda path: CsvSink(path, ["key", "n"])),
    "ParquetSink": _parquet,
    "SqlSink (SQLite)": _sql,
    "RedisStreamSink": _redis,
    "KafkaSink": _kafka,
}
"""By name: what opens each, with its server if it has one, or says what is missing."""
