"""Which files a source reads."""

from __future__ import annotations

import contextlib
import os
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from heronpy.connectors._glob import matching
from heronpy.connectors._stored_glob import below_store, matching_stored
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
from heronpy.files import ABSENT
from heronpy.filesystem import Found, Location, UrlPath, files_of, location
from heronpy.shown import message

UNFINISHED_S = 60.0
"""A file that has not changed for so long is complete, even if its last line has no end."""

Pattern = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class InputFile(Protocol):
    """A file that is read. Small and picklable; sizes and times raise as `damage` does."""

    @property
    def name(self) -> str:
        """Its path or URL, without the URL's options: part of the ids of its rows."""
        ...

    @property
    def size_bytes(self) -> int:
        """0 of a file that cannot be read, which its reader will say."""
        ...

    @property
    def time_ms(self) -> int | None:
        """When it was last changed, in ms since the epoch; None of one that cannot be read."""
        ...

    @property
    def grows(self) -> bool:
        """Whether it can be read while somebody appends to it."""
        ...

    def opened(self) -> contextlib.AbstractContextManager[tuple[BinaryIO, int]]:
        """The file as it is now, open for reading in any order, and its time.

        Raises, and so does what is opened:
            OSError: it cannot be read.
            HeronError: it cannot be read now.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this host, or of a file system that is mounted here."""

    name: str

    @property
    def size_bytes(self) -> int:
        try:
            return os.stat(self.name).st_size
        except OSError as e:
            damage(self.name, e)
            return 0

    @property
    def time_ms(self) -> int | None:
        try:
            return os.stat(self.name).st_mtime_ns // 1_000_000
        except OSError as e:
            damage(self.name, e)
            return None

    @property
    def grows(self) -> bool:
        return True

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[BinaryIO, int]]:
        mode = os.stat(self.name).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):  # to open a pipe waits for somebody who writes into it
            raise OSError(f"it is a {'pipe' if stat.S_ISFIFO(mode) else 'socket'}")
        with open(self.name, "rb") as f:
            yield f, os.fstat(f.fileno()).st_mtime_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store, as a listing has found it: the size of each of thousands is not asked for."""

    path: UrlPath
    size_bytes: int
    time_ms: int | None

    @classmethod
    def of(cls, found: Found[UrlPath]) -> StoredFile:
        return cls(found.path, found.size_bytes, int(found.modified_s * 1000))

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def grows(self) -> bool:
        return not self.path.root.startswith("s3:")

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[BinaryIO, int]]:
        with files_of(self.path).opened(self.path) as (f, found):
            yield f, int(found.modified_s * 1000)


class Files:
    """A glob (`**` for any folders), a file's name, or a list of paths or URLs; made absolute here, found later."""

    def __init__(self, pattern: Pattern) -> None:
        """Take the pattern.

        Raises:
            ConfigError: it is neither.
        """
        self._glob = isinstance(pattern, (str, os.PathLike))
        given = [pattern] if isinstance(pattern, (str, os.PathLike)) else list(pattern)
        if not given or not all(isinstance(each, (str, os.PathLike)) and os.fspath(each) for each in given):
            raise ConfigError(f"files are given as a glob or a list of paths, not as {pattern!r}")
        self._patterns = [_normal(location("the source's files", each)) for each in given]

    def __repr__(self) -> str:
        shown = [str(pattern) for pattern in self._patterns]
        return repr(shown[0] if self._glob else shown)

    def found(self) -> list[InputFile]:
        """The files there are now, sorted, each once. Of a list also those that are missing, unless all are.

        Raises:
            NotFoundError: there is none.
            ConfigError: the pattern is a directory.
            UnavailableError: there may be some, and a directory or a store cannot be listed now.
        """
        if self._glob:
            pattern = self._patterns[0]
            found = _matching(pattern) if isinstance(pattern, Path) else _matching_stored(pattern)
        else:
            each = [_of_list(pattern) for pattern in self._patterns]
            found = [file for file, _ in each] if any(is_there for _, is_there in each) else []
        if not found:
            raise NotFoundError(f"no file matches {self}")
        by_name = {file.name: file for file in found}
        return [by_name[name] for name in sorted(by_name)]

    def is_gone(self, name: str) -> bool:
        """Whether a file that was found is certainly there no more: not if a directory or a store cannot say so."""
        try:
            if name.startswith("/"):
                os.lstat(name)
                return False
            for pattern in self._patterns:
                root = pattern.root if isinstance(pattern, UrlPath) else ""
                base = root.partition("?")[0] + "/"
                if root and name.startswith(base):
                    files_of(pattern).stat(UrlPath(root, name.removeprefix(base)))
        except ABSENT:
            return True
        except (OSError, HeronError):
            return False  # it may be there: a position that is kept for longer is no loss
        return False


def rests(file: InputFile, time_ms: int) -> bool:
    """Whether nobody is writing a file that was last changed then, as far as that can be known."""
    return not file.grows or time.time() >= time_ms / 1000 + UNFINISHED_S


def _normal(place: Location) -> Location:
    return Path(os.path.normpath(place)) if isinstance(place, Path) else below_store(place)


def _matching(pattern: Path) -> list[InputFile]:
    path = str(pattern)
    if os.path.isfile(path):
        return [LocalFile(path)]  # also one whose name has brackets, say, and would be a pattern
    try:
        found = matching(path)
    except OSError as e:
        raise UnavailableError(f"{e.filename} cannot be read now: {why(e)}") from e
    if not found and os.path.isdir(path):
        raise _is_directory(path)
    return [LocalFile(each) for each in found]


def _matching_stored(pattern: UrlPath) -> list[InputFile]:
    found = matching_stored(pattern)
    if not found and files_of(pattern).find(pattern):
        raise _is_directory(str(pattern))
    return [StoredFile.of(each) for each in found]


def _is_directory(shown: str) -> ConfigError:
    return ConfigError(f"{shown!r} is a directory: name its files, as with '/*'")


def _of_list(place: Location) -> tuple[InputFile, bool]:
    """A file, and whether it is there."""
    if isinstance(place, Path):
        return LocalFile(str(place)), place.exists()
    try:
        return StoredFile.of(files_of(place).stat(place)), True
    except FileNotFoundError:
        return StoredFile(place, 0, None), False


def share_of(path: str, number: int) -> int:
    """Which task reads part `number` of a file; spreads the files, and the parts of one file one by one."""
    return zlib.crc32(path.encode(errors="surrogateescape")) + number


def damage(path: str | Path, error: Exception) -> str:
    """What an error says is wrong with a file, as one line.

    Raises:
        UnavailableError: it says nothing about the file, but of a failing disk or a shortage of file descriptors or
            memory. Skipping the file then loses what is whole.
    """
    definite = (*ABSENT, IsADirectoryError, PermissionError)
    unknown = isinstance(error, OSError) and error.errno is not None and not isinstance(error, definite)
    if unknown or isinstance(error, MemoryError):
        raise UnavailableError(f"{path} cannot be read now: {why(error)}") from error
    return why(error)


def why(error: Exception) -> str:
    """An error as one line."""
    return error.strerror if isinstance(error, OSError) and error.strerror else message(error)
