"""Reading log files by pieces, while they grow, rotate, and are replaced by links."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from heron_tracker.parts import download, file_data
from hypothesis import given
from hypothesis import strategies as st
from shortages import no_descriptors

from heronpy.errors import HeronError, NotFoundError, UnavailableError
from heronpy.shell import READ_BYTES_MAX, Container, FileThreads, LocalShell
from heronpy.shell.parts import listing, open_log, read
from heronpy.testing import eventually


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def text_of(logs: int, path: str, offset: int, length: int) -> Any:
    return file_data(read(logs, path, offset, length))


@pytest.fixture
def logs(folder: Path) -> Iterator[int]:
    with opened(folder) as fd:
        yield fd


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "container_1" / "log-files"
    folder.mkdir(parents=True)
    (folder.parent / "secret").write_text("swordfish")
    return folder


@pytest.fixture
def shell(folder: Path) -> LocalShell:
    return LocalShell(Container("words", "words-1", 1, folder.parents[1]))


async def test_files_that_hang_hold_up_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (folder / "a.log").write_text("one\n")
    go_on, begun = threading.Event(), []
    request.addfinalizer(go_on.set)

    def pread(fd: int, length: int, offset: int) -> bytes:
        begun.append(fd)
        go_on.wait()
        return b"one\n"

    monkeypatch.setattr(os, "pread", pread)
    shell = LocalShell(Container("words", "words-1", 1, folder.parents[1]), files=FileThreads(8, wait_s=0.1))

    def all_begun() -> None:
        assert len(begun) == 8

    reads = [asyncio.create_task(shell.read("a.log", 0, -1)) for _ in range(8)]
    await eventually(all_begun)
    reads.pop().cancel()  # its thread goes on reading
    async with asyncio.timeout(60):
        assert list((await shell.processes()).processes) == []
        with pytest.raises(UnavailableError, match="try again"):
            await shell.read("a.log", 0, -1)
    go_on.set()
    assert {part.data for part in await asyncio.gather(*reads)} == {b"one\n"}
    assert (await shell.read("a.log", 0, -1)).data == b"one\n"


async def test_a_download_is_the_file_as_it_was_at_the_beginning(folder: Path, shell: LocalShell) -> None:
    log = folder / "a.log"
    log.write_bytes(b"x" * (READ_BYTES_MAX + 600_000))
    pieces = download(shell, "a.log", await shell.read("a.log", 0, -1))
    got = await anext(pieces)
    with log.open("ab") as more:
        more.write(b"y" * 1000)
    log.rename(folder / "a.log.1")
    log.write_bytes(b"z" * 10)
    assert got + b"".join([piece async for piece in pieces]) == b"x" * (READ_BYTES_MAX + 600_000)


async def test_a_download_goes_on_behind_a_rotation_to_a_longer_file(folder: Path, shell: LocalShell) -> None:
    (folder / "a.log").write_bytes(b"x" * (3 * READ_BYTES_MAX))
    pieces = download(shell, "a.log", await shell.read("a.log", 0, -1))
    got = await anext(pieces)
    (folder / "a.log").rename(folder / "a.log.1")
    (folder / "a.log").write_bytes(b"z" * (4 * READ_BYTES_MAX))
    got += await anext(pieces)
    (folder / "a.log.1").rename(folder / "a.log.2")
    assert got + b"".join([piece async for piece in pieces]) == b"x" * (3 * READ_BYTES_MAX)


async def test_a_download_of_a_file_that_is_removed_is_not_whole(folder: Path, shell: LocalShell) -> None:
    (folder / "a.log").write_bytes(b"x" * (2 * READ_BYTES_MAX))
    pieces = download(shell, "a.log", await shell.read("a.log", 0, -1))
    await anext(pieces)
    (folder / "a.log").unlink()
    with pytest.raises(UnavailableError, match="removed while it was read"):
        await anext(pieces)


async def test_a_download_of_a_file_that_shrinks_ends(folder: Path, shell: LocalShell) -> None:
    (folder / "a.log").write_bytes(b"x" * (READ_BYTES_MAX + 600_000))
    pieces = download(shell, "a.log", await shell.read("a.log", 0, -1))
    await anext(pieces)
    os.truncate(folder / "a.log", 10)
    assert [piece async for piece in pieces] == []


def test_one_answer_is_bounded_and_the_next_goes_on(folder: Path, logs: int) -> None:
    (folder / "a.log").write_bytes("é".encode() * READ_BYTES_MAX)
    first = text_of(logs, "a.log", 1, -1)
    assert first.length <= READ_BYTES_MAX
    assert READ_BYTES_MAX - first.length < 4
    whole = text_of(logs, "log-files/a.log", 0, -1)
    assert whole.data == "é" * (READ_BYTES_MAX // 2)


@given(st.binary(max_size=40), st.integers(1, 7))
def test_pieces_make_the_whole_whatever_the_bytes_are(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, step: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    (folder / "a.log").write_bytes(data)
    offset = 0
    with opened(folder) as logs:
        while offset < len(data):
            piece = text_of(logs, "a.log", offset, step)
            assert 0 < piece.length <= step
            offset += piece.length
    assert offset == len(data)


@given(
    st.lists(
        st.sampled_from(["..", ".", "log-files", "container_1", "secret", "link", "out", "a.log", "", "\0", "~", "/"]),
        max_size=6,
    )
)
def test_no_way_leads_out(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("t") / "container_1" / "log-files"
    folder.mkdir(parents=True)
    (folder.parent / "secret").write_text("swordfish")
    (folder / "a.log").write_text("fine")
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "out").symlink_to(folder.parent)
    with opened(folder) as logs:
        try:
            found = text_of(logs, "/".join(parts), 0, -1).data
        except HeronError:
            found = "fine"
    assert found == "fine"


def test_a_link_is_not_followed_wherever_it_leads(folder: Path) -> None:
    (folder / "a.log.1").write_text("old")
    (folder / "latest").symlink_to("a.log.1")
    (folder / "sub").mkdir()
    (folder / "sub" / "a.log").write_text("below")
    (folder / "other").symlink_to("sub")
    with opened(folder) as logs:
        assert text_of(logs, "sub/a.log", 0, -1).data == "below"
        for path in ("latest", "other/a.log"):
            with pytest.raises(NotFoundError):
                text_of(logs, path, 0, -1)
        with pytest.raises(NotFoundError):
            listing(logs, "other")
        assert {found.name for found in listing(logs, ".").files} == {"a.log.1", "latest", "other", "sub"}
        assert listing(logs, "log-files/sub").files[0].path == "log-files/sub/a.log"


def test_a_folder_that_is_exchanged_for_a_link_leads_nowhere(folder: Path) -> None:
    """As fast as it can, a thread exchanges a folder for a link to another one with the same file in it."""
    (folder / "sub").mkdir()
    (folder / "sub" / "a.log").write_text("fine")
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.log").write_text("swordfish")
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            (folder / "sub").rename(folder / "aside")
            (folder / "sub").symlink_to(elsewhere)
            (folder / "sub").unlink()
            (folder / "aside").rename(folder / "sub")

    attacker = threading.Thread(target=exchange)
    attacker.start()
    seen = set()
    try:
        with opened(folder) as logs:
            for _ in range(2000):
                with contextlib.suppress(NotFoundError):
                    seen.add(text_of(logs, "sub/a.log", 0, -1).data)
                with contextlib.suppress(NotFoundError):
                    seen.update(str(found.size) for found in listing(logs, "sub").files)
    finally:
        done.set()
        attacker.join()
    assert seen <= {"fine", "4"}


def test_a_pipe_or_a_folder_is_no_log_file(folder: Path, logs: int) -> None:
    os.mkfifo(folder / "pipe")
    for path in ("pipe", ".", "log-files"):
        with pytest.raises(NotFoundError):
            text_of(logs, path, 0, -1)


def test_files_that_there_is_no_descriptor_for_are_not_missing(folder: Path, logs: int) -> None:
    (folder / "a.log").write_text("one")
    with no_descriptors():
        with pytest.raises(UnavailableError, match="Too many open files"):
            open_log(logs, "a.log")
        with pytest.raises(UnavailableError, match="Too many open files"):
            listing(logs, ".")
    os.close(open_log(logs, "a.log"))
