"""Rows of SQL tables, in any database that SQLAlchemy has a dialect for."""

# Exactly once: the rows of a checkpoint and the number of that checkpoint are written in one transaction. A repeated
# commit finds the number; a fenced writer finds a row that is not its own any more. Both by the UPDATE that the
# transaction begins with, which locks the row of the task until it ends: so there is no check before the write.
#
# With a table for dead letters, what is refused is found in that transaction, and goes to that table in it. So nothing
# has to be tried before, a refusal that only a commit meets (two tasks with one key) is no dead end, and a repeated
# commit changes neither table. Emitted as tuples, dead letters of a commit would be lost with its process.

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from heronpy.connectors._files import why
from heronpy.connectors._held_rows import NOTHING, OPENED, HeldRowsWriter, PreparedRows, progress_key
from heronpy.connectors._optional import need
from heronpy.connectors._row_sinks import unfit
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.errors import CheckpointError, ConfigError, UnavailableError
from heronpy.shown import message, shown

PROGRESS_TABLE = "heron_sink_progress"
_KEY_CHARACTERS = 255
_TRIES = 3
_TEXT_CHARACTERS = 10_000

_POSTGRES = {"connect_timeout": "10", "keepalives_idle": "10", "keepalives_interval": "10", "keepalives_count": "3"}
"""A server whose host vanishes is noticed, as options of libpq. Without them it would be waited for, for hours …"""
_POSTGRES_SESSION = "SET idle_in_transaction_session_timeout = '60s'"
"""… and so would the server wait for a task whose host vanishes, and keep its locks from the one that takes over."""

_log = logging.getLogger(__name__)


class SqlSink(Sink):
    """Rows of a table. Elements are dicts, or named tuples, whose fields are columns of it.

    Exactly once, the rows between two checkpoints are kept in memory and in the checkpoint, and inserted with a
    progress row in one transaction when it is committed. They are tried before, in a transaction that is rolled back:
    what the table refuses by then fails the checkpoint, again and again, unless there is a table for dead letters. The
    progress table is made beside the table's, one row for each task; while it is there, nothing is inserted twice.

    Values are stored as the database has them: in SQLite NaN is NULL, and long decimals are floats; a column of times
    without a zone drops that of a datetime.
    """

    exactly_once = True

    def __init__(
        self,
        url: str | None = None,
        table: str = "",
        *,
        url_env: str | None = None,
        progress_table: str = PROGRESS_TABLE,
        dead_letters: str | None = None,
    ) -> None:
        """Describe the sink; the database is connected to when it is opened.

        Args:
            url: of the database, as SQLAlchemy has them: `postgresql+psycopg://user@host/db`, `sqlite:////path`. It
                travels with the program: give a URL with a password by `url_env` instead.
            table: the table, or `schema.table`. It exists.
            url_env: name of an environment variable of the tasks that has the URL.
            progress_table: a table for the progress, in the same schema; made if missing.
            dead_letters: a table for the rows that the table refuses, in the same schema; made if missing. They are
                inserted there with the reason (`sink, task, checkpoint, row_text, reason`), in the transaction of the
                others, exactly once if these are. None: a row that is refused is an error.

        Raises:
            ConfigError: not one URL, or no table.
        """
        if (url is None) == (url_env is None):
            raise ConfigError("SqlSink takes either a url or a url_env")
        if not table or not progress_table or dead_letters == "":
            raise ConfigError("SqlSink takes the name of a table")
        self._url = url
        self._url_env = url_env
        self._schema, _, self._table = table.rpartition(".")
        self._progress = progress_table
        self._dead_letters = dead_letters

    def __repr__(self) -> str:
        return f"SqlSink(table={f'{self._schema}.{self._table}'.lstrip('.')!r})"

    def open(self, context: SinkContext) -> SinkWriter:
        return _FlushingWriter(self._opened(), context)

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        return _TransactionalWriter(self._opened(), self._progress, context)

    def _opened(self) -> _Table:
        need("sqlalchemy", "sql", "SqlSink")
        import sqlalchemy
        from sqlalchemy.exc import ArgumentError, NoSuchTableError

        url = self._url if self._url_env is None else os.environ.get(self._url_env)
        if not url:
            raise ConfigError(f"the environment variable {self._url_env} must have the URL of the database of {self!r}")
        try:
            engine = _engine(url)
        except (ArgumentError, ImportError, ValueError) as e:  # its text may have the password in it
            raise ConfigError(f"{self!r}: no database driver for this URL ({type(e).__name__})") from None
        try:
            with _translated(repr(self)):
                table = sqlalchemy.Table(
                    self._table, sqlalchemy.MetaData(schema=self._schema or None), autoload_with=engine
                )
        except NoSuchTableError:
            engine.dispose()
            raise ConfigError(f"{self!r}: there is no such table") from None
        return _Table(self, engine, table, self._dead_letters)


