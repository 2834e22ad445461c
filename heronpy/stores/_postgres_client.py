"""A connection to PostgreSQL: the tables of live views, their locks, and errors in words without passwords."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from heronpy.address import join_address
from heronpy.config import check_name
from heronpy.errors import ConfigError, HeronError, StateError, UnavailableError
from heronpy.stores._spi import check_monoid_of
from heronpy.streamlet.monoid import Monoid

INSTALL = "PostgresStore needs psycopg: pip install 'heron-engine[postgres]'"
_CONNECT_S = 5
_ANSWER_S = 30.0
"""How long a statement may take. Then the connection is cut: a server that hangs must not hang its clients."""
_SESSION = "SET lock_timeout = '10s'; SET statement_timeout = '30s'; SET TIME ZONE 'UTC'"
_IDLE = "; SET idle_in_transaction_session_timeout = '60s'"
"""A writer whose host vanishes within a transaction holds its locks no longer."""
_ID_BYTES = 256
_TABLES = ("views", "parts", "rows", "progress")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS {views} (view text PRIMARY KEY, monoid text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS {parts} (part bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " view text NOT NULL, batch bigint, UNIQUE (view, batch))",
    # Room in each page: a row that is written again and again stays in its page, and its index as it is.
    "CREATE TABLE IF NOT EXISTS {rows} (part bigint NOT NULL, id bytea NOT NULL, writer text NOT NULL,"
    " key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (part, id, writer)) WITH (fillfactor = 80)",
    "CREATE TABLE IF NOT EXISTS {progress} (view text NOT NULL, writer text NOT NULL, name text NOT NULL,"
    " number bigint NOT NULL, PRIMARY KEY (view, writer, name))",
)
_PREFIX_CHARACTERS_MAX = 55
"""PostgreSQL takes 63 bytes of a table's name, without a word: with a longer prefix several tables would be one."""
_UNDEFINED_TABLE = "42P01"
_OTHERS_TABLES = frozenset(("42703", "42804", "42809", "42P10"))
"""A column that is not there or of another type, no table, no such key."""


