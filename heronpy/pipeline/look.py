"""Looking at a job's batch side: the record of it, and its dead letters by reason. Reads no rows of views or archives.

So it costs little however long the history is: the manifest, a listing of the archives, and the dead letters.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heronpy.archive import DEAD_LETTERS, Archive
from heronpy.filesystem import Files, Location, files_of
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Batch, Manifest
from heronpy.pipeline.reconcile import Reconciliation, live_reader
from heronpy.pipeline.record import (
    NAMES_MAX,
    NEWEST,
    TEXT_MAX,
    Archived,
    Done,
    Drifted,
    Letters,
    Reconciled,
    Record,
    Viewed,
    kind_of,
    plain_text,
)
from heronpy.redaction import redacted
from heronpy.streamlet.graph import StoreNode

_LETTERS_BYTES_MAX = 64 * 1024 * 1024
"""So much of dead letters is read for their reasons; those in the rest are counted under one."""
_REASON = re.compile(rb'\{"at": [^,]*, "where": "(?:[^"\\]|\\.)*", "reason": "((?:[^"\\]|\\.)*)"')
NOT_READ = "not read"
"""Instead of a reason: there are too many dead letters to read them all."""


def look(job: Job, now_ms: int) -> Record:
    """The record of a job as it is.

    Raises:
        HeronError: the manifest, an archive or a live store cannot be read; one line.
    """
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    waiting: set[int] = set()
    archives = tuple(_archived(job, name, manifest, waiting) for name in list(job.archives())[:NAMES_MAX])
    batches = manifest.batches.values()
    return Record(
        job=plain_text(job.name),
        at_ms=now_ms,
        batch_length_ms=job.batch_length_ms,
        max_lateness_ms=job.config.max_lateness_ms,
        committed_watermark=manifest.committed_watermark,
        waiting=len(waiting),
        first_waiting=tuple(sorted(waiting)[:NEWEST]),
        done=len(manifest.batches),
        elements=sum(batch.elements for batch in batches),
        duplicates=sum(batch.duplicates for batch in batches),
        damaged_batches=sum(bool(batch.damaged) for batch in batches),
        archives=archives,
        views=tuple(_viewed(job, node, manifest) for node in list(job.stores().values())[:NAMES_MAX]),
        newest=tuple(_done(n, manifest.batches[n]) for n in sorted(manifest.batches, reverse=True)[:NEWEST]),
        dead_letters=dead_letters(job.directory),
    )


def drift_of(found: Reconciliation) -> Reconciled:
    """What of a reconciliation is in a record."""
    views = (
        Drifted(
            view=plain_text(one.view),
            batches=len(one.batches),
            keys=one.total.keys,
            drifted=one.total.drifted,
            percent=one.total.percent,
        )
        for one in found.views[:NAMES_MAX]
    )
    return Reconciled(at_s=found.made_at_s, views=tuple(views))


def dead_letters(directory: Location) -> tuple[Letters, ...]:
    """How many rows and files each origin has set aside in a job's directory, by the kind of reason; most first.

    The live side and batch runs set aside each for itself: what both cannot compute is there twice.
    """
    counts: Counter[tuple[str, str]] = Counter()
    left_bytes = _LETTERS_BYTES_MAX
    files = files_of(directory)
    for origin, found in sorted(files.folders(directory / DEAD_LETTERS)):
        for file in found:
            if not file.path.name[0].isalnum():
                continue  # staged: it does not count yet
            with contextlib.suppress(FileNotFoundError, ValueError):  # someone tidies up meanwhile
                if file.path.suffix == ".left-out":
                    counts[origin, NOT_READ] += int(files.read(file.path) or 0)
                elif file.path.suffix == ".jsonl":
                    for line in _lines(files, file.path):
                        left_bytes -= len(line)
                        counts[origin, _kind(line) if left_bytes > 0 else NOT_READ] += 1
    most = counts.most_common(NAMES_MAX)
    return tuple(Letters(origin=plain_text(origin), reason=kind, count=count) for (origin, kind), count in most)


def _lines(files: Files[Any], path: Location) -> Iterator[bytes]:
    if not isinstance(path, Path):
        yield from files.read(path).splitlines(keepends=True)
        return
    with path.open("rb") as lines:
        yield from lines


def _kind(line: bytes) -> str:
    found = _REASON.match(line)
    if found is None:
        return "other"
    with contextlib.suppress(ValueError):
        return kind_of(json.loads(b'"' + found[1] + b'"'))
    return "other"


def _archived(job: Job, name: str, manifest: Manifest, waiting: set[int]) -> Archived:
    archive = Archive(job.archive_path(job.archives()[name]))
    batches = archive.batches()
    closed = manifest.committed_watermark
    later = {n: files for n, files in batches.items() if closed is None or n > closed}
    waiting.update(later)
    complete_ms = archive.complete_before_ms() if archive.exists else _NOTHING
    return Archived(
        archive=plain_text(name),
        complete_before_ms=None if complete_ms == _NOTHING else complete_ms,
        ended=complete_ms is None,
        newest_batch=max(batches, default=None),
        batches=len(batches),
        files=sum(len(files) for files in batches.values()),
        bytes=sum(file.size_bytes for files in batches.values() for file in files),
        waiting_batches=len(later),
        waiting_bytes=sum(file.size_bytes for files in later.values() for file in files),
    )


_NOTHING = -(2**63)
"""What an archive says of which nothing is known."""


def _viewed(job: Job, node: StoreNode, manifest: Manifest) -> Viewed:
    view = node.store_name
    rows = sum(batch.views[view].rows for batch in manifest.batches.values() if view in batch.views)
    with live_reader(job, node) as live:
        return Viewed(view=plain_text(view), batch_rows=rows, newest_live_batch=max(live.batches(), default=None))


def _done(number: int, batch: Batch) -> Done:
    return Done(
        batch=number,
        version=plain_text(batch.version),
        elements=batch.elements,
        duplicates=batch.duplicates,
        dead_letters=batch.dead_letters,
        rows=sum(parts.rows for parts in batch.views.values()),
        damaged=plain_text(redacted(batch.damaged), TEXT_MAX),
        finished_at_s=batch.finished_at_s,
        took_s=batch.took_s,
    )
