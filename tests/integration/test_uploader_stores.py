"""Packages in S3: the kit against a real server, where there is one. In HDFS: tests/clusters/test_hdfs_storages.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.checkpoints import open_storage
from heronpy.errors import UnavailableError
from heronpy.testing.servers import S3Server, s3_missing
from heronpy.testing.uploader_kit import UploaderKit
from heronpy.uploader import PackageRef, Uploader, fetch, open_uploader

_NUMBERS = itertools.count()


def overwrite(ref: PackageRef, content: bytes) -> None:
    """Replace a stored package by something else."""
    base, mark, query = ref.url.partition("?")
    folder, _, name = base.rpartition("/")
    with open_storage(folder + mark + query) as storage:
        storage.put(name, [content])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")
class TestS3Uploader(UploaderKit):
    @pytest.fixture(autouse=True)
    def credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    @pytest.fixture
    def uploader(self, server: S3Server) -> Iterator[Uploader]:
        url = server.url("packages").replace("s3://packages", f"s3://packages/heron/{next(_NUMBERS)}")
        with open_uploader(url) as uploader:
            yield uploader

    @pytest.fixture
    def damage(self) -> Callable[[PackageRef, bytes], None]:
        return overwrite

    def test_a_store_that_is_away_is_said(self, tmp_path: Path) -> None:
        ref = PackageRef("s3://b/" + "0" * 64 + ".0.tar.gz?endpoint=http://127.0.0.1:1&region=x", "0" * 64, 1)
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            fetch(ref, tmp_path / "out")
