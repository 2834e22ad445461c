"""Write beside, sync, rename.

Policy: `durable` (the default) syncs the data before the rename and the directory after it, so that a power cut leaves
the old file or the new one, and after the return the new one. Without it the rename is still atomic for every reader
and survives the death of any process, but a power cut may lose the file: right for what describes running processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from heronpy.files._empty import outrace_removal
from heronpy.files._sync import sync

_SUFFIX = ".tmp"


def replace_file(
    path: str | Path,
    data: bytes | str,
    *,
    durable: bool = True,
    mode: int | None = None,
    temporary: Path | None = None,
) -> None:
    """Replace a file's content atomically; its directory is made where it is missing.

    Args:
        path: The file. A symbolic link is replaced, not followed.
        data: The whole content; text is encoded as UTF-8.
        durable: Whether the content must survive a power cut; costs two syncs.
        mode: Permission bits of the new file; by default what the umask leaves of 0666.
        temporary: Where the file is until it is whole, on the same file system; by default beside it, hidden.

    Raises:
        OSError: it cannot be written. What was there stays, and nothing is left beside it.
    """
    with replacing(path, durable=durable, mode=mode, temporary=temporary) as f:
        f.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def replacing(
    path: str | Path, *, durable: bool = True, mode: int | None = None, temporary: Path | None = None
) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end of the block, unless the block fails.

    Arguments and errors are those of `replace_file`.
    """
    path = Path(path)
    # Hidden, and with a suffix of its own: no reader that globs for the name finds it.
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

    def begin() -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(temporary, flags, 0o666 if mode is None else mode)

    fd = outrace_removal(begin)
    try:
        with os.fdopen(fd, "wb") as f:
            if mode is not None:
                os.fchmod(fd, mode)  # the umask must not take away what was asked for
            yield f
            f.flush()
            if durable:
                os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if durable:
        sync(path.parent)
