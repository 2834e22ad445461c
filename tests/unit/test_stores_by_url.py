"""Where live views are, by URL."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import pytest

from heronpy.api import TopologyBuilder
from heronpy.connectors import ListSource
from heronpy.errors import ConfigError
from heronpy.pipeline.job import Job
from heronpy.stores import PostgresStore, RedisStore, SqliteStore, Store, StoreContext, store_at
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:1/0", "RedisStore(prefix='heron')"),
        ("rediss://127.0.0.1:1/0?prefix=words&health_check_interval=3", "RedisStore(prefix='words')"),
        ("unix:///run/redis.sock", "RedisStore(prefix='heron')"),
        ("postgresql://ada@127.0.0.1:1/views?sslmode=require&prefix=words", "PostgresStore(prefix='words')"),
        ("postgres://ada@127.0.0.1:1/views", "PostgresStore(prefix='heron')"),
        ("/var/lib/words", "SqliteStore('/var/lib/words', durable=False)"),
        ("file:///var/lib/my%20words", "SqliteStore('/var/lib/my words', durable=False)"),
        ("env:VIEWS", "store_at('env:VIEWS')"),
    ],
)
def test_a_url_is_a_store(url: str, shown: str) -> None:
    store = store_at(url)
    assert repr(store) == shown
    assert store.exactly_once
    assert not store.needs_directory
    assert repr(pickle.loads(pickle.dumps(store))) == shown


def test_options_of_the_client_stay_in_the_url() -> None:
    context = StoreContext(view="counts", monoid=Sum(), directory=None)
    for url in ("postgresql://ada@127.0.0.1:1/views?sslmode=disable&prefix=w", "redis://127.0.0.1:1/0?prefix=w&db=2"):
        store_at(url).reader(context).close()  # an option that is none would be refused


@pytest.mark.parametrize(
    "url", ["mysql://ada:swordfish@host/db", "", "s3://bucket/x", "env:", "env:a b", "file://host/x"]
)
def test_what_is_no_place_for_live_views_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        store_at(url)
    assert "swordfish" not in str(error.value)


def test_a_variable_has_the_url_where_the_store_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = StoreContext(view="counts", monoid=Sum(), directory=None)
    store = store_at("env:VIEWS")
    monkeypatch.delenv("VIEWS", raising=False)
    with pytest.raises(ConfigError, match="VIEWS"):
        store.writer(context, "0")
    monkeypatch.setenv("VIEWS", "env:VIEWS")
    with pytest.raises(ConfigError, match="not another variable"):
        store.reader(context)
    monkeypatch.setenv("VIEWS", str(tmp_path))
    with contextlib.closing(store.writer(context, "0")) as writer:
        writer.merge("a", 1)
        writer.commit()
    with contextlib.closing(SqliteStore(tmp_path).reader(context)) as reader:
        assert reader.get("a") == 1


def job_of(config: Config, live: Store | None = None) -> Job:
    builder = Builder()
    ones = builder.new_source(ListSource(["a"])).archive().map(lambda word: (word, 1))
    ones.to_store("counts", Sum())
    ones.to_store("mine", Sum(), "redis://127.0.0.1:1/0?prefix=mine")
    builder.build(TopologyBuilder("Words"), config)
    return Job.of(Program("Words", config, builder.graph), live=live)


def test_a_program_says_once_where_its_live_views_are(tmp_path: Path) -> None:
    config = Config()
    config.set_pipeline(tmp_path, live="postgresql://ada@127.0.0.1:1/views")
    stores = job_of(config).stores()
    assert isinstance(stores["counts"].store, PostgresStore)
    assert isinstance(stores["mine"].store, RedisStore), "a view that was given a store of its own keeps it"


def test_whoever_reads_from_elsewhere_says_where_all_live_views_are(tmp_path: Path) -> None:
    config = Config()
    config.set_pipeline(tmp_path)
    stores = job_of(config, SqliteStore(tmp_path / "copy")).stores()
    assert {type(node.store) for node in stores.values()} == {SqliteStore}
    assert isinstance(job_of(config).stores()["counts"].store, SqliteStore)


def test_live_views_are_not_just_anything(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"take a heronpy\.stores\.Store or its URL"):
        Config().set_pipeline(tmp_path, live=7)  # type: ignore[arg-type]


def test_an_error_of_a_url_has_nothing_of_its_password() -> None:
    """Of a password that is not quoted libpq takes what is after its first `@` for host and port."""
    context = StoreContext(view="words", monoid=Sum(), directory=None)
    with pytest.raises(ConfigError, match="is not one") as refused:
        store_at("postgresql://ada:s3@cr:et@h/views").reader(context)
    assert "et@h" not in str(refused.value)
    assert refused.value.__cause__ is None
