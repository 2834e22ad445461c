"""Looking into a live instance: its pid, its stacks, its memory.

The instance is found by its container's record of processes. User code can write there, so the process must also carry
the topology and the instance in the environment that it was started with, before it is sent a signal; and it must have
a handler for the signal, because otherwise the signal would end it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from heron_tracker import _models as m
from heron_tracker._log_files import LOG_FOLDER, NotHereError, folder
from heron_tracker._topology import Topology
from heronpy.errors import NotFoundError, UnavailableError, nearest
from heronpy.files import ABSENT
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, read_pids
from heronpy.runtime import memory_path, stack_path

T = TypeVar("T")

ANSWER_S = 15.0
"""How long an instance may take to answer a signal, on a machine that is busy."""
_SPY_S = 10.0
_LOOK_S = 0.02
_OUTPUT_MAX = 1 << 20
_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""What opening a link, a socket or a device leads to."""


class _Memory(msgspec.Struct):
    """What `heronpy.runtime` writes on SIGUSR2. User code can write there too, so its shape is checked."""

    pid: int
    process: dict[str, str]
    objects: dict[str, int]
    gc: list[dict[str, int]]
    types: list[tuple[str, int, int]]
    tracemalloc: dict[str, int] | None = None


@contextlib.contextmanager
def looking_into(instance: str) -> Iterator[None]:
    """Report what the Tracker itself lacks (file descriptors, a disk that can be read) as UnavailableError.

    It says nothing about the instance, which must not be called stopped, or gone, for it.
    """
    try:
        yield
    except OSError as e:
        raise UnavailableError(f"{instance} cannot be looked into now: {e.strerror or e}") from e


def pid(topology: Topology, instance: str) -> m.ProcessOutput:
    """The pid of an instance. Raises NotFoundError, NotHereError, and UnavailableError if it does not run."""
    with looking_into(instance):
        process, _ = find(topology, instance)
    return m.ProcessOutput(command=f"pid {instance}", stdout=str(process.pid), stderr="")


def find_spy() -> str | None:
    """Where py-spy is installed, if it is."""
    return shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def jstack(topology: Topology, instance: str, spy: str | None) -> m.ProcessOutput:
    """The stacks of its threads: by py-spy if it is installed and allowed to, else by the instance itself."""
    with looking_into(instance):
        return _stacks(topology, instance, spy)


