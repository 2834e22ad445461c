"""Which store a URL means."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote

from heronpy.errors import ConfigError
from heronpy.stores._postgres import PostgresStore
from heronpy.stores._redis import RedisStore
from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter
from heronpy.stores._sqlite import SqliteStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_KINDS: dict[str, type[RedisStore | PostgresStore]] = {
    "redis": RedisStore,
    "rediss": RedisStore,
    "unix": RedisStore,
    "postgres": PostgresStore,
    "postgresql": PostgresStore,
}


def store_at(url: str) -> Store:
    """The store of live views at a URL. Nothing is connected.

    Args:
        url: `redis://host:port/db` (also `rediss://`, `unix://`), `postgresql://user@host:port/database`, each with the
            option `prefix`; a directory, or `file:///directory`, for SQLite files; or `env:NAME`, an environment
            variable that has one of these where tasks run and where views are read: for URLs with a password.

    Raises:
        ConfigError: it is none of these, or what it needs is not installed.
    """
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme == "env":
        return _StoreByEnv(url.removeprefix("env:"))
    if kind := _KINDS.get(scheme):
        rest, prefix = _without_prefix(url)
        return kind(rest) if prefix is None else kind(rest, prefix=prefix)
    if scheme == "file" and url.startswith("file:///"):
        return SqliteStore(unquote(url.removeprefix("file://")))
    if not scheme and url:
        return SqliteStore(url)
    raise ConfigError(
        f"live views are kept at redis://host:port/db, postgresql://user@host/database, env:NAME or in a directory, "
        f"not at {scheme}:"
    )


def _without_prefix(url: str) -> tuple[str, str | None]:
    """A URL without our own option, and that option."""
    base, _, query = url.partition("?")
    options = query.split("&") if query else []
    prefixes = [option.removeprefix("prefix=") for option in options if option.startswith("prefix=")]
    others = [option for option in options if not option.startswith("prefix=")]
    return "?".join([base, "&".join(others)] if others else [base]), prefixes[-1] if prefixes else None


class _StoreByEnv(Store):
    """A store whose URL is in an environment variable, where it is opened."""

    exactly_once = True

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError("env: takes the name of an environment variable with the URL of the live views")
        self._name = name

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        return self._found().writer(context, writer_id)

    def reader(self, context: StoreContext) -> StoreReader:
        return self._found().reader(context)

    def _found(self) -> Store:
        url = os.environ.get(self._name)
        if not url:
            raise ConfigError(f"the environment variable {self._name} must have the URL of the live views")
        if url.startswith("env:"):
            raise ConfigError(f"the environment variable {self._name} must have a URL, not another variable")
        return store_at(url)

    def __repr__(self) -> str:
        return f"store_at('env:{self._name}')"


def as_store(given: Any) -> Store:
    """A store, or the one at a URL.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(given, Store):
        return given
    if isinstance(given, (str, os.PathLike)):
        return store_at(os.fspath(given))
    raise ConfigError(f"live views take a heronpy.stores.Store or its URL, not {given!r}")
