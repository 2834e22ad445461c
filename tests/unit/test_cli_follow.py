"""Following log files through rotation."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.cli.parts import Follower


def last(path: Path, count: int) -> tuple[bytes, bytes]:
    follower = Follower(path)
    shown = follower.last(count), follower.rest()
    follower.close()
    return shown


def test_last_lines_of_small_and_large_files(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    assert last(path, 3) == (b"", b"")
    path.write_bytes(b"a\nb\n")
    assert last(path, 0) == (b"", b"")
    assert last(path, 1) == (b"b\n", b"")
    assert last(path, 5) == (b"a\nb\n", b"")
    path.write_bytes(b"".join(b"%06d\n" % n for n in range(50_000)) + b"rest")
    assert last(path, 2) == (b"049998\n049999\n", b"rest")
    path.write_bytes(b"x" * 200_000)
    assert last(path, 1) == (b"", b"x" * 200_000)


def test_what_is_added_after_the_last_lines_were_shown_is_read_next(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"one\ntwo\nthr")
    follower = Follower(path)
    assert follower.last(1) == b"two\n"
    with path.open("ab") as f:
        f.write(b"ee\nfour\n")
    assert follower.read() == b"three\nfour\n"
    follower.close()


def test_only_whole_lines_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"old\n")
    follower = Follower(path)
    follower.last(0)
    with path.open("ab") as f:
        f.write(b"ha")
        f.flush()
        assert follower.read() == b""
        f.write(b"lf\n")
        f.flush()
        assert follower.read() == b"half\n"
    follower.close()


def test_a_file_that_appears_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "x.log")
    assert follower.read() == b""
    (tmp_path / "x.log").write_bytes(b"first\n")
    assert follower.read() == b"first\n"
    follower.close()


def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"a long first line\n")
    follower = Follower(path)
    follower.last(0)
    with path.open("r+b") as f:
        f.truncate(0)
        f.write(b"new\n")
    assert follower.read() == b"new\n"
    follower.close()


@settings(max_examples=50, deadline=None)
@given(looks=st.lists(st.integers(0, 12), min_size=1, max_size=20))
def test_no_line_is_lost_or_doubled_by_rotation(tmp_path_factory: object, looks: list[int]) -> None:
    """Several rotations may happen between two looks, as long as the oldest unread file still exists."""
    path = tmp_path_factory.mktemp("log") / "x.log"  # type: ignore[attr-defined]  # pytest's factory
    handler = RotatingFileHandler(path, maxBytes=40, backupCount=20)
    follower = Follower(path)
    seen, number = b"", 0
    for count in looks:
        for _ in range(count):
            handler.emit(logging.LogRecord("n", logging.INFO, "", 0, f"line {number:04d}", None, None))
            number += 1
        seen += follower.read()
    handler.close()
    follower.close()
    assert seen.splitlines() == [b"line %04d" % n for n in range(number)]
