"""The directory of a topology on a host that has nothing of it yet: one for each container, 0700.

    <workdir>/<topology id>/<container>/

A container that is started again on the same host finds its directory, and in it its logs and its packages. Where an
earlier incarnation still has it (one that is stopped, say), the new one takes another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from heronpy.container._bootstrap import Bootstrap
from heronpy.errors import StateError, UnavailableError, UntrustedError
from heronpy.files import lock_within, make_private, outrace_removal
from heronpy.runtime import CONTAINER_LOCK_FILE, SECRETS_DIR, TOKEN_FILE, USER_SECRETS_DIR, Launch
from heronpy.security import private_directory, write_secret

_SECRETS = ("tls", SECRETS_DIR)
_SOCKETS_LOCK = "lock"
_LOCK_S = 10.0
"""It is held for the removal of a few files."""


def default_workdir() -> Path:
    """Where containers of this user are, unless somebody says otherwise."""
    return Path(tempfile.gettempdir()) / f"heron-containers-{os.getuid()}"


def make_directory(bootstrap: Bootstrap, workdir: Path) -> Launch:
    """Make the topology's directory of a container, without its packages, or take over the one that is there.

    It is this process's for as long as it lives, also through `exec`.

    Raises:
        UntrustedError: a directory belongs to another user.
        StateError: it cannot be written.
    """
    try:
        make_private(workdir, exist_ok=True)
        if workdir.stat().st_uid not in (os.geteuid(), 0):  # who could exchange what is in it at any time
            raise UntrustedError(
                f"{workdir} belongs to another user: set TMPDIR, or --dir of the container, to a directory of yours"
            )
        above = private_directory(workdir.absolute() / bootstrap.topology_id)
        directory = private_directory(above / str(bootstrap.container))
        if not _take(directory):
            directory = private_directory(above / f"{bootstrap.container}.{time.time_ns()}")
            _take(directory)
        launch = bootstrap.place(directory)
        for name, text in bootstrap.files.items():
            if bootstrap.container == 0 and name.startswith(f"{USER_SECRETS_DIR}/"):
                continue  # it runs no user code
            path = directory / name
            for parent in reversed(path.relative_to(directory).parents[:-1]):
                private_directory(directory / parent)
            write_secret(path, text.encode())
        launch.save()
        launch.container_dir(bootstrap.container).mkdir(exist_ok=True)
    except OSError as e:
        raise StateError(f"{e.filename or workdir} cannot be written: {e.strerror or e}") from e
    return launch


def take_sockets(launch: Launch, container: int) -> None:
    """Make the directory of a container's sockets. It is this process's for as long as it lives, also through `exec`.

    Those of containers that were killed on this host, and were not started there again, are removed.

    Raises:
        UntrustedError: a directory belongs to another user.
        UnavailableError: another process holds it.
    """

    def take() -> int:
        path = launch.socket_dir(container).parent / _SOCKETS_LOCK
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not lock_within(fd, _LOCK_S):
                raise UnavailableError(f"another process has held {path} for {_LOCK_S:g} s: is it stopped?")
            os.stat(path)  # FileNotFoundError: it was removed before it was locked
        except BaseException:
            os.close(fd)
            raise
        return fd

    os.set_inheritable(outrace_removal(take), True)
    mine = launch.socket_root()
    for path in mine.parent.glob(f"*/{_SOCKETS_LOCK}"):  # topologies of the local scheduler have none
        if path.parent != mine:
            _remove_unless_held(path)


def _remove_unless_held(lock: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        with contextlib.closing(os.fdopen(fd)):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)


def remove_secrets(launch: Launch, container: int) -> None:
    """A container has ended for good: leave its logs on the host, and nothing else of it.

    Raises:
        OSError: something cannot be removed.
    """
    for path in launch.dir.iterdir():
        if path.name in _SECRETS or (path.is_dir() and path != launch.container_dir(container)):
            shutil.rmtree(path)
    (launch.dir / TOKEN_FILE).unlink(missing_ok=True)
    launch.remove_sockets()


def _take(directory: Path) -> bool:
    """Whether no other process has this directory. It is held until this process ends."""
    fd = os.open(directory / CONTAINER_LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    os.set_inheritable(fd, True)
    return True
