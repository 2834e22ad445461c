"""A PostgreSQL view, read over all of its writers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from heronpy.errors import UnavailableError
from heronpy.hashing import decode_key, encode_key
from heronpy.stores._postgres_client import Postgres, row_id
from heronpy.stores._spi import StoreContext, StoreReader

BASE = "base"

_CHUNK = 1000
_DELETED_AT_ONCE = 10_000
_FIRST_BATCH = -(1 << 63)
_OF_KEY = (
    "SELECT rows.value FROM {parts} AS parts JOIN {rows} AS rows ON rows.part = parts.part"
    " WHERE parts.view = %s AND parts.batch >= %s AND rows.id = %b"
)
_FILLED = (
    "SELECT batch FROM {parts} AS parts WHERE view = %s AND batch IS NOT NULL"
    " AND EXISTS (SELECT 1 FROM {rows} AS rows WHERE rows.part = parts.part) ORDER BY batch"
)
_OF_BATCH = (
    "SELECT rows.key, rows.value FROM {parts} AS parts JOIN {rows} AS rows ON rows.part = parts.part"
    " WHERE parts.view = %s AND parts.batch = %s ORDER BY rows.id"
)


class PostgresReader(StoreReader):
    """Reads, replaces and drops batches of a view. May be shared by threads."""

    def __init__(self, db: Postgres, context: StoreContext) -> None:
        self._db = db
        self._view = context.view
        self._monoid = context.monoid
        self._checked = False
        self._mutex = threading.Lock()

    def get(self, key: Any, after: int | None = None) -> Any:
        data = encode_key(key)
        with self._mutex, self._errors(self._db):
            if not self._is_there(self._db):
                return None
            found = self._db.run(_OF_KEY, self._view, _FIRST_BATCH if after is None else after + 1, row_id(data))
        return self._merged([bytes(value) for (value,) in found])

    def batches(self) -> list[int]:
        with self._mutex, self._errors(self._db):
            return [batch for (batch,) in self._db.run(_FILLED, self._view)] if self._is_there(self._db) else []

    def items(self, batch: int) -> Iterator[tuple[Any, Any]]:
        with self._another(idles=True) as db:
            if not self._is_there(db):
                return
            chunks = db.stream(_OF_BATCH, self._view, batch, chunk=_CHUNK)
            rows = itertools.chain.from_iterable(chunks)
            for key, found in itertools.groupby(rows, key=itemgetter(0)):
                yield decode_key(bytes(key)), self._merged([bytes(value) for _, value in found])

    def replace(self, batch: int, items: Iterable[tuple[Any, Any]]) -> None:
        with self._another(idles=True) as db:
            db.claim(self._view, self._monoid)
            with db.transaction():
                ((part,),) = db.run("INSERT INTO {parts} (view) VALUES (%s) RETURNING part", self._view)
                is_filled = self._upload(db, part, items)
                db.lock(alone=self._view)
                db.run("UPDATE {parts} SET batch = NULL WHERE view = %s AND batch = %s", self._view, batch)
                if is_filled:
                    db.run("UPDATE {parts} SET batch = %s WHERE part = %s", batch, part)
            with contextlib.suppress(UnavailableError):  # they count no more, and are deleted the next time
                self._delete(db)

    def drop(self, upto: int) -> int:
        with self._another() as db:
            if not self._is_there(db):
                return 0
            with db.transaction():
                db.lock(alone=self._view)
                db.run("UPDATE {parts} SET batch = NULL WHERE view = %s AND batch <= %s", self._view, upto)
            return self._delete(db)

    def close(self) -> None:
        with self._mutex:
            self._db.close()

    def _upload(self, db: Postgres, part: int, items: Iterable[tuple[Any, Any]]) -> bool:
        """Store items as rows of a part that is not read yet; whether there are any."""
        encode, rest = self._monoid.encode, iter(items)
        is_filled = False
        while chunk := {encode_key(key): encode(acc) for key, acc in itertools.islice(rest, _CHUNK)}:
            is_filled = True
            db.run(
                "INSERT INTO {rows} (part, id, writer, key, value) SELECT %s, new.id, %s, new.key, new.value"
                " FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS new (id, key, value)"
                " ON CONFLICT (part, id, writer) DO UPDATE SET value = EXCLUDED.value",
                part,
                BASE,
                [row_id(key) for key in chunk],
                list(chunk),
                list(chunk.values()),
            )
        return is_filled

    def _delete(self, db: Postgres) -> int:
        """Delete the rows that count no more; how many. In pieces, and without a lock."""
        count = 0
        with self._errors(db):
            for (part,) in db.run("SELECT part FROM {parts} WHERE view = %s AND batch IS NULL", self._view):
                while deleted := db.count(
                    "DELETE FROM {rows} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {rows} WHERE part = %s LIMIT %s))",
                    part,
                    _DELETED_AT_ONCE,
                ):
                    count += deleted
                db.run("DELETE FROM {parts} WHERE part = %s AND batch IS NULL", part)
        return count

    def _merged(self, values: list[bytes]) -> Any:
        if not values:
            return None
        merge, decode = self._monoid.merge, self._monoid.decode
        acc = decode(values[0])
        for value in values[1:]:
            acc = merge(acc, decode(value))
        return acc

    def _is_there(self, db: Postgres) -> bool:
        """Whether the view was ever written."""
        if not self._checked:
            self._checked = db.check(self._view, self._monoid)
        return self._checked

    @contextlib.contextmanager
    def _another(self, *, idles: bool = False) -> Iterator[Postgres]:
        """A connection of its own: for what takes a while."""
        db = self._db.another(idles=idles)
        with contextlib.closing(db), self._errors(db):
            yield db

    def _errors(self, db: Postgres) -> contextlib.AbstractContextManager[None]:
        return db.errors(f"view {self._view}")
