"""Checkpoints in HDFS: the kit against a real one, where there is one."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator

import pytest

from heronpy.checkpoints import CheckpointStorage, open_storage
from heronpy.testing.checkpoints_kit import CheckpointStorageKit

URL = os.environ.get("HERON_TEST_HDFS_URL", "")
"""hdfs://host:port, with what PyArrow needs: ARROW_LIBHDFS_DIR, JAVA_HOME and CLASSPATH."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not URL, reason="no HDFS: set HERON_TEST_HDFS_URL to hdfs://host:port"),
]


class TestHdfsStorage(CheckpointStorageKit):
    @pytest.fixture
    def reopened(self) -> Callable[[], CheckpointStorage]:
        url = f"{URL}/heron-test-{secrets.token_hex(8)}?replication=1"
        return lambda: open_storage(url)

    @pytest.fixture
    def storage(self, reopened: Callable[[], CheckpointStorage]) -> Iterator[CheckpointStorage]:
        with reopened() as storage:
            yield storage
            storage.clear()


def test_signals_are_still_those_of_the_process() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with open_storage(f"{URL}/heron-test-{secrets.token_hex(8)}") as storage:
            assert storage.names() == []
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]
