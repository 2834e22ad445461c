"""What a storage of checkpoints is, and which one a URL means."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from heronpy.checkpoints._names import MANIFESTS, OBJECTS
from heronpy.errors import ConfigError, NotFoundError, ReadFailedError

_NAME = re.compile(r"[A-Za-z0-9_%~@-][A-Za-z0-9._%~=@-]*(?:/[A-Za-z0-9_%~@-][A-Za-z0-9._%~=@-]*)*")
_NAME_CHARACTERS_MAX = 800
_COPIED_BYTES = 8 * 1024 * 1024
REDIS_PREFIX = "heron-checkpoints"
REDIS_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing has found it."""

    name: str
    size: int
    """In bytes."""
    stamp: str
    """Another one when it is replaced by another content, as far as the storage knows."""
    modified_s: float = 0.0
    """When it was stored, in seconds since the epoch; 0: not known."""


class CheckpointStorage(ABC):
    """Named byte strings that stay: objects, which are written once, and manifests, which are created or not.

    All of it may be used by several processes at once, and by one thread in each. What has returned is durable as far
    as the storage is. No method waits for ever.

    Raises, from all methods:
        UnavailableError: the storage does not answer as it should; nothing is known.
        ReadFailedError: something that is there cannot be read now.
        StateError: it cannot be written (a full disk, a missing permission).
    """

    @abstractmethod
    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        """Store an object. It is there whole, or, if this fails or the process dies, as it was before."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Store something small unless the name is taken, atomically: of several callers one succeeds.

        Returns:
            Whether it is there with this very content, so that a repeated call whose answer was lost succeeds, too.
            False also if another had the name and has deleted it since.
        """

    @abstractmethod
    def size(self, name: str) -> int:
        """How many bytes it has.

        Raises:
            NotFoundError: there is none of this name.
        """

    @abstractmethod
    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """A part of it, or all; less, if it ends before.

        Raises:
            NotFoundError: there is none of this name.
        """

    def stat(self, name: str) -> Listed:
        """An object as a listing would find it now; whatever it is called, also by others.

        Raises:
            NotFoundError: there is none of this name.
        """
        size = self.size(name)
        return Listed(name, size, str(size))

    def read_of(self, found: Listed, offset: int = 0, length: int | None = None) -> bytes:
        """As `read`, of the very object that was found, as far as the storage knows; whatever it is called.

        Raises:
            NotFoundError: it is gone.
            ReadFailedError: another one is in its place.
        """
        return self.read(found.name, offset, length)

    def read_found(self, name: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Listed]:
        """As `read`, and what it was read of: with `read_of`, the rest is of the same object.

        Raises:
            NotFoundError: there is none of this name.
            ReadFailedError: another one has come in its place meanwhile.
        """
        found = self.stat(name)
        return self.read_of(found, offset, length), found

    @abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """All names that begin so, sorted."""

    def listed(self, prefix: str = "") -> list[Listed]:
        """All objects whose names begin so, sorted by name. What is deleted meanwhile may be left out."""
        found = []
        for name in self.names(prefix):
            with contextlib.suppress(NotFoundError):
                size = self.size(name)
                found.append(Listed(name, size, str(size)))
        return found

    def copy(self, name: str, to: str) -> None:
        """Store an object under a second name, whole or not at all.

        Raises:
            NotFoundError: there is none of the first name.
            ReadFailedError: another one has come in its place meanwhile.
        """
        self.put(to, self._pieces(self.stat(check_storage_name(name))))

    def _pieces(self, found: Listed) -> Iterator[bytes]:
        for at in range(0, found.size, _COPIED_BYTES):
            length = min(_COPIED_BYTES, found.size - at)
            piece = self.read_of(found, at, length)
            if len(piece) != length:
                raise ReadFailedError(f"{self}: {found.name} was replaced while it was copied")
            yield piece

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete some. What is not there is passed over."""

    def is_there(self) -> bool:
        """False if it is known that nothing was ever stored in it, or that it is not mounted."""
        return True

    def local_directory(self) -> Path | None:
        """Below which its objects are files by their names, on a disk of this host; None: read them through this."""
        return None

    def check_own(self) -> None:
        """Before anything of it is unpickled: refuse what others than this user could have written.

        Only a directory says that of itself. Users of the URL of another storage must trust it.

        Raises:
            UntrustedError: they could have.
        """

    def remove_torn(self, names: Iterable[str] = (MANIFESTS, OBJECTS), *, lately: bool = False) -> None:
        """Delete what killed processes have left half-written. It is invisible, but takes space.

        Args:
            names: how the names begin under which it was to be stored. What is there besides may be others' work.
            lately: what was begun or written lately, too: nobody can be storing anything under these names.
        """

    def clear(self) -> None:
        """Delete everything that checkpoints are made of."""
        self.delete([*self.names(MANIFESTS), *self.names(OBJECTS)])

    def close(self) -> None:
        """Give back connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a storage, to be read in parts."""

    storage: CheckpointStorage
    name: str
    size: int

    @classmethod
    def find(cls, storage: CheckpointStorage, name: str) -> Self:
        """Raises NotFoundError like `size`."""
        return cls(storage, name, storage.size(name))

    def read(self, offset: int, length: int) -> bytes:
        """As `CheckpointStorage.read`."""
        return self.storage.read(self.name, offset, length)


def check_storage_name(name: str) -> str:
    """A name that every storage takes, and that leads nowhere else.

    Raises:
        ValueError: it is not one.
    """
    if len(name) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} cannot be the name of an object")
    return name


def storage_below(url: str, *names: str) -> str:
    """The URL of a part of a storage, with these names below it: a directory, a prefix.

    Raises:
        ConfigError: it is no URL of a storage.
    """
    below = "/".join(names)
    scheme = _split(url).scheme
    if not scheme:  # a path, whatever is in it
        return f"{url.rstrip('/')}/{below}"
    base, mark, query = url.partition("?")
    if scheme not in REDIS_SCHEMES:
        return f"{base.rstrip('/')}/{below}{mark}{query}"
    options = dict(parse_qsl(query))
    options["prefix"] = f"{options.get('prefix', REDIS_PREFIX)}/{below}"
    return f"{base}?{urlencode(options)}"


def open_storage(url: str) -> CheckpointStorage:
    """The storage of a URL: a directory (`/path` or `file:///path`, local or shared), `s3://bucket/prefix`,
    `hdfs://host:port/path`, or `redis://host:port/db?prefix=…`.

    Options of S3 are in its query: `endpoint` (of a server that is not Amazon's), `region`; of HDFS `user` and
    `replication`.

    Raises:
        ConfigError: no such kind of storage, or what it needs is not installed.
    """
    scheme = _split(url).scheme
    match scheme:
        case "" | "file":
            from heronpy.checkpoints._directory import DirectoryStorage

            return DirectoryStorage.open(url)
        case "s3":
            from heronpy.checkpoints._s3 import S3Storage

            return S3Storage.open(url)
        case "hdfs" | "viewfs":
            from heronpy.checkpoints._arrow import ArrowStorage

            return ArrowStorage.open(url)
        case _ if scheme in REDIS_SCHEMES:
            from heronpy.checkpoints._redis import RedisStorage

            return RedisStorage.open(url)
    raise ConfigError(
        f"no storage has URLs of {scheme}://; known are a path, file, s3, hdfs, viewfs, redis, rediss, unix"
    )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as e:
        raise ConfigError(f"the URL of a storage is not one: {e}") from None
