"""`heron logs` of a topology with a container on another host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from remote_container import enter, on_another_host
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.cli.parts import collect_status as status
from heronpy.cli.parts import logs
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.host import HostProcess, PidFiles
from heronpy.runtime import Launch
from heronpy.shell import Container
from heronpy.shell.stored import open_log_store, store_logs
from heronpy.statemgr import open_statemgr
from heronpy.testing import eventually_sync


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    launch = launch_in(tmp_path, {"heron.shell.enabled": True})
    launch.make_log_dir(0)
    (launch.log_dir(0) / "tmaster.log").write_text("2026-01-31 12:00:00,000 INFO here\n")
    monkeypatch.setattr("heronpy.cli._logs.resolve", lambda words, **_: (launch, words[1] if words[1:] else None))
    return launch


@pytest.fixture
def remote(submitted: Launch, tmp_path: Path) -> Iterator[Launch]:
    """Container 1, with its heron-shell as a process."""
    launch = on_another_host(submitted, tmp_path / "elsewhere")
    log = launch.log_dir(1) / "heron-shell-1.log"

    def address() -> str:
        text = log.read_text() if log.exists() else ""  # a small file
        assert "serves at" in text
        return text.rpartition("serves at ")[2].split()[0]

    with EngineProcess("shell", launch, 1), open_statemgr(launch.statemgr) as state:
        enter(state, launch, endpoint=eventually_sync(address))
        yield launch


@pytest.fixture
def heron_logs(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str, **options: Any) -> str:
        given = {"follow": False, "lines": None, "container": None, "grep": "", "since": "", "raw": False, **options}
        logs(["words", *words], **given)
        return capfd.readouterr().out

    return run


def test_lines_of_all_hosts_are_shown(remote: Launch, heron_logs: Callable[..., str]) -> None:
    folder = remote.log_dir(1)
    (folder / "stmgr-1.log.1").write_text("2026-01-31 11:00:00,000 INFO one\n2026-01-31 12:00:00,000 INFO two\n")
    (folder / "stmgr-1.log").write_text("2026-01-31 13:00:00,000 INFO three\n")
    shown = heron_logs()
    assert "==> container_0/tmaster.log <==\n2026-01-31 12:00:00,000 INFO here\n" in shown
    assert "==> container_1/stmgr-1.log <==\n2026-01-31 11:00:00,000 INFO one\n" in shown
    assert heron_logs("stmgr-1", lines=1) == "2026-01-31 13:00:00,000 INFO three\n"
    assert (
        heron_logs("stmgr-1", grep="INFO t") == "2026-01-31 12:00:00,000 INFO two\n2026-01-31 13:00:00,000 INFO three\n"
    )
    assert heron_logs("stmgr-1", since="2026-01-31T12:30") == "2026-01-31 13:00:00,000 INFO three\n"
    assert "tmaster" not in heron_logs(container=1, grep="INFO")
    assert "stmgr" not in heron_logs(container=0)
    with pytest.raises(NotFoundError, match="no process 'stmgr_1'; did you mean 'stmgr-1'"):
        heron_logs("stmgr_1")


def test_found_lines_of_another_host_are_shown_as_they_come_and_not_kept(
    remote: Launch, heron_logs: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"2026-01-31 13:00:00,000 INFO {'x' * 500} {n}\n" for n in range(20_000)]
    (remote.log_dir(1) / "stmgr-1.log").write_text("".join(lines))
    written: list[int] = []

    def readable(data: bytes) -> bytes:
        written.append(len(data))
        return data

    monkeypatch.setattr("heronpy.cli._logs.readable", readable)
    assert heron_logs("stmgr-1", grep="INFO") == "".join(lines)
    assert max(written) < 2 << 20, "more than one reply of a heron-shell"
    assert heron_logs("stmgr-1", grep="INFO", lines=3) == "".join(lines[-3:])


def test_status_shows_the_processes_of_other_hosts(submitted: Launch, remote: Launch) -> None:
    with open_statemgr(submitted.statemgr) as state:
        submit(state, 1)
        me = HostProcess.of(os.getpid())
        assert me is not None
        PidFiles(remote.container_dir(1)).started("stmgr-1", me)
        found, _ = status(submitted, now_s=time.time())
        by_id = {process["id"]: process for process in found["processes"]}
        assert (by_id["stmgr-1"]["state"], by_id["stmgr-1"]["pid"]) == ("running", os.getpid())
        assert by_id["stmgr-1"]["uptime_s"] > 0
        assert by_id["container_1_word_1"]["state"] == "not started"
        enter(state, remote, endpoint="127.0.0.1:1")
        found, _ = status(submitted, now_s=time.time())
        by_id = {process["id"]: process for process in found["processes"]}
        assert by_id["stmgr-1"]["state"] == "?"
        assert [line.partition(" does not")[0] for line in found["silent"]] == [
            "container 1 on far-host: its heron-shell at 127.0.0.1:1"
        ]


def test_a_silent_container_is_named_and_the_others_are_shown(
    submitted: Launch, capfd: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"lines": None, "container": None, "grep": "", "since": "", "raw": False}
    with open_statemgr(submitted.statemgr) as state:
        enter(state, submitted, endpoint="127.0.0.1:1")
        with pytest.raises(UnavailableError, match="the logs of 1 containers could not be read"):
            logs(["words"], follow=False, **options)
        out, err = capfd.readouterr()
        assert "INFO here" in out
        assert err.startswith("heron: container 1 on far-host: its heron-shell at 127.0.0.1:1 does not answer")
        assert err.count("\n") == 1
        enter(state, submitted)
        with pytest.raises(UnavailableError):
            logs(["words"], follow=False, **options)
        assert "container 1 on far-host has no heron-shell" in capfd.readouterr().err


def test_a_container_that_has_ended_is_shown_from_the_log_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heron_logs: Callable[..., str]
) -> None:
    keys = {"heron.shell.enabled": True, "heron.logs.upload.uri": str(tmp_path / "store")}
    submitted = launch_in(tmp_path, keys)
    remote = on_another_host(submitted, tmp_path / "elsewhere")
    monkeypatch.setattr("heronpy.cli._logs.resolve", lambda words, **_: (submitted, None))
    text = "2026-01-31 12:00:00,000 INFO one\n2026-01-31 13:00:00,000 INFO two\n"
    (remote.log_dir(1) / "stmgr-1.log").write_text(text)
    place = Container(remote.topology, remote.topology_id, 1, remote.dir)
    with (
        open_statemgr(submitted.statemgr) as state,
        open_log_store(str(tmp_path / "store"), remote.topology, remote.topology_id) as storage,
    ):
        store_logs(place, storage, 6)
        enter(state, submitted, endpoint="127.0.0.1:1", incarnation=7)
        with pytest.raises(UnavailableError, match="others are silent"):
            heron_logs()
        store_logs(place, storage, 7)
        shown = heron_logs()
        assert "==> container_1/stmgr-1.log <==" in shown
        assert "INFO one" in shown
        assert "INFO two" in heron_logs(grep="two")
        assert "INFO one" not in heron_logs(grep="two")


FOLLOW = """
import sys
from unittest import mock
from heronpy.cli.parts import logs
from heronpy.runtime import Launch

launch = Launch.load(sys.argv[1])
with mock.patch("heronpy.cli._logs.resolve", lambda words, **_: (launch, "stmgr-1")):
    logs(["words"], follow=True, lines=1, container=None, grep="", since="", raw=False)
"""


def test_a_log_of_another_host_is_followed_through_a_rotation(submitted: Launch, remote: Launch) -> None:
    log = remote.log_dir(1) / "stmgr-1.log"
    log.write_text("one\ntwo\n")
    with subprocess.Popen([sys.executable, "-c", FOLLOW, str(submitted.dir)], stdout=subprocess.PIPE) as follower:
        try:
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"two\n"
            with log.open("a") as f:
                f.write("three\n")
            log.rename(f"{log}.1")
            log.write_text("four\n")
            assert follower.stdout.readline() == b"three\n"
            assert follower.stdout.readline() == b"four\n"
        finally:
            follower.kill()
