"""Checkpoints in S3: the kit against a real server, and what only a server can get wrong."""

from __future__ import annotations

import datetime
import itertools
import secrets
from collections.abc import Callable, Iterator

import pytest

from heronpy.checkpoints import CheckpointStorage, open_storage
from heronpy.errors import NotFoundError, ReadFailedError, StateError, UnavailableError
from heronpy.testing.checkpoints_kit import CheckpointStorageKit
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")

_NUMBERS = itertools.count()
MIB = 1024 * 1024


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


@pytest.mark.parametrize(
    "ask", [lambda s: s.stat("objects/a"), lambda s: s.size("objects/a"), lambda s: s.copy("objects/a", "objects/b")]
)
def test_an_object_is_not_taken_for_missing_where_the_bucket_is_or_is_forbidden(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[CheckpointStorage], object]
) -> None:
    url = server.url("vanishing")
    with open_storage(url) as storage, pytest.raises(NotFoundError, match="objects/a"):
        ask(storage)
    with open_storage(url.replace("vanishing", "vanished")) as storage, pytest.raises(StateError, match="NoSuchBucket"):
        ask(storage)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    with open_storage(url) as storage, pytest.raises(StateError, match="set AWS_ACCESS_KEY_ID"):
        ask(storage)


@pytest.mark.parametrize(
    "ask", [lambda s: s.stat("objects/a"), lambda s: s.create("objects/a", b""), lambda s: s.names()]
)
def test_a_clock_that_jumps_meanwhile_is_said(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, ask: Callable[[CheckpointStorage], object]
) -> None:
    from botocore import auth

    now, later = auth.get_current_datetime, datetime.timedelta(hours=1)
    with open_storage(server.url("clocks")) as storage:
        assert storage.names() == []
        monkeypatch.setattr(auth, "get_current_datetime", lambda *args, **of: now(*args, **of) + later)
        with pytest.raises(UnavailableError, match="set the clock of this machine"):
            ask(storage)


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

    others = ["mine/notes/c", "others/objects/b"]
    for key in ("mine/objects/a", "objects/a", *others):
        client.create_multipart_upload(Bucket="torn", Key=key)
    with open_storage(url) as storage, open_storage(server.url("torn")) as whole_bucket:
        storage.remove_torn()
        assert going_on() == ["mine/notes/c", "mine/objects/a", "objects/a", "others/objects/b"]
        monkeypatch.setattr("heronpy.checkpoints._s3._TORN_S", -60.0)
        storage.remove_torn()
        assert going_on() == ["mine/notes/c", "objects/a", "others/objects/b"]
        whole_bucket.remove_torn()
        assert going_on() == others
    client.close()


@pytest.fixture
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied in parts from a gigabyte on is so from 5 MiB on, the least that S3 takes as a part."""
    monkeypatch.setattr("heronpy.checkpoints._s3._COPIED_AT_ONCE_BYTES", MIB * 5)
    monkeypatch.setattr("heronpy.checkpoints._s3._COPIED_PART_BYTES", MIB * 5)


@pytest.mark.parametrize("size", [5 * MIB, 5 * MIB + 1, 11 * MIB])
def test_a_large_object_is_copied_in_parts(server: S3Server, small_copies: None, size: int) -> None:
    data = secrets.token_bytes(size)
    with open_storage(server.url("copies")) as storage:
        storage.put("objects/a", [data])
        storage.copy("objects/a", f"objects/{size}")
        assert storage.read(f"objects/{size}") == data
        with pytest.raises(NotFoundError, match="objects/none"):
            storage.copy("objects/none", "objects/c")


def test_a_large_object_that_is_replaced_while_it_is_copied_is_an_error_and_nothing_is_left(
    server: S3Server, small_copies: None
) -> None:
    with open_storage(server.url("mixed")) as storage, open_storage(server.url("mixed")) as other:
        storage.put("objects/a", [secrets.token_bytes(11 * MIB)])
        copied = itertools.count()

        def replace(**_: object) -> None:
            if next(copied) == 1:
                other.put("objects/a", [secrets.token_bytes(11 * MIB)])

        client = storage._client  # type: ignore[attr-defined]  # of S3
        client.meta.events.register("before-call.s3.UploadPartCopy", replace)
        with pytest.raises(ReadFailedError, match="objects/a was replaced while it was copied"):
            storage.copy("objects/a", "objects/b")
        assert storage.names() == ["objects/a"]
        assert client.list_multipart_uploads(Bucket="mixed").get("Uploads", []) == []


def test_a_manifest_that_another_had_and_has_deleted_is_not_created(server: S3Server) -> None:
    with open_storage(server.url("gone")) as storage, open_storage(server.url("gone")) as other:
        other.create("manifests/1.json", b"theirs")
        events = storage._client.meta.events  # type: ignore[attr-defined]  # of S3
        events.register("before-call.s3.GetObject", lambda **_: other.delete(["manifests/1.json"]))
        assert not storage.create("manifests/1.json", b"mine")
