"""Checkpoints in file systems of PyArrow: the kit with a local one, and with HDFS's way to move a directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.checkpoints import ArrowStorage, CheckpointStorage, newest_intact, open_storage, storage_below
from heronpy.errors import ConfigError, ReadFailedError, StateError, UnavailableError
from heronpy.testing.checkpoints_kit import CheckpointStorageKit

fs = pytest.importorskip("pyarrow.fs")


class OfHdfs:
    """A local file system that moves and deletes as PyArrow's of HDFS does.

    It moves into a directory that is there, and over a file; what cannot be deleted is an I/O error, for any cause.
    """

    type_name = "hdfs"

    def __init__(self) -> None:
        self._local = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def move(self, src: str, dest: str) -> None:
        into = self._local.get_file_info(dest).type == fs.FileType.Directory
        self._local.move(src, f"{dest}/{src.rpartition('/')[2]}" if into else dest)

    def delete_file(self, path: str) -> None:
        if self._local.get_file_info(path).type == fs.FileType.NotFound:
            raise OSError(errno.EIO, "HDFS delete failed")
        self._local.delete_file(path)

    def delete_dir(self, path: str) -> None:
        if self._local.get_file_info(path).type == fs.FileType.NotFound:
            raise OSError(errno.EIO, "HDFS delete failed")
        self._local.delete_dir(path)


@pytest.mark.parametrize("filesystem", [fs.LocalFileSystem, OfHdfs])
class TestArrowStorage(CheckpointStorageKit):
    @pytest.fixture
    def reopened(self, filesystem: Callable[[], Any], tmp_path: Path) -> Callable[[], CheckpointStorage]:
        return lambda: ArrowStorage(filesystem(), f"{tmp_path}/saved")

    @pytest.fixture
    def storage(self, reopened: Callable[[], CheckpointStorage]) -> CheckpointStorage:
        return reopened()

    def test_nothing_is_left_beside_what_is_stored(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        storage.put("objects/a/1.base", [b"1"])
        for data in (b"1", b"2", b"1"):
            storage.create("manifests/1.json", data)
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
        assert left == ["saved/manifests/1.json/content", "saved/objects/a/1.base"]

    def test_what_was_created_and_deleted_can_be_created_again(self, storage: CheckpointStorage) -> None:
        assert storage.create("manifests/1.json", b"first")
        storage.delete(["manifests/1.json"])
        assert storage.names() == []
        assert storage.create("manifests/1.json", b"second")
        assert (storage.size("manifests/1.json"), storage.read("manifests/1.json", 3)) == (6, b"ond")


def test_what_another_process_deletes_meanwhile_is_gone(tmp_path: Path) -> None:
    class Late(OfHdfs):
        def delete_file(self, path: str) -> None:
            Path(path).unlink()
            super().delete_file(path)

    storage = ArrowStorage(Late(), str(tmp_path))
    storage.put("objects/a", [b"1"])
    storage.delete(["objects/a", "objects/none"])
    assert storage.names() == []


class Refusing(OfHdfs):
    """Fails as it is told."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def create_dir(self, *_: object, **__: object) -> None:
        raise self._error

    move = open_output_stream = create_dir


def test_a_full_or_forbidden_file_system_is_an_error_of_its_own_and_any_other_says_nothing(tmp_path: Path) -> None:
    for error, kind in (
        (OSError(errno.ENOSPC, "No space left on device"), StateError),
        (PermissionError(errno.EACCES, "Permission denied"), StateError),
        (OSError(255, "Unknown error 255"), UnavailableError),
    ):
        storage = ArrowStorage(Refusing(error), str(tmp_path))
        with pytest.raises(kind, match=error.strerror) as raised:
            storage.put("objects/a", [b"1"])
        assert type(raised.value) is kind
        with pytest.raises(kind):
            storage.create("manifests/1.json", b"1")


class Away(OfHdfs):
    """HDFS without its name node: most calls fail, and a path that is asked for is said not to be there."""

    def get_file_info(self, path: Any) -> Any:
        if isinstance(path, fs.FileSelector):
            raise OSError(255, "Unknown error 255")
        return fs.FileInfo(path, fs.FileType.NotFound)

    def _fail(self, *_: object, **__: object) -> None:
        raise OSError(255, "Unknown error 255")

    move = create_dir = open_output_stream = open_input_file = delete_file = delete_dir = _fail


