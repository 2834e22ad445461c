"""Live views in PostgreSQL: the kit against a real server, and what only a database can get wrong."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import ConfigError, StateError, UnavailableError
from heronpy.stores import PostgresStore, Store, StoreContext
from heronpy.streamlet import Sum
from heronpy.testing.postgres import PostgresServer, postgres_missing
from heronpy.testing.served_stores_kit import PASSWORD, ServedStoresKit

pytestmark = pytest.mark.skipif(postgres_missing() is not None, reason=postgres_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


def url_of(server: PostgresServer, user: str = "postgres", database: str = "postgres") -> str:
    return f"postgresql://{user}@127.0.0.1:{server.port}/{database}"


def execute(server: PostgresServer, *statements: str) -> list[Any]:
    import psycopg

    with contextlib.closing(psycopg.connect(url_of(server), autocommit=True)) as connection:
        for statement in statements:
            cursor = connection.execute(statement)  # type: ignore[call-overload]  # of this file
        return list(cursor.fetchall()) if cursor.description else []


class TestPostgresStore(ServedStoresKit):
    long = (  # those with other processes, and with hundreds of connections
        "test_a_writer_killed_at_any_moment_keeps_whole_commits",
        "test_any_sequence_of_operations_equals_a_dict",
        "test_concurrent_writers_lose_nothing",
        "test_replacing_and_dropping_while_writers_run_leaves_what_was_meant",
    )

    @pytest.fixture
    def server(self, server: PostgresServer) -> PostgresServer:
        return server

    @pytest.fixture
    def store(self, server: PostgresServer) -> Store:
        return PostgresStore(url_of(server))

    @pytest.fixture
    def refused(self, server: PostgresServer, tmp_path: Path) -> Iterator[Store]:
        """Everybody but `asked` is trusted."""
        ((rules,),) = execute(server, "SHOW hba_file")
        execute(server, "DROP ROLE IF EXISTS asked", "CREATE ROLE asked LOGIN PASSWORD 'sesame'")
        before = Path(rules).read_text()
        Path(rules).write_text(f"host all asked all scram-sha-256\n{before}")
        execute(server, "SELECT pg_reload_conf()")
        with_password = f"asked:{PASSWORD}"
        yield PostgresStore(url_of(server, with_password))
        Path(rules).write_text(before)
        execute(server, "SELECT pg_reload_conf()")

    def lose_answers(self, patch: pytest.MonkeyPatch) -> None:
        import psycopg

        execute = psycopg.Connection.execute

        def lose(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            done = execute(self, query, *args, **kwargs)
            if query == "COMMIT":
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return done

        patch.setattr(psycopg.Connection, "execute", lose)


@pytest.fixture
def context(tmp_path: Path) -> StoreContext:
    return StoreContext(view=f"counts-{tmp_path.name}", monoid=Sum(), directory=None)


def commit(store: Store, context: StoreContext, number: int = 1) -> None:
    with contextlib.closing(store.writer(context, "0")) as writer:
        writer.merge("a", number)
        writer.commit()


def found(store: Store, context: StoreContext) -> Any:
    with contextlib.closing(store.reader(context)) as reader:
        return reader.get("a")


def test_a_role_that_may_only_read_reads_and_a_commit_says_what_it_lacks(
    context: StoreContext, server: PostgresServer
) -> None:
    mine = PostgresStore(url_of(server), prefix="granted")
    commit(mine, context)
    tables = [f"granted_live_{name}" for name in ("views", "parts", "rows", "progress")]
    execute(server, "CREATE ROLE granted LOGIN", f"GRANT SELECT ON {', '.join(tables)} TO granted")
    theirs = PostgresStore(url_of(server, "granted"), prefix="granted")
    assert found(theirs, context) == 1
    with contextlib.closing(theirs.writer(context, "1")) as writer:
        writer.merge("a", 1)
        with pytest.raises(
            UnavailableError, match=r"permission denied for table granted_live_\w+.*makes them"
        ) as error:
            writer.commit()
        assert "\n" not in str(error.value)
        execute(server, f"GRANT INSERT, UPDATE, DELETE ON {', '.join(tables)} TO granted")
        writer.commit()  # nothing was lost meanwhile
    assert found(mine, context) == 2


def test_a_role_that_may_not_make_tables_is_told_so(context: StoreContext, server: PostgresServer) -> None:
    execute(server, "CREATE ROLE poor LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    store = PostgresStore(url_of(server, "poor"), prefix="poor")
    assert found(store, context) is None
    with pytest.raises(UnavailableError, match=r"permission denied for schema public.*tables poor_live_"):
        commit(store, context)


def test_tables_that_were_dropped_are_made_again(context: StoreContext, server: PostgresServer) -> None:
    store = PostgresStore(url_of(server), prefix="dropped")
    with contextlib.closing(store.writer(context, "0")) as writer:
        writer.merge("a", 1)
        writer.commit()
        execute(server, *(f"DROP TABLE dropped_live_{name}" for name in ("rows", "parts", "views", "progress")))
        assert found(store, context) is None
        writer.merge("a", 2)
        with pytest.raises(UnavailableError, match="does not exist"):
            writer.commit()
        writer.commit()
        assert found(store, context) == 2


def test_tables_of_others_under_the_names_are_no_view(context: StoreContext, server: PostgresServer) -> None:
    execute(server, "CREATE TABLE taken_live_views (something int)")
    store = PostgresStore(url_of(server), prefix="taken")
    with pytest.raises(StateError, match=r"other tables.*another prefix"):
        found(store, context)
    with pytest.raises(StateError, match="another prefix"):
        commit(store, context)


def test_a_database_that_does_not_exist_is_named(context: StoreContext, server: PostgresServer) -> None:
    with pytest.raises(UnavailableError, match='database "nowhere" does not exist'):
        found(PostgresStore(url_of(server, database="nowhere")), context)


@pytest.mark.long
def test_a_predecessor_that_hangs_within_a_transaction_is_waited_for_no_longer_than_a_bound(
    context: StoreContext, server: PostgresServer
) -> None:
    within, go_on = threading.Event(), threading.Event()

    class Hanging(Sum):
        """Hangs where a commit has its locks."""

        def encode(self, acc: int) -> bytes:
            within.set()
            go_on.wait()
            return super().encode(acc)

        def __repr__(self) -> str:
            return "Sum()"  # the same rows

    store = PostgresStore(url_of(server))
    with ThreadPoolExecutor(1) as thread, contextlib.closing(store.writer(context, "0")) as writer:
        hung = thread.submit(commit, store, replace(context, monoid=Hanging()))
        within.wait()
        writer.merge("a", 1)
        with pytest.raises(UnavailableError, match="lock timeout"):
            writer.commit()
        go_on.set()
        hung.result()
        writer.commit()
    assert found(store, context) == 2


def test_programs_with_other_prefixes_do_not_meet(context: StoreContext, server: PostgresServer) -> None:
    commit(PostgresStore(url_of(server), prefix="one"), context)
    assert found(PostgresStore(url_of(server), prefix="two"), context) is None


def test_what_was_replaced_or_dropped_takes_no_room(context: StoreContext, server: PostgresServer) -> None:
    store = PostgresStore(url_of(server), prefix="room")
    for _ in range(3):
        commit(store, context)
        with contextlib.closing(store.reader(context)) as reader:
            reader.replace(0, [("a", 1), ("b", 2)])
            reader.replace(1, [("a", 1)])
    assert execute(server, "SELECT count(*) FROM room_live_rows") == [(3,)]
    with contextlib.closing(store.reader(context)) as reader:
        assert reader.drop(1) == 3
    assert execute(server, "SELECT (SELECT count(*) FROM room_live_rows), count(*) FROM room_live_parts") == [(0, 0)]


def test_impossible_stores_are_refused(context: StoreContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIEWS_URL", raising=False)
    with pytest.raises(ConfigError, match="VIEWS_URL"):
        PostgresStore(url_env="VIEWS_URL").writer(context, "0")
    for args in ({}, {"url": "postgresql://a", "url_env": "B"}, {"url": "postgresql://a", "prefix": 'no"prefix'}):
        with pytest.raises(ConfigError):
            PostgresStore(**args)
    with pytest.raises(ConfigError) as refused:
        PostgresStore("postgresql://ada:swordfish@host/db?nonsense=1").reader(context)
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize("characters", [56, 58, 128])
def test_a_prefix_that_leaves_no_room_in_the_names_of_tables_is_refused(characters: int) -> None:
    """PostgreSQL would take the first 63 bytes of each, and make one table of several."""
    with pytest.raises(ConfigError, match="too long: use at most 55 characters") as error:
        PostgresStore("postgresql://a", prefix="p" * characters)
    assert "\n" not in str(error.value)


def test_the_longest_prefixes_and_any_names_of_views_are_told_apart(
    context: StoreContext, server: PostgresServer
) -> None:
    views = ["v" * 128, "v" * 127 + "w", "Zähler", "zähler", "a\"b';--", "%s{rows}", "表"]
    stores = [PostgresStore(url_of(server), prefix="P-.@" + "p" * 50 + last) for last in "12"]
    for n, (store, view) in enumerate(itertools.product(stores, views)):
        commit(store, replace(context, view=view), n)
    values = [found(store, replace(context, view=view)) for store, view in itertools.product(stores, views)]
    assert values == list(range(14))
