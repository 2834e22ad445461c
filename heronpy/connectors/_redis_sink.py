"""Entries of a Redis stream."""

# Exactly once: the entries of a checkpoint and the number of that checkpoint are written in one MULTI, which fails if
# the progress has changed since it was read (WATCH). The keys are in the stream's slot of a cluster.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from heronpy.connectors._files import why
from heronpy.connectors._held_rows import NOTHING, OPENED, HeldRowsWriter, PreparedRows
from heronpy.connectors._optional import need
from heronpy.connectors._redis_client import connect, find_url
from heronpy.connectors._row_sinks import unfit
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.errors import CheckpointError, ConfigError, UnavailableError

_TIMEOUT_S = 30.0
"""A commit of very many entries takes a while."""
_TRIES = 100


class RedisStreamSink(Sink):
    """Entries of a Redis stream. Elements are dicts of text, bytes and numbers, or what `field` and `json_field` say.

    Exactly once, the entries between two checkpoints are kept in memory and in the checkpoint, and added with a
    progress key in one MULTI when it is committed. That is as durable as the server is: one that loses what it has
    answered (`appendfsync`, failover to a replica) loses it here.
    """

    exactly_once = True

    def __init__(
        self,
        url: str | None = None,
        stream: str = "",
        *,
        url_env: str | None = None,
        field: str | None = None,
        json_field: str | None = None,
        maxlen: int | None = None,
    ) -> None:
        """Describe the sink; the server is connected to when it is opened.

        Args:
            url: `redis://[user:password@]host:port/db`, or rediss:// or unix://. It travels with the program: give a
                URL with a password by `url_env` instead.
            stream: the stream's key; made if missing.
            url_env: name of an environment variable of the tasks that has the URL.
            field: elements are text, written as this field.
            json_field: elements are written as JSON, as this field.
            maxlen: about how many entries the stream keeps; without it all.

        Raises:
            ConfigError: not one URL, no stream, or two fields.
        """
        if (url is None) == (url_env is None):
            raise ConfigError("RedisStreamSink takes either a url or a url_env")
        if not stream:
            raise ConfigError("RedisStreamSink takes the name of a stream")
        if field is not None and json_field is not None:
            raise ConfigError("RedisStreamSink takes either field or json_field")
        self._url = url
        self._url_env = url_env
        self.stream = stream
        self._field = field
        self._json_field = json_field
        self._maxlen = maxlen

    def __repr__(self) -> str:
        return f"RedisStreamSink({self.stream!r})"

    def open(self, context: SinkContext) -> SinkWriter:
        return _FlushingWriter(self, self._connected())

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        return _TransactionalWriter(self, self._connected(), context)

    def _connected(self) -> Any:
        redis = need("redis", "redis", "RedisStreamSink")
        return connect(redis, find_url(self._url, self._url_env, repr(self)), self.stream, timeout_s=_TIMEOUT_S)

    def entry(self, element: Any) -> dict[bytes, bytes]:
        """An element as the fields of an entry, encoded: what cannot be must not be found out by a commit.

        Raises:
            ValueError: it has no such form.
        """
        if self._json_field is not None:
            try:
                return {self._json_field.encode(): msgspec.json.encode(element)}
            except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as e:
                raise unfit(self, element, why(e)) from e
        if self._field is not None:
            if not isinstance(element, (str, bytes)):
                raise unfit(self, element, "it is not text")
            return self._encoded({self._field: element}, element)
        if not isinstance(element, dict) or not element or not all(isinstance(name, str) for name in element):
            raise unfit(self, element, "it is not a dict with names of fields")
        for name, value in element.items():
            if type(value) not in (str, bytes, int, float):
                raise unfit(self, element, f"field {name!r} is neither text nor a number")
        return self._encoded(element, element)

    def _encoded(self, fields: dict[str, Any], element: Any) -> dict[bytes, bytes]:
        try:
            return {name.encode(): _encoded(value) for name, value in fields.items()}
        except ValueError as e:  # half of a surrogate pair, an int of thousands of digits
            raise unfit(self, element, why(e)) from e

    def add(self, pipeline: Any, entry: dict[bytes, bytes]) -> None:
        pipeline.xadd(self.stream, entry, maxlen=self._maxlen, approximate=True)


def _encoded(value: str | bytes | int | float) -> bytes:
    """As redis-py does."""
    return value if isinstance(value, bytes) else (value if isinstance(value, str) else repr(value)).encode()


