"""Heartbeats: a small file for each process, written by its event loop every second, read by its supervisor.

A process that hangs (stopped, an endless loop, a deadlock) is alive for the kernel, so its parent cannot detect it. The
file has counters that grow while the process makes progress: one of its event loop, and, in an instance, one of its
task. Whether they have stood still for too long is the supervisor's to decide (`heronpy.supervision.HangDetector`).

Written with pwrite, not through a mapping: a full disk is an error here, and would be SIGBUS there. A process whose
heartbeats cannot be written removes the file, and is not supervised by them until they can: no disk that is full may
end it. Each counter is eight aligned bytes and is only compared with its last value, so that a torn read does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from heronpy.files import ABSENT

log = logging.getLogger(__name__)

HEARTBEAT_ENV = "HERON_HEARTBEAT"
"""The path of the file; a process without it writes none."""
BEAT_S = 1.0

_MAGIC = b"heronhb1"
_LAYOUT = struct.Struct("<8sQQQQ")
_NO_TASK = 2**64 - 1


class TaskProgress(Struct, frozen=True):
    """How far a task is."""

    mark: object
    """Differs from the last one if the task has made progress, or waits for the engine."""
    limit_ms: int
    """How long it may stay the same; 0: for ever."""


@runtime_checkable
class HasTask(Protocol):
    """A service with a task beside its event loop."""

    def task_progress(self) -> TaskProgress:
        """Called in the event loop, once for every heartbeat."""


class Beat(Struct, frozen=True):
    """The contents of a heartbeat file."""

    pid: int
    loop: int
    """How often the event loop has written."""
    task: int = 0
    """How often it found that the task had made progress."""
    task_limit_ms: int | None = None
    """How long `task` may stand still, 0: for ever; None: there is no task."""


class Heartbeat:
    """Writes a process's heartbeat file."""

    def __init__(self, path: Path) -> None:
        """Make the file.

        Raises:
            OSError: it cannot be made.
        """
        path.parent.mkdir(exist_ok=True)
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._loop = self._task = 0
        self._mark: object = None

    def close(self) -> None:
        os.close(self._fd)

    def beat(self, progress: TaskProgress | None = None) -> None:
        """Record that the event loop runs, and whether the task has made progress since the last call.

        Raises:
            OSError: it cannot be written.
        """
        self._loop += 1
        if progress is not None and progress.mark != self._mark:
            self._mark = progress.mark
            self._task += 1
        limit = _NO_TASK if progress is None else progress.limit_ms
        os.pwrite(self._fd, _LAYOUT.pack(_MAGIC, os.getpid(), self._loop, self._task, limit), 0)

    def prepare(self) -> None:
        """Write a file for a process that is about to start."""
        os.pwrite(self._fd, _LAYOUT.pack(_MAGIC, 0, 0, 0, _NO_TASK), 0)

    def remove(self) -> None:
        """Remove the file: there is nothing to go by."""
        self._path.unlink(missing_ok=True)


def read_beat(path: Path) -> Beat | None:
    """The last heartbeat in a file; None if there is none.

    Raises:
        OSError: it cannot be determined.
    """
    try:
        magic, pid, loop, task, limit = _LAYOUT.unpack(path.read_bytes())
    except (*ABSENT, struct.error):
        return None
    return Beat(pid, loop, task, None if limit == _NO_TASK else limit) if magic == _MAGIC else None


async def keep_beating(service: object) -> None:
    """Write this process's heartbeats until cancelled, if its supervisor asked for them."""
    path = os.environ.pop(HEARTBEAT_ENV, None)  # not inherited by what user code starts
    if path is None:
        return
    progress: Callable[[], TaskProgress | None] = service.task_progress if isinstance(service, HasTask) else _no_task
    failed = False
    while True:
        try:
            with contextlib.closing(Heartbeat(Path(path))) as heartbeat:
                try:
                    while True:
                        heartbeat.beat(progress())
                        failed = False
                        await asyncio.sleep(BEAT_S)
                except OSError:
                    heartbeat.remove()
                    raise
        except OSError as e:
            if not failed:
                log.warning(
                    "heartbeats cannot be written to %s, a hang goes unnoticed until then: %s", path, e.strerror
                )
            failed = True
        await asyncio.sleep(BEAT_S)


def _no_task() -> TaskProgress | None:
    return None