def _stacks(topology: Topology, instance: str, spy: str | None) -> m.ProcessOutput:
    process, log_file = find(topology, instance)
    why = "py-spy is not installed"
    if spy is not None:
        command = [spy, "dump", "--pid", str(process.pid)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SPY_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            why = f"py-spy: {e}"
        else:
            if done.returncode == 0:
                return m.ProcessOutput(command=f"py-spy dump --pid {process.pid}", stdout=done.stdout, stderr="")
            why = f"py-spy: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    path = stack_path(log_file)
    before = _size(path)
    send(process, instance, signal.SIGUSR1)
    seen = until(lambda: _grown(path, before), f"{instance} wrote no stacks to {path.name}")
    return m.ProcessOutput(command=f"kill -USR1 {process.pid}", stdout=seen, stderr=why)


def jmap(topology: Topology, instance: str) -> m.ProcessOutput:
    """Its memory, and the state of its garbage collector."""
    process, found = _memory(topology, instance)
    lines = [f"{key}: {value}" for key, value in found.process.items()]
    lines += [f"{key} objects: {value}" for key, value in found.objects.items()]
    lines += [f"gc generation {n}: {_pairs(stats)}" for n, stats in enumerate(found.gc)]
    traced = _pairs(found.tracemalloc) if found.tracemalloc else "not tracing (PYTHONTRACEMALLOC=1 starts it)"
    lines.append(f"tracemalloc: {traced}")
    return m.ProcessOutput(command=f"kill -USR2 {process.pid}", stdout="\n".join(lines) + "\n", stderr="")


def _pairs(values: dict[str, int]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def histo(topology: Topology, instance: str) -> m.ProcessOutput:
    """Its objects by type, as far as the garbage collector tracks them: number, bytes, type."""
    process, found = _memory(topology, instance)
    lines = [f"{'count':>12} {'bytes':>14}  type"]
    lines += [f"{count:>12} {size:>14}  {name}" for name, count, size in found.types]
    tracked, counted = found.objects.get("tracked", 0), found.objects.get("counted", 0)
    why = f"counted {counted} of {tracked} objects within the time" if counted < tracked else ""
    return m.ProcessOutput(command=f"kill -USR2 {process.pid}", stdout="\n".join(lines) + "\n", stderr=why)


def _memory(topology: Topology, instance: str) -> tuple[HostProcess, _Memory]:
    with looking_into(instance):
        process, log_file = find(topology, instance)
        path = memory_path(log_file)
        before = written(path)
        send(process, instance, signal.SIGUSR2)
        why = f"{instance} wrote no {path.name}"
        return process, until(lambda: _read_new(path, before, process.pid), why)


def find(topology: Topology, instance: str) -> tuple[HostProcess, Path]:
    """The process of an instance or a Stream Manager, and its log file.

    Raises:
        NotFoundError: there is none of this id.
        NotHereError: its files are on another host.
        UnavailableError: it does not run now, or belongs to another user.
        OSError: it cannot be determined.
    """
    known = topology.processes()
    if instance not in known:
        raise NotFoundError(f"topology {topology.key.name} has no instance {instance!r}{nearest(instance, known)}")
    container = known[instance]
    with folder(topology, container):
        logs = topology.directory.resolve() / f"container_{container}" / LOG_FOLDER
    record = read_pids(logs.parent).get(instance)
    process = HostProcess.of(record.pid) if record is not None else None
    if record is not None and not record.visible:
        raise NotHereError(
            f"{instance} runs on {record.host}, and this Tracker sees the processes of its own host only"
        )
    if record is None or process is None or process.start_ticks != record.start_ticks:
        raise UnavailableError(f"{instance} does not run now: it waits for its (next) start")
    if not _is_process(process, topology.id, instance):
        raise UnavailableError(f"process {record.pid} is not {instance}, or belongs to another user")
    return process, logs / f"{instance}.log"


def _is_process(process: HostProcess, topology_id: str, id: str) -> bool:
    try:
        pairs = Path("/proc", str(process.pid), "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return all(f"{k}={v}".encode() in pairs for k, v in ((TOPOLOGY_ENV, topology_id), (PROCESS_ENV, id)))


def send(process: HostProcess, instance: str, signum: int) -> None:
    """Send a signal that the process has a handler for. Raises UnavailableError, and OSError if that is unknown."""
    try:
        status = Path("/proc", str(process.pid), "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        status = ""
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    if not int(caught, 16) >> (signum - 1) & 1:
        raise UnavailableError(f"{instance} is not ready to be looked into: it is starting, ending, or older than this")
    try:
        sent = process.send(signum)
    except PermissionError:
        sent = False
    if not sent:
        raise UnavailableError(f"{instance} cannot be signalled: it has ended, or belongs to another user")


def until(look: Callable[[], T | None], why: str) -> T:
    """What a function finds, once it finds it. Raises UnavailableError after ANSWER_S, with the reason."""
    deadline_s = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline_s:
        if (found := look()) is not None:
            return found
        time.sleep(_LOOK_S)
    raise UnavailableError(f"{why} within {ANSWER_S:g} s: it may be stopped")


def open_regular(path: Path) -> int | None:
    """A descriptor of a file that user code may have replaced; None if it is not there, or not a regular file.

    Raises:
        OSError: it may be there, and cannot be opened now.
    """
    # The file is in a folder where user code may put anything: no links, nothing that could block.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except ABSENT:
        return None
    except OSError as e:
        if e.errno in _NOT_REGULAR:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except ABSENT:
        return 0


def _grown(path: Path, before: int) -> str | None:
    """What was appended, once it stops growing."""
    size = _size(path)
    if size <= before:
        return None
    time.sleep(_LOOK_S)
    if _size(path) != size or (fd := open_regular(path)) is None:
        return None
    try:
        return os.pread(fd, min(size - before, _OUTPUT_MAX), before).decode(errors="replace")
    finally:
        os.close(fd)


def written(path: Path) -> tuple[int, int]:
    """Which file that is, and when it was written; zeros if it is not there. Raises OSError if that is unknown."""
    try:
        found = path.lstat()
    except ABSENT:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def _read_new(path: Path, before: tuple[int, int], pid: int) -> _Memory | None:
    if written(path) in (before, (0, 0)) or (fd := open_regular(path)) is None:
        return None
    try:
        found = msgspec.json.decode(os.read(fd, _OUTPUT_MAX), type=_Memory)
    except msgspec.DecodeError:
        return None
    finally:
        os.close(fd)
    return found if found.pid == pid else None
