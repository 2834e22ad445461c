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
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from heronpy.errors import UnavailableError
from heronpy.files import ABSENT
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, PidFile, read_pids
from heronpy.proto import shell_pb2
from heronpy.runtime import memory_path, stack_path
from heronpy.shell._container import Container
from heronpy.shell._log_files import LOG_FOLDER, NotHereError, folder

T = TypeVar("T")

ANSWER_S = 15.0
"""How long an instance may take to answer a signal, on a machine that is busy."""
_SPY_S = 10.0
_LOOK_S = 0.02
_OUTPUT_MAX = 1 << 20
_MAPPINGS_BYTES_MAX = 64 << 20
_MAPPINGS_MAX = 500
_PROCESSES_MAX = 5000
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
    """Report what this process itself lacks (file descriptors, a disk that can be read) as UnavailableError.

    It says nothing about the instance, which must not be called stopped, or gone, for it.
    """
    try:
        yield
    except OSError as e:
        raise UnavailableError(f"{instance} cannot be looked into now: {e.strerror or e}") from e


def pid(container: Container, instance: str) -> shell_pb2.LookReply:
    """The pid of an instance. Raises NotHereError, and UnavailableError if it does not run."""
    with looking_into(instance):
        process, _ = find(container, instance)
    return shell_pb2.LookReply(command=f"pid {instance}", stdout=str(process.pid), stderr="")


def find_spy() -> str | None:
    """Where py-spy is installed, if it is."""
    return shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def jstack(container: Container, instance: str, spy: str | None) -> shell_pb2.LookReply:
    """The stacks of its threads: by py-spy if it is installed and allowed to, else by the instance itself."""
    with looking_into(instance):
        return _stacks(container, instance, spy)


