"""Processes of this host as supervisors see them: a shortage of this process says nothing about another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shortages import no_descriptors

from heronpy.errors import StateError
from heronpy.host import (
    HostProcess,
    begin_submission,
    find_by_environment,
    heartbeat_path,
    look_at,
    prepare_heartbeat,
    submitter_lives,
    sweep,
)

MARK = {"HERON_TEST_MARK": f"host-processes-{os.getpid()}"}


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its input ends."""
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    process = subprocess.Popen(waits, stdin=subprocess.PIPE, env=os.environ | MARK)
    yield process
    process.kill()
    process.communicate()


def identified(pid: int) -> HostProcess:
    found = HostProcess.of(pid)
    assert found is not None
    return found


def test_a_process_is_dead_only_when_that_is_known(
    child: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    process = identified(child.pid)
    with no_descriptors():
        assert process.alive
        assert process.alive
    assert caplog.text.count("cannot determine whether process") == 1
    child.kill()
    child.wait()
    assert not process.alive


def test_what_cannot_be_looked_up_is_an_error_and_not_nothing(child: subprocess.Popen[bytes]) -> None:
    process = identified(child.pid)
    with no_descriptors():
        for look in (
            lambda: HostProcess.of(child.pid),
            lambda: process.stopped,
            lambda: process.starved_ms,
            lambda: process.send(0),
            lambda: list(find_by_environment(MARK)),
            lambda: sweep(MARK),
        ):
            with pytest.raises(OSError, match="Too many open files"):
                look()
    assert [found for found, _ in find_by_environment(MARK)] == [process]


def test_a_process_of_which_nothing_can_be_seen_is_not_hung(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepare_heartbeat(heartbeat_path(tmp_path, "stmgr-1"))
    me = identified(os.getpid())
    assert look_at(tmp_path, "stmgr-1", me) is not None
    with no_descriptors():
        assert look_at(tmp_path, "stmgr-1", me) is None
    assert "the heartbeats of stmgr-1 cannot be read" in caplog.text


def test_a_submitter_is_not_taken_for_dead_because_its_mark_cannot_be_read(tmp_path: Path) -> None:
    assert not submitter_lives(tmp_path)
    begin_submission(tmp_path)
    assert submitter_lives(tmp_path)
    with no_descriptors(), pytest.raises(StateError, match="submitting cannot be read: Too many open files"):
        submitter_lives(tmp_path)


def test_a_submission_has_its_submitter_from_the_first_moment_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", power_cut)
    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(OSError, match="No space"):
        begin_submission(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the processes of others")
def test_a_process_of_another_user_is_ended_and_never_taken_for_an_own_one() -> None:
    """Whoever starts a process chooses its variables: it could pass for the executor of a container."""
    other = subprocess.Popen(["sleep", "600"], env=os.environ | MARK, user=65534, cwd="/")
    try:
        found = identified(other.pid)
        assert [process for process, _ in find_by_environment(MARK)] == []
        assert [process for process, _ in find_by_environment(MARK, of_others=True)] == [found]
        assert sweep(MARK) == 1
    finally:
        other.kill()
        other.wait()
