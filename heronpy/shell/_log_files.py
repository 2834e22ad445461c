"""Reading the log files of a container, and nothing else.

User code writes these folders while they are read. So everything is opened from the topology's directory downwards,
each name relative to the open folder above it, and no link is followed: whatever is exchanged meanwhile, what is open
is below the log folder. Only regular files are read.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator, Sequence

from heronpy.config import MIB
from heronpy.errors import HeronError, NotFoundError, UnavailableError, UsageError, nearest
from heronpy.proto import shell_pb2
from heronpy.shell._container import Container

READ_BYTES_MAX = 1 * MIB
"""Most that one read returns; for more, read again from where it ends."""
LISTED_MAX = 5000
LOG_FOLDER = "log-files"
_UNKNOWN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""Errors that say nothing about what is named."""
_PATH_MAX = 4096
_DEPTH_MAX = 32
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class NotHereError(HeronError):
    """The files are on another host."""

    http_status = 501


@contextlib.contextmanager
def folder(container: Container) -> Iterator[int]:
    """A descriptor of a container's log folder, for the duration of the block.

    Raises:
        NotFoundError: it has no log folder.
        NotHereError: it is on another host, or belongs to another user.
    """
    with contextlib.ExitStack() as opened:
        try:
            root = _opened(opened, str(container.topology_dir), None, follow=True)
            inside = _opened(opened, container.directory.name, root)
        except OSError as e:
            _raise_if_unknown(e)
            raise NotHereError(f"the files of {container} are on another host, or belong to another user") from None
        try:
            logs = _opened(opened, LOG_FOLDER, inside)
        except OSError as e:
            _raise_if_unknown(e)
            raise NotFoundError(f"{container} has no log files") from None
        yield logs


def _opened(stack: contextlib.ExitStack, name: str, parent: int | None, *, follow: bool = False) -> int:
    """A directory of the own user (or root's), closed with the stack."""
    fd = os.open(name, _FOLDER | (0 if follow else os.O_NOFOLLOW), dir_fd=parent)
    stack.callback(os.close, fd)
    if os.fstat(fd).st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{name} belongs to another user")
    return fd


def _raise_if_unknown(error: OSError | ValueError) -> None:
    """A shortage of our own must not look like a missing file. Raises UnavailableError."""
    if isinstance(error, OSError) and error.errno in _UNKNOWN:
        raise UnavailableError(f"files cannot be read now: {error.strerror}") from None


def _parts(path: str) -> list[str]:
    """The names that lead from the log folder to what a caller names."""
    if not path or "\0" in path or len(path) > _PATH_MAX:
        raise UsageError("path must name a file below log-files")
    if path.startswith(("/", "~", "\\")):
        raise UsageError(f"{path!r} is an absolute path: name a file below log-files")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > _DEPTH_MAX:
        raise NotFoundError(f"{path!r} is not below log-files")
    return parts[1:] if parts[:1] == [LOG_FOLDER] else parts


@contextlib.contextmanager
def _below(logs: int, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of a folder below the log folder. No links are followed, so nothing leads out. Raises OSError."""
    with contextlib.ExitStack() as opened:
        at = os.dup(logs)
        opened.callback(os.close, at)
        for part in parts:
            at = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            opened.callback(os.close, at)
        yield at


def open_log(logs: int, path: str) -> int:
    """A descriptor of a regular file below the folder; the caller closes it.

    Args:
        logs: What `folder` yields.
        path: Relative to it, or to the container's directory.

    Raises:
        UsageError: an absolute path, or one that cannot be a path.
        NotFoundError: no such file below the folder; names the nearest.
    """
    parts = _parts(path)
    if not parts:
        raise NotFoundError(f"{path!r} is not a file below log-files")
    try:
        with _below(logs, parts[:-1]) as parent:
            fd = os.open(parts[-1], _FILE, dir_fd=parent)
    except (OSError, ValueError) as e:
        _raise_if_unknown(e)
        raise NotFoundError(f"no log file {path!r}{nearest(parts[-1], sorted(_listed(logs)))}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotFoundError(f"{path!r} is not a file below log-files")
    return fd


def _listed(directory: int) -> list[str]:
    """At most LISTED_MAX names in a directory, in no order. They are listed anew whatever was listed before."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, LISTED_MAX)]


def read(logs: int, path: str, offset: int, length: int) -> shell_pb2.FilePart:
    """Part of a file. Raises like `open_log`, and UsageError for an offset beyond the end.

    Args:
        logs: What `folder` yields.
        path: Relative to it, or to the container's directory.
        offset: In bytes; -1: the end, whose offset is the answer.
        length: In bytes; -1: up to the end. At most READ_BYTES_MAX are read.
    """
    if offset < -1 or length < -1:
        raise UsageError("offset and length are numbers of bytes, or -1 for the end of the file")
    fd = open_log(logs, path)
    try:
        found = os.fstat(fd)
        size = found.st_size
        if offset == -1:
            return shell_pb2.FilePart(offset=size, size=size, inode=found.st_ino)
        if offset > size:
            raise UsageError(f"offset {offset} is beyond the end of {path!r}, which has {size} bytes (it may be new)")
        wanted = size - offset if length == -1 else min(length, size - offset)
        data = os.pread(fd, min(wanted, READ_BYTES_MAX), offset)
    except OSError as e:
        raise UnavailableError(f"{path!r} cannot be read now: {e.strerror}") from e
    finally:
        os.close(fd)
    return shell_pb2.FilePart(offset=offset, data=data, size=size, inode=found.st_ino)


def listing(logs: int, path: str = ".") -> shell_pb2.FileList:
    """What is in a folder below the log folder (or the log folder itself: `log-files` or `.`).

    Raises:
        UsageError: an absolute path, or one that cannot be a path.
        NotFoundError: there is no such folder.
    """
    parts = _parts(path)
    found: dict[str, shell_pb2.FileEntry] = {}
    try:
        with _below(logs, parts) as directory:
            names = _listed(directory)
            for listed in names:
                try:
                    status = os.stat(listed, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:  # rotated meanwhile
                    continue
                name = _printable(listed)
                found[name] = _entry(name, _printable("/".join((LOG_FOLDER, *parts, listed))), status)
    except (OSError, ValueError) as e:
        _raise_if_unknown(e)
        raise NotFoundError(f"no folder {path!r} below log-files") from None
    return shell_pb2.FileList(files=[found[name] for name in sorted(found)], truncated=len(names) >= LISTED_MAX)


def _entry(name: str, path: str, found: os.stat_result) -> shell_pb2.FileEntry:
    return shell_pb2.FileEntry(
        name=name,
        path=path,
        mode=found.st_mode,
        links=found.st_nlink,
        uid=found.st_uid,
        gid=found.st_gid,
        size=found.st_size,
        modified_s=found.st_mtime,
        inode=found.st_ino,
    )


def _printable(name: str) -> str:
    """A file's name as text: bytes that are no UTF-8 cannot be sent."""
    return name.encode(errors="replace").decode()
