"""What an executor writes about its processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from shortages import no_descriptors

from heronpy.errors import ReadFailedError
from heronpy.host import HostProcess, PidFiles, read_pids, tail


@pytest.fixture
def me() -> HostProcess:
    found = HostProcess.of(os.getpid())
    assert found is not None
    return found


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_process_that_is_started_again_counts_its_restarts(tmp_path: Path, me: HostProcess) -> None:
    for _ in range(3):
        PidFiles(tmp_path).started("stmgr-1", me)
    record = read_pids(tmp_path)["stmgr-1"]
    assert (record.pid, record.restarts) == (os.getpid(), 2)


def test_a_record_that_cannot_be_written_costs_no_process_and_does_not_speak_of_another(
    tmp_path: Path, me: HostProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    PidFiles(tmp_path).started("stmgr-1", me)
    monkeypatch.setattr(os, "replace", full)
    record = PidFiles(tmp_path).started("stmgr-1", me)
    assert record is not None
    assert record.pid == os.getpid()
    assert read_pids(tmp_path) == {}
    assert "stmgr-1.pid cannot be written" in caplog.text


def test_what_could_not_be_recorded_is_when_the_disk_has_room_again(
    tmp_path: Path, me: HostProcess, caplog: pytest.LogCaptureFixture
) -> None:
    pids = PidFiles(tmp_path)
    pids.started("stmgr-1", me)
    pids.started("container_1_word_1", me)
    pids.started("container_1_word_2", me)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", full)
        for _ in range(2):
            pids.started("stmgr-1", me, last_end="killed by SIGKILL")
            pids.retry()
        pids.retire("container_1_word_1")
        pids.started("container_1_word_2", me)
        pids.forget("container_1_word_2")
    assert caplog.text.count("stmgr-1.pid cannot be written") == 1
    pids.retry()
    record = read_pids(tmp_path)["stmgr-1"]
    assert (record.pid, record.restarts, record.last_end) == (os.getpid(), 2, "killed by SIGKILL")
    assert read_pids(tmp_path).keys() == {"stmgr-1"}
    pids.started("container_1_word_1", me)
    assert read_pids(tmp_path)["container_1_word_1"].restarts == 0
    assert not (tmp_path / "pids" / "container_1_word_2.pid").exists()


def test_what_was_recorded_late_is_not_written_again(tmp_path: Path, me: HostProcess) -> None:
    pids = PidFiles(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", full)
        pids.started("stmgr-1", me)
    pids.retry()
    written = (tmp_path / "pids" / "stmgr-1.pid").stat().st_ino
    pids.retry()
    assert (tmp_path / "pids" / "stmgr-1.pid").stat().st_ino == written


def test_restarts_are_counted_on_over_an_end_on_purpose_which_is_none(tmp_path: Path, me: HostProcess) -> None:
    PidFiles(tmp_path).started("stmgr-1", me)
    PidFiles(tmp_path).started("stmgr-1", me, last_end="killed by SIGKILL")
    PidFiles(tmp_path).retire("stmgr-1")
    assert read_pids(tmp_path) == {}
    PidFiles(tmp_path).started("stmgr-1", me)
    record = read_pids(tmp_path)["stmgr-1"]
    assert (record.restarts, record.last_end) == (1, "killed by SIGKILL")


def test_restarts_of_the_last_minutes_are_known(tmp_path: Path, me: HostProcess) -> None:
    for _ in range(4):
        PidFiles(tmp_path).started("stmgr-1", me)
    record = read_pids(tmp_path)["stmgr-1"]
    now_s = time.time()
    assert record.restarts_within(600, now_s) == 3
    assert record.restarts_within(600, now_s + 601) == 0
    assert record.restarts == 3


def test_only_so_many_restarts_are_remembered_one_by_one(tmp_path: Path, me: HostProcess) -> None:
    for _ in range(150):
        PidFiles(tmp_path).started("stmgr-1", me)
    record = read_pids(tmp_path)["stmgr-1"]
    assert (record.restarts, len(record.recent_ms)) == (149, 100)


def test_what_user_code_plants_among_the_records_is_no_process(tmp_path: Path, me: HostProcess) -> None:
    PidFiles(tmp_path).started("stmgr-1", me)
    pids = tmp_path / "pids"
    os.mkfifo(pids / "fifo.pid")
    (pids / "link.pid").symlink_to(pids / "stmgr-1.pid")
    (pids / "large.pid").write_text(" " * 100_000)
    (pids / "deep.pid").write_text("[" * 10_000)
    (pids / "text.pid").write_text((pids / "stmgr-1.pid").read_text().replace(f'"pid": {me.pid}', '"pid": "1"'))
    (pids / "list.pid").write_text("[1]")
    assert list(read_pids(tmp_path)) == ["stmgr-1"]


def test_a_record_that_cannot_be_read_is_not_missing_and_not_begun_anew(
    tmp_path: Path, me: HostProcess, caplog: pytest.LogCaptureFixture
) -> None:
    PidFiles(tmp_path).started("stmgr-1", me)
    PidFiles(tmp_path).started("stmgr-1", me)
    pids = PidFiles(tmp_path)
    with no_descriptors():
        pids.started("stmgr-1", me)
        pids.retry()
    assert caplog.text.count("stmgr-1.pid cannot be read: Too many open files") == 1
    assert read_pids(tmp_path)["stmgr-1"].restarts == 1
    pids.retry()
    pids.retry()
    assert read_pids(tmp_path)["stmgr-1"].restarts == 2
    with no_descriptors(), pytest.raises(ReadFailedError, match="pids cannot be read: Too many open files"):
        read_pids(tmp_path)
    with pytest.MonkeyPatch.context() as patch, no_descriptors():
        patch.setattr(os, "listdir", lambda _: ["stmgr-1.pid"])  # it was listed when there was a descriptor
        with pytest.raises(ReadFailedError, match=r"stmgr-1\.pid cannot be read: Too many open files"):
            read_pids(tmp_path)


def test_the_end_of_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert tail(tmp_path / "missing") == ""
    (tmp_path / "out").write_text("one\ntwo\n")
    assert tail(tmp_path / "out", lines=1) == "two"
    with no_descriptors():
        assert "Too many open files" in tail(tmp_path / "out")
