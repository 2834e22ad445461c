"""Logs that a heron-shell reads, followed through rotation; which lines are shown."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.cli.parts import LineFilter, ShellFollower, line_time, since_of
from heronpy.errors import UsageError
from heronpy.shell import Container, LocalShell


def shell_of(directory: Path) -> tuple[LocalShell, Path]:
    logs = directory / "container_1" / "log-files"
    logs.mkdir(parents=True)
    return LocalShell(Container("words", "words-1", 1, directory)), logs


async def test_the_last_lines_reach_into_rotated_files(tmp_path: Path) -> None:
    shell, logs = shell_of(tmp_path)
    (logs / "x.log.2").write_bytes(b"1\n2\n")
    (logs / "x.log.1").write_bytes(b"3\n4\n")
    (logs / "x.log").write_bytes(b"5\nrest")
    for count, expected in ((0, b""), (1, b"5\n"), (2, b"4\n5\n"), (4, b"2\n3\n4\n5\n"), (99, b"1\n2\n3\n4\n5\n")):
        follower = ShellFollower(shell, "x.log")
        assert (await follower.last(count), follower.rest()) == (expected, b"rest")
        with (logs / "x.log").open("ab") as f:
            f.write(b"\nnext\n")
        assert await follower.read() == b"rest\nnext\n"
        (logs / "x.log").write_bytes(b"5\nrest")


async def test_a_large_file_is_read_from_its_end(tmp_path: Path) -> None:
    shell, logs = shell_of(tmp_path)
    (logs / "x.log").write_bytes(b"".join(b"%06d\n" % n for n in range(500_000)))
    follower = ShellFollower(shell, "x.log")
    assert await follower.last(2) == b"499998\n499999\n"
    assert await follower.read() == b""
    with (logs / "x.log").open("r+b") as f:
        f.truncate(0)
        f.write(b"new\n")
    assert await follower.read() == b"new\n"


async def test_what_is_not_there_yet_is_shown_from_its_beginning(tmp_path: Path) -> None:
    shell, logs = shell_of(tmp_path)
    follower = ShellFollower(shell, "x.log")
    assert await follower.last(10) == b""
    assert await follower.read() == b""
    (logs / "x.log.1").write_bytes(b"one\n")
    (logs / "x.log").write_bytes(b"two\n")
    assert await follower.read() == b"one\ntwo\n"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=15))
def test_every_line_is_shown_once_however_often_the_file_rotates(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    shell, logs = shell_of(tmp_path_factory.mktemp("t"))
    handler = RotatingFileHandler(logs / "x.log", maxBytes=40, backupCount=50)
    logger = logging.Logger("rotated")
    logger.addHandler(handler)

    async def follow() -> bytes:
        follower = ShellFollower(shell, "x.log")
        await follower.last(0)
        seen, written = b"", 0
        for step in steps:
            for _ in range(step):
                logger.info("line %d", written)
                written += 1
            seen += await follower.read()
        seen += await follower.read()
        assert seen == b"".join(b"line %d\n" % n for n in range(written))
        return seen

    asyncio.run(follow())
    handler.close()


def test_a_line_says_when_it_was_logged() -> None:
    now = datetime(2026, 1, 31, 12, 0, 0, 500_000)
    assert line_time(b"2026-01-31 12:00:00,500 INFO 7 heronpy: words") == now.timestamp()
    utc = now.replace(tzinfo=UTC).timestamp()
    assert line_time(b'{"ts": "2026-01-31T12:00:00.500+00:00", "level": "INFO"}') == utc
    for line in (b"", b"Traceback", b"2026-99-31 12:00:00,500 INFO", b"\xff\xfe", b"  2026-01-31 12:00:00"):
        assert line_time(line) is None


def test_lines_since_a_time_are_shown_with_what_belongs_to_them() -> None:
    data = (
        b"before the first time\n2026-01-31 11:59:59,999 ERROR x: old\nTraceback of the old\n"
        b"2026-01-31 12:00:00,000 ERROR x: new\nTraceback of the new\n"
    )
    since_s = datetime(2026, 1, 31, 12).timestamp()
    assert LineFilter(since_s=since_s)(data) == data[data.index(b"2026-01-31 12") :]
    assert LineFilter(b"Traceback", since_s)(data) == b"Traceback of the new\n"
    assert LineFilter(b"Traceback")(data) == b"Traceback of the old\nTraceback of the new\n"
    assert LineFilter()(data) == data
    assert LineFilter(since_s=since_s, recent=True)(b"printed\n") == b"printed\n"


def test_since_takes_a_duration_or_a_time() -> None:
    assert since_of("10m", 1000.0) == 400.0
    assert since_of("2026-01-31T12:00+00:00", 0.0) == datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    with pytest.raises(UsageError, match="--since 'yesterday' must be a time like 10m"):
        since_of("yesterday", 0.0)
