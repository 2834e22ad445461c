"""Packages in a directory, and packages that must not be unpacked."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from heronpy.checkpoints import DirectoryStorage
from heronpy.errors import (
    AlreadyExistsError,
    ConfigError,
    HeronError,
    NotFoundError,
    StateError,
    UnavailableError,
    UsageError,
)
from heronpy.testing.uploader_kit import UploaderKit
from heronpy.uploader import PackageRef, Uploader, fetch, open_uploader, pack, remove, unpack


class TestDirectoryUploader(UploaderKit):
    @pytest.fixture
    def uploader(self, tmp_path: Path) -> Uploader:
        return open_uploader(f"file://{tmp_path}/pack%20ages")

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Callable[[PackageRef, bytes], None]:
        def overwrite(ref: PackageRef, content: bytes) -> None:
            (tmp_path / "pack ages" / ref.url.rpartition("/")[2]).write_bytes(content)

        return overwrite


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    (directory / "lib").mkdir(parents=True)
    (directory / "main.py").write_text("import lib\n")
    (directory / "lib" / "__init__.py").write_text("")
    return directory


def hostile(path: Path, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            member.size = len(content) if member.type == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_the_same_files_make_the_same_package(source: Path, tmp_path: Path) -> None:
    first = pack(source, tmp_path / "a.tar.gz").read_bytes()
    os.utime(source / "main.py", (1, 1))
    (source / "main.py").chmod(0o640)
    assert pack(source, tmp_path / "b.tar.gz").read_bytes() == first
    (source / "main.py").chmod(0o740)
    assert pack(source, tmp_path / "c.tar.gz").read_bytes() != first


def test_what_is_left_out_is_not_packed(source: Path, tmp_path: Path) -> None:
    archive = pack(source, tmp_path / "a.tar.gz", left_out=lambda path: path.parts[0] == "lib")
    unpack(archive, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["main.py"]


def test_links_are_packed_as_files_and_other_things_not_at_all(source: Path, tmp_path: Path) -> None:
    (source / "linked.py").symlink_to(source / "main.py")
    unpack(pack(source, tmp_path / "a.tar.gz"), tmp_path / "out")
    assert not (tmp_path / "out" / "linked.py").is_symlink()
    assert (tmp_path / "out" / "linked.py").read_text() == "import lib\n"
    os.mkfifo(source / "fifo")
    with pytest.raises(UsageError, match="fifo"):
        pack(source, tmp_path / "b.tar.gz")


@pytest.mark.parametrize(
    "members",
    [
        [member("/etc/passwd")],
        [member("../outside")],
        [member("a/../../outside")],
        [member("a//b")],
        [member("out", tarfile.SYMTYPE, "/etc")],
        [member("out", tarfile.SYMTYPE, "..")],
        [member("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [member("device", tarfile.CHRTYPE)],
        [member("device", tarfile.BLKTYPE)],
        [member("fifo", tarfile.FIFOTYPE)],
        [member("sparse", tarfile.GNUTYPE_SPARSE)],
        [member("twice"), member("twice")],
        [member("file"), member("file/below")],
        [member("x" * 5000)],
    ],
)
def test_a_hostile_package_leaves_nothing(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    archive = hostile(tmp_path / "hostile.tar.gz", *members)
    (tmp_path / "in").mkdir()
    with pytest.raises((UsageError, StateError)) as error:
        unpack(archive, tmp_path / "in" / "out")
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path / "in") == []
    assert sorted(os.listdir(tmp_path)) == ["hostile.tar.gz", "in"]


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    large = hostile(tmp_path / "large.tar.gz", member("zeros"), content=bytes(1 << 20))
    with pytest.raises(UsageError, match="larger than 1000000 bytes"):
        unpack(large, tmp_path / "out", bytes_max=1_000_000)
    many = hostile(tmp_path / "many.tar.gz", *(member(str(n)) for n in range(11)))
    with pytest.raises(UsageError, match="more than 10 files"):
        unpack(many, tmp_path / "out", files_max=10)
    trailing = tmp_path / "trailing.tar.gz"
    with tarfile.open(tmp_path / "plain.tar", "w"):
        pass
    trailing.write_bytes(gzip.compress((tmp_path / "plain.tar").read_bytes() + bytes(4 << 20)))
    with pytest.raises(UsageError):
        unpack(trailing, tmp_path / "out", bytes_max=1_000_000)
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    (tmp_path / "header.tar.gz").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + b"a" * (64 << 20)))
    with pytest.raises(UsageError, match="header is too large"):
        unpack(tmp_path / "header.tar.gz", tmp_path / "out")


def test_what_is_no_package_is_said(tmp_path: Path, source: Path) -> None:
    whole = pack(source, tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "in").mkdir()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:-4], gzip.compress(b"text" * 1000)):
        (tmp_path / "bad.tar.gz").write_bytes(content)
        with pytest.raises(UsageError, match="not a package"):
            unpack(tmp_path / "bad.tar.gz", tmp_path / "in" / "out")
    assert os.listdir(tmp_path / "in") == []


def test_nothing_is_unpacked_over_something(tmp_path: Path, source: Path) -> None:
    archive = pack(source, tmp_path / "a.tar.gz")
    with pytest.raises(AlreadyExistsError):
        unpack(archive, source)


def test_a_reference_knows_its_store(tmp_path: Path, source: Path) -> None:
    with open_uploader(str(tmp_path / "store")) as uploader:
        ref = uploader.store(pack(source, tmp_path / "a.tar.gz"), topology_id="words-1")
    assert PackageRef.from_json(ref.to_json()) == ref
    fetch(ref, tmp_path / "out")
    assert (tmp_path / "out" / "main.py").exists()
    remove(ref, topology_id="words-1")
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
    with pytest.raises(NotFoundError):
        fetch(ref, tmp_path / "again")


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"url": 1, "sha256": "0" * 64, "bytes": 1},
        {"url": "/a", "sha256": "../x", "bytes": 1},
        {"url": "/a", "sha256": "0" * 64, "bytes": -1},
        {"url": "/a", "sha256": "0" * 64, "bytes": True},
        {"url": "/a", "sha256": "0" * 64, "bytes": 1 << 60},
    ],
)
def test_a_damaged_reference_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="package"):
        PackageRef.from_json(values)


def test_unknown_uploaders_are_refused() -> None:
    for url in ("ftp://host/x", "redis://host", "relative", "file://host/x"):
        with pytest.raises(ConfigError):
            open_uploader(url)


def test_a_removal_that_has_begun_is_not_waited_for(tmp_path: Path, source: Path) -> None:
    archive = pack(source, tmp_path / "a.tar.gz")
    uploader = open_uploader(str(tmp_path / "store"))
    ref = uploader.store(archive, topology_id="a-1")
    name = ref.url.rpartition("/")[2]
    (tmp_path / "store" / "removing").mkdir()
    (tmp_path / "store" / "removing" / f"{name}~a-1~0f").touch()  # its process has died
    other = uploader.store(archive, topology_id="b-1")
    assert other.url != ref.url
    uploader.remove(ref, topology_id="a-1")
    uploader.fetch(other, tmp_path / "out")
    assert not (tmp_path / "store" / name).exists()


def test_two_kills_of_a_topology_take_no_package_of_the_next(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(source, tmp_path / "a.tar.gz")
    slow, fast = open_uploader(str(tmp_path / "store")), open_uploader(str(tmp_path / "store"))
    ref = fast.store(archive, topology_id="a-1")
    delete, stored = DirectoryStorage.delete, [ref]

    def delete_late(storage: DirectoryStorage, names: Iterable[str]) -> None:
        names = list(names)
        if names == [ref.url.rpartition("/")[2]] and stored == [ref]:
            stored.clear()
            fast.remove(ref, topology_id="a-1")
            stored.append(fast.store(archive, topology_id="b-1"))
        delete(storage, names)

    monkeypatch.setattr(DirectoryStorage, "delete", delete_late)
    slow.remove(ref, topology_id="a-1")
    fast.fetch(stored[0], tmp_path / "out")
    assert (tmp_path / "out" / "main.py").exists()


@pytest.mark.parametrize("error", [UnavailableError("the store is away"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["put", "names"])
def test_what_is_stored_in_part_leaves_nothing(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str
) -> None:
    work = getattr(DirectoryStorage, step)
    failures = [error]

    def fail(*arguments: object) -> object:
        if failures:
            raise failures.pop()
        return work(*arguments)

    archive = pack(source, tmp_path / "a.tar.gz")
    uploader = open_uploader(str(tmp_path / "store"))
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStorage, step, fail)
        with pytest.raises(type(error)):
            uploader.store(archive, topology_id="a-1")
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


_KILLED_HALF_WAY = """
import os, signal, sys
from pathlib import Path
from heronpy.checkpoints import DirectoryStorage
from heronpy.uploader import StoredUploader

