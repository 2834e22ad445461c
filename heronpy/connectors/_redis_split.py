"""A Redis stream read from a position, which is kept by its reader: no consumer group, nothing to ack."""

# What is trimmed before it is read is lost, and Redis does not say so. It counts what was ever added, though; so the
# position has the number of its entry among them, and what is missing between the two numbers is gone. If there are
# fewer than that, it is another stream of the same name, or Redis has lost some in a failover.

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from heronpy.connectors._redis_entries import Decoder, shown, time_ms
from heronpy.connectors.spi import Record, SplitReader
from heronpy.shown import message

_log = logging.getLogger(__name__)
_BATCH = 1000
_RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_BEGINNING = "0-0"


class StreamPosition(NamedTuple):
    """How far a stream is read. In checkpoints a plain tuple."""

    entry_id: str
    """The last entry that was read."""
    added: int | None
    """How many had been added with it; None: this server does not count."""


class RedisSplitReader(SplitReader):
    """While Redis is away there are no records."""

    def __init__(
        self,
        client: Any,
        stream: str,
        start: str,
        position: tuple[Any, ...] | None,
        decoder: Decoder,
        dead_letter: Callable[[str, Any, str], None],
    ) -> None:
        """Read with a client that does not retry; connects with the first `read`."""
        self._client = client
        self._stream = stream
        self._start = start
        self._position = None if position is None else StreamPosition(*position)
        self._decoder = decoder
        self._dead_letter = dead_letter
        self._failures = 0
        self._retry_s = 0.0

    @property
    def position(self) -> tuple[Any, ...] | None:
        return None if self._position is None else tuple(self._position)

    def close(self) -> None:
        self._client.close()

    def read(self, limit: int) -> Sequence[Record]:
        if limit <= 0 or time.monotonic() < self._retry_s:
            return []
        try:
            entries = self._entries(min(limit, _BATCH))
        except Exception as e:  # redis-py's own are not known at this module's top
            self._failed(e)
            return []
        if self._failures:
            _log.info("stream %s: Redis answers again", self._stream)
            self._failures = 0
        return self._records(entries)

    def _entries(self, limit: int) -> list[tuple[bytes, Any]]:
        after = self._position.entry_id if self._position else _BEGINNING if self._start == "0" else self._start
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xinfo_stream(self._stream)
            # Also where nothing is wanted yet: both answers are of one moment.
            pipeline.xrange(self._stream, min=f"({_BEGINNING if after == '$' else after}", count=limit)
            info, entries = pipeline.execute(raise_on_error=False)
        for answer in (info, entries):
            if isinstance(answer, Exception):
                if "no such key" in str(answer):
                    if after == "$":
                        self._position = StreamPosition(_BEGINNING, 0)
                    return []
                raise answer
        added, length = info.get("entries-added"), info["length"]
        if after == "$":
            self._position = StreamPosition(info["last-generated-id"].decode(), added)
            return []
        known = self._position.added if self._position is not None else None
        if added is not None:
            first = info["first-entry"]
            after_position = first is None or _order(first[0].decode()) > _order(after)
            gone = added - length if after_position else added
            if known is not None and gone < known:
                reason = f"the stream was made again, or has lost entries: what came after {after} may be gone"
                self._dead_letter(f"{self._stream}:{after}", None, reason)
                known = None
            elif known is not None and after_position and gone > known:
                reason = f"{gone - known} entries after {after} were removed from the stream before they were read"
                self._dead_letter(f"{self._stream}:{after}", None, reason)
            if after_position:
                known = gone
        self._position = StreamPosition(after, known)
        found: list[tuple[bytes, Any]] = entries
        return found

    def _records(self, entries: Sequence[tuple[bytes, Any]]) -> list[Record]:
        records = []
        for raw_id, fields in entries:
            entry_id = raw_id.decode()
            try:
                records.append(Record(self._decoder.decode(fields), time_ms(entry_id), entry_id))
            except ValueError as e:
                self._dead_letter(f"{self._stream}:{entry_id}", shown(fields), message(e))
        if entries:
            assert self._position is not None
            known = self._position.added
            last = entries[-1][0].decode()
            self._position = StreamPosition(last, None if known is None else known + len(entries))
        return records

    def _failed(self, error: Exception) -> None:
        """Try again later. Logged when it begins; raises what is not an error of Redis."""
        from redis.exceptions import RedisError

        if not isinstance(error, (RedisError, OSError)):
            raise error
        if not self._failures:
            _log.warning("stream %s: cannot be read, trying again: %s", self._stream, " ".join(str(error).split()))
        self._retry_s = time.monotonic() + _RETRY_S[min(self._failures, len(_RETRY_S) - 1)]
        self._failures += 1
        self._client.connection_pool.disconnect()


def _order(entry_id: str) -> tuple[int, int]:
    time_part, _, number = entry_id.partition("-")
    return int(time_part), int(number or 0)
