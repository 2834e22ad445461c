"""The files of a supervised process: its pid file, and its output."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from heronpy.config import KIB, MIB
from heronpy.errors import HeronError, ReadFailedError
from heronpy.files import ABSENT, read_owned_file, replace_file
from heronpy.host._process import HostProcess
from heronpy.runtime import rotate

log = logging.getLogger(__name__)

OUT_BYTES_MAX = 10 * MIB
"""A larger .out file is rotated, unless the caller says otherwise."""
_RECENT_MAX = 100
_RECORD_BYTES_MAX = 16 * KIB
_RETIRED = 0


@dataclass(frozen=True, slots=True)
class PidFile:
    """`container_<n>/pids/<process id>.pid`: what is known of a process from outside."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot: with the pid, the identity of the process."""
    create_time: float
    """The same in seconds since the epoch."""
    started_ms: int
    """When it was started, in ms since the epoch."""
    restarts: int
    """How often it died and was started again since the container came to this host. Ends on purpose do not count."""
    recent_ms: tuple[int, ...] = ()
    """When: the last of them, in ms since the epoch."""
    host: str = ""
    """The name of the host."""
    last_end: str = ""
    """How it ended the last time that it died, e.g. `killed by SIGKILL`."""
    over_ram_bytes: int = 0
    """How much RAM it used when it was killed for that; 0: it died of something else."""
    pid_space: str = ""
    """Where `pid` means this process, see `pid_space()`; empty: in files of older versions."""

    @property
    def visible(self) -> bool:
        """Whether its pid means the same process here: it has this host's kernel and PID namespace."""
        return self.pid_space in ("", pid_space())

    @property
    def alive(self) -> bool:
        """Whether it is seen to run. Of a process of another host nothing is seen: see `ended`."""
        return self.visible and HostProcess(self.pid, self.start_ticks).alive

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended: it is of this host, perhaps before a reboot, and does not run."""
        return (self.visible or self.host == socket.gethostname()) and not self.alive

    def restarts_within(self, window_s: float, now_s: float) -> int:
        """How often it was started again in the last `window_s`."""
        return sum(1 for at_ms in self.recent_ms if now_s - at_ms / 1000 <= window_s)


@functools.cache
def pid_space() -> str:
    """Boot and PID namespace of this process: where they are equal, equal pids are the same process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def pid_path(container_dir: Path, process: str) -> Path:
    return container_dir / "pids" / f"{process}.pid"


_Change = Callable[[PidFile | None], PidFile | None]
"""The record of a process, made of the one before."""


class PidFiles:
    """The pid files of a directory's processes, for the one process that writes them.

    A file that cannot be written, on a full disk say, costs no process: `retry` writes it when that is possible again.
    """

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        self._records: dict[str, PidFile | None] = {}
        """What is known of each, whether its file says so yet or not."""
        self._unwritten: set[str] = set()
        self._unread: dict[str, _Change] = {}
        """What has happened to those whose files could not be read: without these, restarts would begin anew."""

    def started(
        self, process: str, found: HostProcess, *, last_end: str = "", over_ram_bytes: int = 0
    ) -> PidFile | None:
        """Record a process that was just started; None if its file cannot be read now.

        It is a restart if its predecessor is on record, and not as retired.
        """
        return self._change(process, lambda before: _record(found, before, last_end, over_ram_bytes))

    def ended(self, process: str, found: HostProcess, how: str) -> None:
        """Record how a process died; also of one that did not come to record that it ran."""

        def change(before: PidFile | None) -> PidFile:
            if before is not None and (before.pid, before.start_ticks) == (found.pid, found.start_ticks):
                return replace(before, last_end=how)
            return _record(found, before, how, 0)

        self._change(process, change)

    def retire(self, process: str) -> None:
        """Record that a process ended on purpose. Its next one goes on counting its restarts, and is none itself."""
        self._change(process, lambda before: None if before is None else replace(before, pid=_RETIRED))

    def forget(self, process: str) -> None:
        """Remove the record of a process that is to run no more."""
        self._records.pop(process, None)
        self._unread.pop(process, None)
        self._unwritten.discard(process)
        pid_path(self._dir, process).unlink(missing_ok=True)

    def retry(self) -> None:
        """Record what could not be recorded yet, if that is possible now. To be called now and then."""
        for process, change in list(self._unread.items()):
            self._change(process, change)
        for process in sorted(self._unwritten):
            self._write(process)

    def _change(self, process: str, change: _Change) -> PidFile | None:
        path = pid_path(self._dir, process)
        try:
            before = self._records[process] if process in self._records else _read(path)
        except ReadFailedError as e:
            if process not in self._unread:
                log.warning("%s, so %s is not recorded yet", e, process)
            self._unread[process] = change
            return None
        self._unread.pop(process, None)
        self._records[process] = record = change(before)
        if record is not None:
            self._write(process)
        return record

    def _write(self, process: str) -> None:
        path, record = pid_path(self._dir, process), self._records[process]
        assert record is not None
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)  # but not a topology's directory that was removed
            replace_file(path, json.dumps(asdict(record)), durable=False, mode=0o600)
        except OSError as e:
            with contextlib.suppress(OSError):
                path.unlink()  # it speaks of the predecessor
            if process not in self._unwritten:
                self._unwritten.add(process)
                log.warning(
                    "%s cannot be written, `heron status` will not know the process until it can: %s", path, e.strerror
                )
        else:
            self._unwritten.discard(process)


