"""Files that fail by number: the layer of `faulty_files.c`, and the page by which it is told what to do.

Call number n of the driver, or of all Spark tasks together, fails: with an errno, with less data than asked for, with
the death of the process, or because there is no memory from there on.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import re
import resource
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

SHORT, KILL, LIMIT, NO_MEMORY, KILL_JVM = -1, -2, -3, -4, -5
FOR_EVER = 1_000_000
DRIVER, TASK = 0, 1
ACTIONS = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "ESTALE": errno.ESTALE,
    "EINTR": errno.EINTR,
    "short": SHORT,
    "kill -9": KILL,
    "kill -9 of the JVM": KILL_JVM,
    "RLIMIT_AS": LIMIT,
    "no memory": NO_MEMORY,
}
_RANDOM = re.compile(
    r"[0-9a-f]{10,}(-[0-9a-f]{8})?|(?<=-)[0-9a-f]{12}|(?<==)\d+|(?<=part-)\d+|(?<=@)[0-9a-z-]+"
    r"|(?<=-)[0-9a-f]{8}(?=[.-])"
)


class _Control(ctypes.Structure):
    _fields_ = (
        ("prefixes", (ctypes.c_char * 512) * 2),
        ("what", ctypes.c_char * 1024),
        ("at", ctypes.c_int64),
        ("repeat", ctypes.c_int64),
        ("extra", ctypes.c_int64),
        ("calls", ctypes.c_int64 * 2),
        *((name, ctypes.c_int32) for name in ("driver", "role", "action", "armed", "fired", "fired_pid", "traced")),
    )


def compiler_missing() -> str | None:
    """Why the layer cannot be made; None if it can."""
    return None if shutil.which("cc") else "no C compiler: install Debian's package gcc, and libc6-dev"


class FaultyFiles:
    """The layer for the processes that are started with `env`."""

    def __init__(self, directory: Path) -> None:
        """Compile it into a directory, which must exist."""
        self._library = directory / "faulty_files.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"], check=True)
        self._path = directory / "faulty_files.page"
        self._path.write_bytes(bytes(ctypes.sizeof(_Control)))
        with self._path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)
        self._control = _Control.from_buffer(self._page)

    @property
    def env(self) -> Mapping[str, str]:
        """For the process that is to be the driver, and all that come from it."""
        return {
            "LD_PRELOAD": str(self._library),
            "HERON_FAULTY_FILES": str(self._path),
            "HERON_FAULTY_DRIVER": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",  # so that its allocations are seen
        }

    def watch(self, *directories: Path) -> None:
        """Count calls below these directories, from 0."""
        for i, directory in enumerate((*directories, "", "")[:2]):
            self._control.prefixes[i].value = str(directory).encode()
        self._control.calls[DRIVER] = self._control.calls[TASK] = 0
        self._control.armed = self._control.fired = 0

    def arm(self, role: int, action: str, at: int, *, repeat: int = 1, extra: int = 0) -> None:
        """Have something happen to calls `at` to `at + repeat - 1` of a role."""
        control = self._control
        control.role, control.action, control.at = role, ACTIONS[action], at
        control.repeat, control.extra, control.armed = repeat, extra, 1

    def disarm(self) -> None:
        """All is well again, also the memory of the process that had too little."""
        self._control.armed = 0
        if self._control.fired and self._control.action == LIMIT:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            with contextlib.suppress(ProcessLookupError):  # it did not survive that
                resource.prlimit(self._control.fired_pid, resource.RLIMIT_AS, unlimited)

    def calls(self, role: int) -> int:
        """How many there were since `watch`."""
        return int(self._control.calls[role])

    @property
    def fired(self) -> str:
        """The first call that something happened to, without what is random in its path; empty: none."""
        return self._named(self._control.what.decode(errors="replace")) if self._control.fired else ""

    @property
    def driver(self) -> int:
        """The process whose calls are the driver's: the last one that was started with `env`, unless it is set."""
        return int(self._control.driver)

    @driver.setter
    def driver(self, pid: int) -> None:
        self._control.driver = pid

    def trace(self, on: bool) -> list[str]:
        """Begin to write down all calls, or end it; those since it began, named as in `fired`."""
        path = Path(f"{self._path}.trace")
        found = path.read_text(errors="replace").splitlines() if path.exists() else []
        if on and path.exists():
            with path.open("r+") as file:
                file.truncate()
        self._control.traced = int(on)
        return [self._named(line) for line in found]

    def _named(self, call: str) -> str:
        for prefix in self._control.prefixes:
            text = prefix.value.decode()
            call = call.replace(f"{text}/", "").replace(text, ".") if text else call
        return without_random(call)


def without_random(call: str) -> str:
    """A call, or a request, without what is random in the path."""
    return _RANDOM.sub("*", call)
