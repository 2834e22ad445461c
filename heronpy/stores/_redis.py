"""Live views in Redis: for tasks on several machines, and for others to read.

{prefix}:{view}                   sorted set of parts, `<batch>:<writer>` with the batch as score
{prefix}:{view}:<batch>:<writer>  hash of a part: key -> accumulator
{prefix}:{view}:commits           hash: writer -> id of its last commit
{prefix}:{view}:progress:<writer>:<name>  the last number that was committed once under a name
{prefix}:{view}:monoid            what the rows are accumulators of
{prefix}:{view}:changes           counts what `replace` and `drop` did, for reads that take several commands

The braces are in the names: a cluster keeps all of a view on one node, so that transactions reach all of it.
"""

from __future__ import annotations

import os
import uuid
from importlib.util import find_spec
from typing import Any

from heronpy.config import check_name
from heronpy.errors import ConfigError, UnavailableError
from heronpy.stores._pending import PendingWriter
from heronpy.stores._redis_client import Redis
from heronpy.stores._redis_reader import BASE, RedisReader
from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter

_TRIES = 20
_CHUNK = 1000


class RedisStore(Store):
    """Keeps views in a Redis server (6 or newer).

    What a commit has stored is as safe as the server's own persistence makes it.
    """

    exactly_once = True

    def __init__(self, url: str | None = None, *, url_env: str | None = None, prefix: str = "heron") -> None:
        """Describe the store; it is connected to when it is used.

        Args:
            url: `redis://[user:password@]host:port/db`, or rediss:// or unix://. It travels with the program: give a
                URL with a password by `url_env` instead.
            url_env: name of an environment variable that has the URL, where tasks run and where views are read.
            prefix: begins the names of all keys; programs that share a server and names of views need different ones.

        Raises:
            ConfigError: redis is not installed, not exactly one URL, or a prefix that cannot be part of a name.
        """
        if find_spec("redis") is None:  # found out where the program is defined, and not by a task in a crash loop
            raise ConfigError("RedisStore needs redis: pip install 'heron-engine[redis]'")
        if (url is None) == (url_env is None):
            raise ConfigError("RedisStore takes either a url or a url_env")
        self._url = url
        self._url_env = url_env
        self.prefix = check_name("prefix", prefix)

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        return RedisWriter(Redis(self._find_url()), self._root(context), context, writer_id)

    def reader(self, context: StoreContext) -> StoreReader:
        return RedisReader(Redis(self._find_url()), self._root(context), context)

    def _root(self, context: StoreContext) -> str:
        return f"{{{self.prefix}:{context.view}}}"

    def _find_url(self) -> str:
        if self._url is not None:
            return self._url
        assert self._url_env is not None
        url = os.environ.get(self._url_env)
        if not url:
            raise ConfigError(f"the environment variable {self._url_env} must have the URL of the Redis with the views")
        return url

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self.prefix!r})"  # a URL may have a password


class RedisWriter(PendingWriter):
    """The hashes of one writing task."""

    def __init__(self, redis: Redis, root: str, context: StoreContext, writer_id: str) -> None:
        super().__init__(context)
        if check_name("writer id", writer_id) == BASE:
            raise ConfigError(f"a writer of view {context.view} cannot be named {BASE!r}")
        self._redis = redis
        self._root = root
        self._view = context.view
        self._writer_id = writer_id
        self._commit_id = uuid.uuid4().hex
        self._claimed = False

    def _commit(self, once: tuple[str, int] | None) -> None:
        with self._redis.errors(f"view {self._view}"):
            if not self._claimed:
                self._redis.claim(self._root, self._view, self._monoid)
                self._claimed = True
            for _ in range(_TRIES):
                if self._try_commit(once and (f"{self._root}:progress:{self._writer_id}:{once[0]}", once[1])):
                    self._committed()
                    self._commit_id = uuid.uuid4().hex
                    return
        raise UnavailableError(
            f"view {self._view}: others changed what {self._writer_id} writes, {_TRIES} times in a row"
        )

    def _try_commit(self, once: tuple[str, int] | None) -> bool:
        """One transaction; False if somebody else changed the rows meanwhile.

        A connection can break between a commit and its answer. So a commit has an id, stored with it: who repeats one
        checks whether it is there. Should the server execute the first attempt after that, it changes the watched
        rows, and the second attempt fails; should it do so after the second attempt, the first one fails.
        """
        parts = {f"{batch}:{self._writer_id}": batch for batch in self._pending}
        names = [f"{self._root}:{part}" for part in parts]
        with self._redis.client.pipeline(transaction=True) as pipe:
            pipe.watch(*names, *([] if once is None else [once[0]]))
            if once is not None and int(pipe.get(once[0]) or -1) >= once[1]:
                return True
            if self._unsure and pipe.hget(f"{self._root}:commits", self._writer_id) == self._commit_id.encode():
                return True
            self._unsure = once is None
            merged = [self._merged(pipe, name, rows) for name, rows in zip(names, self._pending.values(), strict=True)]
            pipe.multi()
            for name, values in zip(names, merged, strict=True):
                for start in range(0, len(values), 2 * _CHUNK):
                    pipe.execute_command("HSET", name, *values[start : start + 2 * _CHUNK])
            if parts:
                pipe.zadd(self._root, parts)
            if once is not None:
                pipe.set(*once)
            pipe.hset(f"{self._root}:commits", self._writer_id, self._commit_id)
            return self._redis.executed(pipe)

    def _merged(self, pipe: Any, name: str, rows: dict[bytes, Any]) -> list[bytes]:
        """Keys and encoded accumulators, in turn, of rows merged with what is stored."""
        encode = self._monoid.encode
        keys = list(rows)
        values: list[bytes] = []
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            for key, stored in zip(chunk, pipe.hmget(name, chunk), strict=True):
                values.append(key)
                values.append(encode(rows[key]) if stored is None else self._with_stored(key, stored, rows[key]))
        return values

    def close(self) -> None:
        self._redis.close()
