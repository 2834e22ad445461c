"""Create a file that is whole from its first moment, unless there is one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from heronpy.files._empty import outrace_removal
from heronpy.files._sync import sync


def create_file(path: str | Path, data: bytes, *, mode: int = 0o666) -> bool:
    """Create a file with all of its content, durably; its directory is made where it is missing.

    Of several callers, on several hosts that share the file system, one succeeds. The umask is taken off the mode.

    Returns:
        False if there was one already; it stays as it is.

    Raises:
        OSError: it cannot be written. Nothing is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")

    def begin() -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    fd = outrace_removal(begin)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(fd)
        # A link, and no rename: a rename would take the place of another's. NFS, too, makes links atomically.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    sync(path.parent)
    return True
