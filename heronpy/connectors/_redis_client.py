"""Connections to Redis."""

from __future__ import annotations

import os
from typing import Any

from heronpy.errors import ConfigError


def find_url(url: str | None, url_env: str | None, who: str) -> str:
    """The URL, or what the environment variable has.

    Raises:
        ConfigError: the variable is not set.
    """
    if url is not None:
        return url
    assert url_env is not None
    found = os.environ.get(url_env)
    if not found:
        raise ConfigError(f"the environment variable {url_env} must have the URL of the Redis with {who}")
    return found


def connect(redis: Any, url: str, stream: str, *, timeout_s: float) -> Any:
    """A client that gives up at once: its caller is called again anyway, and has other things to do.

    Args:
        redis: the module.
        url: of the server.
        stream: for an error.
        timeout_s: for an answer.

    Raises:
        ConfigError: it is no URL.
    """
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        return redis.Redis.from_url(
            url,
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=1.0,
            socket_timeout=timeout_s,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=False,
        )
    except ValueError:
        # Its text may have the password in it.
        raise ConfigError(
            f"the URL of the Redis with stream {stream!r} is not one: redis://host:port/db, rediss:// or unix://"
        ) from None
