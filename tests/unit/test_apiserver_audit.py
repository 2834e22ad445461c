"""The audit log of an API server: what is written down, and what happens when it cannot be."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heronpy.apiserver import AuditLog
from heronpy.errors import StateError


def test_the_audit_log_is_only_appended_to_and_follows_no_link(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record(user="ada", error="x" * 10_000 + "\n")
    log.record(user="eve\n{}")
    first, second = (json.loads(line) for line in log.path.read_text().splitlines())
    assert (first["user"], len(first["error"]), second["user"]) == ("ada", 500, "eve\n{}")
    os.rename(log.path, tmp_path / "rotated")
    log.record(user="bob")
    assert len(log.path.read_text().splitlines()) == 1
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StateError):
        AuditLog(tmp_path / "link")


def _recorded(path: Path) -> list[int]:
    """The numbers in all files of an audit log, the oldest first."""
    files = [*sorted(path.parent.glob(f"{path.name}.*")), path]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line["number"] for line in lines if "number" in line]


def test_the_audit_log_is_rotated_and_nothing_is_lost(tmp_path: Path) -> None:
    logs = [AuditLog(tmp_path / "audit.jsonl", bytes_max=1000, files_max=0) for _ in range(4)]

    def write(n: int) -> None:
        for number in range(n, 60, len(logs)):
            logs[n].record(number=number)

    with ThreadPoolExecutor(len(logs)) as threads:
        list(threads.map(write, range(len(logs))))
    assert sorted(_recorded(logs[0].path)) == list(range(60))
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_what_is_removed_of_the_audit_log_is_written_down_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", bytes_max=200, files_max=2)
    for number in range(20):
        log.record(number=number)
    numbers = _recorded(log.path)
    assert numbers == list(range(numbers[0], 20))
    assert len(list(tmp_path.iterdir())) == 3
    assert caplog.text.count("is removed: there are more than 2") > 1
    lines = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    (newest,) = [one["removed"] for one in lines if one.get("action") == "rotate"][-1:]
    assert all(name.startswith("audit.jsonl.") for name in newest)


def test_an_audit_log_that_cannot_be_renamed_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def rename(source: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    log = AuditLog(tmp_path / "audit.jsonl", bytes_max=100)
    monkeypatch.setattr(os, "rename", rename)
    for number in range(5):
        log.record(number=number)
    assert _recorded(log.path) == list(range(5))
    assert "audit.jsonl cannot be renamed, and grows: Permission denied" in caplog.text


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record(number=1)
    with log.path.open("ab") as f:
        f.write(b'{"time": "20')
    log.record(number=2)
    first, torn, last = log.path.read_text().splitlines()
    assert (json.loads(first)["number"], torn, json.loads(last)["number"]) == (1, '{"time": "20', 2)


def test_whoever_holds_the_lock_of_the_audit_log_is_not_waited_for_without_end(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", lock_s=0.2)
    with log.path.open("ab") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(log.record, number=number) for number in range(3)]
        for one in waiting:
            with pytest.raises(StateError, match=r"another process has held the audit log .* is it stopped\?"):
                one.result()
    log.record(number=3)
    assert _recorded(log.path) == [3]