def test_a_storage_that_is_away_is_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    there = ArrowStorage(OfHdfs(), str(tmp_path))
    assert there.create("manifests/1.json", b"1")
    storage = ArrowStorage(Away(), str(tmp_path))
    calls: list[Callable[[], object]] = [
        storage.names,
        storage.is_there,
        storage.clear,
        lambda: storage.names("manifests/"),
        lambda: storage.size("manifests/1.json"),
        lambda: storage.read("manifests/1.json"),
        lambda: storage.delete(["manifests/1.json"]),
        lambda: storage.put("manifests/1.json", [b"2"]),
        lambda: storage.create("manifests/1.json", b"2"),
        lambda: newest_intact(storage),
    ]
    for call in calls:
        with pytest.raises(UnavailableError, match="Unknown error 255"):
            call()
    assert there.read("manifests/1.json") == b"1"


def test_names_are_listed_again_if_a_directory_goes_meanwhile(tmp_path: Path) -> None:
    class Changing(OfHdfs):
        left = 3

        def get_file_info(self, path: Any) -> Any:
            if isinstance(path, fs.FileSelector) and path.recursive and self.left:
                self.left -= 1
                raise FileNotFoundError(errno.ENOENT, "HDFS list directory failed")
            return self._local.get_file_info(path)

    changing = Changing()
    storage = ArrowStorage(changing, str(tmp_path))
    storage.put("objects/a", [b"1"])
    assert storage.names() == ["objects/a"]
    changing.left = 1000
    with pytest.raises(UnavailableError, match="changes faster than it can be listed"):
        storage.names()
    assert storage.names("none/") == []


def test_a_move_whose_answer_was_lost_has_created_it(tmp_path: Path) -> None:
    class Lost(OfHdfs):
        def move(self, src: str, dest: str) -> None:
            super().move(src, dest)
            raise OSError(255, "Unknown error 255")

    storage = ArrowStorage(Lost(), str(tmp_path))
    assert storage.create("manifests/1.json", b"mine")
    assert not storage.create("manifests/1.json", b"theirs")
    assert storage.read("manifests/1.json") == b"mine"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), StateError),
        (FileNotFoundError(errno.ENOENT, "No such directory"), UnavailableError),
        (OSError(255, "Unknown error 255"), UnavailableError),
    ],
)
def test_a_move_that_fails_is_why_nothing_is_created(tmp_path: Path, error: OSError, kind: type[Exception]) -> None:
    class Fixed(OfHdfs):
        def move(self, src: str, dest: str) -> None:
            raise error

    storage = ArrowStorage(Fixed(), str(tmp_path))
    with pytest.raises(kind, match=error.strerror) as raised:
        storage.create("manifests/1.json", b"1")
    assert type(raised.value) is kind
    assert storage.names() == []


def test_urls_of_hdfs_have_a_path_and_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert storage_below("hdfs://h:1/a?user=x", "words", "words-1") == "hdfs://h:1/a/words/words-1?user=x"
    with pytest.raises(ConfigError, match="hdfs://host:port/path"):
        open_storage("hdfs://h:1")
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("LIBHDFS_OPTS", "-Xmx64m")
    with pytest.raises(ConfigError, match="needs Hadoop's client: libhdfs"):
        open_storage("hdfs://127.0.0.1:1/checkpoints")
    assert os.environ["LIBHDFS_OPTS"] == "-Xmx64m -Xrs", "signals are this process's, not the JVM's"


def test_a_manifest_that_another_had_and_has_deleted_is_not_created(tmp_path: Path) -> None:
    class Late(OfHdfs):
        """Another deletes what is in the way, once that was seen."""

        def open_input_file(self, path: str) -> Any:
            ArrowStorage(OfHdfs(), str(tmp_path)).delete(["manifests/1.json"])
            return self._local.open_input_file(path)

    ArrowStorage(OfHdfs(), str(tmp_path)).create("manifests/1.json", b"theirs")
    assert not ArrowStorage(Late(), str(tmp_path)).create("manifests/1.json", b"mine")


def test_a_copy_of_an_object_that_is_replaced_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.checkpoints._storage._COPIED_BYTES", 4)
    storage, other = (ArrowStorage(fs.LocalFileSystem(), str(tmp_path)) for _ in range(2))
    storage.put("objects/a", [b"01234567"])
    read_of = storage.read_of

    def late(*args: Any) -> bytes:
        data = read_of(*args)
        other.put("objects/a", [b"abcdefghi"])
        return data

    monkeypatch.setattr(storage, "read_of", late)
    with pytest.raises(ReadFailedError, match="objects/a was replaced while"):
        storage.copy("objects/a", "objects/b")
    assert storage.names() == ["objects/a"]
