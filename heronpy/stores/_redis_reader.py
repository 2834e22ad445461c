"""A Redis view, read over all of its writers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.errors import UnavailableError
from heronpy.hashing import decode_key, encode_key
from heronpy.stores._redis_client import Redis
from heronpy.stores._spi import StoreContext, StoreReader

BASE = "base"

_TRIES = 5
_CHUNK = 1000
_ABANDONED_S = 3600
# All parts in one step: between two commands a batch could be replaced.
_GET = """
local found = {}
for _, part in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], '+inf')) do
  local value = redis.call('HGET', KEYS[1] .. ':' .. part, ARGV[1])
  if value then found[#found + 1] = value end
end
return found
"""


class RedisReader(StoreReader):
    """Reads, replaces and drops batches of a view. May be shared by threads."""

    def __init__(self, redis: Redis, root: str, context: StoreContext) -> None:
        self._redis = redis
        self._root = root
        self._view = context.view
        self._monoid = context.monoid
        self._checked = False
        self._get = redis.client.register_script(_GET)

    def get(self, key: Any, after: int | None = None) -> Any:
        data = encode_key(key)
        with self._redis.errors(self._root):
            self._check()
            values = self._get(keys=[self._root], args=[data, "-inf" if after is None else f"({after}"])
        acc = None
        for value in values:
            decoded = self._monoid.decode(value)
            acc = decoded if acc is None else self._monoid.merge(acc, decoded)
        return acc

    def batches(self) -> list[int]:
        with self._redis.errors(self._root):
            self._check()
            return sorted({_batch(part) for part in self._redis.client.zrange(self._root, 0, -1)})

    def items(self, batch: int) -> Iterator[tuple[Any, Any]]:
        with self._redis.errors(self._root):
            self._check()
            rows = self._all_rows(batch)
        for key, acc in rows.items():
            yield decode_key(key), acc

    def replace(self, batch: int, items: Iterable[tuple[Any, Any]]) -> None:
        with self._redis.errors(self._root):
            self._redis.claim(self._root, self._view, self._monoid)
            temporary = self._upload(items)
            for _ in range(_TRIES):
                if self._swap(batch, temporary):
                    return
        raise UnavailableError(f"{self._root}: batch {batch} was changed during each of {_TRIES} tries to replace it")

    def drop(self, upto: int) -> int:
        with self._redis.errors(self._root):
            parts = self._redis.client.zrangebyscore(self._root, "-inf", upto)
            rows = 0
            for part in parts:
                name = self._name(part)
                with self._redis.client.pipeline(transaction=True) as pipe:
                    pipe.hlen(name)
                    pipe.unlink(name)
                    pipe.zrem(self._root, part)
                    pipe.incr(f"{self._root}:changes")
                    rows += pipe.execute()[0]
            return rows

    def close(self) -> None:
        self._redis.close()

    def _all_rows(self, batch: int) -> dict[bytes, Any]:
        """A batch over all of its writers, between two replacements. It is held in memory as a whole."""
        client = self._redis.client
        for _ in range(_TRIES):
            before = client.get(f"{self._root}:changes")
            merged: dict[bytes, Any] = {}
            for part in client.zrangebyscore(self._root, batch, batch):
                # A dict for each part: a scan may give a row twice.
                self._merge_rows(merged, dict(client.hscan_iter(self._name(part), count=_CHUNK)))
            if client.get(f"{self._root}:changes") == before:
                return merged
        raise UnavailableError(f"{self._root}: batches were replaced during each of {_TRIES} reads; try again")

    def _merge_rows(self, merged: dict[bytes, Any], rows: dict[bytes, bytes]) -> None:
        merge, decode = self._monoid.merge, self._monoid.decode
        for key, value in rows.items():
            acc = decode(value)
            merged[key] = merge(merged[key], acc) if key in merged else acc

    def _upload(self, items: Iterable[tuple[Any, Any]]) -> str | None:
        """A hash of the items under a name of its own, which vanishes if this process does; None for no items."""
        name = f"{self._root}:new:{uuid.uuid4().hex}"
        rows: dict[bytes, bytes] = {}
        count = 0
        for key, acc in items:
            rows[encode_key(key)] = self._monoid.encode(acc)
            if len(rows) == _CHUNK:
                count += self._send(name, rows)
        count += self._send(name, rows)
        return name if count else None

    def _send(self, name: str, rows: dict[bytes, bytes]) -> int:
        count = len(rows)
        if rows:
            with self._redis.client.pipeline(transaction=True) as pipe:
                pipe.hset(name, mapping=rows)
                pipe.expire(name, _ABANDONED_S)
                pipe.execute()
            rows.clear()
        return count

    def _swap(self, batch: int, temporary: str | None) -> bool:
        """Put the new rows in the place of all the old ones; False if a writer began with the batch meanwhile."""
        with self._redis.client.pipeline(transaction=True) as pipe:
            pipe.watch(self._root)
            parts = pipe.zrangebyscore(self._root, batch, batch)
            pipe.multi()
            for part in parts:
                pipe.unlink(self._name(part))
                pipe.zrem(self._root, part)
            if temporary is not None:
                base = f"{batch}:{BASE}"
                pipe.rename(temporary, f"{self._root}:{base}")
                pipe.persist(f"{self._root}:{base}")
                pipe.zadd(self._root, {base: batch})
            pipe.incr(f"{self._root}:changes")
            return self._redis.executed(pipe)

    def _check(self) -> None:
        if not self._checked:
            self._checked = self._redis.check(self._root, self._view, self._monoid)

    def _name(self, part: bytes) -> str:
        return f"{self._root}:{part.decode()}"


def _batch(part: bytes) -> int:
    return int(part.partition(b":")[0])
