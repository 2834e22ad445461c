"""Files that hold a secret: readable by their owner alone, and believed only if they are."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from heronpy.errors import UntrustedError
from heronpy.files import read_owned_file, replace_file

SECRET_BYTES_MAX = 1 << 20


def write_secret(path: Path, value: bytes, *, replace: bool = True) -> None:
    """Write a file, 0600. A reader sees the old value or the new one.

    Args:
        path: Of the file.
        value: What it will hold.
        replace: Whether it may exist already; else it stays as it is.

    Raises:
        OSError: it cannot be written.
    """
    if replace:
        replace_file(path, value, mode=0o600)
        return
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    replace_file(temporary, value, mode=0o600)
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink()


def read_secret(path: Path) -> bytes:
    """The contents of a small file that no other user can read or could have written.

    Raises:
        NotFoundError: there is none.
        UntrustedError: it belongs to another user, is readable by others, or is not a regular file.
        StateError: it is too large, or cannot be read.
    """
    return read_owned_file(path, max_bytes=SECRET_BYTES_MAX, private=True)


def private_directory(path: Path) -> Path:
    """Make a directory, 0700.

    Raises:
        UntrustedError: it exists and belongs to another user, or is not a directory.
        OSError: it cannot be made.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        raise UntrustedError(f"{path} is not a directory of this user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)
    return path
