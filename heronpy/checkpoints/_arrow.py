"""Checkpoints in a file system that PyArrow knows: HDFS.

PyArrow replaces what is there when it moves a file, also in HDFS, which would not. A directory that has something in it
is replaced by none: a local file system refuses to move another one over it, HDFS moves that one into it. So what
`create` makes is a directory with one file, which is moved into place; the first one has it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import secrets
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Any, Self
from urllib.parse import urlsplit

from heronpy.checkpoints._names import MANIFESTS, OBJECTS
from heronpy.checkpoints._storage import CheckpointStorage, Listed, check_storage_name
from heronpy.errors import ConfigError, NotFoundError, ReadFailedError, StateError, UnavailableError

_CREATED = "content"
"""The file in a directory that `create` has made."""
_TEMPORARY = ".new-"
_REFUSED = frozenset((errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR))
_ATTEMPTS = 10


class _Kind(Enum):
    NOTHING = auto()
    FILE = auto()
    DIRECTORY = auto()


class _Directory(OSError):
    """What was opened as a file is a directory."""


class ArrowStorage(CheckpointStorage):
    """Files below a directory of a `pyarrow.fs.FileSystem`: all are written beside and moved into place."""

    def __init__(self, filesystem: Any, directory: str) -> None:
        """Of a file system and an absolute path in it."""
        self._fs = filesystem
        self.directory = directory.rstrip("/")
        self._types: Any = importlib.import_module("pyarrow.fs")

    @classmethod
    def open(cls, url: str) -> Self:
        """Of `hdfs://host:port/path?user=…&replication=…`, as PyArrow takes it.

        Raises:
            ConfigError: PyArrow or what it needs for HDFS is not installed, or the URL is none of these.
            UnavailableError: HDFS does not answer.
        """
        try:
            fs: Any = importlib.import_module("pyarrow.fs")
        except ImportError as e:
            raise ConfigError("a storage of hdfs:// needs PyArrow: pip install 'heron-engine[spark]'") from e
        if not urlsplit(url).path.strip("/"):
            raise ConfigError("the URL of a storage in HDFS is hdfs://host:port/path")
        # The JVM that libhdfs starts in this process would take its signals: SIGTERM would end it there and then.
        options = os.environ.get("LIBHDFS_OPTS", "").split()
        if "-Xrs" not in options:
            os.environ["LIBHDFS_OPTS"] = " ".join([*options, "-Xrs"])
        try:
            filesystem, path = fs.FileSystem.from_uri(url)
        except (ValueError, NotImplementedError) as e:
            raise ConfigError(f"the URL of a storage is not one that PyArrow takes: {_line(e)}") from e
        except OSError as e:
            if "libhdfs" in str(e) or "libjvm" in str(e):
                raise ConfigError(
                    "a storage of hdfs:// needs Hadoop's client: libhdfs.so (ARROW_LIBHDFS_DIR), Java (JAVA_HOME) and "
                    f"its jars (CLASSPATH): {_line(e)}"
                ) from e
            raise UnavailableError(f"HDFS does not answer: {_line(e)}") from e
        return cls(filesystem, path)

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
        with self._beside(path) as new, self._errors(name, StateError):
            self._write(new, chunks)
            self._fs.move(new, path)

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with self._beside(path) as new:
            with self._errors(name, StateError):
                self._fs.create_dir(new, recursive=True)
                self._write(f"{new}/{_CREATED}", [data])
            # It may be there already: then the move has failed, or has gone into it.
            failed: OSError | None = None
            try:
                self._fs.move(new, path)
            except OSError as e:
                failed = e
            with contextlib.suppress(OSError):
                self._remove(f"{path}/{new.rpartition('/')[2]}")
            try:
                return self.read(name) == data
            except NotFoundError:
                if failed is None:
                    return False  # deleted meanwhile
                raise self._error(name, StateError, failed) from failed

    def size(self, name: str) -> int:
        with self._errors(name, ReadFailedError), self._opened(self._path(name)) as f:
            return int(f.size())

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._errors(name, ReadFailedError), self._opened(self._path(name)) as f:
            return _part(f, offset, length)

    def stat(self, name: str) -> Listed:
        with self._errors(name, ReadFailedError):
            f, path = self._opened_at(self._path_of_any(name))
            with f:
                info = self._info(path)
                return Listed(name, int(f.size()), _stamp(info), info.mtime_ns / 1e9)

    def read_of(self, found: Listed, offset: int = 0, length: int | None = None) -> bytes:
        with self._errors(found.name, ReadFailedError):
            f, path = self._opened_at(self._path_of_any(found.name))
            with f:
                # It is open: so if the right one is there now, this is the right one.
                if found.stamp not in ("", _stamp(self._info(path))):
                    raise ReadFailedError(f"{self}: {found.name} was replaced while it was read")
                return _part(f, offset, length)

    def _info(self, path: str) -> Any:
        """What is known of a file that was opened just now."""
        info = self._fs.get_file_info(path)
        if not info.is_file:
            raise OSError(errno.EAGAIN, "it was open, and is not there any more, or the storage does not answer")
        return info

    def names(self, prefix: str = "") -> list[str]:
        return [one.name for one in self.listed(prefix)]

    def listed(self, prefix: str = "") -> list[Listed]:
        start = f"{self.directory}/{prefix.rpartition('/')[0]}".rstrip("/")
        with self._errors(prefix, ReadFailedError):
            files = [info for info in self._below(start) if info.is_file]
        found = []
        for info in files:
            name = info.path.partition(f"{self.directory}/")[2]
            if "/." not in f"/{name}" and name.startswith(prefix):
                name = name.removesuffix(f"/{_CREATED}")
                found.append(Listed(name, info.size, _stamp(info), info.mtime_ns / 1e9))
        return sorted(found, key=lambda one: one.name)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._errors(name, StateError):
                self._remove(self._path(name))

    def is_there(self) -> bool:
        with self._errors("", ReadFailedError):
            return self._kind(self.directory) is _Kind.DIRECTORY

    def clear(self) -> None:
        # With what killed processes have left half-written.
        for folder in (MANIFESTS, OBJECTS):
            with self._errors(folder, StateError):
                self._remove(f"{self.directory}/{folder.rstrip('/')}")

    def _path(self, name: str) -> str:
        return f"{self.directory}/{check_storage_name(name)}"

    def _path_of_any(self, name: str) -> str:
        """Of a file that others have made."""
        if ".." in name.split("/"):
            raise NotFoundError(f"there is no {name} in {self.directory}")
        return f"{self.directory}/{name}"

    # What is there is asked by opening and listing: of HDFS, `get_file_info` of a path says that nothing is there also
    # when the storage does not answer.

    def _opened(self, path: str) -> Any:
        """A file, or what `create` has made, for reading.

        Raises:
            FileNotFoundError: there is neither.
            OSError: it cannot be opened.
        """
        return self._opened_at(path)[0]

    def _opened_at(self, path: str) -> tuple[Any, str]:
        with contextlib.suppress(FileNotFoundError, _Directory), _marked():
            return self._fs.open_input_file(path), path
        created = f"{path}/{_CREATED}"
        return self._fs.open_input_file(created), created

    def _kind(self, path: str) -> _Kind:
        with contextlib.suppress(FileNotFoundError, _Directory), _marked():
            self._fs.open_input_file(path).close()
            return _Kind.FILE
        try:
            self._fs.get_file_info(self._types.FileSelector(path))
        except FileNotFoundError:
            return _Kind.NOTHING
        return _Kind.DIRECTORY

    def _below(self, path: str) -> list[Any]:
        """All that is in a directory, at any depth; nothing, if it is not there."""
        for _ in range(_ATTEMPTS):
            try:
                return list(self._fs.get_file_info(self._types.FileSelector(path, recursive=True)))
            except FileNotFoundError:
                # It may be one below it that has gone meanwhile.
                if self._kind(path) is _Kind.NOTHING:
                    return []
        raise UnavailableError(f"{self}: {path} changes faster than it can be listed")

    def _remove(self, path: str) -> None:
        """Delete a file or a directory, if it is there."""
        try:
            match self._kind(path):
                case _Kind.FILE:
                    self._fs.delete_file(path)
                case _Kind.DIRECTORY:
                    self._fs.delete_dir(path)
        except OSError:
            if self._kind(path) is not _Kind.NOTHING:  # another has deleted it meanwhile
                raise

    def _write(self, path: str, chunks: Iterable[bytes]) -> None:
        f = self._fs.open_output_stream(path)
        # Not by `with`: what failed would be closed, as if it were whole, before it is removed.
        for chunk in chunks:
            f.write(chunk)
        f.close()

    @contextlib.contextmanager
    def _beside(self, path: str) -> Iterator[str]:
        """A name of its own in the same directory, which is there; what is left under it goes in the end."""
        folder = path.rpartition("/")[0]
        with self._errors(path, StateError):
            self._fs.create_dir(folder, recursive=True)
        new = f"{folder}/{_TEMPORARY}{secrets.token_hex(8)}"
        try:
            yield new
        finally:
            with contextlib.suppress(OSError):
                self._remove(new)

    @contextlib.contextmanager
    def _errors(self, name: str, kind: type[StateError]) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as e:
            raise NotFoundError(f"there is no {name} in {self.directory}") from e
        except OSError as e:
            raise self._error(name, kind, e) from e

    def _error(self, name: str, kind: type[StateError], error: OSError) -> StateError | UnavailableError:
        return (kind if error.errno in _REFUSED else UnavailableError)(f"{self}, {name}: {_line(error)}")

    def __str__(self) -> str:
        return f"{self.directory} in {self._fs.type_name}"

    def __repr__(self) -> str:
        return f"ArrowStorage({self.directory!r}, {self._fs.type_name})"


def _part(file: Any, offset: int, length: int | None) -> bytes:
    rest = max(0, int(file.size()) - offset)
    return bytes(file.read_at(rest if length is None else min(length, rest), offset)) if rest else b""


def _stamp(info: Any) -> str:
    return f"{info.size}:{info.mtime_ns}"


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    """Of a local file system the error that a file is a directory has no number; of HDFS nothing else has."""
    try:
        yield
    except OSError as e:
        if e.errno in (None, errno.EISDIR):
            raise _Directory(str(e)) from e
        raise


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
