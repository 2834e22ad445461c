"""Making what was written survive a power cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_REFUSALS = frozenset((errno.EINVAL, errno.ENOTSUP))
"""How a file system says that it has no fsync for directories: their names are then as durable as it makes them."""


def sync(path: str | Path) -> None:
    """Make a file's bytes, or a directory's names, durable.

    Raises:
        OSError: they may not be on the disk.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _REFUSALS or not os.path.isdir(path):
            raise
    finally:
        os.close(fd)
