"""Live views in SQLite: the kit, and what only files can get wrong."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.errors import ConfigError, StateError, UnavailableError
from heronpy.stores import SqliteStore, StoreContext
from heronpy.stores.sqlite_file import ViewLock
from heronpy.stores.sqlite_reader import SqliteReader
from heronpy.streamlet import Sum
from heronpy.testing.stores_kit import StoresKit


class TestSqliteStore(StoresKit):
    @pytest.fixture
    def store(self) -> SqliteStore:
        return SqliteStore()


def test_a_durable_store_keeps_the_same_promises(tmp_path: Path) -> None:
    context = StoreContext(view="counts", monoid=Sum(), directory=tmp_path)
    store = SqliteStore(durable=True)
    with contextlib.closing(store.writer(context, "0")) as writer, contextlib.closing(store.reader(context)) as reader:
        writer.merge("a", 1)
        writer.commit()
        assert reader.get("a") == 1


@pytest.fixture
def context(tmp_path: Path) -> StoreContext:
    return StoreContext(view="counts", monoid=Sum(), directory=tmp_path)


def test_each_writer_has_a_file_in_the_jobs_directory(context: StoreContext, tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore().writer(context, "task-3")) as writer:
        writer.merge("a", 1)
        writer.commit()
    assert (tmp_path / "live" / "counts" / "task-3.sqlite").exists()


def test_a_damaged_file_is_named(context: StoreContext, tmp_path: Path) -> None:
    directory = tmp_path / "live" / "counts"
    directory.mkdir(parents=True)
    path = directory / "task-0.sqlite"
    path.write_bytes(b"no database at all, but a text of some length\n" * 100)
    with contextlib.closing(SqliteStore().reader(context)) as reader:
        for read in (lambda: reader.get("a"), reader.batches, lambda: list(reader.items(0)), lambda: reader.drop(3)):
            with pytest.raises(StateError, match=str(path)):
                read()
    with pytest.raises(StateError, match=str(path)):
        SqliteStore().writer(context, "task-0")


def test_damage_inside_a_file_is_named(context: StoreContext, tmp_path: Path) -> None:
    path = tmp_path / "live" / "counts" / "task-0.sqlite"
    with contextlib.closing(SqliteStore().writer(context, "task-0")) as writer:
        for n in range(20_000):
            writer.merge(f"word-{n}", 1)
        writer.commit()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)
    with (
        contextlib.closing(SqliteStore().reader(context)) as reader,
        pytest.raises(StateError, match=f"{path} is damaged"),
    ):
        list(reader.items(0))


def test_a_locked_file_is_waited_for_and_nothing_is_lost(
    context: StoreContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.stores.sqlite_file.BUSY_S", 0.2)
    with (
        contextlib.closing(SqliteStore().writer(context, "task-0")) as writer,
        contextlib.closing(SqliteStore().reader(context)) as reader,
    ):
        writer.merge("a", 1)
        writer.commit()
        with contextlib.closing(sqlite3.connect(tmp_path / "live/counts/task-0.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writer.merge("a", 1)
            with pytest.raises(UnavailableError, match=r"task-0\.sqlite cannot be used: database is locked"):
                writer.commit()
            assert reader.get("a") == 1, "readers do not wait for writers"
            other.execute("ROLLBACK")
        writer.merge("a", 1)
        writer.commit()
        assert reader.get("a") == 3


@contextlib.contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing(context: StoreContext) -> None:
    with (
        contextlib.closing(SqliteStore().writer(context, "task-0")) as writer,
        contextlib.closing(SqliteStore().reader(context)) as reader,
    ):
        writer.merge("word-1", 1)
        writer.commit()
        for n in range(50_000):
            writer.merge(f"word-{n}", 1)
        with files_no_larger_than(200_000), pytest.raises(UnavailableError, match=r"task-0\.sqlite cannot be used"):
            writer.commit()
        assert (reader.get("word-1"), reader.get("word-2")) == (1, None)
        writer.commit()
        assert (reader.get("word-1"), reader.get("word-2")) == (2, 1)
        assert sum(1 for _ in reader.items(0)) == 50_000


def test_a_replacement_that_could_not_delete_old_rows_still_counts_alone(context: StoreContext, tmp_path: Path) -> None:
    with (
        contextlib.closing(SqliteStore().writer(context, "task-0")) as writer,
        contextlib.closing(SqliteStore().reader(context)) as reader,
    ):
        writer.merge("a", 100, 1)
        writer.commit()
        reader.replace(1, [("a", 1)])
        # As if the process had died between its commit and the deletion.
        with contextlib.closing(sqlite3.connect(tmp_path / "live/counts/task-0.sqlite")) as db, db:
            db.execute("INSERT INTO slots VALUES (99, 1, 0)")
            db.execute("INSERT INTO rows SELECT 99, x'a161', x'64'")
        assert reader.get("a") == 1
        assert dict(reader.items(1)) == {"a": 1}
        reader.replace(1, [("a", 2)])
        assert dict(reader.items(1)) == {"a": 2}


def test_a_scan_goes_on_with_what_it_began_with_while_the_batch_is_replaced(context: StoreContext) -> None:
    with (
        contextlib.closing(SqliteStore().writer(context, "task-0")) as writer,
        contextlib.closing(SqliteStore().reader(context)) as reader,
    ):
        for n in range(1000):
            writer.merge(n, 1)
        writer.commit()
        scan = reader.items(0)
        first = next(scan)
        reader.replace(0, [("a", 1)])
        assert dict([first, *scan]) == dict.fromkeys(range(1000), 1)
        assert dict(reader.items(0)) == {"a": 1}


def test_a_directory_made_anew_is_read_anew(context: StoreContext, tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore().reader(context)) as reader:
        for n in range(2):
            with contextlib.closing(SqliteStore().writer(context, "task-0")) as writer:
                writer.merge("a", n + 1)
                writer.commit()
            assert reader.get("a") == n + 1
            (tmp_path / "live/counts/task-0.sqlite").unlink()
        assert reader.get("a") is None


def test_a_program_without_a_directory_and_a_reserved_name_are_refused(context: StoreContext) -> None:
    with pytest.raises(ConfigError, match="set_pipeline"):
        SqliteStore().writer(StoreContext(view="counts", monoid=Sum(), directory=None), "0")
    for name in ("base", "../elsewhere"):
        with pytest.raises(ConfigError):
            SqliteStore().writer(context, name)


def test_a_commit_waits_for_the_end_of_a_replacement(
    context: StoreContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.stores.sqlite_file.BUSY_S", 0.1)
    with (
        contextlib.closing(SqliteStore().writer(context, "task-0")) as writer,
        contextlib.closing(SqliteStore().reader(context)) as reader,
        contextlib.closing(ViewLock(tmp_path / "live" / "counts")) as lock,
    ):
        writer.merge("a", 1)
        with lock.held(exclusive=True), pytest.raises(UnavailableError, match="held by another process"):
            writer.commit()
        with lock.held(exclusive=False):
            writer.commit()  # commits do not wait for each other
            with pytest.raises(UnavailableError, match="held by another process"):
                reader.replace(0, [])
        assert reader.get("a") == 1


@pytest.mark.parametrize("moment", ["_connections", "_names"])
def test_a_replacement_in_the_middle_of_a_read_is_noticed(
    context: StoreContext, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    replacing = SqliteReader(context, durable=False)
    # Its process dies after the replacement counts, before the old rows are deleted.
    monkeypatch.setattr(replacing, "_delete", lambda which, values: 0)
    with (
        contextlib.closing(SqliteStore().writer(context, "task-0")) as writer,
        contextlib.closing(SqliteReader(context, durable=False)) as reader,
        contextlib.closing(replacing),
    ):
        writer.merge("a", 100)
        writer.commit()
        look = getattr(reader, moment)
        moments = []

        def replace_and_look() -> object:
            moments.append(True)
            if len(moments) == 1:
                replacing.replace(0, [("a", 1)])
            return look()

        monkeypatch.setattr(reader, moment, replace_and_look)
        read = (lambda: reader.get("a")) if moment == "_connections" else (lambda: dict(reader.items(0))["a"])
        assert read() == 1
        assert len(moments) == 2, "it was read again"
