"""The files of a SQLite view: their tables, their lock, and their errors in words.

live/<view>/<writer_id>.sqlite   rows of one writing task, and `progress`: what it has committed exactly once
live/<view>/base.sqlite          rows that `replace` wrote, and `cuts`
live/<view>/monoid               what its rows are accumulators of
live/<view>/lock                 shared by commits, exclusive for `replace`

A batch is replaced in all files at once, although SQLite commits each file by itself: rows belong to a slot, a slot to
a batch and to a cut, the number of times that the batch had been replaced when the rows were written. Replacing a batch
is one transaction on base.sqlite, which writes the new rows and raises the batch's cut; rows of a smaller cut count no
more, and it does not matter when they are deleted. The lock makes a commit that has begun with the old cut end before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from heronpy.errors import ConfigError, HeronError, StateError, UnavailableError
from heronpy.stores._spi import StoreContext, check_monoid_of

SUFFIX = ".sqlite"
BASE = "base"
BUSY_S = 10.0
_MONOID = "monoid"

_LOCK_POLL_S = 0.01
_CACHE_KIB = 32 * 1024
_CHECKPOINT_PAGES = 8192  # SQLite's default of 1000 has random keys write each page to the file several times over
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS slots (slot INTEGER PRIMARY KEY, batch INTEGER NOT NULL, cut INTEGER NOT NULL,"
    " UNIQUE (batch, cut))",
    "CREATE TABLE IF NOT EXISTS rows (slot INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (slot, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS progress (name TEXT PRIMARY KEY, number INTEGER NOT NULL)",
)
_BASE_SCHEMA = (*_SCHEMA, "CREATE TABLE IF NOT EXISTS cuts (batch INTEGER PRIMARY KEY, cut INTEGER NOT NULL)")
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


ELSEWHERE = "give set_pipeline() a place for live views: live='redis://…', 'postgresql://…', or a directory"
"""What to do if the job's files are in a store."""


def view_directory(context: StoreContext) -> Path:
    """Where the files of a view are.

    Raises:
        ConfigError: the job has no directory, or its files are in a store.
    """
    if context.directory is None:
        raise ConfigError(
            f"view {context.view} has no place for its files: give the program's Config a directory with set_pipeline()"
        )
    if not isinstance(context.directory, Path):
        raise ConfigError(f"view {context.view}: {context.directory} is not a directory for SQLite files: {ELSEWHERE}")
    return context.directory / "live" / context.view


def claim(context: StoreContext) -> None:
    """Note down the monoid of a view that is to be written, or check it.

    Raises:
        StateError: it has rows of another one.
        OSError: it cannot be written.
    """
    directory = view_directory(context)
    directory.mkdir(parents=True, exist_ok=True)
    new = directory / f".monoid-{secrets.token_hex(4)}"
    if not (directory / _MONOID).exists():
        try:
            new.write_text(context.monoid.signature)
            with contextlib.suppress(FileExistsError):  # another task was faster
                os.link(new, directory / _MONOID)
        finally:
            new.unlink(missing_ok=True)
    check(context)


def check(context: StoreContext) -> None:
    """Check the monoid of a view that is to be read.

    Raises:
        StateError: it has rows of another one.
        UnavailableError: that cannot be read.
    """
    path = view_directory(context) / _MONOID
    try:
        stored = path.read_text()
    except FileNotFoundError:
        return
    except OSError as e:
        raise UnavailableError(f"{path} cannot be read: {e.strerror or e}") from e
    check_monoid_of(f"{context.view} in {path.parent}", stored, context.monoid)


@contextlib.contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: StateError for a corrupt file, UnavailableError for a locked or full one."""
    try:
        yield
    except sqlite3.DatabaseError as e:
        error = _in_words(path, e)
        if error is None:
            raise
        raise error from e


def _in_words(path: Path, error: sqlite3.DatabaseError) -> HeronError | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None  # of the module itself: our bug
    if code & 0xFF in _CORRUPT:
        return StateError(f"{path} is damaged ({error}): move it away, and the batches in it are computed again")
    if isinstance(error, sqlite3.OperationalError):
        return UnavailableError(f"{path} cannot be used: {error}")
    return None


def open_for_writing(path: Path, *, durable: bool) -> sqlite3.Connection:
    """The file with its tables, made if there is none."""
    with errors_of(path):
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            with transaction(db):
                for statement in _BASE_SCHEMA if path.stem == BASE else _SCHEMA:
                    db.execute(statement)
        except BaseException:
            db.close()
            raise
        return db


def open_for_reading(path: Path) -> sqlite3.Connection | None:
    """The file, or None while its writer has not made its tables."""
    with errors_of(path):
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            last = "cuts" if path.stem == BASE else "rows"
            if db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (last,)).fetchone():
                return db
        except BaseException:
            db.close()
            raise
        db.close()
        return None


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: all of the block, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # a full disk may have ended it already
                db.execute("ROLLBACK")
        raise


def slot_of(db: sqlite3.Connection, batch: int, cut: int) -> int:
    """The slot for rows of a batch, made if there is none. Inside a transaction."""
    found = db.execute("SELECT slot FROM slots WHERE batch = ? AND cut = ?", (batch, cut)).fetchone()
    if found:
        return int(found[0])
    slot = db.execute("INSERT INTO slots (batch, cut) VALUES (?, ?)", (batch, cut)).lastrowid
    assert slot is not None
    return slot


def raise_progress(db: sqlite3.Connection, name: str, number: int) -> bool:
    """Note down that this number is committed under a name; False if it was already. Inside a transaction."""
    raised = db.execute(
        "INSERT INTO progress VALUES (?1, ?2) ON CONFLICT DO UPDATE SET number = ?2 WHERE number < ?2", (name, number)
    )
    return raised.rowcount == 1


def read_cuts(db: sqlite3.Connection) -> dict[int, int]:
    """How often batches were replaced; those that never were are not in it. Of base.sqlite."""
    return dict(db.execute("SELECT batch, cut FROM cuts"))


def delete_slots(db: sqlite3.Connection, slots: list[int]) -> int:
    """Forget all rows of some slots; how many there were. One transaction for each slot: writers wait for one only."""
    rows = 0
    for slot in slots:
        with transaction(db):
            rows += db.execute("DELETE FROM rows WHERE slot = ?", (slot,)).rowcount
            db.execute("DELETE FROM slots WHERE slot = ?", (slot,))
    return rows


class ViewLock:
    """The lock of a view's directory. Gone with its process, however that ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)

    @contextlib.contextmanager
    def held(self, *, exclusive: bool) -> Iterator[None]:
        """Hold it for the block.

        Raises:
            UnavailableError: somebody else holds it for too long.
        """
        how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        deadline_s = time.monotonic() + BUSY_S
        while True:
            try:
                fcntl.flock(self._fd, how)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise UnavailableError(f"{self._path} was held by another process for {BUSY_S:g} s") from None
                time.sleep(_LOCK_POLL_S)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """May be called again: the number may be another file's by then."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
