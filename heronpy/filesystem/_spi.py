"""What archives and pipelines ask of the place where their files are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from heronpy.filesystem._url_path import Location

P = TypeVar("P", bound=Location)


@dataclass(frozen=True, slots=True)
class Found(Generic[P]):
    """A file as a listing has found it."""

    path: P
    size_bytes: int
    stamp: str
    """Another one when the file is replaced by another content."""
    modified_s: float
    """When it was written, in seconds since the epoch."""


class Files(ABC, Generic[P]):
    """Files in a directory, or in a store: read, written whole, listed, deleted. What has returned is durable.

    Raises, from all methods:
        FileNotFoundError: there is no such file.
        OSError, HeronError: it cannot be done now. It proves nothing about what is there.
    """

    renames: bool
    """Whether files are written under a temporary name, and renamed when they are whole. Otherwise no reader sees them
    before, and they are written under their final name at once."""

    @abstractmethod
    def read(self, path: P) -> bytes:
        """All of a small file."""

    @abstractmethod
    def stat(self, path: P) -> Found[P]:
        """A file as it is now."""

    @abstractmethod
    def opened(self, path: P) -> AbstractContextManager[tuple[BinaryIO, Found[P]]]:
        """A large file, open for reading in any order, and what it was when it was opened.

        Reading fails if it is replaced meanwhile and not kept for those who have it open.
        """

    @abstractmethod
    def write(self, path: P, data: bytes) -> None:
        """Replace a small file: a reader finds the old content whole, or the new one."""

    @abstractmethod
    def create(self, path: P, data: bytes) -> bool:
        """Create a small file, unless the name is taken, atomically: of several callers one succeeds.

        Returns:
            Whether it is there. A store says so, too, if another has created it with this very content.
        """

    @abstractmethod
    def writing(self, path: P) -> AbstractContextManager[Path | BinaryIO]:
        """Where to write a large file, which is at `path` at the end of the block, unless the block fails.

        Where files are renamed it grows there: it must be a name that is never read.
        """

    @abstractmethod
    def move(self, path: P, to: P) -> None:
        """Give a file another name, in a folder that is there: it is whole under that from the first moment.

        In a store both names may stay, if the process dies.
        """

    @abstractmethod
    def input(self, path: P, size_bytes: int | None = None) -> Any:
        """What pyarrow reads a file from; quicker if its size is known.

        Reading fails if it is replaced meanwhile and not kept for those who have it open.
        """

    @abstractmethod
    def folders(self, directory: P, prefix: str = "") -> Iterator[tuple[str, list[Found[P]]]]:
        """The folders in a directory whose names begin so, and the files in each; nothing, if there is no directory."""

    @abstractmethod
    def listed(self, folder: P) -> list[Found[P]]:
        """The files in a folder, by name; none, if there is no folder."""

    @abstractmethod
    def find(self, folder: P, prefix: str = "") -> list[Found[P]]:
        """All files in a folder, at any depth, whose paths below it begin so; sorted."""

    def below(self, folder: P) -> list[P]:
        """The paths of all files in a folder, at any depth."""
        return [file.path for file in self.find(folder)]

    @abstractmethod
    def delete(self, paths: Iterable[P]) -> None:
        """Delete files. What is not there is passed over."""

    def remove_torn(self, folder: P, names: Iterable[str]) -> None:
        """Remove what processes have left that died while they wrote. It is invisible, but takes space.

        Args:
            folder: where.
            names: how the names begin in it that are the caller's own. A folder may be a whole bucket.
        """

    @abstractmethod
    def delete_folder(self, folder: P) -> None:
        """Delete a folder with all that is in it, as far as that is possible: what stays does no harm."""
