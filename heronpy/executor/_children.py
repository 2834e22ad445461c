"""Child processes of this one: started, signalled and reaped. No decisions."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from pathlib import Path

from heronpy.executor._commands import CONTAINER_ENV, Command, child_environment
from heronpy.executor._files import forget_pid, open_out, tail, write_pid
from heronpy.executor._host import HostProcess
from heronpy.runtime import PARENT_ENV, Launch

log = logging.getLogger(__name__)


class Children:
    """The children of an executor. Each leads a process group of its own, which ends with it.

    Children are started by the thread that calls `start`, and the kernel kills them when that *thread* ends (see
    `heronpy.runtime.die_with_parent`): call it from the main thread only.
    """

    def __init__(self, launch: Launch, container: int) -> None:
        self._launch = launch
        self._container = container
        self._dir = launch.container_dir(container)
        self._children: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._out_start: dict[str, int] = {}
        self._started_s: dict[str, float] = {}

    def start(self, command: Command) -> int | None:
        """Start a process and return its pid; None (and a line in the log) if the system refuses."""
        ours = {PARENT_ENV: str(os.getpid()), CONTAINER_ENV: str(self._container), **command.env}
        bounds = self._launch.config.logging
        try:
            with open_out(self.out_path(command.id), file_bytes=bounds.file_bytes, files=bounds.files) as out:
                self._out_start[command.id] = out.seek(0, os.SEEK_END)
                process = subprocess.Popen(
                    command.argv,
                    cwd=self._dir,
                    env=child_environment(self._launch, command.id, **ours),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
        except OSError as e:
            log.error("%s cannot be started: %s", command.id, e)
            return None
        self._children[process.pid] = command.id, process
        self._started_s[command.id] = time.monotonic()
        found = HostProcess.of(process.pid)
        if found is not None:  # else it is dead already, and `dead` will tell
            record = write_pid(self._dir, command.id, found)
            log.info("%s started: pid %d, restarts %d", command.id, process.pid, record.restarts)
        return process.pid

    def terminate(self, pid: int) -> None:
        """SIGTERM to the process alone: what it started itself may be needed while it ends."""
        if pid in self._children:
            # Not Popen.terminate: that may reap a process that has just died, and `dead` would never tell. Until it is
            # reaped here, its number cannot belong to another one.
            os.kill(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        """SIGKILL to the process and its group."""
        if pid in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def dead(self) -> list[tuple[str, int, int]]:
        """Reap what has died since the last call: process id, pid, return code (negative: minus the signal)."""
        dead: list[tuple[str, int, int]] = []
        for pid, (id, process) in list(self._children.items()):
            # Looked at, not reaped: before it is reaped its number cannot belong to a stranger; afterwards it can.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            self.kill(pid)  # what is left of its group
            del self._children[pid]
            dead.append((id, pid, process.wait()))
        return dead

    def report(self, id: str, pid: int, code: int, *, expected: bool) -> None:
        """Log a death: how, after how long, and the last words on stdout and stderr."""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        lived_s = time.monotonic() - self._started_s.get(id, time.monotonic())
        if expected:
            log.info("%s ended: pid %d, %s, after %.1f s", id, pid, how, lived_s)
            return
        last = tail(self.out_path(id), from_byte=self._out_start.get(id, 0))
        words = f"; the end of {self.out_path(id).name}:\n{last}" if last else ""
        log.warning("%s died: pid %d, %s, after %.1f s%s", id, pid, how, lived_s, words)

    def forget(self, id: str) -> None:
        """Remove the record of a process that is to run no more."""
        forget_pid(self._dir, id)

    def out_path(self, id: str) -> Path:
        return self._launch.log_dir(self._container) / f"{id}.out"
