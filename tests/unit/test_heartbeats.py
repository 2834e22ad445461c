"""Heartbeat files: written by a process, read by its supervisor."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from shortages import no_descriptors

from heronpy.config import InstanceConfig
from heronpy.host import GONE_S, DirectoryWatch, HostProcess, heartbeat_path, look_at, mark_killed, prepare_heartbeat
from heronpy.instance import ProgressMeter
from heronpy.runtime import HEARTBEAT_ENV, Beat, Heartbeat, TaskProgress, keep_beating, read_beat
from heronpy.testing import eventually


def test_a_heartbeat_says_who_writes_it_and_counts_up(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path / "beats" / "a")
    heartbeat.beat()
    heartbeat.beat()
    assert read_beat(tmp_path / "beats" / "a") == Beat(os.getpid(), 2, 0, None)
    heartbeat.close()


def test_the_task_counts_only_when_its_mark_has_changed(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path / "beats" / "a")
    for mark in (1, 1, 1, 2, 2):
        heartbeat.beat(TaskProgress(mark, 300_000))
    assert read_beat(tmp_path / "beats" / "a") == Beat(os.getpid(), 5, 2, 300_000)
    heartbeat.close()


def test_what_is_no_heartbeat_is_none(tmp_path: Path) -> None:
    assert read_beat(tmp_path / "missing") is None
    (tmp_path / "short").write_bytes(b"heronhb1")
    assert read_beat(tmp_path / "short") is None
    (tmp_path / "other").write_bytes(b"x" * 40)
    assert read_beat(tmp_path / "other") is None


def test_a_heartbeat_that_cannot_be_read_is_not_missing(tmp_path: Path) -> None:
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        read_beat(tmp_path / "a")


def test_the_file_of_another_process_says_nothing_about_this_one(tmp_path: Path) -> None:
    me, init = HostProcess.of(os.getpid()), HostProcess.of(1)
    assert me is not None
    assert init is not None
    path = heartbeat_path(tmp_path, "a")
    prepare_heartbeat(path)
    look = look_at(tmp_path, "a", me)
    assert look is not None
    assert (look.loop, look.stopped) == (0, False)
    heartbeat = Heartbeat(path)
    heartbeat.beat()
    assert look_at(tmp_path, "a", init) is None
    heartbeat.close()


def test_a_heartbeat_file_that_cannot_be_made_is_no_disaster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepare_heartbeat(tmp_path / "no" / "such" / "directory")
    assert "cannot be made" in caplog.text


async def test_a_process_beats_if_its_supervisor_asks_for_it_and_its_children_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "beats" / "a"
    monkeypatch.setenv(HEARTBEAT_ENV, str(path))
    task = asyncio.create_task(keep_beating(object()))
    await eventually(lambda: _beats(path))
    assert HEARTBEAT_ENV not in os.environ
    task.cancel()


async def test_a_heartbeat_that_cannot_be_written_is_removed_so_that_nobody_is_killed_until_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "beats" / "a"
    monkeypatch.setenv(HEARTBEAT_ENV, str(path))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    def gone() -> None:
        assert "No space left on device" in caplog.text
        assert not path.exists()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        task = asyncio.create_task(keep_beating(object()))
        await eventually(gone)
    await eventually(lambda: _beats(path))
    task.cancel()


def test_a_task_in_one_call_makes_no_progress() -> None:
    meter = ProgressMeter(InstanceConfig())
    first = meter.progress(rounds=3, busy=True, waits=0)
    for _ in range(100):
        meter.looked(due=True)  # never cleared
    assert meter.progress(rounds=3, busy=True, waits=0).mark == first.mark
    meter.looked(due=False)  # cleared between two tuples of one batch
    assert meter.progress(rounds=3, busy=True, waits=0).mark != first.mark


@pytest.mark.parametrize(("rounds", "busy", "waits"), [(None, False, 0), (3, False, 0), (4, True, 0), (3, True, 1)])
def test_a_task_that_waits_for_the_engine_or_goes_round_makes_progress(
    rounds: int | None, busy: bool, waits: int
) -> None:
    meter = ProgressMeter(InstanceConfig())
    first = meter.progress(rounds=3, busy=True, waits=0)
    assert meter.progress(rounds=rounds, busy=busy, waits=waits).mark != first.mark


def test_initialize_is_a_call_of_user_code_too() -> None:
    meter = ProgressMeter(InstanceConfig())
    first = meter.progress(rounds=0, busy=False, waits=0)
    assert meter.progress(rounds=0, busy=False, waits=0).mark == first.mark


def test_a_component_has_its_own_limit() -> None:
    meter = ProgressMeter(InstanceConfig(task_timeout_ms=300_000))
    assert meter.progress(rounds=1, busy=True, waits=0).limit_ms == 300_000
    meter.configure({"topology.component.task.timeout.secs": "0.5"})
    assert meter.progress(rounds=1, busy=True, waits=0).limit_ms == 500


def test_a_directory_that_is_gone_for_a_while_ends_its_processes(tmp_path: Path) -> None:
    directory = tmp_path / "topology"
    directory.mkdir()
    watch = DirectoryWatch(directory)
    assert watch.ended(0) == ""
    directory.rename(tmp_path / "moved")
    assert watch.ended(1) == ""
    directory.mkdir()  # another one under its name is another submission
    assert watch.ended(1 + GONE_S) == f"{directory} is gone"
    directory.rmdir()
    (tmp_path / "moved").rename(directory)
    assert watch.ended(time.monotonic()) == ""
    mark_killed(directory)
    assert watch.ended(time.monotonic()) == "the topology was killed"


def _beats(path: Path) -> None:
    beat = read_beat(path)
    assert beat is not None
    assert beat.loop > 0