def _record(found: HostProcess, before: PidFile | None, last_end: str, over_ram_bytes: int) -> PidFile:
    record = PidFile(
        pid=found.pid,
        start_ticks=found.start_ticks,
        create_time=found.create_time,
        started_ms=int(found.create_time * 1000),
        host=socket.gethostname(),
        pid_space=pid_space(),
        restarts=before.restarts if before else 0,
        recent_ms=before.recent_ms if before else (),
        last_end=last_end or (before.last_end if before else ""),
        over_ram_bytes=over_ram_bytes if last_end or before is None else before.over_ram_bytes,
    )
    if before is not None and before.pid != _RETIRED:
        recent = (*record.recent_ms, int(time.time() * 1000))[-_RECENT_MAX:]
        record = replace(record, restarts=record.restarts + 1, recent_ms=recent)
    return record


def read_pids(container_dir: Path) -> dict[str, PidFile]:
    """The recorded processes of a container by process id, dead ones that wait for their restart too.

    Raises:
        ReadFailedError: there may be one whose record cannot be read now.
    """
    folder = container_dir / "pids"
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pid"))
    except ABSENT:
        return {}
    except OSError as e:
        raise ReadFailedError(f"{folder} cannot be read: {e.strerror}") from e
    records = {name.removesuffix(".pid"): _read(folder / name) for name in names}
    return {id: record for id, record in records.items() if record is not None and record.pid != _RETIRED}


def open_out(path: Path, *, file_bytes: int = OUT_BYTES_MAX, files: int = 1) -> IO[bytes]:
    """Open a process's output file to append to it; rotated first if it is too large."""
    path.parent.mkdir(exist_ok=True)
    if path.exists() and path.stat().st_size > file_bytes:
        rotate(path, files)
    return path.open("ab")


def tail(path: Path, *, from_byte: int = 0, lines: int = 20, max_bytes: int = 4 * KIB) -> str:
    """The last lines of a file at or after an offset; empty if there are none; why, if it cannot be read.

    A file that is shorter than the offset has been rotated since: then all of it is after the offset.
    """
    try:
        with path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(from_byte if from_byte <= size else 0, size - max_bytes, 0))
            text = f.read(max_bytes).decode(errors="replace")
    except ABSENT:
        return ""
    except OSError as e:
        return f"({path} cannot be read: {e.strerror})"
    return "\n".join(text.splitlines()[-lines:])


def _read(path: Path) -> PidFile | None:
    try:
        # User code can write here, too: no links, nothing that could block, no surprises.
        values = json.loads(read_owned_file(path, max_bytes=_RECORD_BYTES_MAX))
        record = PidFile(**{**values, "recent_ms": tuple(values.get("recent_ms", ()))})
    except ReadFailedError:
        raise
    except (HeronError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    numbers = (
        record.pid,
        record.start_ticks,
        record.started_ms,
        record.restarts,
        record.over_ram_bytes,
        *record.recent_ms,
    )
    return record if all(type(number) is int for number in numbers) else None
