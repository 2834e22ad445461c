"""What is in an archive, and how to read it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heronpy.archive import _progress
from heronpy.archive._announcements import Announcement, announced
from heronpy.archive._schema import Schema, read_schema
from heronpy.archive._split import ArchiveSplit, Part
from heronpy.archive.footer import Footer, UnreadableError, check_codec, check_times, footer_of, opened
from heronpy.errors import HeronError, NotFoundError
from heronpy.filesystem import Found, Location, files_of, location

MERGED = "-merged-"
"""In the names of files that replace others."""
_PREFIX = "batch="
_CACHED_FOOTERS = 100_000


@dataclass(frozen=True, slots=True, order=True)
class ArchiveFile:
    """A file of an archive: it is never changed, only replaced by another."""

    batch: int
    path: Location
    size_bytes: int
    stamp: str = ""
    """Another one when somebody has put another content in its place, as who repairs it does."""


class Archive:
    """The master data set of a job: read, while it is written."""

    def __init__(self, directory: Location) -> None:
        """Name an archive; it need not exist yet."""
        self.directory = location("the archive", directory)
        self._footers: dict[tuple[Location, int], Footer] = {}
        self._codec = ""
        self._batch_length_ms = 0

    @property
    def exists(self) -> bool:
        """Whether anything has opened it for writing."""
        return read_schema(self.directory) is not None

    @property
    def schema(self) -> Schema:
        """What its elements are.

        Raises:
            NotFoundError: there is no archive.
        """
        schema = read_schema(self.directory)
        if schema is None:
            raise NotFoundError(f"no archive in {self.directory}: the topology has not written one yet")
        return schema

    @property
    def codec(self) -> str:
        """ "columns" or "pickle"."""
        if not self._codec:
            self._codec = self.schema.codec
        return self._codec

    @property
    def batch_length_ms(self) -> int:
        """A batch id is the time divided by this."""
        if not self._batch_length_ms:
            self._batch_length_ms = self.schema.batch_length_ms
        return self._batch_length_ms

    def batches(self) -> dict[int, list[ArchiveFile]]:
        """Its files by batch id, both ascending; without those that a compaction has replaced.

        Raises:
            HeronError: a directory cannot be listed.
        """
        return {batch: files for batch, listed in self._listed() if (files := self._current(listed))}

    def files_of_batch(self, batch: int) -> list[ArchiveFile]:
        """The same of one batch.

        Raises:
            OSError, HeronError: its directory cannot be listed.
        """
        folder = self.directory / f"{_PREFIX}{batch}"
        listed = [_archive_file(batch, found) for found in files_of(folder).listed(folder) if _counts(found.path.name)]
        return self._current(listed)

    def folder(self, batch: int) -> list[ArchiveFile]:
        """The files of one batch, as `batches` has them.

        Raises:
            HeronError: its directory cannot be listed.
        """
        try:
            return self.files_of_batch(batch)
        except OSError as error:
            raise HeronError(f"cannot list batch {batch} of {self.directory}: {error}") from error

    def noted(self, files: Iterable[ArchiveFile]) -> set[str]:
        """Names of files, and of those that they have replaced."""
        names = set()
        for file in files:
            names.add(file.path.name)
            if MERGED in file.path.name:
                names |= self._replaces(file)
        return names

    def folders(self) -> set[int]:
        """The batches that have a folder, in a directory: none of them is looked into. In a store none.

        Raises:
            HeronError: the directory cannot be listed.
        """
        found: set[int] = set()
        if isinstance(self.directory, Path):
            try:
                names = os.listdir(self.directory)
            except FileNotFoundError:
                return found
            except OSError as error:
                raise HeronError(f"cannot list {self.directory}: {error}") from error
            for name in names:
                if name.startswith(_PREFIX):
                    with contextlib.suppress(ValueError):
                        found.add(int(name.removeprefix(_PREFIX)))
        return found

    def announced(self) -> list[Announcement]:
        """Files that writers have made visible, or are about to, as far as they are not recorded.

        Raises:
            HeronError: they cannot be listed.
        """
        try:
            return announced(self.directory)
        except OSError as error:
            raise HeronError(f"cannot list {self.directory}: {error}") from error

    def replaced(self, older_than_s: float = 0.0) -> list[ArchiveFile]:
        """Files that are still there though a compaction has replaced them, at least so long ago."""
        files = []
        for _, listed in self._listed():
            names = self._replaced([file for file in listed if time.time() - _published_s(file) >= older_than_s])
            files += [file for file in listed if file.path.name in names]
        return files

    def complete_before_ms(self) -> int | None:
        """Every element with a time before this is in the archive; None: all are, and no more will come.

        It is the least of what the tasks of a run have recorded. A run that was killed keeps what it has recorded: it
        says how far the archive is until another run is further. -2^63: nothing is recorded.

        Raises:
            HeronError: the records cannot be read.
        """
        return _progress.complete_before_ms(self.directory)

    def completeness(self) -> tuple[int | None, bool]:
        """`complete_before_ms`, and whether those who write to it now announce it, see `announced`.

        Raises:
            HeronError: the records cannot be read.
        """
        return _progress.completeness(self.directory)

    def footer(self, file: ArchiveFile) -> Footer:
        """What a file says about itself; read once.

        Raises:
            FileNotFoundError: it is gone.
            UnreadableError: it is none of an archive, has another codec, or has rows of another batch.
        """
        key = (file.path, file.size_bytes)
        footer = self._footers.get(key)
        if footer is None:
            if len(self._footers) >= _CACHED_FOOTERS:
                self._footers.clear()
            with opened(file.path, file.size_bytes) as parquet:
                footer = footer_of(parquet)
                check_codec(footer, self.codec)
                check_times(parquet, file.batch, self.batch_length_ms)
            self._footers[key] = footer
        return footer

    def check(self, files: Iterable[ArchiveFile]) -> tuple[list[ArchiveFile], dict[ArchiveFile, str]]:
        """Read the footers of files: which can be read, and which are damaged, with the reason.

        Raises:
            NotFoundError: a file is gone.
            HeronError: the disk cannot be read.
        """
        good, bad = [], {}
        for file in files:
            try:
                self.footer(file)
                good.append(file)
            except FileNotFoundError:
                raise NotFoundError(f"{file.path} is gone: the archive was compacted meanwhile; run again") from None
            except OSError as error:
                raise HeronError(f"cannot read {file.path}: {error.strerror or error}") from error
            except MemoryError as error:
                raise HeronError(f"not enough memory to read {file.path}: {error}") from error
            except UnreadableError as error:
                bad[file] = f"the file cannot be read: {error}"
        return good, bad

    def rows(self, files: Iterable[ArchiveFile]) -> int:
        """How many rows files have.

        Raises:
            FileNotFoundError, UnreadableError: as `footer`.
        """
        return sum(self.footer(file).rows for file in files)

    def fingerprint(self, files: Iterable[ArchiveFile]) -> str:
        """Names the rows of files: the same after a compaction, another if any row is added or taken away.

        It is made of the number of rows and the sum of the hashes of their ids, per batch; only footers are read.

        Raises:
            FileNotFoundError, UnreadableError: as `footer`.
        """
        sums: dict[int, tuple[int, int]] = {}
        for file in files:
            footer = self.footer(file)
            rows, hashes = sums.get(file.batch, (0, 0))
            sums[file.batch] = (rows + footer.rows, (hashes + footer.hash_sum) % 2**64)
        return " ".join(f"{batch}:{rows}:{hashes:016x}" for batch, (rows, hashes) in sorted(sums.items()))

    def splits(self, files: Iterable[ArchiveFile], target_bytes: int) -> list[ArchiveSplit]:
        """Divide files into parts of about `target_bytes`: small files together, large ones by row group."""
        codec = self.codec
        splits: list[ArchiveSplit] = []
        waiting: list[Part] = []
        waiting_bytes = 0
        for file in files:
            for part, size_bytes in _parts(file, target_bytes):
                if waiting and waiting_bytes + size_bytes > target_bytes:
                    splits.append(ArchiveSplit(tuple(waiting), waiting_bytes, codec))
                    waiting, waiting_bytes = [], 0
                waiting.append(part)
                waiting_bytes += size_bytes
        if waiting:
            splits.append(ArchiveSplit(tuple(waiting), waiting_bytes, codec))
        return splits

    def _listed(self) -> list[tuple[int, list[ArchiveFile]]]:
        batches = []
        try:
            for name, listed in files_of(self.directory).folders(self.directory, _PREFIX):
                with contextlib.suppress(ValueError):
                    batch = int(name.removeprefix(_PREFIX))
                    files = [_archive_file(batch, found) for found in listed if _counts(found.path.name)]
                    batches.append((batch, files))
        except OSError as error:
            raise HeronError(f"cannot list {self.directory}: {error}") from error
        return sorted(batches)

    def _current(self, files: list[ArchiveFile]) -> list[ArchiveFile]:
        if len(files) < 2:  # alone, nothing of it is replaced: no footer need be read
            return files
        replaced = self._replaced(files)
        return [file for file in files if file.path.name not in replaced]

    def _replaced(self, files: Iterable[ArchiveFile]) -> set[str]:
        """Names of files whose rows these have, too: those that they replace, and others that replace the same.

        Two compactions merge the same files if one takes the other, which only was slow, for dead.
        """
        merged = {f.path.name: found for f in files if MERGED in f.path.name and (found := self._replaces(f))}
        names = set[str]().union(*merged.values())
        for name, found in merged.items():
            if any(found < others or (found == others and other < name) for other, others in merged.items()):
                names.add(name)
        return names

    def _replaces(self, file: ArchiveFile) -> set[str]:
        # One that is damaged replaces nothing: if what it replaced is still there, that counts again.
        with contextlib.suppress(FileNotFoundError, UnreadableError):
            return set(self.footer(file).replaces)
        return set()


def _counts(name: str) -> bool:
    return name.endswith(".parquet") and name[0] not in "._"


def _archive_file(batch: int, found: Found[Any]) -> ArchiveFile:
    return ArchiveFile(batch, found.path, found.size_bytes, found.stamp)


def _published_s(file: ArchiveFile) -> float:
    time_ms = file.path.name.partition("-")[0]
    return int(time_ms) / 1000 if time_ms.isdecimal() else time.time()


def _parts(file: ArchiveFile, target_bytes: int) -> Sequence[tuple[Part, int]]:
    whole = [(Part(file.path, None, file.size_bytes), file.size_bytes)]
    if file.size_bytes <= target_bytes:
        return whole
    try:
        with opened(file.path, file.size_bytes) as parquet:
            metadata = parquet.metadata
            sizes = [_group_bytes(metadata.row_group(group)) for group in range(metadata.num_row_groups)]
    except (FileNotFoundError, UnreadableError):
        return whole  # its reader says so
    return [(Part(file.path, (group,), file.size_bytes), size) for group, size in enumerate(sizes)]


def _group_bytes(group: Any) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))
