"""What real clusters of servers on one machine have in common: they are started, lose hosts, and leave nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_process import ServerProcess

START_S = 300.0
"""For a busy machine: a daemon that ends is noticed at once."""


class ServerCluster(ABC):
    """Daemons of the cluster, and one for each host. A context manager: nothing of it is left after the block.

    Hosts have a directory each; nothing is shared between them but this machine.
    """

    up: ClassVar[Collection[str]]
    """The states of a host that takes containers."""

    def __init__(self, prefix: str, hosts: Sequence[str]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))  # short, because sockets are in some
        self.hosts = list(hosts)
        self._daemons: dict[str, ServerProcess] = {}

    @abstractmethod
    def start(self) -> None:
        """Start all daemons. Returns when all hosts take containers.

        Raises:
            RuntimeError: they do not come up; with the end of their output.
        """

    @abstractmethod
    def start_host(self, host: str) -> None:
        """Start a host's daemon."""

    @abstractmethod
    def states(self) -> Mapping[str, str]:
        """What the cluster says of each host.

        Raises:
            OSError, ValueError, subprocess.SubprocessError: it does not answer, or not yet as it will.
        """

    @abstractmethod
    def processes(self, host: str) -> list[int]:
        """All processes of a host, or all but its daemon."""

    def lost_files(self, host: str) -> Path:
        """What of a host is gone with it."""
        return self.directory / host

    def wait_up(self, *hosts: str) -> None:
        """Return when the hosts take containers, with or without some already."""
        self._wait(hosts, self.up)

    def vanish(self, host: str) -> None:
        """End all processes of a host at once, as when its machine loses power."""
        left = self.processes(host)  # before the daemon has ended, because some are found by it
        if host in self._daemons:
            self._daemons.pop(host).kill()
        deadline_s = time.monotonic() + START_S
        while left and time.monotonic() < deadline_s:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
            left = self.processes(host)
        shutil.rmtree(self.lost_files(host), ignore_errors=True)

    @contextlib.contextmanager
    def hung(self, daemon: str) -> Iterator[None]:
        """Have a daemon stopped (SIGSTOP) for the duration of the block: it takes connections, and does not answer."""
        self._daemons[daemon].signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._daemons[daemon].signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all daemons, and what runs on the hosts, and remove the directory."""
        for host in self.hosts:
            self.vanish(host)
        while self._daemons:
            self._daemons.popitem()[1].kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _daemon(self, name: str, environment: Mapping[str, str], command: Sequence[str], output: Path) -> None:
        values = (f"{key}={value}" for key, value in environment.items())
        self._daemons[name] = ServerProcess(["env", *values, *command], output)

    def _wait(self, hosts: Sequence[str], wanted: Collection[str]) -> None:
        def check() -> None:
            for name, daemon in self._daemons.items():
                if not daemon.running():
                    raise RuntimeError(f"{name} ended while it started:\n{daemon.tail(20)}")
            try:
                states = self.states()
            except (OSError, ValueError, subprocess.SubprocessError) as e:
                raise AssertionError(f"the cluster does not answer: {e}") from None
            assert all(states.get(host) in wanted for host in hosts), states

        eventually_sync(check, within_s=START_S)
