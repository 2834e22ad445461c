"""What a run reads: the files of archives, the splits of sources."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.connectors import Split
from heronpy.errors import ConfigError, TopologyError
from heronpy.pipeline._history import History
from heronpy.pipeline.batch import DAMAGED, GONE, Seen, damage_of
from heronpy.pipeline.execute import ScanTask
from heronpy.pipeline.job import Job
from heronpy.pipeline.plan import BatchPlan
from heronpy.streamlet.graph import SourceNode

if TYPE_CHECKING:
    from heronpy.archive import Archive, ArchiveFile

SPLIT_BYTES_MAX = 64 * 1024 * 1024
_SPLIT_BYTES_LEAST = 1024 * 1024
"""A task with less takes longer to start than to work."""
_SPLIT_BYTES_MIN = 4 * 1024 * 1024
"""Tasks become smaller only where cores would have nothing to do."""
_TASKS_PER_CORE = 3
"""Where there is enough for them: so that all cores end at about the same time."""
ARCHIVE_EXPANSION = 4
"""Bytes in memory per byte of an archive, which is compressed: about."""


@dataclass
class ArchiveInput:
    """An archive as a run found it."""

    stage: str
    archive: Archive
    files: dict[int, list[ArchiveFile]]
    """Readable ones, by batch id."""
    damaged: dict[ArchiveFile, str] = field(default_factory=dict)
    """Those whose footers cannot be read, with the reason."""
    complete_before_ms: int | None = None
    """As of before the files were listed: what was complete then is among them."""
    found: dict[int, Seen | None] = field(default_factory=dict)
    """What there is of each batch that was looked at; None: nothing."""
    gone: dict[int, set[str]] = field(default_factory=dict)
    """What names files that a batch was computed from and that are gone, where it cannot stay as it is for others have
    come; or was computed without them already."""
    known: Callable[[int], Seen | None] = lambda batch: None
    """What an earlier run has found of a batch."""
    made_of: Callable[[int], tuple[str, Sequence[str]]] = lambda batch: ("", ())
    """The fingerprint of what a batch that is done was computed from, and what names its files."""
    name: str = ""
    """What the program calls it."""

    def look_at(self, batches: Iterable[int]) -> None:
        """List batches, unless that was done."""
        for batch in batches:
            if batch not in self.found:
                self.take(batch, self.archive.folder(batch))

    def look_at_all(self) -> None:
        """List all batches."""
        for batch, files in self.archive.batches().items():
            if batch not in self.found:
                self.take(batch, files)

    def take(self, batch: int, files: list[ArchiveFile]) -> None:
        """Take a batch as it is listed: where that is as it was before, no footer is read.

        Raises:
            HeronError: a footer cannot be read now.
        """
        if not files:
            self.found[batch] = None
            return
        listing, before = listing_of(files), self.known(batch)
        if before is not None and before.listing == listing and not before.unreadable:
            self.found[batch], self.files[batch] = before, files
        else:
            good, bad = self.archive.check(files)
            self.damaged |= bad
            if good:
                self.files[batch] = good
            whole = self.archive.fingerprint(good) if good else f"{batch}:0:{0:016x}"
            size_bytes = sum(file.size_bytes for file in files)
            self.found[batch] = before = Seen(listing, whole, len(files), size_bytes, len(bad))
        fingerprint, names = self.made_of(batch)
        if fingerprint != before.fingerprint and (gone := self._gone(files, names, GONE in fingerprint)):
            self.gone[batch] = gone

    def listed(self, batch: int) -> list[str]:
        """`Batch.files` of a batch: what names its files, readable or not, and those that are gone."""
        files = [*self.files.get(batch, ()), *(file for file in self.damaged if file.batch == batch)]
        return sorted(named(file.path.name for file in files) | self.gone.get(batch, set()))

    def _gone(self, files: Sequence[ArchiveFile], names: Iterable[str], is_known: bool) -> set[str]:
        """Those of some names whose files are gone, if that is known or there are other files.

        What a compaction has replaced is not gone.
        """
        there = named(file.path.name for file in files)
        gone = {*names} - there
        if gone and (is_known or not there.issubset(names)):
            return gone - named(self.archive.noted(files))
        return set()

    def chosen(self, batches: Container[int] | None) -> list[ArchiveFile]:
        """Files of some batches, or of all."""
        return [file for batch, files in self.files.items() if batches is None or batch in batches for file in files]

    def rows(self, batches: Container[int]) -> int:
        """How many the footers of the files of some batches say that there are."""
        return sum(seen.rows for batch, seen in self.found.items() if seen is not None and batch in batches)

    def readings(self, files: Iterable[ArchiveFile], target_bytes: int) -> list[ScanTask]:
        """Some files, one reading per task."""
        return [ScanTask(self.stage, (split,)) for split in self.archive.splits(files, target_bytes)]


def listing_of(files: Iterable[ArchiveFile]) -> str:
    """Names files as they are listed: another one when any of them is exchanged."""
    digest = hashlib.blake2b(digest_size=12)
    for file in files:
        digest.update(f"{file.path.name} {file.size_bytes} {file.stamp}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def named(names: Iterable[str]) -> set[str]:
    """Digests that stand for the names of files, in the manifest: short, as there may be thousands in a batch."""
    encoded = (name.encode(errors="surrogateescape") for name in names)
    return {hashlib.blake2b(name, digest_size=6).hexdigest() for name in encoded}


def open_archives(job: Job, plan: BatchPlan, history: History | None = None) -> list[ArchiveInput]:
    """Look into all archives of a plan, and at all of their batches. No file is moved or changed.

    Args:
        job: the program.
        plan: what is read of it.
        history: what earlier runs have found.

    Raises:
        ConfigError: an archive has another batch length than the program.
    """
    inputs = named_archives(job, plan, history)
    for one in inputs:
        one.complete_before_ms = one.archive.complete_before_ms()
        one.look_at_all()
    return inputs


def named_archives(job: Job, plan: BatchPlan, history: History | None) -> list[ArchiveInput]:
    """All archives of a plan; nothing is read yet.

    Raises:
        ConfigError: an archive has another batch length than the program.
    """
    from heronpy.archive import Archive

    inputs = []
    for node in plan.archives():
        archive = Archive(job.archive_path(node))
        if archive.exists and archive.batch_length_ms != job.batch_length_ms:
            raise ConfigError(
                f"the archive {archive.directory} has batches of {archive.batch_length_ms / 1000:g} s and the "
                f"program's are {job.batch_length_ms / 1000:g} s: set the length back, or give it another archive"
            )
        one = ArchiveInput(node.stage, archive, {}, name=node.archive_name)
        if history is not None:
            one.known = functools.partial(history.seen, node.stage)
            one.made_of = functools.partial(_made_of, history, one)
        inputs.append(one)
    return inputs


def _made_of(history: History, one: ArchiveInput, batch: int) -> tuple[str, Sequence[str]]:
    done = history.get(batch)
    for stage, fingerprint in () if done is None else done.inputs.items():
        if done is not None and done.archives.get(stage, one.name if stage == one.stage else "") == one.name:
            return fingerprint, done.files.get(stage, ())
    return "", ()


def fingerprints(archives: Sequence[ArchiveInput], unread: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """What each batch's input is, by archive: `Archive.fingerprint`, and what of it could not be read.

    So a batch that was computed without some rows is computed again when their file is repaired, and only then.

    Args:
        archives: the input.
        unread: damaged files, as they are now; see `Manifest.unread`.
    """
    made: dict[int, dict[str, str]] = {}
    for one in archives:
        damaged: dict[int, list[str]] = {}
        for file in one.damaged:
            damaged.setdefault(file.batch, []).append(f"{DAMAGED}{file.path.name}={file.stamp}")
        for file in one.chosen(None):
            if (seen := unread.get(str(file.path))) is not None:
                damaged.setdefault(file.batch, []).append(f"{DAMAGED}{file.path.name}={seen}")
        for batch, gone in one.gone.items():
            damaged.setdefault(batch, []).append(GONE + ",".join(sorted(gone)))
        for batch, found in one.found.items():
            if found is not None:
                whole = found.fingerprint + "".join(sorted(damaged.get(batch, ())))
                made.setdefault(batch, {})[one.stage] = whole
    return made


def listed(archives: Sequence[ArchiveInput], batches: Iterable[int]) -> dict[int, dict[str, list[str]]]:
    """`Batch.files` of batches."""
    return {batch: {one.stage: one.listed(batch) for one in archives if one.found.get(batch)} for batch in batches}


def hurt_batches(
    archives: Sequence[ArchiveInput], inputs: Mapping[int, Mapping[str, str]], history: History
) -> dict[int, dict[str, str]]:
    """What batches that are done were computed from, by archive, where nothing has happened to it but damage.

    What is done was computed from all of it: that is better than what could be computed now. Where more files have come
    it is not: their rows would be missing without an error.
    """
    hurt: dict[int, dict[str, str]] = {}
    for one in archives:
        for batch in [batch for batch, found in inputs.items() if damage_of(found.get(one.stage, ""))]:
            done = history.get(batch)
            whole = "" if done is None else done.inputs.get(one.stage, "")
            if done is not None and whole and not damage_of(whole) and done.files.get(one.stage) == one.listed(batch):
                hurt.setdefault(batch, {})[one.stage] = whole
    return hurt


def damaged_batches(archives: Sequence[ArchiveInput], unread: Container[str]) -> dict[int, str]:
    """Batches of which some input is known to be damaged, and what it is."""
    found: dict[int, str] = {}
    for one in archives:
        for file, reason in one.damaged.items():
            found.setdefault(file.batch, f"{file.path}: {reason}")
        for file in one.chosen(None):
            if str(file.path) in unread:
                found.setdefault(file.batch, f"{file.path}: a part of it cannot be read")
        for batch, gone in one.gone.items():
            found.setdefault(
                batch, f"{one.archive.directory}/batch={batch}: {len(gone)} of the files that it had are gone"
            )
    return found


def unread_files(archives: Sequence[ArchiveInput], places: Collection[str]) -> dict[str, str]:
    """Those files of archives in which something could not be read, with their stamps."""
    return {str(file.path): file.stamp for one in archives for file in one.chosen(None) if str(file.path) in places}


def still_unread(archives: Sequence[ArchiveInput], unread: Mapping[str, str]) -> dict[str, str]:
    """Those of `Manifest.unread` that are as they were, and still cannot be read: a disk may have failed for a while.

    Raises:
        HeronError: the disk cannot be read.
    """
    stamps = {str(file.path): file.stamp for one in archives for file in (*one.chosen(None), *one.damaged)}
    found = {path: seen for path, seen in unread.items() if stamps.get(path) == seen}
    for one in archives:
        for file in one.chosen(None):
            if str(file.path) in found and _is_whole(one.archive, file):
                del found[str(file.path)]
    return found


def _is_whole(archive: Archive, file: ArchiveFile) -> bool:
    damaged: list[str] = []

    def note(where: str, _row: Any, _reason: str) -> None:
        damaged.append(where)

    for split in archive.splits([file], file.size_bytes):
        for _ in split.read(note):
            pass
    return not damaged


def sizes(archives: Sequence[ArchiveInput]) -> dict[int, int]:
    """About how many bytes each batch's input has in memory, over all archives."""
    made: dict[int, int] = {}
    for one in archives:
        for batch, files in one.files.items():
            made[batch] = made.get(batch, 0) + ARCHIVE_EXPANSION * sum(file.size_bytes for file in files)
    return made


