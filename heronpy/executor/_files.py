"""The files of a supervised process: its pid file, and its output."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from heronpy.config import KIB, MIB
from heronpy.executor._host import HostProcess
from heronpy.runtime import rotate

log = logging.getLogger(__name__)

OUT_BYTES_MAX = 10 * MIB
"""A larger .out file is rotated, unless the caller says otherwise."""
_TAIL_BYTES = 4 * KIB


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
    """How often it was started again since the container came to this host or was restarted on purpose."""

    @property
    def alive(self) -> bool:
        return HostProcess(self.pid, self.start_ticks).alive


def pid_path(container_dir: Path, process: str) -> Path:
    return container_dir / "pids" / f"{process}.pid"


def write_pid(container_dir: Path, process: str, found: HostProcess) -> PidFile:
    """Record a process that was just started. A record of its predecessor makes this one a restart.

    If it cannot be written, on a full disk say, there is none, and the process runs all the same.
    """
    path = pid_path(container_dir, process)
    before = _read(path)
    record = PidFile(
        pid=found.pid,
        start_ticks=found.start_ticks,
        create_time=found.create_time,
        started_ms=int(found.create_time * 1000),
        restarts=before.restarts + 1 if before else 0,
    )
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(asdict(record)))
        os.replace(new, path)  # a reader never sees half a record
    except OSError as e:
        log.warning("%s cannot be written, `heron status` will not know the process: %s", path, e.strerror)
        with contextlib.suppress(OSError):
            path.unlink()  # it speaks of the predecessor
    return record


def read_pids(container_dir: Path) -> dict[str, PidFile]:
    """The recorded processes of a container by process id, dead ones that wait for their restart too."""
    paths = sorted((container_dir / "pids").glob("*.pid"))
    return {path.stem: record for path in paths if (record := _read(path)) is not None}


def forget_pid(container_dir: Path, process: str) -> None:
    """Remove the record of a process that is to run no more."""
    pid_path(container_dir, process).unlink(missing_ok=True)


def open_out(path: Path, *, file_bytes: int = OUT_BYTES_MAX, files: int = 1) -> IO[bytes]:
    """Open a process's output file to append to it; rotated first if it is too large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > file_bytes:
        rotate(path, files)
    return path.open("ab")


def tail(path: Path, *, from_byte: int = 0, lines: int = 20) -> str:
    """The last lines of a file at or after an offset; empty if there are none.

    A file that is shorter than the offset has been rotated since: then all of it is after the offset.
    """
    try:
        with path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(from_byte if from_byte <= size else 0, size - _TAIL_BYTES, 0))
            text = f.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _read(path: Path) -> PidFile | None:
    try:
        return PidFile(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
