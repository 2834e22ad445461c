"""One consumer of a consumer group."""

# Redis keeps what a consumer was given in the group's list of pending entries until it is acked, so nothing has to be
# remembered here. Entries come in three ways, and each `read` takes one of them:
# - what this consumer has pending already: once after each connection, because the reply that named new entries may
#   have been lost with the one before. What the engine has of them is skipped.
# - what others have had pending for too long: XAUTOCLAIM, from time to time.
# - new ones.
# Idle time is counted from the last delivery, so a task that processes slowly would look dead: a thread renews what it
# has out, and sends acks that wait. That makes `min_idle_s` a time without a sign of life, whatever processing takes,
# and however long the reader is not called because too much is on its way. To claim what was acked meanwhile changes
# nothing, so only acks need the lock: between a reply that has an entry and the look at what is acked none may be sent.

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.connectors._redis_entries import Decoder, shown, time_ms
from heronpy.connectors.spi import Record, SourceReader
from heronpy.shown import message

_log = logging.getLogger(__name__)
_BATCH = 1000
_ACK_INTERVAL_S = 0.02
_RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SIGNS_PER_IDLE = 4
# Of what is trimmed before the group reads it Redis says nothing, but it counts what was ever added, and what a group
# has read (Redis 7). Where the oldest entry comes after the last one that was delivered, what was added before it and
# was not read is gone. The next read hides that, so this is in its transaction. It puts the group's number right, so
# that one task reports it, once. Redis does not know the number of a group that begins with what is to come, until that
# has read everything. Ids are compared as text, padded: Lua's numbers have 53 bits. XINFO STREAM returns the first and
# the last entry, too, which may be large, so it is not asked where there is nothing to read (no lag).
_MISSED = """
local function fields(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end
local function padded(id)
  return (string.gsub(id, '%d+', function(part) return string.rep('0', 20 - #part) .. part end))
end
for _, one in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = fields(one)
  if group['name'] == ARGV[1] and not (group['lag'] == 0 and group['entries-read']) then
    local stream = fields(redis.call('XINFO', 'STREAM', KEYS[1]))
    if not stream['entries-added'] then return {0, ''} end
    local last, read, first = group['last-delivered-id'], group['entries-read'], stream['first-entry']
    local gone = stream['entries-added'] - stream['length']
    if not read and last == stream['last-generated-id'] then
      gone = stream['entries-added']
    elseif read == gone or (first and padded(first[1]) <= padded(last)) then
      return {0, ''}
    end
    redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], last, 'ENTRIESREAD', gone)
    return {math.max(0, gone - (read or gone)), last}
  end
end
return {0, ''}
"""


