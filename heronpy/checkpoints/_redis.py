"""Checkpoints in Redis, for small state: each object is one string of at most 512 MB. As durable as the server is."""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from heronpy.address import join_address
from heronpy.checkpoints._storage import REDIS_PREFIX, CheckpointStorage, check_storage_name
from heronpy.errors import ConfigError, NotFoundError, StateError, UnavailableError

_CONNECT_S = 5.0
_ANSWER_S = 30.0
_ABANDONED_S = 3600
_APPENDED_BYTES = 4 * 1024 * 1024
# In one step, so that a name is listed exactly while there is something under it.
_CREATE = """
if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
  redis.call('ZADD', KEYS[2], 0, ARGV[2])
  return 1
end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
"""


class RedisStorage(CheckpointStorage):
    """Strings under a prefix, whose hash tag keeps them on one node of a cluster, and a sorted set of their names."""

    def __init__(self, url: str, prefix: str = REDIS_PREFIX) -> None:
        """Connect with the first command.

        Raises:
            ConfigError: the URL is not one, or the library is not installed.
        """
        try:
            redis: Any = importlib.import_module("redis")
        except ImportError as e:
            raise ConfigError("a storage of redis:// needs redis: pip install 'heron-engine[redis]'") from e
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._library_errors: Any = redis.exceptions
        self._root = f"{{{prefix}}}"
        try:
            self._client: Any = redis.Redis.from_url(
                url,
                decode_responses=False,
                socket_connect_timeout=_CONNECT_S,
                socket_timeout=_ANSWER_S,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),  # what is appended must not be appended again blindly
            )
        except ValueError:
            # Its text may have the password in it.
            raise ConfigError(
                "the URL of a storage in Redis is redis://host:port/db?prefix=…, rediss:// or unix://"
            ) from None
        where = self._client.connection_pool.connection_kwargs
        self._address = where.get("path") or join_address(where.get("host", "localhost"), where.get("port", 6379))
        self._create = self._client.register_script(_CREATE)

    @classmethod
    def open(cls, url: str) -> Self:
        """Of `redis://host:port/db?prefix=…`, rediss:// or unix://; other options are those of redis-py."""
        base, _, query = url.partition("?")  # as text: urllib makes unix:/path of unix:///path
        options = dict(parse_qsl(query))
        prefix = options.pop("prefix", REDIS_PREFIX)
        return cls(f"{base}?{urlencode(options)}" if options else base, prefix)

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        key = self._key(name)
        temporary = f"{self._root}:new:{uuid.uuid4().hex}"
        with self._errors(name):
            self._client.set(temporary, b"", ex=_ABANDONED_S)
            try:
                for some in _gathered(chunks):
                    self._client.append(temporary, some)
                with self._client.pipeline(transaction=True) as pipe:
                    pipe.rename(temporary, key)
                    pipe.persist(key)
                    pipe.zadd(self._root, {name: 0})
                    pipe.execute()
            except BaseException:
                with contextlib.suppress(self._library_errors.RedisError):
                    self._client.unlink(temporary)
                raise

    def create(self, name: str, data: bytes) -> bool:
        with self._errors(name):
            return bool(self._create(keys=[self._key(name), self._root], args=[data, name]))

    def size(self, name: str) -> int:
        with self._errors(name), self._client.pipeline(transaction=True) as pipe:
            pipe.exists(self._key(name))
            pipe.strlen(self._key(name))
            there, size = pipe.execute()
        if not there:
            raise NotFoundError(f"there is no {name} in {self}")
        return int(size)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        with self._errors(name), self._client.pipeline(transaction=True) as pipe:
            pipe.exists(self._key(name))
            pipe.getrange(self._key(name), offset, -1 if length is None else offset + length - 1)
            there, data = pipe.execute()
        if not there:
            raise NotFoundError(f"there is no {name} in {self}")
        return bytes(data)

    def names(self, prefix: str = "") -> list[str]:
        start, end = (f"[{prefix}", f"[{prefix}\x7f") if prefix else ("-", "+")  # names are ASCII below 0x7f
        with self._errors(prefix):
            return [name.decode() for name in self._client.zrangebylex(self._root, start, end)]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._errors(name), self._client.pipeline(transaction=True) as pipe:
                pipe.unlink(self._key(name))
                pipe.zrem(self._root, name)
                pipe.execute()

    def close(self) -> None:
        self._client.close()

    def _key(self, name: str) -> str:
        return f"{self._root}:{check_storage_name(name)}"

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        errors = self._library_errors
        try:
            yield
        except errors.AuthenticationError as e:
            raise UnavailableError(f"{self} refuses the user or the password of the URL") from e
        except errors.OutOfMemoryError as e:
            raise StateError(f"{self}, {name}: it is full") from e
        except errors.ResponseError as e:
            if "maximum allowed size" in str(e):
                raise StateError(f"{self}, {name}: larger than a string in Redis: use a directory or S3") from e
            raise StateError(f"{self}, {name}: {e}") from e
        except errors.RedisError as e:
            raise UnavailableError(f"{self}, {name}: {e}") from e

    def __str__(self) -> str:
        return f"Redis at {self._address}, keys {self._root}:…"

    def __repr__(self) -> str:
        return f"RedisStorage({self._address!r}, {self._root!r})"  # the URL may have a password


def _gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    some: list[bytes] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk)
        if size >= _APPENDED_BYTES:
            yield b"".join(some)
            some, size = [], 0
    if some:
        yield b"".join(some)
