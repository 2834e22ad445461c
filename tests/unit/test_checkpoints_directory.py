"""Checkpoints in a directory: the kit, and what only a file system can get wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.checkpoints import CheckpointStorage, DirectoryStorage, newest_intact, open_storage
from heronpy.errors import ConfigError, ReadFailedError, StateError
from heronpy.testing.checkpoints_kit import CheckpointStorageKit, small_checkpoint, store


class TestDirectoryStorage(CheckpointStorageKit):
    @pytest.fixture
    def reopened(self, tmp_path: Path) -> Callable[[], CheckpointStorage]:
        return lambda: open_storage(f"file://{tmp_path}/check%20points")

    @pytest.fixture
    def storage(self, reopened: Callable[[], CheckpointStorage]) -> CheckpointStorage:
        return reopened()


def test_a_path_and_a_file_url_are_directories() -> None:
    for url in ("/var/checkpoints", "file:///var/checkpoints", "file://localhost/var/checkpoints"):
        storage = open_storage(url)
        assert isinstance(storage, DirectoryStorage)
        assert storage.directory == Path("/var/checkpoints")


@pytest.mark.parametrize("url", ["checkpoints", "file://host/checkpoints", "ftp://host/x", "s3:///x", "s3://b?key=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_storage(url)
    assert "\n" not in str(error.value)


def test_a_place_where_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for directory, why in (
        (Path("/proc/nowhere"), "cannot be made"),
        (tmp_path / "file/below", "is not a directory"),
        (tmp_path / "dangling", "is not a directory"),
    ):
        storage = DirectoryStorage(directory)
        with pytest.raises(StateError, match=f"{why}: nothing can be stored in {directory}"):
            storage.create("manifests/1.json", b"mine")
        with pytest.raises(StateError, match=f"{why}: nothing can be stored in {directory}"):
            storage.put("objects/count/a", [b"mine"])


def test_checkpoints_are_for_their_owner_alone(tmp_path: Path) -> None:
    store(DirectoryStorage(tmp_path), *small_checkpoint(1, {"a": b"1"}))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()} == {0o600}


def test_a_file_that_cannot_be_read_now_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DirectoryStorage(tmp_path)
    for number in (1, 2):
        store(storage, *small_checkpoint(number, {"a": b"1"}))

    def no_descriptors(*args: object, **kwargs: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", no_descriptors)
        with pytest.raises(ReadFailedError, match="Too many open files"):
            newest_intact(storage)
    assert newest_intact(storage)[0].checkpoint_id == 2


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.put("objects/a", [b"old"])

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StateError, match=r"objects/a: No space left on device"):
            storage.put("objects/a", [b"new"])
        with pytest.raises(StateError, match="No space left"):
            storage.create("manifests/1.json", b"new")
    assert storage.names() == ["objects/a"]
    assert storage.read("objects/a") == b"old"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "objects/a"]


def test_what_a_killed_process_left_half_written_is_removed_when_it_is_old(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.put("objects/count/a", [b"whole"])
    old, new = tmp_path / "objects/count/.b.1-ab.tmp", tmp_path / "objects/count/.c.1-ab.tmp"
    others = tmp_path / "of-others/.d.tmp"
    others.parent.mkdir()
    for path in (old, new, others):
        path.write_bytes(b"torn")
    for path in (old, others, tmp_path / "objects/count/a"):
        os.utime(path, (1, 1))
    storage.remove_torn()
    assert not old.exists()
    assert others.exists(), "it may be anything"
    assert new.exists(), "somebody may be writing it"
    assert storage.read("objects/count/a") == b"whole"


def test_a_manifest_that_another_had_and_has_deleted_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.create("manifests/1.json", b"theirs")
    read_bytes = Path.read_bytes

    def late(path: Path) -> bytes:
        path.unlink(missing_ok=True)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert not storage.create("manifests/1.json", b"mine")
