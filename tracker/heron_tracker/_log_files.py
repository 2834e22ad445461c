"""Reading the log files of a container, and nothing else.

User code writes these folders while they are read. So everything is opened from the topology's directory downwards,
each name relative to the open folder above it, and no link is followed: whatever is exchanged meanwhile, what is open
is below the log folder. Only regular files are read.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import html
import itertools
import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from heron_tracker import _models as m
from heron_tracker._topology import Topology
from heronpy.config import KIB, MIB
from heronpy.errors import HeronError, NotFoundError, UnavailableError, UsageError, nearest

READ_BYTES_MAX = 1 * MIB
"""Most of one answer of `filedata`; for more, ask again from where it ends."""
LISTED_MAX = 5000
LOG_FOLDER = "log-files"
_UNKNOWN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""Errors that say nothing about what is named."""
_CHUNK_BYTES = 256 * KIB
_PATH_MAX = 4096
_DEPTH_MAX = 32
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class NotHereError(HeronError):
    """The files are on another host."""

    http_status = 501


@contextlib.contextmanager
def folder(topology: Topology, container: int) -> Iterator[int]:
    """A descriptor of a container's log folder, for the duration of the block.

    Raises:
        NotFoundError: the topology has no such container, or it has no log folder.
        NotHereError: it is on another host, or belongs to another user.
    """
    known = topology.containers()
    if container not in known:
        raise NotFoundError(
            f"topology {topology.key.name} has no container {container}: it has {known[0]} to {known[-1]}"
        )
    host = topology.hosts().get(container, "another host")
    with contextlib.ExitStack() as opened:
        try:
            root = _opened(opened, str(topology.directory), None, follow=True)
            inside = _opened(opened, f"container_{container}", root)
        except OSError as e:
            _raise_if_unknown(e)
            raise NotHereError(
                f"the files of container {container} of {topology.key.name} are not on the Tracker's host but on "
                f"{host}, or belong to another user: run a Tracker there, or share the topology's directory"
            ) from None
        try:
            logs = _opened(opened, LOG_FOLDER, inside)
        except OSError as e:
            _raise_if_unknown(e)
            raise NotFoundError(f"container {container} of {topology.key.name} has no log files") from None
        yield logs


def _opened(stack: contextlib.ExitStack, name: str, parent: int | None, *, follow: bool = False) -> int:
    """A directory of the Tracker's own user (or root's), closed with the stack."""
    fd = os.open(name, _FOLDER | (0 if follow else os.O_NOFOLLOW), dir_fd=parent)
    stack.callback(os.close, fd)
    if os.fstat(fd).st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{name} belongs to another user")
    return fd


def _raise_if_unknown(error: OSError | ValueError) -> None:
    """A shortage of the Tracker's must not look like a missing file. Raises UnavailableError."""
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


def read(logs: int, path: str, offset: int, length: int) -> m.FileData:
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
        size = os.fstat(fd).st_size
        if offset == -1:
            return m.FileData(offset=size, length=0, data="")
        if offset > size:
            raise UsageError(f"offset {offset} is beyond the end of {path!r}, which has {size} bytes (it may be new)")
        wanted = size - offset if length == -1 else min(length, size - offset)
        data = os.pread(fd, min(wanted, READ_BYTES_MAX), offset)
    finally:
        os.close(fd)
    text, taken = _whole_characters(data)
    return m.FileData(offset=offset, length=taken, data=html.escape(text))


def _whole_characters(data: bytes) -> tuple[str, int]:
    """The text, and how many bytes it stands for: a character that is cut off is left for the next answer."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    left = len(decoder.getstate()[0])
    if left and left == len(data):  # nothing else: it is not a character
        return data.decode(errors="replace"), len(data)
    return text, len(data) - left


def download(file: BinaryIO) -> Iterator[bytes]:
    """The file as long as it was at the beginning, whatever is added or renamed meanwhile. Closes it."""
    with file:
        left = os.fstat(file.fileno()).st_size
        while left > 0 and (data := file.read(min(_CHUNK_BYTES, left))):
            left -= len(data)
            yield data


def stats(logs: int, path: str) -> dict[str, m.FileStats]:
    """What is in a folder below the log folder (or the log folder itself: `log-files` or `.`).

    Raises:
        UsageError: an absolute path, or one that cannot be a path.
        NotFoundError: there is no such folder.
    """
    parts = _parts(path)
    found: dict[str, m.FileStats] = {}
    try:
        with _below(logs, parts) as directory:
            for listed in _listed(directory):
                try:
                    status = os.stat(listed, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:  # rotated meanwhile
                    continue
                name = _printable(listed)
                found[name] = _file_stats(name, _printable("/".join((LOG_FOLDER, *parts, listed))), status)
    except (OSError, ValueError) as e:
        _raise_if_unknown(e)
        raise NotFoundError(f"no folder {path!r} below log-files") from None
    return dict(sorted(found.items()))


def _file_stats(name: str, path: str, found: os.stat_result) -> m.FileStats:
    when = time.strftime("%b %d %H:%M", time.gmtime(found.st_mtime))
    text = (
        f"{stat.filemode(found.st_mode)} {found.st_nlink} {found.st_uid} {found.st_gid} {found.st_size} {when} {name}"
    )
    return m.FileStats(
        formatted_stat=text,
        is_dir=stat.S_ISDIR(found.st_mode),
        path=path,
        size=found.st_size,
        modified=found.st_mtime,
    )


def _printable(name: str) -> str:
    """A file's name as text: bytes that are no UTF-8 cannot be sent as JSON."""
    return name.encode(errors="replace").decode()
