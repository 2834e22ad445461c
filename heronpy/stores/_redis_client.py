"""A connection to Redis, with its errors in words that have no password in them."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from heronpy.address import join_address
from heronpy.errors import ConfigError, HeronError, StateError, UnavailableError
from heronpy.stores._spi import check_monoid_of
from heronpy.streamlet.monoid import Monoid

_CONNECT_S = 2.0
_ANSWER_S = 10.0


class Redis:
    """A client, and what is known of its library."""

    def __init__(self, url: str) -> None:
        """Describe the connection; it is made with the first command.

        Raises:
            ConfigError: the URL is not one, or the library is not installed.
        """
        try:
            redis: Any = importlib.import_module("redis")
        except ImportError as e:
            raise ConfigError("RedisStore needs redis: pip install 'heron-engine[redis]'") from e
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._errors: Any = redis.exceptions
        try:
            self.client: Any = redis.Redis.from_url(
                url,
                protocol=2,
                decode_responses=False,
                socket_connect_timeout=_CONNECT_S,
                socket_timeout=_ANSWER_S,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),  # a commit that may have been executed must not be sent again blindly
            )
        except ValueError:
            # Its text may have the password in it.
            raise ConfigError(
                "the URL of a RedisStore is not one: redis://host:port/db, rediss:// or unix://"
            ) from None
        where = self.client.connection_pool.connection_kwargs
        self.address = where.get("path") or join_address(where.get("host", "localhost"), where.get("port", 6379))

    @contextlib.contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """The library's errors as ours."""
        try:
            yield
        except self._errors.RedisError as e:
            raise self._in_words(what, e) from e

    def _in_words(self, what: str, error: Exception) -> HeronError:
        if isinstance(error, self._errors.AuthenticationError):
            return UnavailableError(f"{what}: Redis at {self.address} refuses the user or the password of the URL")
        if isinstance(error, self._errors.ResponseError) and "WRONGTYPE" in str(error):
            return StateError(
                f"{what}: Redis at {self.address} has other data under the store's names: use another prefix"
            )
        return UnavailableError(f"{what}: Redis at {self.address} does not answer as it should: {error}")

    def claim(self, root: str, view: str, monoid: Monoid) -> None:
        """Note down the monoid of a view that is to be written, or check it.

        Raises:
            StateError: it has rows of another one.
        """
        self.client.setnx(f"{root}:monoid", monoid.signature)
        self.check(root, view, monoid)

    def check(self, root: str, view: str, monoid: Monoid) -> bool:
        """Check the monoid of a view that is to be read; whether there is anything to check.

        Raises:
            StateError: it has rows of another one.
        """
        stored = self.client.get(f"{root}:monoid")
        if stored is not None:
            check_monoid_of(f"{view} in Redis at {self.address} ({root}*)", stored.decode(), monoid)
        return stored is not None

    def executed(self, pipe: Any) -> bool:
        """Execute a transaction; False if a watched key was changed."""
        try:
            pipe.execute()
        except self._errors.WatchError:
            return False
        return True

    def close(self) -> None:
        self.client.close()
