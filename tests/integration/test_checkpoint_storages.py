"""A topology whose checkpoints are in a Redis that is killed. In HDFS: tests/clusters/test_hdfs_storages.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_under_fire import check_counts_are_exact

from heronpy.testing.servers import RedisServer, redis_missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(redis_missing() is not None, reason=redis_missing() or ""),
]


def test_counts_are_exact_though_redis_is_killed(tmp_path: Path) -> None:
    (counts := tmp_path / "counts").mkdir()
    with RedisServer(tmp_path / "redis", password="sesame") as server:
        check_counts_are_exact(counts, f"{server.url}?prefix=counts", leave=server.kill, come_back=server.start)
