"""Live views in Redis: the kit against a real server, and what only a server can get wrong."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heronpy.errors import ConfigError, StateError, UnavailableError
from heronpy.stores import RedisStore, StoreContext
from heronpy.streamlet import Sum
from heronpy.testing.served_stores_kit import PASSWORD, ServedStoresKit
from heronpy.testing.servers import RedisServer, redis_missing

pytestmark = pytest.mark.skipif(redis_missing() is not None, reason=redis_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


class TestRedisStore(ServedStoresKit):
    long = ("test_concurrent_writers_lose_nothing",)  # those of SQLite are as many

    @pytest.fixture
    def server(self, server: RedisServer) -> RedisServer:
        return server

    @pytest.fixture
    def store(self, server: RedisServer) -> RedisStore:
        return RedisStore(server.url)

    @pytest.fixture
    def refused(self, server: RedisServer) -> RedisStore:
        return RedisStore(server.url.replace("//", f"//:{PASSWORD}@"))

    def lose_answers(self, patch: pytest.MonkeyPatch) -> None:
        import redis

        execute = redis.client.Pipeline.execute

        def lose(self: redis.client.Pipeline, *args: object, **kwargs: object) -> None:
            execute(self, *args, **kwargs)
            raise redis.exceptions.ConnectionError("Connection closed by server.")

        patch.setattr(redis.client.Pipeline, "execute", lose)


@pytest.fixture
def context(tmp_path: Path) -> StoreContext:
    return StoreContext(view=f"counts-{tmp_path.name}", monoid=Sum(), directory=None)


def test_a_password_is_in_no_message(context: StoreContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer(tmp_path / "redis", password="sesame") as server:
        monkeypatch.setenv("VIEWS_URL", server.url)
        store = RedisStore(url_env="VIEWS_URL")
        assert b"sesame" not in pickle.dumps(store)
        with contextlib.closing(store.writer(context, "0")) as writer:
            writer.merge("a", 1)
            writer.commit()
        wrong = RedisStore(server.url.replace("sesame", "swordfish"))
        assert "swordfish" not in repr(wrong)
        with contextlib.closing(wrong.reader(context)) as reader, pytest.raises(UnavailableError) as error:
            reader.get("a")
        assert "swordfish" not in str(error.value)
        assert "refuses" in str(error.value)
    with pytest.raises(ConfigError) as refused:
        RedisStore("rediss//:sesame@nowhere").reader(context)
    assert "sesame" not in str(refused.value)


def test_data_of_others_under_the_names_is_no_view(context: StoreContext, server: RedisServer) -> None:
    import redis

    with contextlib.closing(redis.Redis.from_url(server.url)) as client:
        client.set(f"{{heron:{context.view}}}", "mine")
    with (
        contextlib.closing(RedisStore(server.url).reader(context)) as reader,
        pytest.raises(StateError, match="prefix"),
    ):
        reader.batches()


def test_programs_with_other_prefixes_do_not_meet(context: StoreContext, server: RedisServer) -> None:
    with contextlib.closing(RedisStore(server.url, prefix="one").writer(context, "0")) as writer:
        writer.merge("a", 1)
        writer.commit()
    with contextlib.closing(RedisStore(server.url, prefix="two").reader(context)) as reader:
        assert reader.get("a") is None


def test_impossible_stores_are_refused(context: StoreContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIEWS_URL", raising=False)
    with pytest.raises(ConfigError, match="VIEWS_URL"):
        RedisStore(url_env="VIEWS_URL").writer(context, "0")
    for args in ({}, {"url": "redis://a", "url_env": "B"}, {"url": "redis://a", "prefix": "no/prefix"}):
        with pytest.raises(ConfigError):
            RedisStore(**args)


def test_a_predecessor_that_still_commits_is_not_overwritten(context: StoreContext, server: RedisServer) -> None:
    class Interrupted(Sum):
        """Has somebody commit between our read of what is stored and our transaction."""

        def encode(self, acc: int) -> bytes:
            if meanwhile:
                meanwhile.pop()()
            return super().encode(acc)

        def __repr__(self) -> str:
            return "Sum()"  # the same rows

    meanwhile: list[Callable[[], None]] = []
    store = RedisStore(server.url)
    with (
        contextlib.closing(store.writer(context, "task-0")) as hung,
        contextlib.closing(store.writer(replace(context, monoid=Interrupted()), "task-0")) as restarted,
        contextlib.closing(store.reader(context)) as reader,
    ):
        for writer in (hung, restarted):
            writer.merge("a", 1)
        meanwhile.append(hung.commit)
        restarted.commit()
        assert reader.get("a") == 2
