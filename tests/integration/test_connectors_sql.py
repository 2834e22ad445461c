"""Rows in SQL tables, exactly once: in SQLite, and in a real PostgreSQL where there is one."""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import pickle
import threading
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from heronpy.connectors import Sink, SinkContext, SqlSink
from heronpy.errors import CheckpointError, ConfigError, FencedError, UnavailableError
from heronpy.testing.connectors_kit import open_sink
from heronpy.testing.postgres import PostgresServer, postgres_missing
from heronpy.testing.transactions_kit import TransactionalSinkKit, open_transactional, prepared

sqlalchemy = pytest.importorskip("sqlalchemy")

CREATE = """
CREATE TABLE words (
    n INTEGER NOT NULL,
    text VARCHAR(100) NOT NULL CHECK (length(text) < 100),
    price NUMERIC(10, 2),
    at TIMESTAMP,
    once INTEGER UNIQUE,
    CHECK (n >= 0)
)
"""


class Word(NamedTuple):
    n: int
    text: str


class SqlTables(TransactionalSinkKit):
    """The table, and those that the sink makes."""

    kills_max = 25

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def table(self, url: str) -> Iterator[None]:
        self._engine = sqlalchemy.create_engine(url)
        with self._engine.begin() as connection:
            connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS words"))
            connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS heron_sink_progress"))
            connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS refused"))
            connection.execute(sqlalchemy.text(CREATE))
        self._engine.dispose()
        yield
        self._engine.dispose()

    @pytest.fixture
    def sink(self, url: str, table: None) -> Sink:
        return SqlSink(url, "words")

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [Word(n, f"é{n}") if n % 2 else {"n": n, "text": f"é{n}"} for n in range(11)]

    @pytest.fixture
    def expected(self) -> Sequence[Any]:
        return [(n, f"é{n}") for n in range(11)]

    @pytest.fixture
    def unfit(self) -> Any:
        return {"n": 1, "text": "a", "no such column": 1}

    def visible(self) -> list[Any]:
        with self._engine.connect() as connection:
            rows = [tuple(row) for row in connection.execute(sqlalchemy.text("SELECT n, text FROM words"))]
        self._engine.dispose()  # nothing of it is to be inherited by processes that are killed
        return rows

    def progress(self) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(sqlalchemy.text("SELECT * FROM heron_sink_progress")))

    def refused(self) -> list[Any]:
        with self._engine.connect() as connection:
            query = "SELECT sink, task, checkpoint, row_text, reason FROM refused ORDER BY checkpoint, row_text"
            rows = list(connection.execute(sqlalchemy.text(query)))
        self._engine.dispose()
        return rows


