"""Reading the log files of a container, and nothing else.

What a caller names is resolved first, then opened, and then the kernel is asked what was opened: a link that user code
puts there in between leads nowhere. Only regular files are read.
"""

from __future__ import annotations

import codecs
import html
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from heron_tracker import _models as m
from heron_tracker._topology import Topology
from heronpy.config import KIB, MIB
from heronpy.errors import HeronError, NotFoundError, UsageError, nearest

READ_BYTES_MAX = 1 * MIB
"""Most of one answer of `filedata`; for more, ask again from where it ends."""
LISTED_MAX = 5000
LOG_FOLDER = "log-files"
_CHUNK_BYTES = 256 * KIB
_PATH_MAX = 4096


class NotHereError(HeronError):
    """The files are on another host."""

    http_status = 501


def folder(topology: Topology, container: int) -> Path:
    """The real path of a container's log folder.

    Raises:
        NotFoundError: the topology has no such container, or it has no log folder.
        NotHereError: it is on another host.
    """
    known = topology.containers()
    if container not in known:
        raise NotFoundError(
            f"topology {topology.key.name} has no container {container}: it has {known[0]} to {known[-1]}"
        )
    host = topology.hosts().get(container, "another host")
    try:
        real = topology.directory.resolve(strict=True)
        wanted = real / f"container_{container}"
        if not wanted.is_dir():
            raise FileNotFoundError
    except OSError:
        raise NotHereError(
            f"the files of container {container} of {topology.key.name} are not on the Tracker's host but on {host}: "
            "run a Tracker there, or share the topology's directory"
        ) from None
    logs = wanted / LOG_FOLDER
    # User code could have put a link here that leads anywhere.
    if Path(os.path.realpath(logs)) != logs or not logs.is_dir():
        raise NotFoundError(f"container {container} of {topology.key.name} has no log files")
    return logs


def _resolve(logs: Path, path: str) -> Path:
    if not path or "\0" in path or len(path) > _PATH_MAX:
        raise UsageError("path must name a file below log-files")
    if path.startswith(("/", "~", "\\")):
        raise UsageError(f"{path!r} is an absolute path: name a file below log-files")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if parts[:1] == [LOG_FOLDER]:
        parts = parts[1:]
    try:
        real = Path(os.path.realpath(logs.joinpath(*parts)))
    except (OSError, ValueError) as e:
        raise UsageError(f"{path!r} is no path") from e
    if not real.is_relative_to(logs):
        raise NotFoundError(f"{path!r} is not below log-files")
    return real


def open_log(logs: Path, path: str) -> int:
    """A descriptor of a regular file below the folder; the caller closes it.

    Raises:
        UsageError: an absolute path, or one that cannot be a path.
        NotFoundError: no such file below the folder; names the nearest.
    """
    real = _resolve(logs, path)
    try:
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        known = sorted(entry.name for entry in os.scandir(logs))[:LISTED_MAX] if logs.is_dir() else []
        raise NotFoundError(f"no log file {path!r}{nearest(real.name, known)}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode) or not _opened(fd).is_relative_to(logs):
        os.close(fd)
        raise NotFoundError(f"{path!r} is no file below log-files")
    return fd


def _opened(fd: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{fd}"))


def read(logs: Path, path: str, offset: int, length: int) -> m.FileData:
    """Part of a file. Raises like `open_log`, and UsageError for an offset beyond the end.

    Args:
        logs: What `folder` returned.
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
    if left and left == len(data):  # nothing else: it is no character
        return data.decode(errors="replace"), len(data)
    return text, len(data) - left


def download(file: BinaryIO) -> Iterator[bytes]:
    """The file as long as it was at the beginning, whatever is added or renamed meanwhile. Closes it."""
    with file:
        left = os.fstat(file.fileno()).st_size
        while left > 0 and (data := file.read(min(_CHUNK_BYTES, left))):
            left -= len(data)
            yield data


def stats(logs: Path, path: str) -> dict[str, m.FileStats]:
    """What is in a folder below the log folder (or the log folder itself: `log-files` or `.`).

    Raises:
        UsageError: an absolute path, or one that cannot be a path.
        NotFoundError: there is no such folder.
    """
    real = _resolve(logs, path)
    found: dict[str, m.FileStats] = {}
    try:
        with os.scandir(real) as entries:
            for entry in entries:
                if len(found) >= LISTED_MAX:
                    break
                try:
                    name = _printable(entry.name)
                    found[name] = _file_stats(name, Path(entry.path), logs)
                except FileNotFoundError:  # rotated meanwhile
                    continue
    except OSError:
        raise NotFoundError(f"no folder {path!r} below log-files") from None
    return dict(sorted(found.items()))


def _file_stats(name: str, path: Path, logs: Path) -> m.FileStats:
    found = path.lstat()
    when = time.strftime("%b %d %H:%M", time.gmtime(found.st_mtime))
    text = (
        f"{stat.filemode(found.st_mode)} {found.st_nlink} {found.st_uid} {found.st_gid} {found.st_size} {when} {name}"
    )
    return m.FileStats(
        formatted_stat=text,
        is_dir=stat.S_ISDIR(found.st_mode),
        path=_printable(f"{LOG_FOLDER}/{path.relative_to(logs)}"),
        size=found.st_size,
        modified=found.st_mtime,
    )


def _printable(name: str) -> str:
    """A file's name as text: bytes that are no UTF-8 cannot be sent as JSON."""
    return name.encode(errors="replace").decode()
