"""Checkpoints in S3: the kit against a real server, and what only a server can get wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from heronpy.checkpoints import CheckpointStorage, open_storage
from heronpy.errors import StateError, UnavailableError
from heronpy.testing.checkpoints_kit import CheckpointStorageKit
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class TestS3Storage(CheckpointStorageKit):
    @pytest.fixture
    def reopened(self, server: S3Server) -> Callable[[], CheckpointStorage]:
        url = server.url("kit").replace("s3://kit", f"s3://kit/topologies/t{next(_NUMBERS)}")
        return lambda: open_storage(url)

    @pytest.fixture
    def storage(self, reopened: Callable[[], CheckpointStorage]) -> Iterator[CheckpointStorage]:
        with reopened() as storage:
            yield storage


def test_a_bucket_that_is_not_there_or_forbidden_is_said(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.url("forbidden")
    with open_storage(url.replace("forbidden", "nowhere")) as storage, pytest.raises(StateError, match="nowhere"):
        storage.put("objects/a", [b"1"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    with open_storage(url) as storage, pytest.raises(StateError) as error:
        storage.put("objects/a", [b"1"])
    assert "swordfish" not in str(error.value)


def test_a_server_that_is_away_is_unavailable(server: S3Server) -> None:
    with open_storage("s3://kit?endpoint=http://127.0.0.1:1&region=us-east-1") as storage:
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            storage.names()
        with pytest.raises(UnavailableError):
            storage.create("manifests/1.json", b"1")


def test_uploads_that_were_begun_long_ago_are_removed_and_no_others(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3 = pytest.importorskip("boto3")
    url = server.url("torn").replace("s3://torn", "s3://torn/mine")
    client = boto3.session.Session().client(
        "s3", endpoint_url=f"http://{server.bind}:{server.port}", region_name="us-east-1"
    )

    def going_on() -> list[str]:
        return sorted(one["Key"] for one in client.list_multipart_uploads(Bucket="torn").get("Uploads", ()))

    for key in ("mine/objects/a", "others/b"):
        client.create_multipart_upload(Bucket="torn", Key=key)
    with open_storage(url) as storage:
        storage.remove_torn()
        assert going_on() == ["mine/objects/a", "others/b"]
        monkeypatch.setattr("heronpy.checkpoints._s3._TORN_S", -60.0)
        storage.remove_torn()
        assert going_on() == ["others/b"]
