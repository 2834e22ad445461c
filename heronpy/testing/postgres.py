"""A real PostgreSQL for tests; as `heronpy.testing.servers`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from heronpy.host import HostProcess
from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_process import Server

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
_OPTIONS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=16MB",
    "max_connections=50",
    "fsync=off",  # what it has written survives a kill, not a power cut
    "autovacuum=off",
    "jit=off",
)
_STATUS_LINE = 7
"""Of postmaster.pid; as `pg_ctl --wait` reads it."""
_READY = "ready   "


@functools.cache
def _binaries() -> Path | None:
    """Where initdb and postgres are; Debian has them beside the PATH."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    versions = sorted(_DEBIAN.glob("[0-9]*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


def postgres_missing() -> str | None:
    """Why no PostgreSQL can be started here, or None if one can."""
    if _binaries() is None:
        return "no PostgreSQL: install Debian's package postgresql"
    if importlib.util.find_spec("psycopg") is None:
        return "no PostgreSQL: pip install 'psycopg[binary]'"
    return None


class PostgresServer(Server):
    """One real PostgreSQL with its data in a directory. A context manager: runs for the duration of the block.

    It refuses to run as root, and its user may not enter the directories of root's tests: then its data is in a
    temporary directory of its own, removed at the end.
    """

    name = "PostgreSQL"
    port_taken = "Address already in use"

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its data and output; made if missing.
            port: For clients; 0: a free one.
        """
        super().__init__(directory, port)
        self._as_user: tuple[str, ...] = ()
        self._data = directory / "data"
        self._temporary: str | None = None

    @property
    def url(self) -> str:
        """postgresql+psycopg://…, as SQLAlchemy takes it."""
        return f"postgresql+psycopg://{_USER}@127.0.0.1:{self.port}/postgres"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def kill(self) -> None:
        """End it with SIGKILL, with the processes that serve connections: alone they would go on for a moment."""
        backends = self._backends() if self._process is not None and self._process.running() else []
        super().kill()
        for backend in backends:
            backend.send(signal.SIGKILL)
        for backend in backends:
            eventually_sync(functools.partial(_has_ended, backend))

    def freeze(self) -> None:
        """As of every server, with the processes that serve connections."""
        for backend in self._backends():
            backend.send(signal.SIGSTOP)

    def thaw(self) -> None:
        for backend in self._backends():
            backend.send(signal.SIGCONT)
        super().thaw()

    def _backends(self) -> list[HostProcess]:
        super().freeze()  # it starts no more
        children = Path("/proc", str(self.pid), "task", str(self.pid), "children").read_text().split()
        return [found for child in children if (found := HostProcess.of(int(child))) is not None]

    def _command(self) -> Sequence[str]:
        binaries = _binaries()
        assert binaries is not None, postgres_missing()
        if os.geteuid() == 0 and self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="heron-postgres-")
            shutil.chown(self._temporary, _USER, _USER)
            self._data = Path(self._temporary) / "data"
            # A change of user takes away the signal that ends it with its parent, so it is armed again.
            user = (f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", "--pdeathsig=KILL")
            self._as_user = ("setpriv", *user, "--")
        if not self._data.exists():
            initdb = [str(binaries / "initdb"), "-D", str(self._data), "-U", _USER, "-A", "trust", "--no-sync"]
            made = subprocess.run([*self._as_user, *initdb], capture_output=True, text=True, cwd="/", check=False)
            if made.returncode:
                raise RuntimeError(f"initdb failed: {made.stderr}")
        options = [part for option in _OPTIONS for part in ("-c", option)]
        return [*self._as_user, str(binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]

    def _serving(self) -> bool:
        # It listens before it has recovered what a kill left, and its log has what earlier incarnations said, too.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            lines = (self._data / "postmaster.pid").read_text().split("\n")
            return lines[0] == str(self.pid) and lines[_STATUS_LINE:][:1] == [_READY]
        return False


def _has_ended(process: HostProcess) -> None:
    assert not process.alive


__all__ = ["PostgresServer", "postgres_missing"]
