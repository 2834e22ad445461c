"""A SQLite view, read over the files of all its writers, also while they write and while files appear."""

from __future__ import annotations

import contextlib
import heapq
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heronpy.errors import UnavailableError
from heronpy.hashing import decode_key, encode_key
from heronpy.stores._spi import StoreContext, StoreReader
from heronpy.stores.sqlite_file import (
    BASE,
    SUFFIX,
    ViewLock,
    check,
    claim,
    delete_slots,
    errors_of,
    open_for_reading,
    open_for_writing,
    read_cuts,
    slot_of,
    transaction,
    view_directory,
)

_TRIES = 10
_FIRST_BATCH = -(1 << 63)
# CROSS JOIN: SQLite is to walk the few slots and look the key up in each.
_ROWS_OF_KEY = (
    "SELECT slots.batch, slots.cut, rows.value FROM slots CROSS JOIN rows"
    " ON rows.slot = slots.slot AND rows.key = ? WHERE slots.batch >= ?"
)
_FILLED = "SELECT batch, cut FROM slots WHERE EXISTS (SELECT 1 FROM rows WHERE rows.slot = slots.slot)"


class SqliteReader(StoreReader):
    """Reads, replaces and drops batches of a view. May be shared by threads."""

    def __init__(self, context: StoreContext, *, durable: bool) -> None:
        check(context)
        self._context = context
        self._directory = view_directory(context)
        self._monoid = context.monoid
        self._durable = durable
        self._files: dict[str, tuple[int, sqlite3.Connection]] = {}
        self._mutex = threading.Lock()

    def get(self, key: Any, after: int | None = None) -> Any:
        wanted = (encode_key(key), _FIRST_BATCH if after is None else after + 1)

        def read(db: sqlite3.Connection) -> list[tuple[int, int, bytes]]:
            return db.execute(_ROWS_OF_KEY, wanted).fetchall()

        values = [value for rows, cuts in self._read(read) for batch, cut, value in rows if cut >= cuts.get(batch, 0)]
        return self._merged(values)

    def batches(self) -> list[int]:
        def read(db: sqlite3.Connection) -> list[tuple[int, int]]:
            return db.execute(_FILLED).fetchall()

        found = self._read(read)
        return sorted({batch for rows, cuts in found for batch, cut in rows if cut >= cuts.get(batch, 0)})

    def items(self, batch: int) -> Iterator[tuple[Any, Any]]:
        with contextlib.ExitStack() as stack:
            sources = self._snapshot(batch, stack)
            last: bytes | None = None
            values: list[bytes] = []
            for key, value in heapq.merge(*sources, key=_first):
                if last is not None and key != last:
                    yield decode_key(last), self._merged(values)
                    values = []
                last = key
                values.append(value)
            if last is not None:
                yield decode_key(last), self._merged(values)

    def replace(self, batch: int, items: Iterable[tuple[Any, Any]]) -> None:
        rows = {encode_key(key): self._monoid.encode(acc) for key, acc in items}
        try:
            claim(self._context)
            lock = ViewLock(self._directory)
        except OSError as e:
            raise UnavailableError(f"{self._directory} cannot be written: {e}") from e
        with contextlib.closing(lock), lock.held(exclusive=True):
            path = self._directory / f"{BASE}{SUFFIX}"
            with (
                errors_of(path),
                contextlib.closing(open_for_writing(path, durable=self._durable)) as db,
                transaction(db),
            ):
                cut = read_cuts(db).get(batch, 0) + 1
                slot = slot_of(db, batch, cut)
                db.executemany("INSERT INTO rows VALUES (?, ?, ?)", ((slot, *row) for row in rows.items()))
                db.execute("INSERT OR REPLACE INTO cuts VALUES (?, ?)", (batch, cut))
        # They count no more; a file that is locked now keeps them until the next time.
        with contextlib.suppress(UnavailableError):
            self._delete("batch = ? AND cut < ?", (batch, cut))

    def drop(self, upto: int) -> int:
        return self._delete("batch <= ?", (upto,))

    def close(self) -> None:
        with self._mutex:
            for _, db in self._files.values():
                db.close()
            self._files.clear()

    def _delete(self, which: str, values: tuple[int, ...]) -> int:
        """Delete slots in every file; how many rows went."""
        count = 0
        for name in self._names():
            path = self._directory / name
            with errors_of(path), contextlib.closing(open_for_writing(path, durable=self._durable)) as db:
                count += delete_slots(
                    db, [slot for (slot,) in db.execute(f"SELECT slot FROM slots WHERE {which}", values)]
                )
        return count

    def _read(self, read: Any) -> Iterator[tuple[list[Any], dict[int, int]]]:
        """What `read` finds in each file, with the cuts that held while it read all of them."""
        with self._mutex:
            for _ in range(_TRIES):
                before = self._cuts()
                found = []
                for name, db in self._connections().items():
                    with errors_of(self._directory / name):
                        found.append(read(db))
                if self._cuts() == before:
                    return ((rows, before) for rows in found)
        raise UnavailableError(f"{self._directory} is being replaced all the time")

    def _snapshot(self, batch: int, stack: contextlib.ExitStack) -> list[Iterator[tuple[bytes, bytes]]]:
        """The rows of a batch in each file, by key, as of one moment between two replacements."""
        for _ in range(_TRIES):
            with self._mutex:
                before = self._cuts()
            opened = contextlib.ExitStack()
            sources: list[Iterator[tuple[bytes, bytes]]] = []
            for name in self._names():
                path = self._directory / name
                db = open_for_reading(path)
                if db is None:
                    continue
                opened.callback(db.close)
                with errors_of(path):
                    db.execute("BEGIN")
                    slots = db.execute(
                        "SELECT slot FROM slots WHERE batch = ? AND cut >= ?", (batch, before.get(batch, 0))
                    ).fetchall()
                sources.extend(_rows_of(path, db, slot) for (slot,) in slots)
            with self._mutex:
                if self._cuts() == before:
                    stack.push(opened)
                    return sources
            opened.close()
        raise UnavailableError(f"{self._directory} is being replaced all the time")

    def _cuts(self) -> dict[int, int]:
        path = self._directory / f"{BASE}{SUFFIX}"
        try:
            inode = path.stat().st_ino
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise UnavailableError(f"{path} cannot be read: {e}") from e
        db = self._connection(path.name, inode)
        with errors_of(path):
            return read_cuts(db) if db is not None else {}

    def _names(self) -> list[str]:
        return sorted(self._inodes())

    def _inodes(self) -> dict[str, int]:
        try:
            with os.scandir(self._directory) as entries:
                return {entry.name: entry.inode() for entry in entries if entry.name.endswith(SUFFIX)}
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise UnavailableError(f"{self._directory} cannot be read: {e}") from e

    def _connections(self) -> dict[str, sqlite3.Connection]:
        """A connection for each file that is there now."""
        opened = {name: self._connection(name, inode) for name, inode in self._inodes().items()}
        return {name: db for name, db in opened.items() if db is not None}

    def _connection(self, name: str, inode: int) -> sqlite3.Connection | None:
        """A connection to a file; to the new one, if it was made anew."""
        known_inode, known = self._files.get(name, (0, None))
        if known is not None:
            if known_inode == inode:
                return known
            known.close()
            del self._files[name]
        check(self._context)  # the files of a view may have been removed, and made by another program
        db = open_for_reading(self._directory / name)
        if db is not None:
            self._files[name] = (inode, db)
        return db

    def _merged(self, values: list[bytes]) -> Any:
        if not values:
            return None
        merge, decode = self._monoid.merge, self._monoid.decode
        acc = decode(values[0])
        for value in values[1:]:
            acc = merge(acc, decode(value))
        return acc


def _rows_of(path: Path, db: sqlite3.Connection, slot: int) -> Iterator[tuple[bytes, bytes]]:
    with errors_of(path):
        yield from db.execute("SELECT key, value FROM rows WHERE slot = ? ORDER BY key", (slot,))


def _first(row: tuple[bytes, bytes]) -> bytes:
    return row[0]
