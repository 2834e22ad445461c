"""Searching log files: what is found, in which order, and how a search that is too long goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import UsageError
from heronpy.proto import shell_pb2
from heronpy.shell import process_of
from heronpy.shell.parts import search


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def logs(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def all_matches(logs: int, matches_max: int = 0, **fields: object) -> list[tuple[str, bytes]]:
    """What is found in as many calls as it takes."""
    found: list[tuple[str, bytes]] = []
    request = shell_pb2.SearchRequest(matches_max=matches_max, **fields)  # type: ignore[arg-type]
    for _ in range(1000):
        reply = search(logs, 1, request)
        found += [(match.path, match.line) for match in reply.matches]
        if reply.complete:
            return found
        request.after_path, request.after_offset = reply.next_path, reply.next_offset
        request.after_inode = reply.next_inode
    raise AssertionError("it never ends")


def test_lines_come_by_process_and_the_oldest_first(folder: Path, logs: int) -> None:
    (folder / "b.log").write_text("hit b\n")
    (folder / "a.log").write_text("hit 3\nmiss\n")
    (folder / "a.log.1").write_text("hit 2\n")
    (folder / "a.log.10").write_text("hit 1\n")
    (folder / "a.out").write_text("hit out\n")
    (folder / "a.memory").write_text("hit that is no log\n")
    assert [line for _, line in all_matches(logs, text="hit")] == [b"hit 1", b"hit 2", b"hit 3", b"hit out", b"hit b"]
    assert [line for _, line in all_matches(logs, text="hit", process="b")] == [b"hit b"]
    assert [line for _, line in all_matches(logs, text="HIT B", ignore_case=True)] == [b"hit b"]
    assert all_matches(logs, text="HIT B") == []


def test_links_are_not_searched(folder: Path, logs: int) -> None:
    (folder / "secret").write_text("hit\n")
    (folder / "a.log").symlink_to("secret")
    os.mkfifo(folder / "b.log")
    assert all_matches(logs, text="hit") == []


def test_files_that_are_older_than_asked_for_are_left_out(folder: Path, logs: int) -> None:
    for name, at_s in (("a.log", 1000), ("b.log", 3000)):
        (folder / name).write_text("hit\n")
        os.utime(folder / name, (at_s, at_s))
    assert [path for path, _ in all_matches(logs, text="hit", since_s=2000)] == ["log-files/b.log"]


@pytest.mark.parametrize("text", ["", "a\nb", "x" * 2000])
def test_what_cannot_be_in_a_line_is_refused(logs: int, text: str) -> None:
    with pytest.raises(UsageError, match="must be one line"):
        search(logs, 1, shell_pb2.SearchRequest(text=text))


@given(
    st.lists(st.text("ab\né", max_size=30), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_a_search_in_steps_finds_what_grep_does(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], matches_max: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    for n, text in enumerate(texts):
        (folder / f"{n}.log").write_text(text)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = all_matches(fd, matches_max, text="ab")
    finally:
        os.close(fd)
    expected = [
        (f"log-files/{n}.log", line.encode())
        for n, text in enumerate(texts)
        for line in text.split("\n")
        if "ab" in line
    ]
    assert found == expected


def test_a_search_goes_on_in_a_file_that_was_rotated_meanwhile(folder: Path, logs: int) -> None:
    (folder / "a.log").write_text("hit 1\nhit 2\n")
    request = shell_pb2.SearchRequest(text="hit", matches_max=1)
    reply = search(logs, 1, request)
    (folder / "a.log").rename(folder / "a.log.1")
    (folder / "a.log").write_text("hit 3\n")
    request.after_path, request.after_offset = reply.next_path, reply.next_offset
    request.after_inode, request.matches_max = reply.next_inode, 10
    assert [match.line for match in search(logs, 1, request).matches] == [b"hit 2", b"hit 3"]


def test_a_text_in_a_line_without_an_end_is_found_once(folder: Path, logs: int) -> None:
    (folder / "a.log").write_bytes(b"x" * (256 * 1024 - 3) + b"needle" + b"x" * 1_000_000)
    assert len(all_matches(logs, text="needle")) == 1


def test_the_executors_file_is_that_of_its_container() -> None:
    assert process_of("executor.log.3", 2) == "executor-2"
    assert process_of("stmgr-2.out", 2) == "stmgr-2"
    assert process_of("stmgr-2.stack", 2) == ""