class _FlushingWriter(SinkWriter):
    """At least once: a flush is a MULTI."""

    def __init__(self, sink: RedisStreamSink, client: Any) -> None:
        self._sink = sink
        self._client = client
        self._entries: list[dict[bytes, bytes]] = []

    def write(self, element: Any) -> None:
        self._entries.append(self._sink.entry(element))

    def flush(self) -> None:
        if self._entries:
            with _translated(self._sink), self._client.pipeline(transaction=True) as pipeline:
                for entry in self._entries:
                    self._sink.add(pipeline, entry)
                pipeline.execute()
            self._entries.clear()

    def close(self) -> None:
        self._client.close()


class _TransactionalWriter(HeldRowsWriter):
    def __init__(self, sink: RedisStreamSink, client: Any, context: SinkContext) -> None:
        super().__init__(context)
        self._stream_sink = sink
        self._client = client
        self._transaction(self._key(self._sink, self._task), self._epoch_key(self._sink), self._take_over)

    def row(self, element: Any) -> Any:
        return self._stream_sink.entry(element)

    def commit_rows(self, prepared: PreparedRows) -> None:
        key, epoch_key = self._key(prepared.sink, prepared.task), self._epoch_key(prepared.sink)
        self._transaction(key, epoch_key, lambda pipeline: self._add(pipeline, prepared))

    def begin_progress(self) -> None:
        key, epoch_key = self._key(self._sink, self._task), self._epoch_key(self._sink)
        self._transaction(key, epoch_key, lambda pipeline: self._begin(pipeline, key))

    def close(self) -> None:
        self._client.close()

    def _begin(self, pipeline: Any, key: str) -> bool:
        owner, checkpoint = pipeline.hmget(key, "owner", "checkpoint")
        if owner != self._owner.encode() or checkpoint is None or int(checkpoint) != OPENED:
            return False  # a commit says what is wrong
        pipeline.multi()
        pipeline.hset(key, "checkpoint", NOTHING)
        return True

    def _take_over(self, pipeline: Any) -> bool:
        key, epoch_key = self._key(self._sink, self._task), self._epoch_key(self._sink)
        if int(pipeline.get(epoch_key) or 0) > self._epoch:
            raise self.fenced()
        pipeline.multi()
        pipeline.set(epoch_key, self._epoch)
        pipeline.hset(key, "owner", self._owner)
        pipeline.hsetnx(key, "checkpoint", OPENED)
        return True

    def _add(self, pipeline: Any, prepared: PreparedRows) -> bool:
        """Have a MULTI add the entries. False: they are there."""
        key = self._key(prepared.sink, prepared.task)
        owner, checkpoint = pipeline.hmget(key, "owner", "checkpoint")
        if checkpoint is None:
            raise self.unknown(f"the field checkpoint of the key {key}", prepared)
        fenced = False
        if prepared.sink == self._sink:
            fenced = int(pipeline.get(self._epoch_key(self._sink)) or 0) != self._epoch
        if prepared.owner == self._owner:  # a newer writer's checkpoint says nothing about this one
            fenced |= owner != self._owner.encode()
        elif int(checkpoint) >= prepared.checkpoint_id:
            return False
        if fenced:
            raise self.fenced()
        if int(checkpoint) == OPENED:
            raise self.unknown(f"the field checkpoint of the key {key}", prepared)
        if int(checkpoint) >= prepared.checkpoint_id:
            return False
        kind = pipeline.type(self._stream_sink.stream)
        if kind not in (b"stream", b"none"):  # a MULTI is not undone where one of its commands fails
            raise CheckpointError(f"{self._stream_sink!r}: the key has a {kind.decode()}")
        pipeline.multi()
        pipeline.hset(key, "checkpoint", prepared.checkpoint_id)
        for entry in prepared.rows:
            self._stream_sink.add(pipeline, entry)
        return True

    def _transaction(self, key: str, epoch_key: str, queue: Callable[[Any], bool]) -> None:
        """Have `queue` read and fill a MULTI, again if what it has read was changed meanwhile."""
        from redis.exceptions import WatchError

        for _ in range(_TRIES):
            with _translated(self._stream_sink), self._client.pipeline(transaction=True) as pipeline:
                pipeline.watch(key, epoch_key)
                if not queue(pipeline):
                    return
                with contextlib.suppress(WatchError):
                    pipeline.execute()
                    return
        raise UnavailableError(f"{self._stream_sink!r}: {key} changes all the time: there are two writers")

    def _key(self, sink: str, task: int) -> str:
        return f"heron:sink:{{{self._stream_sink.stream}}}:{sink}:{task}"

    def _epoch_key(self, sink: str) -> str:
        return f"heron:sink:{{{self._stream_sink.stream}}}:{sink}:epoch"


@contextlib.contextmanager
def _translated(sink: RedisStreamSink) -> Iterator[None]:
    from redis.exceptions import RedisError

    try:
        yield
    except (RedisError, OSError) as e:
        raise UnavailableError(f"{sink!r}: the Redis does not take it: {why(e)}") from None
