"""Each topology has a place of its own in a storage."""

from __future__ import annotations

import pytest

from heronpy.checkpoints import DirectoryStorage, open_storage, storage_below
from heronpy.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/data/checkpoints", "/data/checkpoints/words/words-1"),
        ("/data/100%/a?b#c/", "/data/100%/a?b#c/words/words-1"),
        ("file:///data", "file:///data/words/words-1"),
        ("s3://bucket", "s3://bucket/words/words-1"),
        ("s3://bucket/a/?endpoint=http://h:1", "s3://bucket/a/words/words-1?endpoint=http://h:1"),
        ("redis://:pw@h:1/2", "redis://:pw@h:1/2?prefix=heron-checkpoints%2Fwords%2Fwords-1"),
        ("unix:///run/redis.sock?prefix=p&db=1", "unix:///run/redis.sock?prefix=p%2Fwords%2Fwords-1&db=1"),
    ],
)
def test_the_place_of_a_topology_is_below_the_url(url: str, expected: str) -> None:
    assert storage_below(url, "words", "words-1") == expected


def test_a_directory_below_is_the_directory_that_is_opened() -> None:
    opened = open_storage(storage_below("/data/100%/a", "words", "words-1"))
    assert isinstance(opened, DirectoryStorage)
    assert str(opened.directory) == "/data/100%/a/words/words-1"


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="not one"):
        storage_below("http://[", "words")


def test_redis_is_reached_by_a_unix_socket() -> None:
    pytest.importorskip("redis", reason="redis is not installed")
    assert repr(open_storage("unix:///run/redis.sock?prefix=p")) == "RedisStorage('/run/redis.sock', '{p}')"
