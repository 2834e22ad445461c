"""Live views in SQLite files: nothing to install, nothing to run."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from heronpy.config import check_name
from heronpy.errors import ConfigError, UnavailableError
from heronpy.files import local_path
from heronpy.stores._pending import PendingWriter
from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter
from heronpy.stores.sqlite_file import (
    BASE,
    SUFFIX,
    ViewLock,
    claim,
    errors_of,
    open_for_reading,
    open_for_writing,
    raise_progress,
    read_cuts,
    slot_of,
    transaction,
    view_directory,
)
from heronpy.stores.sqlite_reader import SqliteReader

# A key that is there already is merged inside the statement, by a function of ours: one descent of the tree instead of
# two, which makes it 1.4 times as fast as reading the present values first.
_MERGE_ROW = "INSERT INTO rows VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = heron_merged(key, value)"


class SqliteStore(Store):
    """Keeps a view in SQLite files in the job's directory, one for each writing task.

    All tasks must run on one machine: SQLite's write-ahead log is shared memory. Use `RedisStore` or
    `PostgresStore` across machines.
    """

    exactly_once = True

    def __init__(self, directory: str | Path | None = None, *, durable: bool = False) -> None:
        """Describe the store.

        Args:
            directory: below which the files are, of this job alone (two jobs would share views of one name); the job's
                directory without it. A relative one begins at the present.
            durable: whether a commit waits for the disk, and so survives a loss of power (some ms each). Without it
                commits survive the death of any process.
        """
        self.durable = durable
        self.directory = None if directory is None else local_path("the store's directory", directory)
        self.needs_directory = directory is None

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        return SqliteWriter(self._placed(context), writer_id, durable=self.durable)

    def reader(self, context: StoreContext) -> StoreReader:
        return SqliteReader(self._placed(context), durable=self.durable)

    def _placed(self, context: StoreContext) -> StoreContext:
        return context if self.directory is None else replace(context, directory=self.directory)

    def __repr__(self) -> str:
        return f"SqliteStore({'' if self.directory is None else f'{str(self.directory)!r}, '}durable={self.durable})"


class SqliteWriter(PendingWriter):
    """The file of one writing task."""

    def __init__(self, context: StoreContext, writer_id: str, *, durable: bool) -> None:
        super().__init__(context)
        if check_name("writer id", writer_id) == BASE:
            raise ConfigError(f"a writer of view {context.view} cannot be named {BASE!r}")
        directory = view_directory(context)
        self._path = directory / f"{writer_id}{SUFFIX}"
        self._base_path = directory / f"{BASE}{SUFFIX}"
        try:
            claim(context)
            self._lock = ViewLock(directory)
        except OSError as e:
            raise UnavailableError(f"view {context.view} cannot be written: {e}") from e
        try:
            self._db = open_for_writing(self._path, durable=durable)
        except BaseException:
            self._lock.close()
            raise
        self._db.create_function("heron_merged", 2, self._merged)
        self._base: sqlite3.Connection | None = None
        self._rows: dict[bytes, Any] = {}
        self._merge_error: Exception | None = None

    def _commit(self, once: tuple[str, int] | None) -> None:
        with self._lock.held(exclusive=False):
            cuts = self._cuts()
            with errors_of(self._path):
                try:
                    with transaction(self._db):
                        if once is None or raise_progress(self._db, *once):
                            for batch, rows in self._pending.items():
                                self._store(slot_of(self._db, batch, cuts.get(batch, 0)), rows)
                except sqlite3.OperationalError:
                    if self._merge_error is not None:  # the monoid's own word, not SQLite's about it
                        raise self._merge_error from None
                    raise
        self._committed()

    def _store(self, slot: int, rows: dict[bytes, Any]) -> None:
        encode = self._monoid.encode
        self._rows = rows
        self._merge_error = None
        self._db.executemany(_MERGE_ROW, ((slot, key, encode(delta)) for key, delta in rows.items()))

    def _merged(self, key: bytes, value: bytes) -> bytes:
        try:
            return self._with_stored(key, value, self._rows[key])
        except Exception as e:
            self._merge_error = e
            raise

    def _cuts(self) -> dict[int, int]:
        with errors_of(self._base_path):
            if self._base is None and self._base_path.exists():
                self._base = open_for_reading(self._base_path)
            return read_cuts(self._base) if self._base is not None else {}

    def close(self) -> None:
        if self._base is not None:
            self._base.close()
        self._db.close()
        self._lock.close()