class Postgres:
    """One connection, made when it is needed and again when it broke. Statements are its threads' in turn."""

    def __init__(self, url: str, prefix: str, *, idles: bool = False) -> None:
        """Describe the connection.

        Args:
            url: of the database.
            prefix: of the names of the tables.
            idles: whether its transactions may wait for their client.

        Raises:
            ConfigError: the URL is not one, or the library is not installed.
        """
        try:
            self._psycopg: Any = importlib.import_module("psycopg")
        except ImportError as e:
            raise ConfigError(INSTALL) from e
        from psycopg.conninfo import conninfo_to_dict

        self._url, self._prefix, self._idles = url, prefix, idles
        try:
            given = conninfo_to_dict(url)
            host = str(given.get("host") or os.environ.get("PGHOST") or "localhost")
            port = str(given.get("port") or os.environ.get("PGPORT") or 5432)
            several = "," in host + port or host[:1] == "/"
            self.address = f"{host} {port}" if several else join_address(host, int(port))
        except (self._psycopg.ProgrammingError, ValueError):
            # Its text may have the password in it; so has the port, if the password has an "@" and a ":".
            raise ConfigError(
                "the URL of a PostgresStore is not one: postgresql://user@host:port/database?option=value"
            ) from None
        self._parameters = {
            "connect_timeout": _CONNECT_S,
            "application_name": "heronpy",
            "keepalives_idle": 10,
            **given,
        }
        self._names = {table: f'"{prefix}_live_{table}"' for table in _TABLES}
        self._connection: Any = None

    def another(self, *, idles: bool = False) -> Postgres:
        """A connection to the same database."""
        return Postgres(self._url, self._prefix, idles=idles)

    def run(self, statement: str, *values: Any) -> list[Any]:
        """The rows of a statement, in which {views}, {parts}, {rows} and {progress} are the tables."""
        connection = self._connected()
        with self._bounded(connection):
            cursor = connection.execute(statement.format(**self._names), values)
            return cursor.fetchall() if cursor.description else []

    def count(self, statement: str, *values: Any) -> int:
        """How many rows a statement has changed."""
        connection = self._connected()
        with self._bounded(connection):
            return int(connection.execute(statement.format(**self._names), values).rowcount)

    def stream(self, statement: str, *values: Any, chunk: int) -> Iterator[Sequence[Any]]:
        """The rows of a statement, so many at a time; as of the moment in which it began."""
        connection = self._connected()
        with self._bounded(connection):
            connection.execute("BEGIN")
            cursor = connection.cursor(name="heron")
            cursor.execute(statement.format(**self._names), values)
        while True:
            with self._bounded(connection):
                rows = cursor.fetchmany(chunk)
            if not rows:
                return
            yield rows

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements of the block, or none."""
        self.run("BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection is not None:
                with contextlib.suppress(self._psycopg.Error):
                    self.run("ROLLBACK")
            raise

    def lock(self, *shared: str, alone: str) -> None:
        """Lock names until the transaction ends, some with others and one alone. What is read after it is no older."""
        calls = ["pg_advisory_xact_lock_shared(%s)" for _ in shared] + ["pg_advisory_xact_lock(%s)"]
        self.run(f"SELECT {', '.join(calls)}", *(self._lock_number(name) for name in (*shared, alone)))

    def _lock_number(self, name: str) -> int:
        digest = hashlib.blake2b(f"heronpy/{self._prefix}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def claim(self, view: str, monoid: Monoid) -> None:
        """Make the tables if they are missing, and note down the monoid of a view that is to be written, or check it.

        Raises:
            StateError: it has rows of another one.
        """
        found = self.run(f"SELECT {', '.join('to_regclass(%s)::text' for _ in _TABLES)}", *self._names.values())[0]
        if None in found:
            with self.transaction():
                self.lock(alone="tables")  # two that make one at the same time: one of them fails
                for statement in _CREATE:
                    self.run(statement)
        self.run("INSERT INTO {views} (view, monoid) VALUES (%s, %s) ON CONFLICT DO NOTHING", view, monoid.signature)
        self.check(view, monoid)

    def check(self, view: str, monoid: Monoid) -> bool:
        """Check the monoid of a view that is to be read; whether there is anything to check.

        Raises:
            StateError: it has rows of another one.
        """
        try:
            found = self.run("SELECT monoid FROM {views} WHERE view = %s", view)
        except self._psycopg.errors.UndefinedTable:
            return False
        for (stored,) in found:
            check_monoid_of(f"{view} in PostgreSQL at {self.address} ({self._names['views']})", stored, monoid)
        return bool(found)

    @contextlib.contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """The library's errors as ours. After one that says nothing of the data, the connection is made anew."""
        try:
            yield
        except self._psycopg.Error as e:
            self.close()
            raise self._in_words(what, e) from e

    def _in_words(self, what: str, error: Any) -> HeronError:
        said = " ".join(str(error).split())
        if error.sqlstate in _OTHERS_TABLES:
            return StateError(
                f"{what}: PostgreSQL at {self.address} has other tables under the store's names ({said}): "
                "use another prefix"
            )
        if isinstance(error, self._psycopg.errors.InsufficientPrivilege):
            said += f": the store reads and writes the tables {self._prefix}_live_…, and makes them if they are missing"
        return UnavailableError(f"{what}: PostgreSQL at {self.address} does not answer as it should: {said}")

    def _connected(self) -> Any:
        if self._connection is None:
            connection = self._psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=None)
            try:
                with self._bounded(connection):
                    connection.execute(_SESSION + ("" if self._idles else _IDLE))
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextlib.contextmanager
    def _bounded(self, connection: Any) -> Iterator[None]:
        """Cut the connection if the block takes too long. The server's own limit is of no use if it hangs."""
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            timer = threading.Timer(_ANSWER_S + _CONNECT_S, _cut, (line,))
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()

    def close(self) -> None:
        """Close it. The next statement connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def check_prefix(prefix: str) -> str:
    """A prefix of the tables' names.

    Raises:
        ConfigError: it cannot be part of a name, or leaves no room for the rest.
    """
    if len(check_name("prefix", prefix)) > _PREFIX_CHARACTERS_MAX:
        raise ConfigError(
            f"the prefix {prefix!r} is too long: use at most {_PREFIX_CHARACTERS_MAX} characters, since PostgreSQL "
            "takes 63 of a table's name"
        )
    return prefix


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has answered in this moment
        line.shutdown(socket.SHUT_RDWR)


def row_id(key: bytes) -> bytes:
    """What a row is found by: the key, or of one that is too long for an index its beginning and a digest."""
    if len(key) <= _ID_BYTES:
        return key
    return key[:_ID_BYTES] + hashlib.blake2b(key, digest_size=32).digest()
