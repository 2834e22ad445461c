"""What a run says of damaged and lost input, and what it refuses to do for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from heronpy.errors import DamagedInputError, StateError
from heronpy.pipeline.batch_times import batch_name, batch_names
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest, Parts
from heronpy.pipeline.pending import Work
from heronpy.pipeline.run_report import RunReport


def report_damage(report: RunReport) -> None:
    """Say which batches were computed without what is damaged, or are not done for it.

    Args:
        report: of the run that ends.

    Raises:
        DamagedInputError: there are some that are not done.
    """
    if not report.blocked:
        for batch in report.batches:
            if (what := report.damaged.get(batch)) is not None:
                name = batch_name(batch, report.batch_length_ms)
                report.notes.append(f"batch {name} was computed without what is damaged: {what}")
        return
    what = next(iter(report.damaged.values()))
    more = f" (and {len(report.damaged) - 1} more)" if len(report.damaged) > 1 else ""
    error = DamagedInputError(
        f"{batch_names(report.blocked, report.batch_length_ms)} cannot be done: {what}{more}; put back what is "
        "damaged or gone, or do without it: --accept-damage"
    )
    error.report = report
    raise error


def report_lost(
    job: Job, manifest: Manifest, views: Collection[str], work: Work, report: RunReport, lookback_ms: int | None
) -> None:
    """Say what archives have lost; views that came later have no rows in batches that have lost some.

    Args:
        job: what is computed.
        manifest: what is done; saved if views are marked in it.
        views: that batches are to have.
        work: what is pending.
        report: of the run.
        lookback_ms: how long before a batch what is read of archives begins; None: it depends on all batches before.

    Raises:
        StateError: results would have to begin with what is lost.
    """
    length_ms, notes = job.batch_length_ms, report.notes
    if work.less and lookback_ms is None:
        raise StateError(
            f"batch {batch_name(work.less[0], length_ms)} cannot be computed: its reduce_by_key, or its sessions, read "
            "everything before it, and the archive has lost rows of batches that are done; put them back, or let "
            "the reduction end in a store"
        )
    if hurt := sorted({*work.hurt} - {*work.pending}):
        notes.append(
            f"input of {batch_names(hurt, length_ms)} has been damaged since it was read: their results stay as they "
            "are"
        )
    if work.lost:
        notes.append(
            f"the archive has lost rows of {batch_names(work.lost, length_ms)}: their results stay as they are"
        )
    if work.kept:
        notes.append(f"{batch_names(work.kept, length_ms)} would be computed again, if the archive had all its rows")
        _mark(job, manifest, work.kept, job.stores().keys() & views)
    if work.orphaned:
        notes.append(
            f"{batch_names(work.orphaned, length_ms)} have no results any more: the program no longer reads what they "
            "are of"
        )
    if work.bare:
        _mark(job, manifest, work.bare, views)
    if work.less:
        notes.append(
            f"{batch_names(work.less, length_ms)} are computed from less: their windows reach into what the archive "
            "has lost"
        )


def _mark(job: Job, manifest: Manifest, batches: Sequence[int], views: Iterable[str]) -> None:
    """Let views that came later have no rows in batches that cannot be computed any more."""
    for batch in batches:
        done = manifest.batches[batch]
        if lacking := {view: Parts() for view in views if view not in done.views}:
            # Computed again, should the archive find its rows.
            manifest.batches[batch] = replace(done, views={**done.views, **lacking}, fingerprint="", direct="")
    manifest.save(job.directory)
