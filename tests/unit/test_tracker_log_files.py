"""Reading log files by pieces, while they grow, rotate, and are replaced by links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from heron_tracker._log_files import READ_BYTES_MAX, download, open_log, read
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import HeronError, NotFoundError


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    logs = tmp_path / "container_1" / "log-files"
    logs.mkdir(parents=True)
    (logs.parent / "secret").write_text("swordfish")
    return logs


def test_a_download_is_the_file_as_it_was_at_the_beginning(logs: Path) -> None:
    log = logs / "a.log"
    log.write_bytes(b"x" * 600_000)
    parts = download(os.fdopen(open_log(logs, "a.log"), "rb", buffering=0))
    got = next(parts)
    with log.open("ab") as more:
        more.write(b"y" * 1000)
    log.rename(logs / "a.log.1")
    log.write_bytes(b"z" * 10)
    assert got + b"".join(parts) == b"x" * 600_000


def test_a_download_of_a_file_that_shrinks_ends(logs: Path) -> None:
    (logs / "a.log").write_bytes(b"x" * 600_000)
    parts = download(os.fdopen(open_log(logs, "a.log"), "rb", buffering=0))
    next(parts)
    os.truncate(logs / "a.log", 10)
    assert list(parts) == []


def test_one_answer_is_bounded_and_the_next_goes_on(logs: Path) -> None:
    (logs / "a.log").write_bytes("é".encode() * READ_BYTES_MAX)
    first = read(logs, "a.log", 1, -1)
    assert first.length <= READ_BYTES_MAX
    assert READ_BYTES_MAX - first.length < 4
    whole = read(logs, "log-files/a.log", 0, -1)
    assert whole.data == "é" * (READ_BYTES_MAX // 2)


@given(st.binary(max_size=40), st.integers(1, 7))
def test_pieces_make_the_whole_whatever_the_bytes_are(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, step: int
) -> None:
    logs = tmp_path_factory.mktemp("logs")
    (logs / "a.log").write_bytes(data)
    offset = 0
    while offset < len(data):
        piece = read(logs, "a.log", offset, step)
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
    logs = tmp_path_factory.mktemp("t") / "container_1" / "log-files"
    logs.mkdir(parents=True)
    (logs.parent / "secret").write_text("swordfish")
    (logs / "a.log").write_text("fine")
    (logs / "link").symlink_to(logs.parent / "secret")
    (logs / "out").symlink_to(logs.parent)
    try:
        found = read(logs, "/".join(parts), 0, -1).data
    except HeronError:
        found = "fine"
    assert found == "fine"


def test_a_link_within_the_folder_is_followed(logs: Path) -> None:
    (logs / "a.log.1").write_text("old")
    (logs / "latest").symlink_to("a.log.1")
    assert read(logs, "latest", 0, -1).data == "old"


def test_a_pipe_or_a_folder_is_no_log_file(logs: Path) -> None:
    os.mkfifo(logs / "pipe")
    for path in ("pipe", ".", "log-files"):
        with pytest.raises(NotFoundError):
            read(logs, path, 0, -1)
