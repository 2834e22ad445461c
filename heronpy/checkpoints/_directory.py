"""Checkpoints in a directory, of this host or shared by all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from heronpy.checkpoints._names import MANIFESTS, OBJECTS
from heronpy.checkpoints._storage import CheckpointStorage, check_storage_name
from heronpy.errors import ConfigError, NotFoundError, ReadFailedError, StateError, UntrustedError
from heronpy.files import ABSENT, create_file, on_local_disk, replacing

_TORN_S = 6 * 3600
"""A file without a write for so long is not being written."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MODE = 0o600  # what flows through a topology is its owner's


class DirectoryStorage(CheckpointStorage):
    """Files below a directory: objects are renamed into place, manifests are linked; all is synced."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def open(cls, url: str) -> Self:
        """Of `/path` or `file:///path`.

        Raises:
            ConfigError: it is relative, or on another host.
        """
        parts = urlsplit(url)
        path = unquote(parts.path) if parts.scheme else url
        if parts.scheme and parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{url}: a directory's URL is file:///path, without a host")
        if not path.startswith("/"):
            raise ConfigError(f"{url}: the path of a storage must be absolute")
        return cls(Path(path))

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        with self._writing(name), replacing(self._path(name), mode=_MODE) as f:
            f.writelines(chunks)

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with self._writing(name):
            if create_file(path, data, mode=_MODE):
                return True
            with contextlib.suppress(*ABSENT):  # deleted meanwhile
                return path.read_bytes() == data
            return False

    def size(self, name: str) -> int:
        with self._errors(name, ReadFailedError):
            return self._path(name).stat().st_size

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._errors(name, ReadFailedError), self._path(name).open("rb") as f:
            f.seek(offset)
            return f.read(-1 if length is None else length)

    def names(self, prefix: str = "") -> list[str]:
        # Of the directory that the prefix names, not of everything.
        start = self.directory / prefix.rpartition("/")[0]
        found = []
        with self._errors(prefix, ReadFailedError):
            for folder, _, files in os.walk(start, onerror=_raise_unless_absent):
                relative = Path(folder).relative_to(self.directory).as_posix()
                found += [name if relative == "." else f"{relative}/{name}" for name in files if name[0] != "."]
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._errors(name, StateError), contextlib.suppress(*ABSENT):
                self._path(name).unlink()

    def is_there(self) -> bool:
        return self.directory.is_dir()

    def local_directory(self) -> Path | None:
        return self.directory if on_local_disk(self.directory) else None

    def check_own(self) -> None:
        for path in (self.directory, self.directory / OBJECTS, self.directory / MANIFESTS):
            with self._errors(path.name, ReadFailedError):
                found = path.stat()
            if found.st_uid not in (os.geteuid(), 0) or found.st_mode & _OTHERS_WRITE:
                raise UntrustedError(
                    f"{path} belongs to another user, or others can write to it: nothing of it is unpickled"
                )

    def remove_torn(self, names: Iterable[str] = (MANIFESTS, OBJECTS), *, lately: bool = False) -> None:
        for start in names:
            for folder, _, files in os.walk(self.directory / start.rpartition("/")[0]):
                for name in files:
                    if name[0] != "." or not name.endswith(".tmp"):
                        continue
                    path = Path(folder, name)
                    if not path.with_name(name[1:]).relative_to(self.directory).as_posix().startswith(start):
                        continue
                    with contextlib.suppress(OSError):  # gone, or renamed into place
                        if lately or time.time() - path.stat().st_mtime > _TORN_S:
                            path.unlink()

    def clear(self) -> None:
        # With what killed processes have left half-written, and the directory itself if nothing else is in it.
        for folder in (MANIFESTS, OBJECTS):
            with self._errors(folder, StateError), contextlib.suppress(*ABSENT):
                shutil.rmtree(self.directory / folder)
        for directory in (self.directory, self.directory.parent):
            with contextlib.suppress(OSError):
                directory.rmdir()

    def _path(self, name: str) -> Path:
        return self.directory / check_storage_name(name)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (*ABSENT, FileExistsError) as e:
            other = _not_a_directory(self.directory)
            why = f"{self.directory} cannot be made" if other is None else f"{other} is not a directory"
            raise StateError(f"{why}: nothing can be stored in {self.directory}") from e
        except OSError as e:
            raise StateError(f"{self.directory}/{name}: {e.strerror or e}") from e

    @contextlib.contextmanager
    def _errors(self, name: str, kind: type[StateError]) -> Iterator[None]:
        try:
            yield
        except ABSENT as e:
            raise NotFoundError(f"there is no {name} in {self.directory}") from e
        except OSError as e:
            raise kind(f"{self.directory}/{name}: {e.strerror or e}") from e

    def __str__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        return f"DirectoryStorage({str(self.directory)!r})"


def _not_a_directory(path: Path) -> Path | None:
    """What is in the way of a directory; None: nothing."""
    nearest = next((one for one in (path, *path.parents) if os.path.lexists(one)), None)
    return nearest if nearest is not None and not nearest.is_dir() else None


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, ABSENT):
        raise error
