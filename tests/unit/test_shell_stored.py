"""Log files that outlive their container: stored at its end, listed and read where they are stored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import NotFoundError, UnavailableError, UsageError
from heronpy.shell import READ_BYTES_MAX, Container
from heronpy.shell.stored import StoredLogs, open_log_store, store_logs


@pytest.fixture
def container(tmp_path: Path) -> Container:
    container = Container("words", "words-1@x", 2, tmp_path / "t")
    (container.directory / "log-files").mkdir(parents=True)
    return container


def store(container: Container, uri: Path, incarnation: int, files: dict[str, bytes]) -> list[str]:
    for name, data in files.items():
        (container.directory / "log-files" / name).write_bytes(data)
    with open_log_store(str(uri), container.topology, container.topology_id) as storage:
        return store_logs(container, storage, incarnation)


async def test_what_is_stored_is_read_as_from_a_heron_shell(container: Container, tmp_path: Path) -> None:
    uri = tmp_path / "store"
    (container.directory / "secret").write_text("swordfish")
    (container.directory / "log-files" / "link.log").symlink_to("../secret")
    os.mkfifo(container.directory / "log-files" / "pipe.log")
    files = {"stmgr-2.log": b"one\ntwo\n", "container_2_wörter ☂_1.out.1": b"x" * (READ_BYTES_MAX + 1), "a.memory": b""}
    assert store(container, uri, 7, files) == []
    logs = StoredLogs(str(uri), container)
    listed = {entry.name: entry.size for entry in (await logs.files()).files}
    assert listed == {"stmgr-2.log": 8, "container_2_wörter ☂_1.out.1": READ_BYTES_MAX + 1}
    part = await logs.read("log-files/stmgr-2.log", 4, -1)
    assert (part.data, part.size) == (b"two\n", 8)
    assert (await logs.read("stmgr-2.log", -1, 0)).offset == 8
    assert len((await logs.read("container_2_wörter ☂_1.out.1", 0, -1)).data) == READ_BYTES_MAX
    for path in ("none.log", "../stmgr-2.log", "/etc/passwd", "7/../stmgr-2.log", "", "link.log"):
        with pytest.raises(NotFoundError):
            await logs.read(path, 0, -1)
    with pytest.raises(UsageError, match="beyond the end"):
        await logs.read("stmgr-2.log", 9, -1)
    with pytest.raises(UnavailableError, match="has ended"):
        await logs.look("jstack", "stmgr-2")


async def test_the_last_incarnation_comes_first_and_earlier_ones_are_folders(
    container: Container, tmp_path: Path
) -> None:
    uri = tmp_path / "store"
    store(container, uri, 7, {"a.log": b"old"})
    store(container, uri, 1_000, {"a.log": b"newer"})
    logs = StoredLogs(str(uri), container)
    assert [(entry.name, entry.size) for entry in (await logs.files()).files] == [("a.log", 5), ("7", 0)]
    assert [entry.path for entry in (await logs.files("log-files/7")).files] == ["log-files/7/a.log"]
    assert (await logs.read("log-files/7/a.log", 0, -1)).data == b"old"
    assert (await logs.read("a.log", 0, -1)).data == b"newer"
    with pytest.raises(NotFoundError):
        await logs.files("8")


async def test_where_nothing_was_stored_nothing_is_found(container: Container, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no log files of container 2 of words are stored"):
        await StoredLogs(str(tmp_path / "none"), container).files()


async def test_one_file_that_cannot_be_stored_costs_no_other(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "store"
    real = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("b.log"):
            raise OSError(5, "Input/output error")
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    (failed,) = store(container, uri, 7, {"a.log": b"a", "b.log": b"b", "c.log": b"c"})
    assert failed.startswith("b.log: ")
    found: Any = (await StoredLogs(str(uri), container).files()).files
    assert [entry.name for entry in found] == ["a.log", "c.log"]


def test_what_is_left_out_is_said(container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = container.directory / "log-files"
    for number in range(5001):
        (folder / f"no-log-{number}").touch()
    assert "5000 log files" in store(container, tmp_path / "store", 7, {})[0]
    for path in folder.iterdir():
        path.unlink()
    real = os.open

    def without_descriptors(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a.log" and not flags & os.O_CREAT:
            raise OSError(24, "Too many open files")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", without_descriptors)
    (failed,) = store(container, tmp_path / "store", 8, {"a.log": b"a", "b.log": b"b"})
    assert failed.startswith("a.log: ")
