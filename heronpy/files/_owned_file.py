"""Reading files that another user may have planted.

A directory named by a state manager, an argument or a folder that others can write to may hold anything: a link into
the caller's own files, a FIFO that blocks its opener, a device, gigabytes. What is read here decides which code
runs and which secret is sent, so it must come from the caller, or from root, who needs no trick.

The checks hold for what is open, not for a name: the directory is opened first, the file relative to it, and the kernel
is asked what was opened. A name that is exchanged in between leads to the same checks again, or to nothing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from heronpy.errors import NotFoundError, ReadFailedError, StateError, UntrustedError
from heronpy.files._absent import ABSENT

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRWXG | stat.S_IRWXO


def read_owned_file(path: str | Path, *, max_bytes: int, private: bool = False) -> bytes:
    """Read a small regular file that only the caller or root can have written.

    Accepted is a regular file, no link, owned by the caller's effective uid or by root and writable by its owner alone,
    in a directory of which the same is true (or whose sticky bit keeps others from replacing files, as /tmp). Links
    above the file's own name are followed; what they lead to is checked.

    Args:
        path: The file.
        max_bytes: A larger file is refused, and not read further than this.
        private: Refuse a file that its group or others can read, too.

    Raises:
        NotFoundError: there is no such file.
        UntrustedError: a link, a FIFO, a device, or owned or writable by somebody else.
        ReadFailedError: it cannot be read now.
        StateError: it is too large.
        No message contains anything of the file's content.
    """
    path = Path(path)
    try:
        folder = os.open(path.parent, _DIRECTORY_FLAGS)
    except OSError as e:
        raise _translated(path, e) from None
    try:
        _check_directory(path.parent, os.fstat(folder))
        _check_file(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False), private)  # devices are not opened
        fd = os.open(path.name, _FILE_FLAGS, dir_fd=folder)
        try:
            _check_file(path, os.fstat(fd), private)
            return _read(path, fd, max_bytes)
        finally:
            os.close(fd)
    except OSError as e:
        raise _translated(path, e) from None
    finally:
        os.close(folder)


def _check_directory(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise UntrustedError(f"{path} belongs to another user (uid {found.st_uid}): nothing is read from it")
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        raise UntrustedError(f"{path} is writable by others: nothing is read from it; chmod go-w it")


def _check_file(path: Path, found: os.stat_result, private: bool) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise UntrustedError(f"{path} is a symbolic link: it is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise UntrustedError(f"{path} is not a regular file")
    if found.st_uid not in (os.geteuid(), 0):
        raise UntrustedError(f"{path} belongs to another user (uid {found.st_uid}): it is not read")
    if found.st_mode & _OTHERS_WRITE:
        raise UntrustedError(f"{path} is writable by others: it is not read; chmod go-w it")
    if private and found.st_mode & _OTHERS_READ:
        raise UntrustedError(f"{path} is readable by others: chmod 600 it")


def _read(path: Path, fd: int, max_bytes: int) -> bytes:
    data = b""
    while len(data) <= max_bytes:  # a read may be short
        part = os.read(fd, max_bytes + 1 - len(data))
        if not part:
            return data
        data += part
    raise StateError(f"{path} is larger than {max_bytes} bytes: it is not read")


def _translated(path: Path, error: OSError) -> NotFoundError | StateError:
    if isinstance(error, ABSENT):
        return NotFoundError(f"there is no file {path}")
    return ReadFailedError(f"{path} cannot be read: {error.strerror}")
