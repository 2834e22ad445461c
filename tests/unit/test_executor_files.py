"""What an executor writes about its processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heronpy.executor import read_pids
from heronpy.executor._files import pid_path, write_pid
from heronpy.executor._host import HostProcess


@pytest.fixture
def me() -> HostProcess:
    found = HostProcess.of(os.getpid())
    assert found is not None
    return found


def test_a_process_that_is_started_again_counts_its_restarts(tmp_path: Path, me: HostProcess) -> None:
    assert [write_pid(tmp_path, "stmgr-1", me).restarts for _ in range(3)] == [0, 1, 2]
    assert read_pids(tmp_path)["stmgr-1"].pid == os.getpid()


def test_a_record_that_cannot_be_written_costs_no_process_and_does_not_speak_of_another(
    tmp_path: Path, me: HostProcess, caplog: pytest.LogCaptureFixture
) -> None:
    write_pid(tmp_path, "stmgr-1", me)
    pid_path(tmp_path, "stmgr-1").with_suffix(".new").mkdir()  # in the way, as a full disk would be
    assert write_pid(tmp_path, "stmgr-1", me).pid == os.getpid()
    assert read_pids(tmp_path) == {}
    assert "stmgr-1.pid cannot be written" in caplog.text
