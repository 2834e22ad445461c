"""A server as a child process: started on a free port, gone when the process that started it is gone."""

# This file is also run alone, in the child (see `_become`): it imports nothing but the standard library.

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

_START_S = 240.0
"""For a busy machine: one that ended is noticed at once, so that only a hang takes so long."""
ANSWER_S = 60.0
"""How long a server that starts may take for an answer at most: its first one may be slow."""
_FIRST_ANSWER_S = 2.0
"""What it is given at first, and then twice as long each time: a connection that came too early is never answered."""
_STOP_S = 60.0
_POLL_S = 0.02
_PORT_TRIES = 3
_PR_SET_PDEATHSIG = 1
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A TCP port of 127.0.0.1 where no process listens now, and which the kernel gives to no outgoing connection.

    So a server can be stopped and started again there. A port from the kernel's own range may be taken meanwhile,
    even by a client of that server: on one host, a connection from a port to itself succeeds.
    """
    # Not from `random`: test runs seed it, and then all of them would try the same ports.
    for port in secrets.SystemRandom().sample(range(*_listening_ports()), k=100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port was found on 127.0.0.1")


def _listening_ports() -> tuple[int, int]:
    """The ports that are neither privileged nor for outgoing connections, or all that are not privileged."""
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return (10_000, first) if first > 11_000 else (10_000, 65_536)


def listening(port: int, address: str = LOOPBACK) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
        s.settimeout(1.0)
        return s.connect_ex((address, port)) == 0


class Place(Protocol):
    """Where a server can run instead of on this host: see `heronpy.testing.hosts.Host`."""

    address: str

    def command(self, command: Sequence[str]) -> Sequence[str]:
        """A command of this host that runs a command there, and stands in for it."""

    def inner_pid(self, stand_in: int) -> int | None:
        """The process that another one stands in for; None if it has ended."""


class ServerProcess:
    """A child process with its output in a file. The kernel ends it when this process ends."""

    def __init__(self, command: Sequence[str], output: Path, place: Place | None = None) -> None:
        self.output = output
        self._place = place
        command = command if place is None else place.command(command)
        # The child arms its death signal itself, before it becomes the server (see `_become`): preexec_fn is not
        # safe in a process with threads.
        with output.open("ab") as f:
            self._process = subprocess.Popen(
                [sys.executable, "-S", __file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Of the server itself, also where this host has only a process that stands in for it."""
        inner = self._place.inner_pid(self._process.pid) if self._place is not None else None
        return self._process.pid if inner is None else inner

    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, signum: int) -> None:
        """Send a signal, if the process still runs."""
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.signal(signal.SIGKILL)
        self._process.wait(_STOP_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it in time."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, lines: int = 5) -> str:
        """The end of its output, for error messages."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])


class Server(ABC):
    """A real server with its data in a directory. A context manager: runs for the duration of the block."""

    name: str
    """What messages call it."""
    port_taken: str
    """What its output has when its port is another's."""

    def __init__(self, directory: Path, port: int = 0, place: Place | None = None) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing. One of the place, if there is one.
            port: For clients; 0: a free one.
            place: Where it runs, if not on this host.
        """
        self.directory = directory
        self.port = port
        self.bind = LOOPBACK if place is None else place.address
        """Where it listens."""
        self._place = place
        self._fixed_port = port != 0
        self._process: ServerProcess | None = None
        self._answer_s = ANSWER_S
        """How long `_serving` is to wait for an answer."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Write its configuration; the command that starts it."""

    @abstractmethod
    def _serving(self) -> bool:
        """Whether it answers, and has read its data."""

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def _started(self) -> ServerProcess:
        assert self._process is not None, "not started"
        return self._process

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it serves. After a kill: again on the same port, with the same data.

        Raises:
            RuntimeError: it ended, or did not serve in time; with the end of its output.
        """
        for attempt in range(1 if self._fixed_port else _PORT_TRIES):
            self._launch()
            if not wait:
                return
            error = self._await_serving()
            if error is None:
                self._fixed_port = True
                return
            self.kill()
            if attempt + 1 == _PORT_TRIES or self.port_taken not in error:
                break  # only a port taken between the check and the start is worth another try
        raise RuntimeError(error)

    def wait_serving(self) -> None:
        """Wait until it answers, alone or as a member with a quorum. Raises RuntimeError like `start`."""
        if error := self._await_serving():
            raise RuntimeError(error)

    def _launch(self) -> None:
        if not self._fixed_port:
            self.port = free_port()
        if listening(self.port, self.bind):
            # A stale server would answer in place of ours and the test would prove nothing.
            raise RuntimeError(f"port {self.port} is taken")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(self._command(), self.directory / "output.log", self._place)

    def _await_serving(self) -> str | None:
        """None when it serves, else what went wrong."""
        process = self._started
        deadline_s = time.monotonic() + _START_S
        self._answer_s = _FIRST_ANSWER_S
        while (asked_s := time.monotonic()) < deadline_s:
            if not process.running():
                return f"{self.name} ended while it started:\n{process.tail(20)}"
            if self._serving():
                return None
            if time.monotonic() - asked_s >= self._answer_s:
                self._answer_s = min(2 * self._answer_s, ANSWER_S)
            time.sleep(_POLL_S)
        return f"{self.name} did not serve within {_START_S:g} s:\n{process.tail()}"

    def kill(self) -> None:
        """End it with SIGKILL; its data stays for the next `start`. Nothing in it is worth an orderly end."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Stop its clock (SIGSTOP): connections stay open, and once this has returned nothing answers."""
        self._started.signal(signal.SIGSTOP)
        while not _stopped(self.pid):
            time.sleep(_POLL_S)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self._started.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


def _stopped(pid: int) -> bool:
    """Whether every thread has."""
    try:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:
        return False  # one that ended in this moment
    return all(stat.rpartition(")")[2].split()[0] in "TZ" for stat in stats)


def _become(parent: int, command: Sequence[str]) -> None:
    """In the child: end with the parent, then become the server."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
