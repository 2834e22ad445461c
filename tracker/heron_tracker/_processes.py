"""Looking into a live instance: its pid, its stacks, its memory.

The instance is found by its container's record of processes. User code can write there, so the process must also carry
the topology and the instance in the environment that it was started with, before it is sent a signal; and it must have
a handler for the signal, because otherwise the signal would end it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from heron_tracker import _models as m
from heron_tracker._log_files import folder
from heron_tracker._topology import Topology
from heronpy.errors import NotFoundError, UnavailableError, nearest
from heronpy.executor import INSTANCE_ENV, TOPOLOGY_ENV, HostProcess, read_pids
from heronpy.runtime import memory_path, stack_path

T = TypeVar("T")

ANSWER_S = 4.0
"""How long an instance may take to answer a signal."""
_SPY_S = 10.0
_LOOK_S = 0.02
_OUTPUT_MAX = 1 << 20


class _Memory(msgspec.Struct):
    """What `heronpy.runtime` writes on SIGUSR2. User code can write there too, so its shape is checked."""

    pid: int
    process: dict[str, str]
    objects: dict[str, int]
    gc: list[dict[str, int]]
    types: list[tuple[str, int, int]]
    tracemalloc: dict[str, int] | None = None


def pid(topology: Topology, instance: str) -> m.ProcessOutput:
    """The pid of an instance. Raises NotFoundError, NotHereError, and UnavailableError if it does not run."""
    process, _ = _find(topology, instance)
    return m.ProcessOutput(command=f"pid {instance}", stdout=str(process.pid), stderr="")


def find_spy() -> str | None:
    """Where py-spy is installed, if it is."""
    return shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def jstack(topology: Topology, instance: str, spy: str | None) -> m.ProcessOutput:
    """The stacks of its threads: by py-spy if it is installed and allowed to, else by the instance itself."""
    process, log_file = _find(topology, instance)
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
    _send(process, instance, signal.SIGUSR1)
    seen = _until(lambda: _grown(path, before), f"{instance} wrote no stacks to {path.name}")
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
    process, log_file = _find(topology, instance)
    path = memory_path(log_file)
    before = _written(path)
    _send(process, instance, signal.SIGUSR2)
    why = f"{instance} wrote no {path.name}"
    return process, _until(lambda: _read_new(path, before, process.pid), why)


def _find(topology: Topology, instance: str) -> tuple[HostProcess, Path]:
    known = topology.instances()
    if instance not in known:
        raise NotFoundError(f"topology {topology.key.name} has no instance {instance!r}{nearest(instance, known)}")
    logs = folder(topology, int(instance.split("_")[1]))
    record = read_pids(logs.parent).get(instance)
    process = HostProcess.of(record.pid) if record is not None else None
    if record is None or process is None or process.start_ticks != record.start_ticks:
        raise UnavailableError(f"{instance} does not run now: it waits for its (next) start")
    if not _is_instance(process, topology.id, instance):
        raise UnavailableError(f"process {record.pid} is not {instance}, or belongs to another user")
    return process, logs / f"{instance}.log"


def _is_instance(process: HostProcess, topology_id: str, instance: str) -> bool:
    try:
        pairs = Path("/proc", str(process.pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return all(f"{k}={v}".encode() in pairs for k, v in ((TOPOLOGY_ENV, topology_id), (INSTANCE_ENV, instance)))


def _send(process: HostProcess, instance: str, signum: signal.Signals) -> None:
    try:
        status = Path("/proc", str(process.pid), "status").read_text()
    except OSError:
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


def _until(look: Callable[[], T | None], why: str) -> T:
    deadline_s = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline_s:
        if (found := look()) is not None:
            return found
        time.sleep(_LOOK_S)
    raise UnavailableError(f"{why} within {ANSWER_S:g} s: it may be stopped")


def _open(path: Path) -> int | None:
    # The file is in a folder where user code may put anything: no links, nothing that could block.
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _grown(path: Path, before: int) -> str | None:
    """What was appended, once it stops growing."""
    size = _size(path)
    if size <= before:
        return None
    time.sleep(_LOOK_S)
    if _size(path) != size or (fd := _open(path)) is None:
        return None
    try:
        return os.pread(fd, min(size - before, _OUTPUT_MAX), before).decode(errors="replace")
    finally:
        os.close(fd)


def _written(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def _read_new(path: Path, before: tuple[int, int], pid: int) -> _Memory | None:
    if _written(path) in (before, (0, 0)) or (fd := _open(path)) is None:
        return None
    try:
        found = msgspec.json.decode(os.read(fd, _OUTPUT_MAX), type=_Memory)
    except msgspec.DecodeError:
        return None
    finally:
        os.close(fd)
    return found if found.pid == pid else None
