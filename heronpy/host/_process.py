"""Processes of this host, found and named so that a number used twice is not taken for the same process.

Linux only, like the rest of the engine: everything is read from /proc.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

log = logging.getLogger(__name__)

_GONE = (FileNotFoundError, ProcessLookupError)
"""What /proc answers for a process that is not there, the latter if it ended between opening and reading."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_FLAGS, _ENV_END = 6, 48
_KERNEL_THREAD = 0x00200000
_PR_SET_CHILD_SUBREAPER = 36
_EXEC_S = 10.0
"""How long a process is waited for that is in the middle of exec()."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """One process of this host: the kernel gives its pid to another one some day, but not its start time too."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot. Unlike a wall time it never moves when the clock is set."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this pid now; None if there is none, or if it is dead and only waits to be reaped.

        Raises:
            OSError: it cannot be determined, for want of file descriptors say.
        """
        found = _stat(pid)
        if found is None:
            return None
        state, start_ticks = found
        return None if state in "ZX" else cls(pid, start_ticks)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str()` wrote."""
        pid, start_ticks = text.split(":")
        return cls(int(pid), int(start_ticks))

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}"

    @property
    def alive(self) -> bool:
        """False only if it is known to be dead: what cannot be determined must neither end nor replace a process."""
        try:
            return HostProcess.of(self.pid) == self
        except OSError as error:
            _warn_unknown(self.pid, str(error))
            return True

    @property
    def stopped(self) -> bool:
        """Whether it was stopped by a signal; one that a debugger holds is not. Raises OSError if unknown."""
        found = _stat(self.pid)
        return found is not None and found == ("T", self.start_ticks)

    @property
    def starved_ms(self) -> float:
        """For how long its main thread has waited for a CPU, ready to run; 0 where the kernel does not say.

        Raises:
            OSError: it cannot be determined.
        """
        try:
            _ran_ns, waited_ns, _slices = Path("/proc", str(self.pid), "schedstat").read_text().split()
        except (*_GONE, ValueError):
            return 0.0
        return int(waited_ns) / 1e6

    @property
    def create_time(self) -> float:
        """Start time in seconds since the epoch, as far as the host's clock is right."""
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + self.start_ticks / _TICKS_PER_S

    def send(self, signum: int) -> bool:
        """Send a signal; False if the process is gone.

        Raises:
            OSError: it cannot be determined whether the pid still belongs to it.
        """
        if HostProcess.of(self.pid) != self:
            return False
        try:
            os.kill(self.pid, signum)
        except ProcessLookupError:
            return False
        return True


def find_by_environment(
    wanted: Mapping[str, str], *, of_others: bool = False
) -> Iterator[tuple[HostProcess, dict[str, str]]]:
    """Every live process of this user that was started with all of these environment variables, except this one.

    Args:
        wanted: The variables.
        of_others: Also those of other users, for root, who can see them: user code may have become another user. But
            their user has chosen their variables, so they are only to be ended.

    Raises:
        OSError: there may be some that cannot be seen, for want of file descriptors say.
    """
    needles = [f"{key}={value}".encode() for key, value in wanted.items()]
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            if not of_others and os.stat(f"/proc/{entry}").st_uid != os.geteuid():
                continue
            process = HostProcess.of(int(entry))
            pairs = _environment(int(entry)).split(b"\0")
        except (*_GONE, PermissionError):  # the latter: of another user
            continue
        if process is not None and all(needle in pairs for needle in needles):
            decoded = (os.fsdecode(pair).partition("=") for pair in pairs if pair)
            yield process, {key: value for key, _, value in decoded}


def _environment(pid: int) -> bytes:
    """What a process was started with. In the middle of exec() it has none yet, for as long as it gets no CPU."""
    deadline = time.monotonic() + _EXEC_S
    while not (found := Path("/proc", str(pid), "environ").read_bytes()) and time.monotonic() < deadline:
        fields = _fields(pid)
        if fields is None or int(fields[_FLAGS]) & _KERNEL_THREAD or int(fields[_ENV_END]) or fields[0] in "ZX":
            break
        time.sleep(0.001)
    return found


def sweep(wanted: Mapping[str, str], *, within_s: float = 30.0) -> int:
    """Kill every process that `find_by_environment` finds, and return how many there were.

    Repeated until none is found, because one of them may have started another in the meantime; gives up after
    `within_s` (a process in an uninterruptible system call cannot be killed, and one that is given no CPU ends late).
    """
    return _sweep(lambda: [process for process, _ in find_by_environment(wanted, of_others=True)], within_s)


def sweep_below(pid: int, *, within_s: float = 30.0) -> int:
    """The same with all descendants of a process that reaps its orphans: see `reap_orphans`."""
    return _sweep(lambda: _descendants(pid), within_s)


def reap_orphans(whether: bool = True) -> None:
    """Become the parent of all descendants that lose theirs, or of none. Raises OSError: the kernel refuses."""
    import ctypes  # here: few need it

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _sweep(find: Callable[[], Sequence[HostProcess]], within_s: float) -> int:
    killed: set[HostProcess] = set()
    deadline = time.monotonic() + within_s
    while found := find():
        for process in found:
            process.send(signal.SIGKILL)
        killed.update(found)
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return len(killed)


def _descendants(pid: int) -> list[HostProcess]:
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _fields(int(entry))) is not None:
            parents[int(entry)] = int(fields[1])
    below, found = {pid}, []
    while children := {child for child, parent in parents.items() if parent in below} - below:
        below |= children
        found += [process for child in children if (process := HostProcess.of(child)) is not None]
    return found


def _stat(pid: int) -> tuple[str, int] | None:
    fields = _fields(pid)
    return None if fields is None else (fields[0], int(fields[19]))


def _fields(pid: int) -> list[str] | None:
    """Of /proc/<pid>/stat (proc(5)) from the third on, the state; None if there is no such process."""
    try:
        text = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except _GONE:
        return None
    return text[text.rindex(")") + 2 :].split()  # the name, second, may contain blanks and parentheses


@functools.lru_cache(maxsize=64)
def _warn_unknown(pid: int, why: str) -> None:
    """Once for each: supervisors look at their processes many times a second."""
    log.warning("cannot determine whether process %d is alive, so it counts as alive: %s", pid, why)
