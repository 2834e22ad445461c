"""Child processes of this one: started, signalled and reaped. No decisions."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from heronpy.config import KIB
from heronpy.executor._commands import Command
from heronpy.executor._fork_servers import ForkServers
from heronpy.host import (
    CONTAINER_ENV,
    HostProcess,
    PidFiles,
    child_environment,
    heartbeat_path,
    look_at,
    open_out,
    prepare_heartbeat,
    tail,
)
from heronpy.limits import Overrun
from heronpy.runtime import HEARTBEAT_ENV, INCARNATION_ENV, PARENT_ENV, Launch, stack_path
from heronpy.supervision import Look

log = logging.getLogger(__name__)

STACK_LINES_MAX = 400
STACK_BYTES_MAX = 32 * KIB
"""How much of a hung process's stacks is logged."""


class Children:
    """The children of an executor. Each leads a process group of its own, which ends with it.

    Children are started by the thread that calls `start`, and the kernel kills them when that *thread* ends (see
    `heronpy.runtime.die_with_parent`): call it from the main thread only.
    """

    def __init__(self, launch: Launch, container: int) -> None:
        self.incarnation = 0
        """Of the container: what its processes send with every call."""
        self._launch = launch
        self._container = container
        self._dir = launch.container_dir(container)
        self.pids = PidFiles(self._dir)
        """Theirs, and the executor's own."""
        self._fork_servers = ForkServers(launch, container)
        self._children: dict[int, tuple[str, subprocess.Popen[bytes] | None]] = {}
        """Id, and what was executed; None: forked by a fork server."""
        self._hosts: dict[int, HostProcess] = {}
        self._stack_start: dict[int, int] = {}
        self._last_end: dict[str, tuple[str, int]] = {}
        """How each has ended, and with how much RAM if it was that."""
        self._out_start: dict[str, int] = {}
        self._started_s: dict[str, float] = {}

    def follow(self, commands: Iterable[Command]) -> None:
        """Get ready to start these."""
        self._fork_servers.follow(commands)

    @property
    def prepared(self) -> bool:
        """Whether what was said to `follow` has been done, as far as it can be."""
        return not self._fork_servers.importing

    def close(self) -> None:
        """End what only was there to start others."""
        self._fork_servers.close()

    def start(self, command: Command, started: Callable[[int], None] = lambda pid: None) -> int | None:
        """Start a process and return its pid; None (and a line in the log) if the system refuses.

        Args:
            command: What is started.
            started: Called with its pid as soon as there is one, and before a fork goes on. Must not raise.
        """
        ours = {PARENT_ENV: str(os.getpid()), CONTAINER_ENV: str(self._container), **command.env}
        ours[INCARNATION_ENV] = str(self.incarnation)
        prepare_heartbeat(heartbeat := heartbeat_path(self._dir, command.id))
        ours[HEARTBEAT_ENV] = str(heartbeat)
        bounds = self._launch.config.logging
        try:
            with open_out(self.out_path(command.id), file_bytes=bounds.file_bytes, files=bounds.files) as out:
                self._out_start[command.id] = out.seek(0, os.SEEK_END)
                environment = child_environment(self._launch, command.id, **ours)
                process = None
                pid = self._fork_servers.fork(command, environment, out, started)
                if pid is None:
                    process = subprocess.Popen(
                        command.argv,
                        cwd=self._dir,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        process_group=0,
                    )
                    pid = process.pid
                    started(pid)
        except OSError as e:
            log.error("%s cannot be started: %s", command.id, e)
            return None
        self._children[pid] = command.id, process
        self._started_s[command.id] = time.monotonic()
        found = self._identified(command.id, pid)
        if found is not None:  # else it is dead already, and `dead` will report it
            self._hosts[pid] = found
            last_end, over_ram = self._last_end.pop(command.id, ("", 0))
            record = self.pids.started(command.id, found, last_end=last_end, over_ram_bytes=over_ram)
            restarts = "unknown" if record is None else record.restarts
            log.info("%s started: pid %d, restarts %s", command.id, pid, restarts)
        return pid

    def _identified(self, id: str, pid: int) -> HostProcess | None:
        try:
            return HostProcess.of(pid)
        except OSError as e:
            log.warning("%s started: pid %d, but it is not recorded, and a hang will not be noticed: %s", id, pid, e)
            return None

    def terminate(self, pid: int) -> None:
        """SIGTERM to the process alone: what it started itself may be needed while it ends."""
        if pid in self._children:
            # Not Popen.terminate: that may reap a process that just died, and `dead` would never report it. Until it is
            # reaped here, its number cannot belong to another one.
            os.kill(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        """SIGKILL to the process and its group."""
        if pid in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; or it has become another user's
                os.killpg(pid, signal.SIGKILL)

    def looks(self) -> dict[str, Look]:
        """What the heartbeats of all children say; those that write none are left out."""
        found = ((id, look_at(self._dir, id, host)) for pid, host in self._hosts.items() if (id := self._id(pid)))
        return {id: look for id, look in found if look is not None}

    def dump_stacks(self, pid: int) -> None:
        """Have a child write its stacks to its .stack file."""
        if id := self._id(pid):
            path = self._stack_path(id)
            self._stack_start[pid] = path.stat().st_size if path.exists() else 0
            os.kill(pid, signal.SIGUSR1)

    def stacks(self, pid: int) -> str:
        """What it has written since; empty if nothing."""
        id = self._id(pid)
        start = self._stack_start.pop(pid, None)
        if id is None or start is None:
            return ""
        return tail(self._stack_path(id), from_byte=start, lines=STACK_LINES_MAX, max_bytes=STACK_BYTES_MAX)

    def dead(self) -> list[tuple[str, int, int]]:
        """Reap what has died since the last call: process id, pid, return code (negative: minus the signal)."""
        dead: list[tuple[str, int, int]] = []
        for pid, (id, process) in list(self._children.items()):
            # Looked at, not reaped: before it is reaped its number cannot belong to a stranger; afterwards it can.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            self.kill(pid)  # what is left of its group
            del self._children[pid]
            self._hosts.pop(pid, None)
            self._stack_start.pop(pid, None)
            code = process.wait() if process is not None else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            dead.append((id, pid, code))
        self._fork_servers.reap()
        return dead

    def report(
        self, id: str, pid: int, code: int, *, expected: bool, why: str = "", overrun: Overrun | None = None
    ) -> None:
        """Log a death: how (and why, if it was decided here), after how long, and the end of its output."""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        lived_s = time.monotonic() - self._started_s.get(id, time.monotonic())
        if expected:
            log.info("%s ended: pid %d, %s, after %.1f s", id, pid, how, lived_s)
            return
        why = str(overrun) if overrun is not None else why
        self._last_end[id] = why or how, overrun.used_bytes if overrun is not None else 0
        how += f" ({why})" if why else ""
        last = tail(self.out_path(id), from_byte=self._out_start.get(id, 0))
        words = f"; the end of {self.out_path(id).name}:\n{last}" if last else ""
        log.warning("%s died: pid %d, %s, after %.1f s%s", id, pid, how, lived_s, words)

    def _id(self, pid: int) -> str | None:
        return self._children[pid][0] if pid in self._children else None

    def _stack_path(self, id: str) -> Path:
        return stack_path(self._launch.log_dir(self._container) / f"{id}.log")

    def out_path(self, id: str) -> Path:
        return self._launch.log_dir(self._container) / f"{id}.out"
