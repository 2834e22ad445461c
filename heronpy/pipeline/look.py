"""Looking at a job's batch side: the record of it, and its dead letters by reason. Reads no rows of views or archives.

So it costs little however long the history is: what the manifest says, what archives have that is new, and dead letters
that are not counted.
"""

from __future__ import annotations

import itertools

from heronpy.pipeline.archived import archived
from heronpy.pipeline.job import Job
from heronpy.pipeline.letter_counts import dead_letters
from heronpy.pipeline.manifest import Batch, Manifest
from heronpy.pipeline.reconcile import Reconciliation, live_reader
from heronpy.pipeline.record import (
    NAMES_MAX,
    NEWEST,
    TEXT_MAX,
    Archived,
    Done,
    Drifted,
    Reconciled,
    Record,
    Viewed,
    plain_text,
)
from heronpy.redaction import redacted
from heronpy.streamlet.graph import StoreNode


def look(job: Job, now_ms: int) -> Record:
    """The record of a job as it is.

    Raises:
        HeronError: the manifest, an archive or a live store cannot be read; one line.
    """
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    waiting: set[int] = set()
    archives = tuple(_archived(job, name, manifest, waiting) for name in list(job.archives())[:NAMES_MAX])
    segments = list(manifest.batches.segments())
    newest = itertools.islice(reversed(manifest.batches), NEWEST)
    return Record(
        job=plain_text(job.name),
        at_ms=now_ms,
        batch_length_ms=job.batch_length_ms,
        max_lateness_ms=job.config.max_lateness_ms,
        committed_watermark=manifest.committed_watermark,
        waiting=len(waiting),
        first_waiting=tuple(sorted(waiting)[:NEWEST]),
        done=len(manifest.batches),
        elements=sum(segment.elements for segment in segments),
        duplicates=sum(segment.duplicates for segment in segments),
        damaged_batches=sum(segment.damaged for segment in segments),
        archives=archives,
        views=tuple(_viewed(job, node, manifest) for node in list(job.stores().values())[:NAMES_MAX]),
        newest=tuple(_done(n, manifest.batches[n]) for n in newest),
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


def _archived(job: Job, name: str, manifest: Manifest, waiting: set[int]) -> Archived:
    found = archived(job, job.archives()[name], manifest)
    waiting.update(found.waiting)
    waits = found.waits
    complete_ms = found.archive.complete_before_ms() if found.archive.exists else _NOTHING
    return Archived(
        archive=plain_text(name),
        complete_before_ms=None if complete_ms == _NOTHING else complete_ms,
        ended=complete_ms is None,
        newest_batch=found.newest,
        batches=found.done.batches + waits.batches,
        files=found.done.files + waits.files,
        bytes=found.done.bytes + waits.bytes,
        waiting_batches=waits.batches,
        waiting_bytes=waits.bytes,
    )


_NOTHING = -(2**63)
"""What an archive says of which nothing is known."""


def _viewed(job: Job, node: StoreNode, manifest: Manifest) -> Viewed:
    view = node.store_name
    with live_reader(job, node) as live:
        rows = manifest.view_rows(view)
        return Viewed(view=plain_text(view), batch_rows=rows, newest_live_batch=max(live.batches(), default=None))


def _done(number: int, batch: Batch) -> Done:
    return Done(
        batch=number,
        version=plain_text(batch.version),
        elements=batch.elements,
        duplicates=batch.duplicates,
        dead_letters=batch.dead_letters,
        rows=batch.rows,
        damaged=plain_text(redacted(batch.damaged), TEXT_MAX),
        finished_at_s=batch.finished_at_s,
        took_s=batch.took_s,
    )
