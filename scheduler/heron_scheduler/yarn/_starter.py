"""Starts one container of a topology in a container of YARN, and ends it gracefully.

YARN's own way to end a container is a SIGTERM to all of its processes, and a SIGKILL a quarter of a second later. So
this process follows the orders itself, and the container is in a session of its own, below it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from heron_scheduler._bootstrap import write_files
from heron_scheduler.driven import Orders, OrdersFollower
from heron_scheduler.yarn._credentials import LOCATION_ENV
from heron_scheduler.yarn._master import grace_s
from heronpy.container import TRY_AGAIN, Bootstrap
from heronpy.environment import python_command
from heronpy.errors import ConfigError, StateError
from heronpy.runtime import SECRETS_DIR
from heronpy.security import private_directory, write_secret
from heronpy.statemgr import open_statemgr

_POLL_S = 0.2
_RETRY_S = 2.0
_PR_SET_PDEATHSIG = 1


class Starter:
    """A container, from its bootstrap file to its end."""

    def __init__(self, document: bytes, generation: int, directory: Path) -> None:
        """Make ready what it needs.

        Args:
            document: The bootstrap file.
            generation: Of the order by which it was started.
            directory: The working directory of the container of YARN, which removes it.
        """
        self._bootstrap, self._generation = Bootstrap.decode(document), generation
        ours = private_directory(directory / "heron")
        self._launch = self._bootstrap.place(ours)
        write_files(self._bootstrap, ours, f"{SECRETS_DIR}/")  # those of the state manager
        self._file, self._workdir = ours / "bootstrap.json", ours / "work"
        write_secret(self._file, document)
        self._end_by_s: float | None = None
        self._unwanted = False

    def run(self) -> int:
        """Returns the exit code: 0 as ordered, or on purpose; 75 (or a signal) to be started again; else it failed."""
        child = self._spawn()
        signal.signal(signal.SIGTERM, lambda *_: self._end(child))
        while child.poll() is None:
            try:
                with (
                    contextlib.closing(open_statemgr(self._launch.statemgr, parents=False)) as state,
                    OrdersFollower(self._launch, state) as orders,
                ):
                    self._follow(child, orders.wanted, lambda: orders.changed.wait(_POLL_S))
            except StateError:  # the container itself says so, and needs it, too
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_RETRY_S)
        if self._unwanted:
            return 0
        # A SIGTERM is YARN's: it wants the resources, and the container back elsewhere.
        return child.returncode if child.returncode >= 0 and self._end_by_s is None else TRY_AGAIN

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != LOCATION_ENV}
        if host := os.environ.get("NM_HOST"):
            environment.setdefault("HERON_ADVERTISE_ADDRESS", host)
        where = ["-m", "heronpy.container", str(self._file), "--dir", str(self._workdir)]
        libc = ctypes.CDLL(None)
        python = python_command(self._launch)
        try:
            return subprocess.Popen(
                [*python, *where],
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # Nothing of the container outlives this process, however that ends. No thread has been started yet.
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except OSError as e:
            raise ConfigError(f"{python[0]}: {e.strerror}") from e

    def _follow(
        self, child: subprocess.Popen[bytes], wanted: Callable[[], Orders | None], wait: Callable[[], object]
    ) -> None:
        while child.poll() is None:
            if not self._unwanted and not self._is_wanted(wanted()):
                self._unwanted = True
                self._end(child)
            if self._end_by_s is not None and time.monotonic() > self._end_by_s:
                child.kill()
            wait()

    def _is_wanted(self, orders: Orders | None) -> bool:
        if orders is None:
            return True
        order = None if orders.stop else orders.containers.get(self._bootstrap.container)
        return order is not None and order.generation <= self._generation

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        if self._end_by_s is None:
            self._end_by_s = time.monotonic() + grace_s(self._launch)
            child.terminate()