def _stacks(container: Container, instance: str, spy: str | None) -> shell_pb2.LookReply:
    process, log_file = find(container, instance)
    why = "py-spy is not installed"
    if spy is not None:
        command = [spy, "dump", "--pid", str(process.pid)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SPY_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            why = f"py-spy: {e}"
        else:
            if done.returncode == 0:
                return shell_pb2.LookReply(command=f"py-spy dump --pid {process.pid}", stdout=done.stdout, stderr="")
            why = f"py-spy: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    path = stack_path(log_file)
    before = _size(path)
    send(process, instance, signal.SIGUSR1)
    seen = until(lambda: _grown(path, before), f"{instance} wrote no stacks to {path.name}")
    return shell_pb2.LookReply(command=f"kill -USR1 {process.pid}", stdout=seen, stderr=why)


def jmap(container: Container, instance: str) -> shell_pb2.LookReply:
    """Its memory, and the state of its garbage collector."""
    process, found = _memory(container, instance)
    lines = [f"{key}: {value}" for key, value in found.process.items()]
    lines += [f"{key} objects: {value}" for key, value in found.objects.items()]
    lines += [f"gc generation {n}: {_pairs(stats)}" for n, stats in enumerate(found.gc)]
    traced = _pairs(found.tracemalloc) if found.tracemalloc else "not tracing (PYTHONTRACEMALLOC=1 starts it)"
    lines.append(f"tracemalloc: {traced}")
    return shell_pb2.LookReply(command=f"kill -USR2 {process.pid}", stdout="\n".join(lines) + "\n", stderr="")


def _pairs(values: dict[str, int]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def histo(container: Container, instance: str) -> shell_pb2.LookReply:
    """Its objects by type, as far as the garbage collector tracks them: number, bytes, type."""
    process, found = _memory(container, instance)
    lines = [f"{'count':>12} {'bytes':>14}  type"]
    lines += [f"{count:>12} {size:>14}  {name}" for name, count, size in found.types]
    tracked, counted = found.objects.get("tracked", 0), found.objects.get("counted", 0)
    why = f"counted {counted} of {tracked} objects within the time" if counted < tracked else ""
    return shell_pb2.LookReply(command=f"kill -USR2 {process.pid}", stdout="\n".join(lines) + "\n", stderr=why)


def pmap(container: Container, instance: str) -> shell_pb2.LookReply:
    """Its memory by mapping, as the kernel counts it: size, resident, proportional share, in KiB."""
    with looking_into(instance):
        process, _ = find(container, instance)
        try:
            with Path("/proc", str(process.pid), "smaps").open("rb") as file:
                data = file.read(_MAPPINGS_BYTES_MAX)
        except ProcessLookupError:
            raise UnavailableError(f"{instance} has just ended") from None
    sums = _mappings(data.decode(errors="replace"))
    lines = [f"{'size':>12} {'rss':>12} {'pss':>12}  mapping (KiB)"]
    largest = sorted(sums.items(), key=lambda pair: -pair[1]["Rss"])
    lines += [f"{kib['Size']:>12} {kib['Rss']:>12} {kib['Pss']:>12}  {name}" for name, kib in largest[:_MAPPINGS_MAX]]
    why = f"the {_MAPPINGS_MAX} largest of {len(sums)}" if len(sums) > _MAPPINGS_MAX else ""
    return shell_pb2.LookReply(command=f"pmap {process.pid}", stdout="\n".join(lines) + "\n", stderr=why)


def _mappings(smaps: str) -> dict[str, Counter[str]]:
    """What the mappings of each name take, in KiB."""
    sums: dict[str, Counter[str]] = {}
    name = ""
    for line in smaps.splitlines():
        key, _, rest = line.partition(" ")
        if not key.endswith(":"):  # the head of a mapping: addresses, flags, offset, device, inode, name
            words = line.split(None, 5)
            name = words[5] if len(words) == 6 else "[anonymous]"
        elif key in ("Size:", "Rss:", "Pss:"):
            sums.setdefault(name, Counter())[key[:-1]] += int(rest.split()[0])
    return sums


def processes(container: Container) -> shell_pb2.ProcessList:
    """The recorded processes of the container, dead ones too. Raises NotHereError, UnavailableError."""
    with folder(container):
        try:
            records = read_pids(container.directory)
        except OSError as e:
            raise UnavailableError(f"the processes of {container} cannot be read now: {e.strerror}") from e
    return shell_pb2.ProcessList(processes=[_info(id, records[id]) for id in sorted(records)[:_PROCESSES_MAX]])


def _info(id: str, record: PidFile) -> shell_pb2.ProcessInfo:
    name = id.encode(errors="replace").decode()
    alive = record.alive
    try:
        info = shell_pb2.ProcessInfo(
            id=name,
            pid=record.pid if alive else 0,
            alive=alive,
            started_ms=record.started_ms,
            restarts=record.restarts,
            recent_ms=record.recent_ms,
            last_end=record.last_end,
            host=record.host,
        )
    except (TypeError, ValueError):  # user code has written it
        return shell_pb2.ProcessInfo(id=name)
    with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
        # After the command in parentheses, see proc(5): utime is field 14, stime 15, threads 20, resident pages 24.
        fields = Path("/proc", str(info.pid), "stat").read_text().rpartition(")")[2].split()
        info.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        info.threads = int(fields[17])
        info.rss_bytes = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return info


def _memory(container: Container, instance: str) -> tuple[HostProcess, _Memory]:
    with looking_into(instance):
        process, log_file = find(container, instance)
        path = memory_path(log_file)
        before = written(path)
        send(process, instance, signal.SIGUSR2)
        why = f"{instance} wrote no {path.name}"
        return process, until(lambda: _read_new(path, before, process.pid), why)


def find(container: Container, instance: str) -> tuple[HostProcess, Path]:
    """The live process with this id, and its log file.

    Raises:
        NotHereError: its files are on another host.
        UnavailableError: it does not run now, or belongs to another user.
        OSError: it cannot be determined.
    """
    with folder(container):
        logs = container.directory.resolve() / LOG_FOLDER
    record = read_pids(logs.parent).get(instance)
    process = HostProcess.of(record.pid) if record is not None else None
    if record is not None and not record.visible:
        raise NotHereError(f"{instance} runs on {record.host}, and only processes of this host can be looked into")
    if record is None or process is None or process.start_ticks != record.start_ticks:
        raise UnavailableError(f"{instance} does not run now: it waits for its (next) start")
    if not _is_process(process, container.topology_id, instance):
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
