"""One node as a file: opened without trusting the name, read whole, written aside.

Nothing is believed that somebody else owns: an open node is a regular file (never a link, a pipe or a device), not too
large, and belongs to this user, to root, or, where this user is root, to the owner of the tree.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Iterator

from heronpy.errors import StateError

EPHEMERAL = stat.S_IXUSR
VALUE_BYTES_MAX = 64 << 20
"""A larger file is not read: no node is."""
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_TEMP_SUFFIX = ".tmp"
_TEMP_AGE_S = 600.0
_READ_RETRIES = 1000
# A pipe must not block its opener, nor a link lead elsewhere.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Signature = tuple[int, int, int, int, int]
Trusted = frozenset[int]
"""User ids whose files are believed."""


def trusted_owners(root: str) -> Trusted:
    """The users whose files below an existing root are believed.

    Raises:
        StateError: the root belongs to somebody else, or is not a directory.
    """
    me, found = os.geteuid(), os.stat(root)
    if not stat.S_ISDIR(found.st_mode):
        raise StateError(f"the state root {root} is not a directory")
    trusted = frozenset({me, 0, found.st_uid} if me == 0 else {me, 0})
    if found.st_uid not in trusted:
        raise StateError(f"the state root {root} belongs to user {found.st_uid}: use one of your own")
    return trusted


def make_directory(path: str, trusted: Trusted) -> None:
    """Make a folder of nodes that no other user can enter; tighten one of ours that others can.

    Raises:
        StateError: it is a link, not a directory, or somebody else's.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_MODE)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in trusted:
        raise StateError(f"{path} is not a directory of this user: it is not used")
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, DIRECTORY_MODE)


def open_owned(path: str, flags: int, trusted: Trusted) -> int:
    """A descriptor of a regular file of a trusted user.

    Raises:
        FileNotFoundError: there is none.
        StateError: it is something else, or somebody else's.
    """
    try:
        fd = os.open(path, flags | _SAFELY, FILE_MODE)
    except OSError as e:
        if os.path.islink(path):
            raise StateError(f"{path} is a symbolic link: it is not followed") from e
        raise
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_uid in trusted and found.st_size <= VALUE_BYTES_MAX:
        return fd
    os.close(fd)
    if not stat.S_ISREG(found.st_mode):
        raise StateError(f"{path} is not a regular file: it is not read")
    if found.st_uid not in trusted:
        raise StateError(f"{path} belongs to user {found.st_uid}: it is not read")
    raise StateError(f"{path} is larger than {VALUE_BYTES_MAX} bytes: it is not read")


def signature_of(found: os.stat_result) -> Signature:
    """What distinguishes a version of a node from every other that is open."""
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


def signature(path: str) -> Signature | None:
    """Differs between any two versions of a node, as long as a descriptor of one of them is open."""
    try:
        return signature_of(os.lstat(path))
    except FileNotFoundError:
        return None


def is_live(fd: int) -> bool:
    """Whether an open node counts: it is no ephemeral one, or its owner holds its lock."""
    if not os.fstat(fd).st_mode & EPHEMERAL:
        return True
    try:
        # Shared: two who ask at once must not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def open_live(path: str, trusted: Trusted) -> int:
    """A descriptor of the node's newest version, or -1 if there is none or its owner is gone.

    Raises:
        StateError: what has its name is not a node: see `open_owned`.
    """
    for _ in range(_READ_RETRIES):
        try:
            fd = open_owned(path, os.O_RDONLY, trusted)
        except FileNotFoundError:
            return -1
        if is_live(fd):
            return fd
        # Left over, or replaced by its owner since it was opened, who then let the old version's lock go.
        found = signature(path)
        same = found is not None and found[:2] == signature_of(os.fstat(fd))[:2]
        os.close(fd)
        if same:
            return -1
    raise StateError(f"{path} is replaced faster than it can be read")


def is_live_ephemeral(path: str, trusted: Trusted) -> bool:
    """Whether it is an ephemeral node whose owner lives."""
    fd = open_live(path, trusted)
    if fd < 0:
        return False
    try:
        return bool(os.fstat(fd).st_mode & EPHEMERAL)
    finally:
        os.close(fd)


def read(fd: int) -> bytes:
    """The whole value of an open node."""
    parts = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


@contextlib.contextmanager
def temp_file(path: str, value: bytes) -> Iterator[str]:
    """A synced file with `value` beside `path`. Removed at the end unless it was renamed."""
    temp = os.path.join(os.path.dirname(path), f".{os.getpid()}-{uuid.uuid4().hex}{_TEMP_SUFFIX}")
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, FILE_MODE)
        with os.fdopen(fd, "wb") as f:
            f.write(value)
            f.flush()
            os.fsync(fd)
        yield temp
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)


def sweep_temps(directory: str) -> None:
    """Remove what writers left that were killed in the middle of a write."""
    with contextlib.suppress(FileNotFoundError):
        _sweep(directory)


def _sweep(directory: str) -> None:
    for entry in os.scandir(directory):
        if entry.name.startswith(".") and entry.name.endswith(_TEMP_SUFFIX):
            with contextlib.suppress(OSError):  # somebody else's, or removed by somebody else
                if time.time() - entry.stat().st_mtime > _TEMP_AGE_S:
                    os.unlink(entry.path)
