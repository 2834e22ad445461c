"""The side of the process that wants others to be forked."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from heronpy.errors import UnavailableError
from heronpy.forkserver._protocol import GO, READY, REQUEST_BYTES_MAX, Request
from heronpy.forkserver._titles import ROOM, ROOM_ENV
from heronpy.host import HostProcess, engine_process, engine_program, reap_orphans

ANSWER_S: Final = 5.0
"""How long a fork is waited for."""
IMPORTS_S: Final = 60.0
"""How long the imports of a server may take."""


class ForkServer:
    """A fork server of this process, which it does not outlive. To be used by the main thread only."""

    def __init__(self, modules: Iterable[str], *, environment: Mapping[str, str], errors: IO[bytes]) -> None:
        """Start it; it is not waited for.

        Args:
            modules: What it imports: the engine's processes, by the names with which they are executed.
            environment: Its own, with what is read when a program is executed (GLIBC_TUNABLES) or a library loaded.
                What it starts with stands in what it forks until that has named itself, so it comes first there.
            errors: Where it prints why it ends.

        Raises:
            OSError: the system refuses.
        """
        self._deadline_s = time.monotonic() + IMPORTS_S
        self._ready = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = engine_process("heronpy.forkserver", str(theirs.fileno()), ROOM, *sorted(modules))
            self._process = subprocess.Popen(
                argv,
                env={**environment, ROOM_ENV: ROOM},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether it has imported everything, so that `fork` takes milliseconds.

        Raises:
            UnavailableError: it is dead or stopped, or has taken too long.
        """
        if self._process.poll() is not None:
            raise UnavailableError(f"the fork server, pid {self.pid}, has ended")
        if self._stopped:
            raise UnavailableError(f"the fork server, pid {self.pid}, is stopped")  # by a signal: it may stay so
        if not self._ready:
            self._socket.settimeout(0)
            try:
                self._ready = self._socket.recv(len(READY)) == READY
                if not self._ready:
                    raise UnavailableError(f"the fork server, pid {self.pid}, has ended")
            except BlockingIOError:
                if time.monotonic() > self._deadline_s:
                    raise UnavailableError(f"the fork server, pid {self.pid}, is not ready in time") from None
            except OSError as e:
                raise UnavailableError(f"the fork server, pid {self.pid}: {e}") from e
        return self._ready

    @property
    def _stopped(self) -> bool:
        """As far as is known. The parent is notified later: when all threads are stopped, those of libraries, too."""
        try:
            found = HostProcess.of(self.pid)
            return found is not None and found.stopped
        except OSError:
            return False

    def fork(
        self,
        argv: tuple[str, ...],
        *,
        directory: Path,
        environment: Mapping[str, str],
        out: IO[bytes],
        started: Callable[[int], None] = lambda pid: None,
    ) -> int:
        """Have a process forked that is a child of this one, and leads a process group. Returns its pid.

        Args:
            argv: The command that would execute it, of `heronpy.host.engine_process`.
            directory: Where it runs.
            environment: Its environment, with this process as HERON_PARENT_PID.
            out: Where it prints.
            started: Called with its pid before it goes on, to limit it say. Must not raise.

        Raises:
            ValueError: command and environment are too large for a message.
            UnavailableError: there is no such process, nor will there be one: the server is dead, too slow, or was
                refused it by the system.
        """
        module, *args = engine_program(argv)
        request = Request(os.getpid(), argv, module, args, str(directory), dict(environment)).encode()
        if len(request) > REQUEST_BYTES_MAX:
            raise ValueError(f"its command and environment have {len(request):,} bytes")
        try:
            with _adopting() as expected:
                if pid := self._forked(request, out, started):
                    expected.add(pid)
                    return pid
        except OSError as e:
            raise UnavailableError(f"the fork server, pid {self.pid}: {e}") from e
        raise UnavailableError(f"the fork server, pid {self.pid}, has ended, or could not fork")

    def _forked(self, request: bytes, out: IO[bytes], started: Callable[[int], None]) -> int:
        """The pid of a fork that goes on; 0: there is none. Raises OSError: the same."""
        pid = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            for end in (ours, self._socket):
                end.settimeout(ANSWER_S)
            try:
                with theirs:
                    socket.send_fds(self._socket, [request], [out.fileno(), theirs.fileno()])
                while message := ours.recv(32):
                    pid = int(message.removeprefix(READY))
                    if message.startswith(READY):
                        started(pid)
                        ours.send(GO)
                        return pid
            except OSError:
                if pid:
                    _end(pid)
                raise
        if pid:
            _end(pid)
        return 0

    def close(self) -> None:
        """End it. What it has forked goes on."""
        self._socket.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()


_adopted: Final[set[int]] = set()
"""Children of this process that are not what it was waiting for, such as what a dying process of user code has left."""


def reap_adopted() -> None:
    """Reap what this process has adopted besides forks, as far as it is dead."""
    for pid in list(_adopted):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _adopted.remove(pid)


@contextlib.contextmanager
def _adopting() -> Iterator[set[int]]:
    """Be the parent of what a fork of a fork leaves behind, here; else it would be adopted by init.

    Others are orphaned here at the same time: what is not added to the expected children is left to `reap_adopted`.
    """
    expected = _children()
    reap_orphans()
    try:
        yield expected
    finally:
        reap_orphans(False)
        with contextlib.suppress(OSError):  # no descriptor is left; the fork is there all the same
            _adopted.update(_children() - expected)


def _children() -> set[int]:
    """Of the main thread; none where the kernel does not say."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    except FileNotFoundError:
        return set()


def _end(pid: int) -> None:
    """Kill and reap a fork that is a child of this process, or is just becoming one."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):  # not yet: the process between has not ended
            os.waitpid(pid, 0)
            return
        time.sleep(0.001)