class HalfWay(DirectoryStorage):
    def put(self, name, chunks):
        def half():
            yield b"half"
            os.kill(os.getpid(), signal.SIGKILL)
        super().put(name, half())

StoredUploader(HalfWay(Path(sys.argv[1])), sys.argv[1]).store(Path(sys.argv[2]), topology_id="words-1")
"""


def test_what_a_killed_process_was_storing_is_removed_with_its_topology(tmp_path: Path, source: Path) -> None:
    archive, store = pack(source, tmp_path / "package.tar.gz"), tmp_path / "packages"
    killed = subprocess.run([sys.executable, "-c", _KILLED_HALF_WAY, str(store), str(archive)], check=False)
    assert killed.returncode == -signal.SIGKILL
    others = store / ".notes.tmp"
    others.touch()
    with open_uploader(str(store)) as uploader:
        uploader.remove_all(topology_id="words-1")
    assert [path for path in store.rglob("*") if path.is_file()] == [others]


def test_kills_and_submissions_at_once_lose_no_package(tmp_path: Path, source: Path) -> None:
    archive = pack(source, tmp_path / "a.tar.gz")
    failures: list[HeronError] = []

    def submit_and_kill(number: int) -> None:
        try:
            for turn in range(25):
                with open_uploader(str(tmp_path / "store")) as uploader:
                    ref = uploader.store(archive, topology_id=f"t{number}-{turn}")
                    uploader.fetch(ref, tmp_path / f"out-{number}-{turn}")
                    uploader.remove(ref, topology_id=f"t{number}-{turn}")
        except HeronError as e:
            failures.append(e)

    threads = [threading.Thread(target=submit_and_kill, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
