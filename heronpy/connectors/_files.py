"""Which files a source reads."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from heronpy.connectors._glob import matching
from heronpy.errors import ConfigError, NotFoundError, UnavailableError
from heronpy.files import ABSENT, local_path

Pattern = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Files:
    """A glob (`**` for any folders), a file's name, or a list of paths; made absolute here, looked up by `paths`."""

    def __init__(self, pattern: Pattern) -> None:
        """Take the pattern.

        Raises:
            ConfigError: it is neither.
        """
        self._glob = isinstance(pattern, (str, os.PathLike))
        given = [pattern] if isinstance(pattern, (str, os.PathLike)) else list(pattern)
        if not given or not all(isinstance(each, (str, os.PathLike)) and os.fspath(each) for each in given):
            raise ConfigError(f"files are given as a glob or a list of paths, not as {pattern!r}")
        self._patterns = [os.path.normpath(local_path("the source's files", each)) for each in given]

    def __repr__(self) -> str:
        return repr(self._patterns[0] if self._glob else self._patterns)

    def paths(self) -> list[str]:
        """The files there are now, sorted, each once. Of a list also those that are missing, unless all are.

        Raises:
            NotFoundError: there is none.
            UnavailableError: there may be some, and a directory cannot be listed now.
        """
        if not self._glob:
            found = self._patterns if any(Path(path).exists() for path in self._patterns) else []
        elif os.path.isfile(self._patterns[0]):
            found = self._patterns  # also one whose name has brackets, say, and would be a pattern
        else:
            try:
                found = matching(self._patterns[0])
            except OSError as e:
                raise UnavailableError(f"{e.filename} cannot be read now: {why(e)}") from e
        if not found:
            is_folder = self._glob and os.path.isdir(self._patterns[0])
            raise NotFoundError(
                f"{self} is a directory: name its files, as with '/*'" if is_folder else f"no file matches {self}"
            )
        return sorted(set(found))


def size_of(path: str) -> int:
    """Size in bytes; 0 of a file that cannot be read, which its reader will say. Raises as `damage` does."""
    try:
        return os.stat(path).st_size
    except OSError as e:
        damage(path, e)
        return 0


def time_of(path: str) -> int | None:
    """When a file was last changed, in ms since the epoch; None of one that cannot be read. Raises as `damage` does."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError as e:
        damage(path, e)
        return None


def share_of(path: str, number: int) -> int:
    """Which task reads part `number` of a file; spreads the files, and the parts of one file one by one."""
    return zlib.crc32(path.encode(errors="surrogateescape")) + number


def damage(path: str | Path, error: Exception) -> str:
    """What an error says is wrong with a file, as one line.

    Raises:
        UnavailableError: it says nothing about the file, but of a failing disk or a shortage of file descriptors or
            memory. Whoever passes over the file then loses what is whole.
    """
    definite = (*ABSENT, IsADirectoryError, PermissionError)
    unknown = isinstance(error, OSError) and error.errno is not None and not isinstance(error, definite)
    if unknown or isinstance(error, MemoryError):
        raise UnavailableError(f"{path} cannot be read now: {why(error)}") from error
    return why(error)


def why(error: Exception) -> str:
    """An error as one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