class SqlKit(SqlTables):
    def test_there_is_one_progress_row_for_each_task(self, sink: Sink, elements: Sequence[Any]) -> None:
        for epoch in range(1, 5):
            for task in range(2):
                writer = open_transactional(sink, task=task, epoch=epoch)
                writer.commit(prepared(writer, epoch, elements[:1]))
        assert sorted((row.task, row.epoch, row.checkpoint) for row in self.progress()) == [(0, 4, 4), (1, 4, 4)]

    @pytest.mark.parametrize("bad", [{"n": -1, "text": "a"}, {"n": 1 << 70, "text": "a"}, {"n": 1, "text": "\ud800"}])
    def test_the_first_row_that_the_table_refuses_is_named(self, sink: Sink, bad: dict[str, Any]) -> None:
        rows = [{"n": n, "text": "good"} for n in range(9)]
        rows[5:5] = [bad, {"n": -2, "text": "another"}]
        writer = open_transactional(sink)
        flushing = open_sink(sink)
        for row in rows:
            writer.write(row)
            flushing.write(row)
        for refused in (lambda: writer.prepare(1), flushing.flush):
            with pytest.raises(CheckpointError, match="refuses") as error:
                refused()
            assert str(error.value).endswith(f"; the first such row is {bad!r}")
        assert self.visible() == []

    def test_what_the_table_refuses_fails_the_checkpoint_and_is_not_in_a_commit(self, sink: Sink) -> None:
        writer = open_transactional(sink)
        writer.write({"n": -1, "text": "against the check"})
        with pytest.raises(CheckpointError, match="refuses"):
            writer.prepare(1)
        self.check([])

    def test_refused_rows_are_dead_letters_once_and_the_others_are_committed(self, url: str) -> None:
        sink = SqlSink(url, "words", dead_letters="refused")
        rows: list[Any] = [{"n": n, "text": "good"} for n in range(9)]
        unknown = object()
        for bad in ({"n": -1, "text": "a"}, {"n": 1 << 70, "text": "a"}, {"n": 1, "text": "x" * 200}):
            rows.insert(len(rows) // 2, bad)
        rows += [{"n": 1, "text": "\ud800"}, {"n": 1, "text": unknown}, {"n": 1, "text": Silent()}]
        writer = open_transactional(sink)
        output = prepared(writer, 1, rows)
        assert (self.visible(), self.refused()) == ([], [])
        writer.commit(output)
        committed = sorted(self.visible()), self.refused()
        assert committed[0] == [(n, "good") for n in range(9)]
        assert len(committed[1]) == 6
        assert {(row.task, row.checkpoint) for row in committed[1]} == {(0, 1)}
        assert '{"n":-1,"text":"a"}' in {row.row_text for row in committed[1]}
        assert all("refuses it" in row.reason for row in committed[1])
        writer.commit(output)
        restored = open_transactional(sink, epoch=2)
        restored.recover([output])
        assert (sorted(self.visible()), self.refused()) == committed
        restored.commit(prepared(restored, 2, [{"n": 10, "text": "good"}, {"n": -2, "text": "a"}]))
        assert len(self.visible()) == 10
        assert len(self.refused()) == 7

    def test_a_row_that_only_the_commit_refuses_is_a_dead_letter(self, url: str) -> None:
        sink = SqlSink(url, "words", dead_letters="refused")
        writers = [open_transactional(sink, task=task) for task in range(2)]
        outputs = [prepared(writer, 1, [{"n": n, "text": "a", "once": 7}]) for n, writer in enumerate(writers)]
        for writer, output in zip(writers, outputs, strict=True):
            writer.commit(output)
        assert self.visible() == [(0, "a")]
        (letter,) = self.refused()
        assert letter.task == 1
        assert '"once":7' in letter.row_text

    def test_at_least_once_refused_rows_are_dead_letters_too(self, url: str) -> None:
        writer = open_sink(SqlSink(url, "words", dead_letters="refused"))
        for n in (1, -1, 2):
            writer.write({"n": n, "text": "a"})
        writer.flush()
        writer.flush()
        writer.close()
        assert self.visible() == [(1, "a"), (2, "a")]
        assert [row.row_text for row in self.refused()] == ['{"n":-1,"text":"a"}']

    def test_values_of_many_types(self, sink: Sink) -> None:
        at = datetime.datetime(2024, 2, 29, 12, 0, 1)
        writer = open_transactional(sink)
        rows = [{"n": 1, "text": "a", "price": Decimal("1.25"), "at": at}, {"n": 2, "text": "b"}, Word(3, "c")]
        writer.commit(prepared(writer, 1, rows))
        with self._engine.connect() as connection:
            words = sqlalchemy.Table("words", sqlalchemy.MetaData(), autoload_with=connection)
            found = connection.execute(words.select().order_by(words.c.n)).all()
        assert [tuple(row)[:4] for row in found] == [
            (1, "a", Decimal("1.25"), at),
            (2, "b", None, None),
            (3, "c", None, None),
        ]

    def test_what_is_prepared_outlives_a_change_of_names(self, sink: Sink) -> None:
        writer = open_transactional(sink)
        assert b"heronpy" not in pickle.dumps(prepared(writer, 1, [Word(1, "a")]))

    def test_a_lost_progress_table_is_an_error(self, sink: Sink, elements: Sequence[Any]) -> None:
        writer = open_transactional(sink)
        output = prepared(writer, 1, elements[:1])
        with self._engine.begin() as connection:
            connection.execute(sqlalchemy.text("DELETE FROM heron_sink_progress"))
        with pytest.raises(CheckpointError, match="it is unknown"):
            writer.commit(output)
        for epoch in (2, 3):  # nor does a rollback make it known
            with pytest.raises(CheckpointError, match="it is unknown"):
                open_transactional(sink, epoch=epoch).recover([output])
        self.check([])
        again = open_transactional(sink, epoch=4)
        again.recover([])
        again.commit(prepared(again, 2, elements[:1]))
        assert len(self.visible()) == 1

    def test_at_least_once_a_flush_makes_rows_visible(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_sink(sink)
        for element in elements:
            writer.write(element)
        self.check([])
        writer.flush()
        writer.flush()
        self.check(expected)
        writer.close()


class Silent:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


class TestSqlite(SqlKit):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/words.db"


class TestSqliteWithDeadLetters(SqlTables):
    """Every third row is refused, and visible among the dead letters."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/words.db"

    long = (
        "test_a_race_between_two_commits_once",
        "test_another_number_of_tasks_commits_it",
        "test_tasks_that_are_no_more_are_fenced_too",
        "test_the_output_is_exact_wherever_the_process_is_killed",
        "test_what_older_writers_left_is_removed",
    )

    @pytest.fixture
    def sink(self, url: str, table: None) -> Sink:
        return SqlSink(url, "words", dead_letters="refused")

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": -n if n % 3 == 1 else n, "text": f"é{n}"} for n in range(11)]

    @pytest.fixture
    def expected(self) -> Sequence[Any]:
        return [(-n if n % 3 == 1 else n, f"é{n}") for n in range(11)]

    def visible(self) -> list[Any]:
        if not sqlalchemy.inspect(self._engine).has_table("refused"):
            return super().visible()
        letters = [json.loads(row.row_text) for row in self.refused()]
        return super().visible() + [(letter["n"], letter["text"]) for letter in letters]


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.mark.skipif(postgres_missing() is not None, reason=postgres_missing() or "")
class TestPostgres(SqlKit):
    long = (  # SQLite shows the same
        "test_a_race_between_two_commits_once",
        "test_another_number_of_tasks_commits_it",
        "test_tasks_that_are_no_more_are_fenced_too",
        "test_the_output_is_exact_wherever_the_process_is_killed",
        "test_there_is_one_progress_row_for_each_task",
        "test_what_older_writers_left_is_removed",
    )

    @pytest.fixture
    def url(self, postgres: PostgresServer) -> str:
        return postgres.url

    def test_a_server_that_is_away_is_unavailable_and_a_commit_is_repeated(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any], postgres: PostgresServer
    ) -> None:
        writer = open_transactional(sink)
        output = prepared(writer, 1, elements[:2])
        postgres.kill()
        with pytest.raises(UnavailableError):
            writer.commit(output)
        postgres.start()
        writer.commit(output)
        self.check(expected[:2])

    def test_a_task_whose_host_vanishes_in_a_commit_holds_up_no_other(
        self,
        sink: Sink,
        elements: Sequence[Any],
        expected: Sequence[Any],
        postgres: PostgresServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The server waits for the next statement of a transaction, which does not come."""
        monkeypatch.setattr(f"{SqlSink.__module__}._POSTGRES_SESSION", "SET idle_in_transaction_session_timeout = '1s'")
        reached, back = threading.Event(), threading.Event()

        def vanish(_: Any, __: Any, statement: str, *more: Any) -> None:
            if statement.startswith("INSERT INTO words") and not reached.is_set():
                reached.set()
                assert back.wait(60)

        older = open_transactional(sink, epoch=1)
        output = prepared(older, 1, elements[:2])
        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", vanish)
        with concurrent.futures.ThreadPoolExecutor(1) as vanished:
            try:
                late = vanished.submit(older.commit, output)
                assert reached.wait(60)
                newer = open_transactional(sink, epoch=2)
                newer.recover([output])
                self.check(expected[:2])
            finally:
                back.set()
                sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", vanish)
            with pytest.raises(UnavailableError):
                late.result(60)
        with pytest.raises(FencedError):
            older.commit(output)
        self.check(expected[:2])


def context() -> SinkContext:
    return SinkContext(name="sink", task_index=0, config={})


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"words.*no such table"):
        SqlSink(f"sqlite:///{tmp_path}/words.db", "words").open(context())


def test_a_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="unable to open"):
        SqlSink(f"sqlite:///{tmp_path}/missing/words.db", "words").open(context())


@pytest.mark.parametrize("url", ["no url", "nosuchdialect://user:secret@host/db", "mysql+nosuch://user:secret@host/db"])
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="driver") as refused:
        SqlSink(url, "words").open(context())
    assert "secret" not in str(refused.value)


def test_the_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WORDS_URL", raising=False)
    with pytest.raises(ConfigError, match="WORDS_URL"):
        SqlSink(table="words", url_env="WORDS_URL").open(context())
    monkeypatch.setenv("WORDS_URL", f"sqlite:///{tmp_path}/words.db")
    with pytest.raises(ConfigError, match="no such table"):
        SqlSink(table="words", url_env="WORDS_URL").open(context())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="url"):
        SqlSink(table="words")
    with pytest.raises(ConfigError, match="table"):
        SqlSink("sqlite://")