def _engine(url: str) -> Any:
    """As `sqlalchemy.create_engine`."""
    import sqlalchemy

    of = sqlalchemy.make_url(url)
    is_libpq = of.get_backend_name() == "postgresql" and of.get_driver_name() in ("psycopg", "psycopg2")
    if is_libpq:
        of = of.update_query_dict({name: value for name, value in _POSTGRES.items() if name not in of.query})
    engine = sqlalchemy.create_engine(of, pool_size=1, pool_pre_ping=True)
    if is_libpq:
        sqlalchemy.event.listen(engine, "connect", _begin_postgres)
    return engine


def _begin_postgres(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_POSTGRES_SESSION)
    connection.commit()


class _Table:
    """An open database, and the table in it."""

    def __init__(self, sink: SqlSink, engine: Any, table: Any, dead_letters: str | None) -> None:
        self.sink = sink
        self.engine = engine
        self.table = table
        self.dead_letters = None if dead_letters is None else self._dead_letters_table(dead_letters)
        self._names = set(table.columns.keys())
        self._needed = {
            column.name
            for column in table.columns
            if not (column.nullable or column.primary_key or column.server_default or column.computed)
        }

    def row(self, element: Any) -> dict[str, Any]:
        fields = element._asdict() if hasattr(element, "_asdict") else element
        if not isinstance(fields, dict) or not fields:
            raise unfit(self.sink, element, "it is neither a dict nor a named tuple with fields")
        if not fields.keys() <= self._names:
            raise unfit(self.sink, element, f"the columns are {sorted(self._names)}")
        if not fields.keys() >= self._needed:
            raise unfit(self.sink, element, f"the columns {sorted(self._needed)} need a value")
        return dict(fields)

    def write(self, connection: Any, who: str, rows: Sequence[dict[str, Any]], **of: Any) -> None:
        """Insert rows, or what is refused of them into the table for dead letters, if there is one.

        Args:
            connection: In a transaction that has begun.
            who: The sink, in errors.
            rows: What to insert.
            of: More columns of dead letters.
        """
        if self.dead_letters is None:
            self.insert(connection, rows)
            return
        letters = [
            {**of, "row_text": _text(row), "reason": reason} for row, reason in self._refused(connection, who, rows)
        ]
        if letters:
            connection.execute(self.dead_letters.insert(), letters)
            first = letters[0]
            _log.warning(
                "%s: %d rows are refused, and in %s instead; the first is %.200s: %s",
                *(who, len(letters), self.dead_letters, first["row_text"], first["reason"]),
            )

    def _refused(
        self, connection: Any, who: str, rows: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """Insert rows but for those that are refused: halves are tried, until these stand alone."""
        todo = [rows]
        while todo:
            some = todo.pop()
            try:
                with _translated(who), connection.begin_nested():
                    self.insert(connection, some)
            except CheckpointError as error:
                if len(some) == 1:
                    yield some[0], message(error).replace("\0", "\\0")
                else:
                    middle = len(some) // 2
                    todo += [some[middle:], some[:middle]]

    def insert(self, connection: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows, in their order; those with the same fields at once."""
        for _, some in itertools.groupby(rows, key=lambda row: row.keys()):
            connection.execute(self.table.insert(), list(some))

    def made(self, name: str, *columns: Any) -> Any:
        """A table of the engine's own, beside the sink's; made if missing."""
        import sqlalchemy
        from sqlalchemy.exc import SQLAlchemyError

        table = sqlalchemy.Table(name, sqlalchemy.MetaData(schema=self.table.schema), *columns)
        with contextlib.suppress(SQLAlchemyError):  # another task makes it at this moment; else the next call says so
            table.create(self.engine, checkfirst=True)
        return table

    def _dead_letters_table(self, name: str) -> Any:
        import sqlalchemy

        return self.made(
            name,
            sqlalchemy.Column("sink", sqlalchemy.String(_KEY_CHARACTERS), nullable=False),
            sqlalchemy.Column("task", sqlalchemy.Integer, nullable=False),
            sqlalchemy.Column("checkpoint", sqlalchemy.BigInteger),
            sqlalchemy.Column("row_text", sqlalchemy.Text, nullable=False),
            sqlalchemy.Column("reason", sqlalchemy.Text, nullable=False),
        )

    def insert_all(self, who: str, rows: Sequence[dict[str, Any]], *, commit: bool) -> None:
        """Insert rows in a transaction of their own, or only try to.

        Raises:
            UnavailableError: the database has no time now.
            CheckpointError: it refuses a row, which is named.
        """
        try:
            self._transact(who, rows, commit=commit)
        except CheckpointError as error:
            refused = self._first_refused(who, rows)
            if refused is None:
                raise
            raise CheckpointError(f"{error}; the first such row is {shown(refused)}") from None

    def _transact(self, who: str, rows: Sequence[dict[str, Any]], *, commit: bool) -> None:
        with _translated(who), self.engine.connect() as connection:
            self.insert(connection, rows)
            if commit:
                connection.commit()
            else:
                connection.rollback()

    def _first_refused(self, who: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The last of the fewest first rows that are refused together; None: what is refused is only their commit."""
        taken, refused = -1, len(rows) + 1
        while refused - taken > 1:
            middle = (taken + refused) // 2
            try:
                self._transact(who, rows[:middle], commit=False)
                taken = middle
            except CheckpointError:
                refused = middle
        return rows[refused - 1] if refused <= len(rows) else None


class _FlushingWriter(SinkWriter):
    """At least once: a flush is a transaction."""

    def __init__(self, table: _Table, context: SinkContext) -> None:
        self._table = table
        self._who, self._task = f"sink {context.name}", context.task_index
        self._sink = progress_key(context)
        self._rows: list[dict[str, Any]] = []

    def write(self, element: Any) -> None:
        self._rows.append(self._table.row(element))

    def flush(self) -> None:
        if not self._rows:
            return
        if self._table.dead_letters is None:
            self._table.insert_all(self._who, self._rows, commit=True)
        else:
            with _translated(self._who), self._table.engine.begin() as connection:
                self._table.write(connection, self._who, self._rows, sink=self._sink, task=self._task)
        self._rows.clear()

    def close(self) -> None:
        self._table.engine.dispose()


class _TransactionalWriter(HeldRowsWriter):
    def __init__(self, table: _Table, progress_table: str, context: SinkContext) -> None:
        super().__init__(context)
        self._who = f"sink {context.name}"
        self._table = table
        self._progress = self._progress_table(progress_table)
        for _ in range(_TRIES):
            if self._own():
                break
        self._fence()

    def row(self, element: Any) -> dict[str, Any]:
        return self._table.row(element)

    def check(self, rows: list[Any]) -> None:
        if self._table.dead_letters is None:
            self._table.insert_all(self._who, rows, commit=False)

    def commit_rows(self, prepared: PreparedRows) -> None:
        progress = self._progress.c
        task = (progress.sink == prepared.sink) & (progress.task == prepared.task)
        with self._translated(), self._table.engine.begin() as connection:
            advance = self._progress.update().where(
                task, progress.checkpoint != OPENED, progress.checkpoint < prepared.checkpoint_id
            )
            if prepared.sink == self._sink:
                advance = advance.where(progress.epoch == self._epoch)
            if prepared.owner == self._owner:
                advance = advance.where(progress.owner == self._owner)
            if connection.execute(advance.values(checkpoint=prepared.checkpoint_id)).rowcount:
                of = {"sink": prepared.sink, "task": prepared.task, "checkpoint": prepared.checkpoint_id}
                self._table.write(connection, self._who, prepared.rows, **of)
                return
            found = connection.execute(self._progress.select().where(task)).first()
        # A newer writer's checkpoint says nothing about what this one has prepared.
        is_fenced = found is not None and prepared.owner == self._owner
        is_fenced = is_fenced and (found.owner, found.epoch) != (self._owner, self._epoch)
        if not is_fenced and (found is None or found.checkpoint == OPENED):
            raise self.unknown(f"table {self._progress}", prepared)
        if is_fenced or found.checkpoint < prepared.checkpoint_id:
            raise self.fenced()

    def begin_progress(self) -> None:
        progress = self._progress.c
        mine = (progress.sink == self._sink) & (progress.task == self._task) & (progress.owner == self._owner)
        with self._translated(), self._table.engine.begin() as connection:
            begin = self._progress.update().where(mine, progress.epoch == self._epoch, progress.checkpoint == OPENED)
            connection.execute(begin.values(checkpoint=NOTHING))

    def close(self) -> None:
        self._table.engine.dispose()

    def _own(self) -> bool:
        """Take the progress of this task over. False: another one did at the same moment."""
        from sqlalchemy.exc import IntegrityError

        progress = self._progress.c
        task = (progress.sink == self._sink) & (progress.task == self._task)
        mine = {"owner": self._owner, "epoch": self._epoch}
        try:
            with self._translated(IntegrityError), self._table.engine.begin() as connection:
                own = self._progress.update().where(task, progress.epoch <= self._epoch).values(**mine)
                if connection.execute(own).rowcount:
                    return True
                row = {"sink": self._sink, "task": self._task, "checkpoint": OPENED, **mine}
                connection.execute(self._progress.insert(), row)
                return True
        except IntegrityError:
            return False

    def _fence(self) -> None:
        """Of two that open at the same time, at least one sees the other's row here."""
        import sqlalchemy

        progress = self._progress.c
        with self._translated(), self._table.engine.begin() as connection:
            older = self._progress.update().where(progress.sink == self._sink, progress.epoch < self._epoch)
            connection.execute(older.values(epoch=self._epoch))
            newest = sqlalchemy.select(sqlalchemy.func.max(progress.epoch)).where(progress.sink == self._sink)
            if connection.execute(newest).scalar_one() > self._epoch:
                raise self.fenced()

    def _progress_table(self, name: str) -> Any:
        import sqlalchemy

        return self._table.made(
            name,
            sqlalchemy.Column("sink", sqlalchemy.String(_KEY_CHARACTERS), primary_key=True),
            sqlalchemy.Column("task", sqlalchemy.Integer, primary_key=True, autoincrement=False),
            sqlalchemy.Column("epoch", sqlalchemy.BigInteger, nullable=False),
            sqlalchemy.Column("owner", sqlalchemy.String(16), nullable=False),
            sqlalchemy.Column("checkpoint", sqlalchemy.BigInteger, nullable=False),
        )

    def _translated(self, *but: type[Exception]) -> contextlib.AbstractContextManager[None]:
        return _translated(self._who, *but)


@contextlib.contextmanager
def _translated(who: str, *but: type[Exception]) -> Iterator[None]:
    """Errors of the database as the project's.

    Raises:
        UnavailableError: it does not answer, or has no time now.
        CheckpointError: it will always refuse this.
    """
    from sqlalchemy.exc import (
        DBAPIError,
        InterfaceError,
        NoSuchTableError,
        OperationalError,
        SQLAlchemyError,
        TimeoutError,
    )

    try:
        yield
    except NoSuchTableError:
        raise
    except but:
        raise
    except (OperationalError, InterfaceError, TimeoutError) as e:
        raise UnavailableError(f"{who}: the database does not take it now: {_short(e)}") from None
    except DBAPIError as e:
        if e.connection_invalidated:
            raise UnavailableError(f"{who}: the connection is lost: {_short(e)}") from None
        raise CheckpointError(f"{who}: the database refuses it: {_short(e)}") from None
    except SQLAlchemyError as e:
        raise CheckpointError(f"{who}: {_short(e)}") from None
    except (TypeError, ValueError, OverflowError) as e:  # of the driver: a value that it has no form for
        raise CheckpointError(f"{who}: the database refuses it: {_short(e)}") from None


def _text(row: dict[str, Any]) -> str:
    """A row as JSON, if it can be that."""
    try:
        text = msgspec.json.encode(row).decode()
    except Exception:  # a class or a text that JSON does not have
        return shown(row, _TEXT_CHARACTERS)
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[: _TEXT_CHARACTERS - 1]}…"


def _short(error: Exception) -> str:
    """Without the statement and its rows."""
    return why(getattr(error, "orig", None) or error)
