"""How much is in an archive, and how much of it waits for a batch run: without listing what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.archive import Archive, ArchiveFile
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest
from heronpy.streamlet.graph import ArchiveNode


@dataclass
class Amount:
    """Of some batches."""

    batches: int = 0
    files: int = 0
    bytes: int = 0


@dataclass
class Archived:
    """What an archive has. Of batches that are done, as the last run has found them."""

    archive: Archive
    done: Amount = field(default_factory=Amount)
    done_rows: int = 0
    done_unreadable: int = 0
    done_files: list[ArchiveFile] = field(default_factory=list)
    """Instead of the two, where no run has counted them."""
    waiting: dict[int, list[ArchiveFile]] = field(default_factory=dict)
    """Files of batches that are not done, and those that came to batches that are; ascending."""
    newest: int | None = None
    """The last batch."""

    @property
    def waits(self) -> Amount:
        """What waits."""
        files = [file for listed in self.waiting.values() for file in listed]
        return Amount(len(self.waiting), len(files), sum(file.size_bytes for file in files))


def archived(job: Job, node: ArchiveNode, manifest: Manifest) -> Archived:
    """Look at an archive: at what is announced and at what is not done, or at all of it, where no run has said more.

    Raises:
        HeronError: it cannot be read.
    """
    archive, closed = Archive(job.archive_path(node)), manifest.committed_watermark
    if closed is None or node.stage not in manifest.checked:
        return _listed(archive, closed)
    found = Archived(archive)
    later = {batch for batch, _ in manifest.batches.seen_from(node.stage, closed + 1)}
    late: dict[int, set[str]] = {}
    for said in archive.announced():
        if said.batch > closed:
            later.add(said.batch)
        elif not said.stale:
            late.setdefault(said.batch, set()).add(said.name)
    for segment in manifest.batches.segments():
        if (known := segment.seen.get(node.stage)) is not None:
            found.done.batches += known.batches
            found.done.files += known.files
            found.done.bytes += known.bytes
            found.done_rows += known.rows
            found.done_unreadable += known.unreadable
    for batch, seen in manifest.batches.seen_from(node.stage, closed + 1):
        found.done.batches -= 1
        found.done.files -= seen.files
        found.done.bytes -= seen.bytes
        found.done_rows -= seen.rows
        found.done_unreadable -= seen.unreadable
        later.add(batch)
    waiting = {batch: archive.folder(batch) for batch in sorted({*late, *later})}
    for batch, names in late.items():
        waiting[batch] = [file for file in waiting[batch] if archive.noted([file]) & names]
    found.waiting = {batch: files for batch, files in waiting.items() if files}
    last = manifest.batches.last_seen(node.stage)
    found.newest = max([*found.waiting, *([] if last is None else [last])], default=None)
    return found


def _listed(archive: Archive, closed: int | None) -> Archived:
    found = Archived(archive)
    for batch, files in archive.batches().items():
        found.newest = batch
        if closed is None or batch > closed:
            found.waiting[batch] = files
            continue
        found.done_files += files
        found.done.batches += 1
        found.done.files += len(files)
        found.done.bytes += sum(file.size_bytes for file in files)
    return found