def complete_before_ms(job: Job, archives: Sequence[ArchiveInput]) -> int:
    """Before which time nothing more is to be expected."""
    limits = [time.time_ns() // 1_000_000 - job.config.max_lateness_ms]
    limits += [limit for one in archives if (limit := one.complete_before_ms) is not None]
    return min(limits)


def archive_readings(archives: Sequence[ArchiveInput], batches: Container[int] | None, cores: int) -> list[ScanTask]:
    """One reading per task, for the files of some batches (None: of all)."""
    chosen = [(one, one.chosen(batches)) for one in archives]
    target = _target(sum(file.size_bytes for _, files in chosen for file in files), cores)
    return [reading for one, files in chosen for reading in one.readings(files, target)]


def source_readings(nodes: Sequence[SourceNode], cores: int) -> tuple[list[ScanTask], int]:
    """One reading per task, small splits together; and their bytes.

    Raises:
        TopologyError: a source has no batch face after all.
    """
    readings: list[ScanTask] = []
    total = 0
    for node in nodes:
        splits = node.source.splits(_SPLIT_BYTES_MIN)
        if splits is None:
            raise TopologyError(
                f"{node.stage} cannot be read in batch: its {type(node.source).__name__} has no past; "
                "put archive() after it and run the topology"
            )
        size = sum(split.size_bytes for split in splits)
        total += size
        readings += [ScanTask(node.stage, packed) for packed in _packed(splits, _target(size, cores))]
    return readings, total


def _target(total_bytes: int, cores: int) -> int:
    """Bytes per task: one per core if that makes them small, some per core if there is more."""
    each = int(total_bytes / cores * 1.1)  # files are not divided: exact shares would need one task more than cores
    least = min(_SPLIT_BYTES_MIN, max(_SPLIT_BYTES_LEAST, each))
    return min(SPLIT_BYTES_MAX, max(least, total_bytes // (cores * _TASKS_PER_CORE) + 1))


def local_files(readings: Iterable[ScanTask]) -> dict[str, Path]:
    """Files of this machine that splits of sources name, one of each source."""
    found: dict[str, Path] = {}
    for reading in readings:
        for split in reading.splits:
            path = getattr(split, "path", None)
            if isinstance(path, (str, Path)) and Path(path).is_absolute():
                found.setdefault(f"the input of {reading.stage}", Path(path))
    return found


def _packed(splits: Sequence[Split], target_bytes: int) -> list[tuple[Split, ...]]:
    packs: list[list[Split]] = []
    filled = 0
    for split in splits:
        if not packs or filled + split.size_bytes > target_bytes:
            packs.append([])
            filled = 0
        packs[-1].append(split)
        filled += split.size_bytes
    return [tuple(pack) for pack in packs]
