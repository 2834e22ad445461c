"""Parts of an object that were read once, in a file without a name: reading them again asks no storage.

They may be read in other pieces than at first: of several states together, then of each.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect, insort
from pathlib import Path

from heronpy.checkpoints._object import Source
from heronpy.errors import StateError


class SpooledSource:
    """An object as another source has it. Used by one thread at a time."""

    def __init__(self, source: Source, directory: Path) -> None:
        """Nothing is read yet.

        Args:
            source: Where it is.
            directory: On a disk. What was read is gone with this object, or with the process.

        Raises:
            StateError: no file can be made there.
        """
        self._source = source
        self._directory = directory
        self._read: list[tuple[int, int]] = []
        """Begin and end of what is in the file, in order; none touches another."""
        try:
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # closed with this object
        except OSError as e:
            raise self._failed(e) from e

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def size(self) -> int:
        return self._source.size

    def read(self, offset: int, length: int) -> bytes:
        """As of the source.

        Raises:
            StateError: the file cannot be written or read.
        """
        file = self._file.fileno()
        try:
            at = bisect(self._read, offset, key=lambda part: part[0]) - 1
            if at >= 0 and offset + length <= self._read[at][1]:
                return os.pread(file, length, offset)
            data = self._source.read(offset, length)
            if os.pwrite(file, data, offset) == len(data) == length:
                self._add(offset, offset + length)
        except OSError as e:
            raise self._failed(e) from e
        return data

    def _add(self, begin: int, end: int) -> None:
        touching = [part for part in self._read if part[0] <= end and part[1] >= begin]
        self._read = [part for part in self._read if part not in touching]
        insort(self._read, (min([begin, *(p[0] for p in touching)]), max([end, *(p[1] for p in touching)])))

    def _failed(self, error: OSError) -> StateError:
        return StateError(f"checkpoint object {self.name} cannot be kept in {self._directory}: {error}")
