"""Live views in PostgreSQL: for tasks on several machines, with the database's own durability.

{prefix}_live_views      view -> what its rows are accumulators of
{prefix}_live_parts      part -> view and batch; without a batch its rows do not count any more, and are being deleted
{prefix}_live_rows       (part, key, writer) -> accumulator
{prefix}_live_progress   (view, writer, name) -> the last number that was committed once under a name; under the name
                         '' the id of the last other commit

A batch is replaced by giving it another part, in a transaction of some milliseconds: rows are uploaded before that, and
deleted after it. Writers hold a shared lock of their view while they commit, and that transaction an exclusive one.
They are advisory locks, which end with their transactions.
"""

from __future__ import annotations

import os
import secrets
from importlib.util import find_spec
from typing import Any

from heronpy.config import check_name
from heronpy.errors import ConfigError
from heronpy.stores._pending import PendingWriter
from heronpy.stores._postgres_client import INSTALL, Postgres, check_prefix, row_id
from heronpy.stores._postgres_reader import BASE, PostgresReader
from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter

_CHUNK = 1000
_OWN = ""
"""The name of the progress of commits that have no number of their own."""


class PostgresStore(Store):
    """Keeps views in tables of a PostgreSQL database (12 or newer), which it makes if they are missing.

    What a commit has stored is as safe as the database makes it (`synchronous_commit`).
    """

    exactly_once = True

    def __init__(self, url: str | None = None, *, url_env: str | None = None, prefix: str = "heron") -> None:
        """Describe the store; it is connected to when it is used.

        Args:
            url: `postgresql://user@host:port/database?option=value`, as libpq takes it. It travels with the program:
                give a URL with a password by `url_env`, or have libpq find the password (`PGPASSFILE`).
            url_env: name of an environment variable that has the URL, where tasks run and where views are read.
            prefix: begins the names of all tables; programs that share a database and names of views need different
                ones.

        Raises:
            ConfigError: psycopg is not installed, not exactly one URL, or a prefix that cannot be part of a name, or is
                longer than 55 characters.
        """
        if find_spec("psycopg") is None:  # found out where the program is defined, and not by a task in a crash loop
            raise ConfigError(INSTALL)
        if (url is None) == (url_env is None):
            raise ConfigError("PostgresStore takes either a url or a url_env")
        self._url = url
        self._url_env = url_env
        self.prefix = check_prefix(prefix)

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        return PostgresWriter(Postgres(self._find_url(), self.prefix), context, writer_id)

    def reader(self, context: StoreContext) -> StoreReader:
        return PostgresReader(Postgres(self._find_url(), self.prefix), context)

    def _find_url(self) -> str:
        if self._url is not None:
            return self._url
        assert self._url_env is not None
        url = os.environ.get(self._url_env)
        if not url:
            raise ConfigError(
                f"the environment variable {self._url_env} must have the URL of the PostgreSQL with the views"
            )
        return url

    def __repr__(self) -> str:
        return f"PostgresStore(prefix={self.prefix!r})"  # a URL may have a password


class PostgresWriter(PendingWriter):
    """The rows of one writing task."""

    def __init__(self, db: Postgres, context: StoreContext, writer_id: str) -> None:
        super().__init__(context)
        if check_name("writer id", writer_id) == BASE:
            raise ConfigError(f"a writer of view {context.view} cannot be named {BASE!r}")
        self._db = db
        self._view = context.view
        self._writer_id = writer_id
        self._commit_id = secrets.randbits(62)
        self._claimed = False

    def _commit(self, once: tuple[str, int] | None) -> None:
        with self._db.errors(f"view {self._view}"):
            try:
                if not self._claimed:
                    self._db.claim(self._view, self._monoid)
                with self._db.transaction():
                    self._store(once)
            except BaseException:
                self._claimed = False  # somebody may have removed the tables
                raise
        self._claimed = True
        self._committed()
        self._commit_id = secrets.randbits(62)

    def _store(self, once: tuple[str, int] | None) -> None:
        """Everything of a commit.

        A connection can break between a commit and its answer. So a commit has a number, stored with it: who repeats
        one checks whether it is there, when the lock of the writer says that no earlier transaction of it is left.
        """
        name, number = once or (_OWN, self._commit_id)
        self._db.lock(self._view, alone=f"{self._view}/{self._writer_id}")
        key = (self._view, self._writer_id, name)
        found = self._db.run("SELECT number FROM {progress} WHERE (view, writer, name) = (%s, %s, %s)", *key)
        stored = found[0][0] if found else -1
        if stored >= number if once else self._unsure and stored == number:
            return
        self._unsure = once is None
        parts = self._parts()
        for batch, rows in self._pending.items():
            keys = list(rows)
            for start in range(0, len(keys), _CHUNK):
                self._write(parts[batch], {key: rows[key] for key in keys[start : start + _CHUNK]})
        self._db.run(
            "INSERT INTO {progress} (view, writer, name, number) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (view, writer, name) DO UPDATE SET number = EXCLUDED.number",
            *key,
            number,
        )

    def _parts(self) -> dict[int, int]:
        """The part of each batch that waits, made if there is none."""
        batches = sorted(self._pending)  # in one order: two writers that wait for each other would be a deadlock
        select = "SELECT batch, part FROM {parts} WHERE view = %s AND batch = ANY(%s::bigint[])"
        parts = dict(self._db.run(select, self._view, batches))
        if missing := [batch for batch in batches if batch not in parts]:
            self._db.run(
                "INSERT INTO {parts} (view, batch) SELECT %s, unnest(%s::bigint[]) ON CONFLICT DO NOTHING",
                self._view,
                missing,
            )
            parts = dict(self._db.run(select, self._view, batches))
        return parts

    def _write(self, part: int, rows: dict[bytes, Any]) -> None:
        """Merge some rows with what is stored, and store them."""
        encode = self._monoid.encode
        found = self._db.run(
            "SELECT key, value FROM {rows} WHERE part = %s AND writer = %s AND id = ANY(%b::bytea[])",
            part,
            self._writer_id,
            [row_id(key) for key in rows],
        )
        stored = {bytes(key): bytes(value) for key, value in found}
        values = [
            self._with_stored(key, stored[key], delta) if key in stored else encode(delta)
            for key, delta in rows.items()
        ]
        self._db.run(
            "INSERT INTO {rows} (part, id, writer, key, value) SELECT %s, new.id, %s, new.key, new.value"
            " FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS new (id, key, value)"
            " ON CONFLICT (part, id, writer) DO UPDATE SET value = EXCLUDED.value",
            part,
            self._writer_id,
            [row_id(key) for key in rows],
            list(rows),
            values,
        )

    def close(self) -> None:
        self._db.close()
