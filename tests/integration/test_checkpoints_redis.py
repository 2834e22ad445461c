"""Checkpoints in Redis: the kit against a real server, and what only a server can get wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.checkpoints import CheckpointStorage, open_storage
from heronpy.errors import ConfigError, UnavailableError
from heronpy.testing.checkpoints_kit import CheckpointStorageKit
from heronpy.testing.servers import RedisServer, redis_missing

pytestmark = pytest.mark.skipif(redis_missing() is not None, reason=redis_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), password="sesame") as server:
        yield server


class TestRedisStorage(CheckpointStorageKit):
    @pytest.fixture
    def reopened(self, server: RedisServer) -> Callable[[], CheckpointStorage]:
        prefix = uuid.uuid4().hex
        return lambda: open_storage(f"{server.url}?prefix={prefix}")

    @pytest.fixture
    def storage(self, reopened: Callable[[], CheckpointStorage]) -> Iterator[CheckpointStorage]:
        with reopened() as storage:
            yield storage


def test_programs_with_other_prefixes_do_not_meet(server: RedisServer) -> None:
    with open_storage(f"{server.url}?prefix=one") as one, open_storage(f"{server.url}?prefix=two") as two:
        one.put("objects/a", [b"1"])
        assert two.names() == []
        assert one.names() == ["objects/a"]


def test_a_server_that_is_away_is_unavailable_and_its_data_survives(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, open_storage(server.url) as storage:
        storage.put("objects/a", [b"1"])
        server.kill()
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{server.port}"):
            storage.names()
        server.start()
        assert storage.read("objects/a") == b"1"


def test_a_password_is_in_no_message(server: RedisServer) -> None:
    with open_storage(server.url.replace("sesame", "swordfish")) as storage:
        assert "swordfish" not in repr(storage)
        with pytest.raises(UnavailableError, match="refuses the user or the password") as error:
            storage.names()
    assert "swordfish" not in str(error.value)
    with pytest.raises(ConfigError) as refused:
        open_storage("redis://:sesame@host:port/0")
    assert "sesame" not in str(refused.value)
