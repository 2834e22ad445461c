"""How far a job is: batches, archives, live stores, and what was set aside."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from heronpy.archive import dead_letter_counts
from heronpy.pipeline.archived import archived
from heronpy.pipeline.batch_times import batch_name, time_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.letters import is_of_run
from heronpy.pipeline.look import look
from heronpy.pipeline.manifest import Manifest
from heronpy.pipeline.plan import live_only
from heronpy.pipeline.reconcile import live_reader
from heronpy.pipeline.record import Figures, figures
from heronpy.streamlet.graph import StoreNode

if TYPE_CHECKING:
    from heronpy.archive import Archive, ArchiveFile


def collect(job: Job, *, now_s: float | None = None) -> dict[str, Any]:
    """Everything that `heron pipeline status` shows, as plain values.

    Raises:
        HeronError: the manifest, an archive or a live store cannot be read; one line.
    """
    now_ms = int((time.time() if now_s is None else now_s) * 1000)
    record = look(job, now_ms)
    now = figures(record, now_ms)
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    closed, alone = manifest.committed_watermark, live_only(job)
    archives = [_archive(job, name, manifest) for name in job.archives()]
    open_batches = sorted({batch for a in archives for batch in a.pop("open")})
    return {
        "job": job.name,
        "directory": str(job.directory),
        "batch_length_ms": job.batch_length_ms,
        "committed_watermark": closed,
        "closed_before_ms": now.closed_before_ms,
        "lag_ms": now.lag_ms,
        "archive_lag_ms": now.archive_lag_ms,
        "batches": {
            "done": record.done,
            "elements": record.elements,
            "duplicates": record.duplicates,
            "open": open_batches,
            "damaged": {
                batch: done.damaged
                for batch, done in manifest.batches.where(lambda segment: segment.damaged > 0)
                if done.damaged
            },
        },
        "next": _next(now),
        "archives": archives,
        "views": [_view(job, node, manifest, alone.get(view)) for view, node in job.stores().items()],
        "dead_letters": _dead_letters(job),
        "dead_letter_reasons": [msgspec.to_builtins(letters) for letters in record.dead_letters],
    }


def _next(now: Figures) -> dict[str, Any] | None:
    """The first batch that is not done, and when it can be: once nothing earlier than its end is to be expected."""
    if now.next_batch is None:
        return None
    return {
        "batch": now.next_batch,
        "end_ms": now.next_end_ms,
        "complete_at_ms": now.next_complete_at_ms,
        "complete_before_ms": now.archive_complete_before_ms,
        "complete": now.complete,
    }


def _archive(job: Job, name: str, manifest: Manifest) -> dict[str, Any]:
    found = archived(job, job.archives()[name], manifest)
    archive, done = found.archive, found.done
    rows, unreadable = _counted(archive, found.done_files)
    waiting_rows, waiting_unreadable = _counted(archive, [f for files in found.waiting.values() for f in files])
    return {
        "archive": name,
        "directory": str(archive.directory),
        "newest_batch": found.newest,
        "complete_before_ms": archive.complete_before_ms() if archive.exists else None,
        "done": asdict(done) | {"rows": found.done_rows + rows, "unreadable": found.done_unreadable + unreadable},
        "waiting": asdict(found.waits) | {"rows": waiting_rows, "unreadable": waiting_unreadable},
        "open": list(found.waiting),
    }


def _counted(archive: Archive, files: Sequence[ArchiveFile]) -> tuple[int, int]:
    """Rows of files, and how many cannot be read."""
    from heronpy.archive import UnreadableError

    rows = unreadable = 0
    for file in files:
        try:
            rows += archive.footer(file).rows
        except (FileNotFoundError, UnreadableError):
            unreadable += 1
    return rows, unreadable


def _dead_letters(job: Job) -> dict[str, dict[str, int]]:
    """By origin and side: an element that neither can compute is set aside by both."""
    batch = dead_letter_counts(job.directory, is_of_run)
    live = dead_letter_counts(job.directory, lambda path: not is_of_run(path))
    origins = sorted({*batch, *live})
    return {origin: {"live": live.get(origin, 0), "batch": batch.get(origin, 0)} for origin in origins}


def _view(job: Job, node: StoreNode, manifest: Manifest, live_only: str | None) -> dict[str, Any]:
    view = node.store_name
    closed = manifest.committed_watermark if live_only is None else None
    with live_reader(job, node) as live:
        batches = live.batches()
        rows = {batch: sum(1 for _ in live.items(batch)) for batch in batches}
    return {
        "view": view,
        "batch_rows": manifest.view_rows(view),
        "live_rows": sum(rows.values()),
        "live_rows_open": sum(n for batch, n in rows.items() if closed is None or batch > closed),
        "live_batches": len(batches),
        "newest_live_batch": max(batches, default=None),
        "live_only": live_only,
    }


def show(found: dict[str, Any]) -> None:
    """Print it for people."""
    from rich.console import Console

    from heronpy.cli.tables import WIDTH, duration, empty_table

    console = Console(highlight=False, width=WIDTH, markup=False)
    length_ms, batches = found["batch_length_ms"], found["batches"]
    closed = found["committed_watermark"]
    console.print(f"{found['job']}  {found['directory']}, batches of {length_ms / 1000:g} s")
    if closed is None:
        console.print("no batch is done")
    else:
        console.print(
            f"{batches['done']:,} batches done, all up to {batch_name(closed, length_ms)} UTC (id {closed}): "
            f"{batches['elements']:,} elements, {batches['duplicates']:,} duplicates dropped"
        )
        console.print(
            f"lag {_signed(found['lag_ms'], duration)}, behind the archive {_signed(found['archive_lag_ms'], duration)}"
        )
    if found["next"] is not None:
        console.print(next_line(found["next"], length_ms))
    archives = empty_table("archive", right=("state", "batches", "files", "rows", "bytes"))
    for archive in found["archives"]:
        for state in ("done", "waiting"):
            sizes = archive[state]
            numbers = [f"{sizes[name]:,}" for name in ("batches", "files", "rows", "bytes")]
            archives.add_row(archive["archive"] if state == "done" else "", state, *numbers)
    if found["archives"]:
        console.print(archives)
    views = empty_table("view", right=("batch rows", "live rows", "not yet in batch", "live batches"))
    for view in found["views"]:
        names = ("batch_rows", "live_rows", "live_rows_open", "live_batches")
        views.add_row(view["view"], *(f"{view[name]:,}" for name in names))
    console.print(views)
    for view in found["views"]:
        if view["live_only"] is not None:
            console.print(f"{view['view']} has no batch side: {view['live_only']}")
    for origin, count in found["dead_letters"].items():
        reasons = [one for one in found["dead_letter_reasons"] if one["origin"] == origin]
        sides = []
        for side, where in (("live", "live"), ("batch", "in batch")):
            kinds = ", ".join(f"{one['reason']} {one['count']:,}" for one in reasons if one["side"] == side)
            sides.append(f"{count[side]:,} {where}" + (f" ({kinds})" if kinds else ""))
        console.print(f"dead letters of {origin}: {', '.join(sides)}")
    for archive in found["archives"]:
        if bad := archive["done"]["unreadable"] + archive["waiting"]["unreadable"]:
            console.print(f"{bad:,} files of {archive['archive']} cannot be read: their batches are not done without")
    for batch, what in batches["damaged"].items():
        console.print(f"batch {batch_name(batch, length_ms)} was computed without what is damaged: {what}")


def next_line(found: dict[str, Any], length_ms: int) -> str:
    name, end = batch_name(found["batch"], length_ms), time_name(found["end_ms"], length_ms)
    if found["complete"]:
        many = "1 batch is" if found["complete"] == 1 else f"{found['complete']:,} batches are"
        return f"next: batch {name}; {many} complete, for `heron pipeline run`"
    reached = "" if found["complete_before_ms"] is None else time_name(found["complete_before_ms"], 1000)
    reached = reached or "nowhere yet"
    return f"next: batch {name}, complete when all before {end} is archived; the archive is at {reached}"


def _signed(ms: int | None, duration: Any) -> str:
    if ms is None:
        return "-"
    return "none" if ms <= 0 else str(duration(ms / 1000))
