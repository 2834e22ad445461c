"""Redis Streams, read as a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heronpy.connectors._optional import need
from heronpy.connectors._redis_client import connect, find_url
from heronpy.connectors._redis_entries import Decoder
from heronpy.connectors._redis_reader import RedisReader
from heronpy.connectors._redis_split import RedisSplitReader
from heronpy.connectors.spi import Source, SourceContext, SourceReader, SplitReader, StreamSplit
from heronpy.errors import ConfigError

_TOPOLOGY_NAME = "topology.name"
_TIMEOUT_S = 2.0


class RedisStream(Source):
    """The entries of a Redis stream, each handed to one consumer of a group until it is acked.

    An entry stays pending in Redis until it is processed with all that came of it. A restarted task begins with what it
    had pending; what a task had pending that does not come back goes to the others after `min_idle_s`. Records are
    dicts of text, or what `field` and `json_field` say; their id is the entry's, their time the one in that id. Of
    fields of one name in an entry the last counts. A malformed entry is a dead letter and acked. A group that was
    removed meanwhile, as with its stream, is made again and begins where it began.

    While Redis is away there are no records; what was read before is acked when it is back. There is no batch face:
    archive the streamlet.
    """

    timed = True
    rewindable = True

    def __init__(
        self,
        url: str | None = None,
        stream: str = "",
        *,
        group: str,
        url_env: str | None = None,
        field: str | None = None,
        json_field: str | None = None,
        start: str = "0",
        min_idle_s: float = 60.0,
        consumer: str | None = None,
    ) -> None:
        """Describe the stream; it is connected to when the source is opened.

        Args:
            url: `redis://[user:password@]host:port/db`, or rediss:// or unix://. It travels with the program: give a
                URL with a password by `url_env` instead.
            stream: the stream's key. It may not exist yet.
            group: the consumer group's name; made if missing.
            url_env: name of an environment variable of the tasks that has the URL.
            field: records are the text of this field.
            json_field: records are the JSON value in this field.
            start: where a new group begins: `0`: with the oldest entry, `$`: with those to come, or an entry id.
            min_idle_s: what another consumer has had pending for so long without a sign of life is taken over.
            consumer: beginning of the consumers' names; the topology's name without it. Two programs in one group need
                different ones.

        Raises:
            ConfigError: not one URL, no stream, or two fields.
        """
        if (url is None) == (url_env is None):
            raise ConfigError("RedisStream takes either a url or a url_env")
        if not stream or not group:
            raise ConfigError("RedisStream takes the names of a stream and of a group")
        if min_idle_s <= 0:
            raise ConfigError(f"RedisStream: min_idle_s must be more than 0, not {min_idle_s!r}")
        self._url = url
        self._url_env = url_env
        self._stream = stream
        self._group = group
        self._decoder = Decoder(field, json_field)
        self._start = start
        self._min_idle_s = min_idle_s
        self._consumer = consumer

    def __repr__(self) -> str:
        return f"RedisStream({self._stream!r}, group={self._group!r})"

    def open(self, context: SourceContext) -> SourceReader:
        redis: Any = need("redis", "redis", "RedisStream")
        prefix = self._consumer or context.config.get(_TOPOLOGY_NAME) or "heron"
        return RedisReader(
            connect(redis, find_url(self._url, self._url_env, repr(self)), self._stream, timeout_s=_TIMEOUT_S),
            stream=self._stream,
            group=self._group,
            consumer=f"{prefix}-{context.name}-{context.task_index}",
            start=self._start,
            min_idle_s=self._min_idle_s,
            decoder=self._decoder,
            dead_letter=context.dead_letter,
        )

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        """The stream: one split, read by one task from a position in it, without the group."""
        return {self._stream: _StreamSplit(self)}

    def open_split(self, position: Any, context: SourceContext) -> SplitReader:
        redis: Any = need("redis", "redis", "RedisStream")
        client = connect(redis, find_url(self._url, self._url_env, repr(self)), self._stream, timeout_s=_TIMEOUT_S)
        return RedisSplitReader(client, self._stream, self._start, position, self._decoder, context.dead_letter)


@dataclass(frozen=True, slots=True)
class _StreamSplit:
    source: RedisStream

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        return self.source.open_split(position, context)
