"""Files that are there whole or not at all, and locks that end with the process."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from heronpy.errors import UnavailableError
from heronpy.files import replace_file
from heronpy.filesystem import Found, Location, UrlPath, files_of

P = TypeVar("P", Path, UrlPath, Location)
TMP = "_tmp"
"""Where files are until they are whole: in the archive's directory, so on its file system."""
_STALE_S = 3600
_WAIT_S = 30.0


def this_process() -> str:
    """The owner of temporary files that this process makes."""
    return f"{_host()}@{os.getpid()}"


@functools.cache
def _host() -> str:
    """Name of this host, and a digest of where its pids mean the same processes: containers may share a name."""
    from heronpy.host import pid_space  # with it comes the engine's runtime, which Spark's tasks do without

    return f"{socket.gethostname()}-{hashlib.sha256(pid_space().encode()).hexdigest()[:8]}"


def tmp_path(directory: P, owner: str = "") -> P:
    """A new path in the archive's `_tmp`. It belongs to this process, or to `owner`: with that it becomes stale."""
    folder = directory / TMP
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{owner or this_process()}@{secrets.token_hex(8)}"


def remove_stale(directory: Location) -> int:
    """Remove what dead writers have left in `_tmp`; how many files.

    A writer is dead if its process is (same host), or if its file has not been written to for an hour.
    """
    files = files_of(directory)
    stale = [file.path for file in files.listed(directory / TMP) if not _alive(file)]
    files.delete(stale)
    return len(stale)


def _alive(file: Found[Any]) -> bool:
    return time.time() - file.modified_s <= _STALE_S and not is_dead_here(file.path.name)


def is_dead_here(owner: str) -> bool:
    """Whether it is known that the process is gone whose `this_process` a name begins with."""
    host, _, rest = owner.partition("@")
    pid = rest.partition("@")[0]
    if host != _host() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def write_json(directory: Location, path: Location, content: Any) -> None:
    """Replace a small file; a reader sees the old one or the new one."""
    if not isinstance(directory, Path) or not isinstance(path, Path):
        files_of(path).write(path, json.dumps(content, indent=1).encode())
        return
    replace_file(path, json.dumps(content, indent=1), temporary=tmp_path(directory))


@contextlib.contextmanager
def locked(path: Path, what: str, *, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Hold a lock file. It is free again when its holder is dead.

    Raises:
        UnavailableError: someone else holds it for longer than `wait_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline_s = time.monotonic() + wait_s
        while not _try_lock(fd):
            if time.monotonic() >= deadline_s:
                raise UnavailableError(f"{what}: {path} is locked by another process")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
