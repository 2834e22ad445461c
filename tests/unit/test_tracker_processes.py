"""Looking into a process, for a Tracker that itself is short of something, and where user code plants what it likes."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from heron_tracker import parts

from heronpy.errors import UnavailableError
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, write_pid
from heronpy.runtime import START_SIGNAL, STOP_SIGNAL

INSTANCE = "container_1_words_1"
ANSWERS = f"""
import signal, sys
from pathlib import Path

log_file = Path(sys.argv[1])

def write(suffix, text):
    def handler(signum, frame):
        if text and not log_file.with_suffix(suffix).is_symlink():
            log_file.with_suffix(suffix).write_text(text)
    return handler

signal.signal(signal.SIGUSR1, write(".stack", "a stack"))
signal.signal(signal.SIGUSR2, write(".memory", "{{}}"))
signal.signal({START_SIGNAL}, write(".profile", ""))
signal.signal({STOP_SIGNAL}, write(".profile", "{{}}"))
print("ready", flush=True)
sys.stdin.read()
"""
"""A process that answers every signal with a file."""

Look = Callable[[Any], object]
LOOKS: dict[str, Look] = {
    ".stack": lambda topology: parts.jstack(topology, INSTANCE, None),
    ".memory": lambda topology: parts.jmap(topology, INSTANCE),
    ".profile": lambda topology: asyncio.run(parts.profile(set(), topology, INSTANCE, 0.0)),
}


@pytest.fixture
def topology(tmp_path: Path) -> Iterator[Any]:
    """What the functions ask of a topology, with one live process."""
    container = tmp_path / "container_1"
    logs = container / "log-files"
    logs.mkdir(parents=True)
    child = subprocess.Popen(
        [sys.executable, "-c", ANSWERS, str(logs / f"{INSTANCE}.log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, TOPOLOGY_ENV: "words-1", PROCESS_ENV: INSTANCE},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        found = HostProcess.of(child.pid)
        assert found is not None
        write_pid(container, INSTANCE, found)
        yield SimpleNamespace(
            id="words-1",
            key=SimpleNamespace(name="words"),
            directory=tmp_path,
            processes=lambda: {INSTANCE: 1},
            containers=lambda: [0, 1],
            hosts=dict,
        )
        child.kill()


def refuse(monkeypatch: pytest.MonkeyPatch, function: str, suffix: str, error: int) -> None:
    """Have a function of `os` fail for one file of the instance."""
    real = getattr(os, function)

    def refused(path: Any, *args: Any, **more: Any) -> Any:
        if isinstance(path, str | Path) and str(path).endswith(f"{INSTANCE}{suffix}"):
            raise OSError(error, os.strerror(error))
        return real(path, *args, **more)

    monkeypatch.setattr(os, function, refused)


@pytest.mark.parametrize("suffix", LOOKS)
@pytest.mark.parametrize(("function", "error"), [("open", errno.EMFILE), ("stat", errno.EIO)])
def test_a_tracker_that_cannot_read_an_answer_does_not_call_the_process_stopped(
    topology: Any, monkeypatch: pytest.MonkeyPatch, suffix: str, function: str, error: int
) -> None:
    refuse(monkeypatch, function, suffix, error)
    with pytest.raises(UnavailableError, match=f"cannot be looked into now: {os.strerror(error)}"):
        LOOKS[suffix](topology)


def test_a_tracker_without_descriptors_says_so_about_processes(topology: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(_pid: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(HostProcess, "of", short)
    with pytest.raises(UnavailableError, match=f"{INSTANCE} cannot be looked into now: Too many open files"):
        parts.pid(topology, INSTANCE)


def test_a_link_is_waited_for_as_a_file_that_is_not_there(topology: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._processes.ANSWER_S", 0.2)
    secret = topology.directory / "secret"
    secret.write_text('{"secret": 1}')
    for suffix, look in LOOKS.items():
        (topology.directory / "container_1" / "log-files" / f"{INSTANCE}{suffix}").symlink_to(secret)
        with pytest.raises(UnavailableError, match=r"within 0\.2 s: it may be stopped"):
            look(topology)


def test_what_the_process_appends_is_its_stacks(topology: Any) -> None:
    assert parts.jstack(topology, INSTANCE, None).stdout == "a stack"
