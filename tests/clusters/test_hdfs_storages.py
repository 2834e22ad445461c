"""Checkpoints and packages in HDFS: the kits, and a topology whose NameNode is killed."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.checkpoints import CheckpointStorage, open_storage
from heronpy.testing.checkpoints_kit import CheckpointStorageKit
from heronpy.testing.hdfs import HdfsCluster, hdfs_missing
from heronpy.testing.uploader_kit import UploaderKit
from heronpy.uploader import PackageRef, Uploader, open_uploader

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from storage_under_fire import check_counts_are_exact
from test_uploader_stores import overwrite

pytestmark = pytest.mark.skipif(hdfs_missing() is not None, reason=hdfs_missing() or "")

_NUMBERS = itertools.count()


class TestHdfsStorage(CheckpointStorageKit):
    @pytest.fixture
    def reopened(self, hdfs: HdfsCluster) -> Callable[[], CheckpointStorage]:
        url = hdfs.url(f"checkpoints/{next(_NUMBERS)}")
        return lambda: open_storage(url)

    @pytest.fixture
    def storage(self, reopened: Callable[[], CheckpointStorage]) -> Iterator[CheckpointStorage]:
        with reopened() as storage:
            yield storage


class TestHdfsUploader(UploaderKit):
    @pytest.fixture
    def uploader(self, hdfs: HdfsCluster) -> Iterator[Uploader]:
        with open_uploader(hdfs.url(f"packages/{next(_NUMBERS)}")) as uploader:
            yield uploader

    @pytest.fixture
    def damage(self) -> Callable[[PackageRef, bytes], None]:
        return overwrite


def test_signals_are_still_those_of_the_process(hdfs: HdfsCluster) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with open_storage(hdfs.url("signals")) as storage:
            assert storage.names() == []
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def test_counts_are_exact_though_the_namenode_is_killed(hdfs: HdfsCluster, tmp_path: Path) -> None:
    check_counts_are_exact(tmp_path, hdfs.url("counts"), leave=hdfs.kill_namenode, come_back=hdfs.start_namenode)
