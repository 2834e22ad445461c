"""Looking into a process, by one who is short of something, and where user code plants what it likes."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import UnavailableError
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, PidFiles
from heronpy.runtime import START_SIGNAL, STOP_SIGNAL
from heronpy.shell import Container, parts

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

Look = Callable[[Container], object]
LOOKS: dict[str, Look] = {
    ".stack": lambda container: parts.jstack(container, INSTANCE, None),
    ".memory": lambda container: parts.jmap(container, INSTANCE),
    ".profile": lambda container: asyncio.run(parts.profile(set(), container, INSTANCE, 0.0)),
}


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """A container with one live process."""
    directory = tmp_path / "container_1"
    logs = directory / "log-files"
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
        PidFiles(directory).started(INSTANCE, found)
        yield Container("words", "words-1", 1, tmp_path)
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
def test_who_cannot_read_an_answer_does_not_call_the_process_stopped(
    container: Container, monkeypatch: pytest.MonkeyPatch, suffix: str, function: str, error: int
) -> None:
    refuse(monkeypatch, function, suffix, error)
    with pytest.raises(UnavailableError, match=f"cannot be looked into now: {os.strerror(error)}"):
        LOOKS[suffix](container)


def test_who_has_no_descriptors_says_so_about_processes(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(_pid: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(HostProcess, "of", short)
    with pytest.raises(UnavailableError, match=f"{INSTANCE} cannot be looked into now: Too many open files"):
        parts.pid(container, INSTANCE)


def test_a_link_is_waited_for_as_a_file_that_is_not_there(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.shell._processes.ANSWER_S", 0.2)
    secret = container.topology_dir / "secret"
    secret.write_text('{"secret": 1}')
    for suffix, look in LOOKS.items():
        (container.directory / "log-files" / f"{INSTANCE}{suffix}").symlink_to(secret)
        with pytest.raises(UnavailableError, match=r"within 0\.2 s: it may be stopped"):
            look(container)


def test_what_the_process_appends_is_its_stacks(container: Container) -> None:
    assert parts.jstack(container, INSTANCE, None).stdout == "a stack"