class RedisReader(SourceReader):
    """The stream face of `RedisStream`."""

    def __init__(
        self,
        client: Any,
        *,
        stream: str,
        group: str,
        consumer: str,
        start: str,
        min_idle_s: float,
        decoder: Decoder,
        dead_letter: Callable[[str, Any, str], None],
    ) -> None:
        """Read with a client that does not retry; connects with the first `read`."""
        self._client = client
        self._stream = stream
        self._group = group
        self._consumer = consumer
        self._start = start
        self._min_idle_ms = max(1, round(min_idle_s * 1000))
        self._turn_s = min_idle_s / _SIGNS_PER_IDLE
        self._decoder = decoder
        self._dead_letter = dead_letter
        self._out: dict[str, None] = {}
        """Entries that the engine has, oldest first."""
        self._acks: dict[str, None] = {}
        """Entries that are done, and Redis does not know yet."""
        self._acked_s = self._claimed_s = 0.0
        self._connected = False
        self._pending_from: str | None = "0"
        """Where to go on with what this consumer has pending; None: it has seen all."""
        self._claim_from = "0-0"
        self._failures = 0
        self._retry_s = 0.0
        self._lock = threading.Lock()
        """Held by who changes what is out or acked."""
        self._closing = threading.Event()
        self._renewing: threading.Thread | None = None
        self._uncounted = False
        """It was logged that what is removed before it is read cannot be counted."""
        self._renewal_failure: Exception | None = None
        """Not one of Redis: the next call raises it."""

    def read(self, limit: int) -> Sequence[Record]:
        if not self._reachable():
            return []
        with self._lock:
            try:
                self._connect()
                self._send_acks()
                entries = self._next_entries(min(limit, _BATCH)) if limit > 0 else ()
            except Exception as e:  # redis-py's own are not known at this module's top
                self._failed(e)
                return []
            return self._records(entries)

    def ack(self, records: Sequence[Record]) -> None:
        with self._lock:
            for record in records:
                self._out.pop(record.id, None)
                self._acks[record.id] = None
        due = len(self._acks) >= _BATCH or time.monotonic() - self._acked_s >= _ACK_INTERVAL_S
        if due:
            self._try_to_send_acks()

    def _try_to_send_acks(self) -> None:
        if not self._connected or not self._reachable():
            return
        with self._lock:
            try:
                self._send_acks()
            except Exception as e:
                self._failed(e)

    def close(self) -> None:
        self._closing.set()
        if self._renewing is not None:
            self._renewing.join()  # not longer than Redis is given to answer
        self._try_to_send_acks()
        self._client.close()

    # Entries

    def _next_entries(self, limit: int) -> Iterable[tuple[bytes, Any]]:
        now_s = time.monotonic()
        if self._pending_from is not None and (entries := self._own_pending(limit)):
            return entries
        if now_s - self._claimed_s >= self._turn_s and (entries := self._claim(limit, now_s)):
            return entries
        return self._new(limit)

    def _new(self, limit: int) -> list[tuple[bytes, Any]]:
        """What no consumer was given yet; reports what was removed before that."""
        if self._uncounted:
            return self._group_read(">", limit)
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.eval(_MISSED, 1, self._stream, self._group)
            pipeline.xreadgroup(self._group, self._consumer, {self._stream: ">"}, count=limit)
            missed, answer = pipeline.execute(raise_on_error=False)  # else the error has all of the script in it
        for error in (answer, missed):
            if isinstance(error, Exception):
                raise error
        self._report(*missed)
        return answer[0][1] if answer else []

    def _report(self, missed: int, last: bytes) -> None:
        if missed:
            reason = f"{missed} entries after {last.decode()} were removed from the stream before the group read them"
            self._dead_letter(f"{self._stream}:{last.decode()}", None, reason)

    def _group_read(self, position: str, limit: int) -> list[tuple[bytes, Any]]:
        answer = self._client.xreadgroup(self._group, self._consumer, {self._stream: position}, count=limit)
        return answer[0][1] if answer else []

    def _own_pending(self, limit: int) -> list[tuple[bytes, Any]]:
        assert self._pending_from is not None
        entries = self._group_read(self._pending_from, limit)
        self._pending_from = entries[-1][0].decode() if entries else None
        return entries

    def _claim(self, limit: int, now_s: float) -> list[tuple[bytes, Any]]:
        """What others have had pending for too long; some of it, from where the last call ended."""
        answer = self._client.xautoclaim(
            self._stream, self._group, self._consumer, self._min_idle_ms, self._claim_from, count=limit
        )
        self._claim_from = answer[0].decode()
        if self._claim_from == "0-0":
            self._claimed_s = now_s  # all seen; the next round is later
        entries: list[tuple[bytes, Any]] = answer[1]
        deleted = answer[2] if len(answer) > 2 else ()  # Redis 7 forgets them with this answer
        return [*entries, *((raw_id, None) for raw_id in deleted)]

    def _renew(self) -> None:
        """In a thread: report what is done, and that what the engine has is at work: its idle time restarts."""
        with self._lock:
            self._send_acks()
            ids = iter(list(self._out))
        while not self._closing.is_set() and (some := list(itertools.islice(ids, _BATCH))):
            self._client.xclaim(self._stream, self._group, self._consumer, 0, some, idle=0, justid=True)

    def _cannot_renew(self, error: Exception) -> bool:
        """In that thread. Whether it makes no sense to try again."""
        from redis.exceptions import RedisError

        if isinstance(error, (RedisError, OSError)):
            _log.debug("stream %s: what is in work cannot be determined: %s", self._stream, error)  # read() warns
            return False
        self._renewal_failure = error
        return True

    def _records(self, entries: Iterable[tuple[bytes, Any]]) -> list[Record]:
        records = []
        for raw_id, fields in entries:
            entry_id = raw_id.decode()
            if entry_id in self._out or entry_id in self._acks:
                continue
            try:
                if not fields:
                    raise ValueError("the entry was deleted from the stream before it was processed")
                records.append(Record(self._decoder.decode(fields), time_ms(entry_id), entry_id))
            except ValueError as e:
                self._dead_letter(f"{self._stream}:{entry_id}", shown(fields or {}), message(e))
                self._acks[entry_id] = None
        self._out.update((record.id, None) for record in records)
        return records

    def _send_acks(self) -> None:
        while self._acks:
            some = list(itertools.islice(self._acks, _BATCH))
            self._client.xack(self._stream, self._group, *some)
            for entry_id in some:
                del self._acks[entry_id]
        self._acked_s = time.monotonic()

    # Connection

    def _reachable(self) -> bool:
        if self._renewal_failure is not None:
            failure, self._renewal_failure = self._renewal_failure, None
            raise failure
        return time.monotonic() >= self._retry_s

    def _connect(self) -> None:
        """Make the group if it is missing, and forget where we were, after a connection was lost."""
        if self._connected:
            return
        from redis.exceptions import ResponseError

        try:
            self._client.xgroup_create(self._stream, self._group, self._start, mkstream=True)
        except ResponseError as e:
            if not str(e).startswith("BUSYGROUP"):
                raise
        if self._start == "$":  # where that is: if the group has to be made again, it goes on there
            for group in self._client.xinfo_groups(self._stream):
                if group["name"] == self._group.encode():
                    self._start = group["last-delivered-id"].decode()
        try:
            self._report(*self._client.eval(_MISSED, 1, self._stream, self._group))
        except ResponseError as e:
            if "no such key" in str(e):
                raise  # it was just removed
            if not self._uncounted:  # a right is missing, or scripts are forbidden
                _log.warning("stream %s: what is removed before it is read is not counted: %s", self._stream, e)
            self._uncounted = True
        self._connected = True
        self._pending_from, self._claim_from = "0", "0-0"
        if self._renewing is None:
            closing = self._closing
            args = weakref.ref(self, lambda _: closing.set()), closing, self._turn_s
            self._renewing = threading.Thread(target=_keep_renewing, args=args, name="redis-renewals", daemon=True)
            self._renewing.start()
        if self._failures:
            _log.info("stream %s: Redis answers again", self._stream)
            self._failures = 0

    def _failed(self, error: Exception) -> None:
        """Try again later. Logged when it begins; raises what is not an error of Redis."""
        from redis.exceptions import RedisError

        if not isinstance(error, (RedisError, OSError)):
            raise error
        if not self._failures:
            _log.warning("stream %s: cannot be read, trying again: %s", self._stream, " ".join(str(error).split()))
        self._retry_s = time.monotonic() + _RETRY_S[min(self._failures, len(_RETRY_S) - 1)]
        self._failures += 1
        self._connected = False
        # Not those in use: redis-py raises a ValueError in the renewing thread if one is closed while it reads from it.
        self._client.connection_pool.disconnect(inuse_connections=False)


def _keep_renewing(reader: weakref.ref[RedisReader], closing: threading.Event, every_s: float) -> None:
    """Until it is closed, or no reference to it is left."""
    while not closing.wait(every_s) and (renewing := reader()) is not None:
        try:
            renewing._renew()
        except Exception as e:
            if renewing._cannot_renew(e):
                return
        del renewing
