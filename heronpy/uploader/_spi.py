"""What an uploader is, and which one a URL means."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from heronpy.errors import ConfigError, NotFoundError, StateError, nearest
from heronpy.uploader._archive import BYTES_MAX, FILES_MAX, unpack

GROUP = "heron.uploaders"
"""Entry points of this group are uploaders, named after the scheme of their URLs."""
STORED_SCHEMES = ("", "file", "s3", "hdfs", "viewfs")
PIECE_BYTES = 8 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PackageRef:
    """Where a package is, and what it must be."""

    url: str
    """Of the package itself, below the URL of its uploader."""
    sha256: str
    """Of its bytes, in hexadecimal digits."""
    size: int
    """In bytes."""

    def to_json(self) -> dict[str, Any]:
        return {"url": self.url, "sha256": self.sha256, "bytes": self.size}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Raises ValueError if it is not one."""
        try:
            url, sha256, size = values["url"], values["sha256"], values["bytes"]
        except (LookupError, TypeError) as e:
            raise ValueError("a reference to a package has url, sha256 and bytes") from e
        if not isinstance(url, str) or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise ValueError("a reference to a package is damaged")
        if type(size) is not int or not 0 <= size <= BYTES_MAX:
            raise ValueError(f"a package has 0 to {BYTES_MAX} bytes")
        return cls(url, sha256, size)


class Uploader(ABC):
    """Stores packages, under names that say what is in them.

    It may be used by several processes at once, and by one thread in each. No method waits for ever.

    Raises, from all methods:
        UnavailableError: the store does not answer.
        StateError: it refuses, or cannot be written.
    """

    @abstractmethod
    def store(self, package: Path, *, topology_id: str) -> PackageRef:
        """Store a package for a topology, unless an equal one is there. When it returns, the package is there whole
        until `remove` was called for all topologies that have stored it.
        """

    @abstractmethod
    def pieces(self, ref: PackageRef) -> Iterator[bytes]:
        """The bytes of a package, in pieces.

        Raises:
            NotFoundError: it is not there.
        """

    @abstractmethod
    def remove(self, ref: PackageRef, *, topology_id: str) -> None:
        """A topology uses a package no longer: delete it, if no other does. Calling it again does no harm."""

    @abstractmethod
    def remove_all(self, *, topology_id: str, keep: Collection[PackageRef] = ()) -> None:
        """The same for whatever a topology has stored but `keep`; the caller need not know what that is."""

    def close(self) -> None:
        """Give back connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fetch(self, ref: PackageRef, into: Path, *, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX) -> None:
        """Make a directory with what is in a package. It is there whole on return, or not at all after an error.

        Args:
            ref: The package.
            into: The directory to make. It must not exist, and its parent must.
            bytes_max: How large all files of it together may be.
            files_max: How many files and directories it may have.

        Raises:
            NotFoundError: the package is not there.
            StateError: it is not what was stored, or the directory cannot be written. Nothing was unpacked.
            UsageError: it was never a package, or is too large.
            AlreadyExistsError: `into` exists.
        """
        try:
            folder = Path(tempfile.mkdtemp(prefix=f".{into.name}.fetched-", dir=into.parent))
        except OSError as e:
            raise StateError(f"{into} cannot be made: {e.strerror}") from e
        try:
            archive = folder / "package.tar.gz"
            self._download(ref, archive)
            unpack(archive, into, bytes_max=bytes_max, files_max=files_max)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _download(self, ref: PackageRef, archive: Path) -> None:
        digest, size = hashlib.sha256(), 0
        try:
            with archive.open("xb") as f:
                for piece in self.pieces(ref):
                    size += len(piece)
                    if size > ref.size:
                        break
                    digest.update(piece)
                    f.write(piece)
        except NotFoundError as e:
            raise NotFoundError(
                f"the package {ref.url} is not there: does this host reach heron.uploader.url? If it does, kill the "
                "topology and submit it again"
            ) from e
        except OSError as e:
            raise StateError(f"{archive} cannot be written: {e.strerror or e}") from e
        if size != ref.size:
            found = f"{size} bytes long" if size < ref.size else "longer"
            raise StateError(f"the package {ref.url} is damaged: it is {found}, not {ref.size}; {_REMEDY}")
        if digest.hexdigest() != ref.sha256:
            raise StateError(f"the package {ref.url} is damaged: its SHA-256 is {digest.hexdigest()}; {_REMEDY}")


_REMEDY = "kill the topology, delete the package and submit again"


def open_uploader(url: str) -> Uploader:
    """The uploader of a URL: a directory (`/path` or `file:///path`, local or shared), `s3://bucket/prefix`,
    `hdfs://host:port/path`, or that of an entry point of the group `heron.uploaders`.

    Options of S3 are in its query: `endpoint` (of a server that is not Amazon's), `region`; of HDFS `user` and
    `replication`. Credentials are not: they are found as for checkpoints.

    Raises:
        ConfigError: no such kind of uploader, or what it needs is not installed.
        UnavailableError: it does not answer.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError as e:
        raise ConfigError(f"the URL of an uploader is not one: {e}") from None
    if scheme in STORED_SCHEMES:
        from heronpy.uploader._stored import StoredUploader  # here: it builds on this module

        return StoredUploader.open(url)
    from importlib.metadata import entry_points  # here: few need it

    found = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in found:
        known = [*STORED_SCHEMES[1:], *found]
        raise ConfigError(
            f"no uploader has URLs of {scheme}://{nearest(scheme, known)}; known are a path, {', '.join(known)}"
        )
    try:
        opened = found[scheme].load().open(url)
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"the uploader of {scheme}:// ({found[scheme].value}) cannot be loaded: {e}") from e
    if not isinstance(opened, Uploader):
        raise ConfigError(f"the uploader of {scheme}:// ({found[scheme].value}) is not a heronpy.uploader.Uploader")
    return opened


def fetch(ref: PackageRef, into: Path, *, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX) -> None:
    """Fetch a package from wherever it is: see `Uploader.fetch`."""
    with open_uploader(_of_package(ref)) as uploader:
        uploader.fetch(ref, into, bytes_max=bytes_max, files_max=files_max)


def remove(ref: PackageRef, *, topology_id: str) -> None:
    """A topology uses a package no longer: see `Uploader.remove`."""
    with open_uploader(_of_package(ref)) as uploader:
        uploader.remove(ref, topology_id=topology_id)


def _of_package(ref: PackageRef) -> str:
    """The URL of the uploader that has stored a package."""
    return split_url(ref.url)[0]


def split_url(url: str) -> tuple[str, str]:
    """The URL of an uploader and the package's name in it, of the URL of a package."""
    base, mark, query = url.partition("?") if "://" in url else (url, "", "")
    folder, _, name = base.rpartition("/")
    return f"{folder or '/'}{mark}{query}", name


def sha256_of(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file."""
    with contextlib.closing(path.open("rb")) as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
        return digest, f.tell()
