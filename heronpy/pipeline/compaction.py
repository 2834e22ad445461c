"""Compaction: the many small files of an archive's complete batches become few large ones, by a Spark job.

Spark's tasks only write temporary files. The driver, which holds the archive's lock, publishes them one by one with a
rename each: a task that outlives its driver can therefore publish nothing, and whatever is killed, every event is
there once. The replaced files stay for readers that have listed them already, and are removed by a later compaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from heronpy.archive import Archive
from heronpy.archive.files import locked, remove_stale
from heronpy.archive.merging import Merged, MergePlan, merge_files, plan_merges, publish
from heronpy.errors import HeronError
from heronpy.filesystem import Location, files_of
from heronpy.pipeline._manifest_log import lease
from heronpy.pipeline.execute import collected
from heronpy.pipeline.executors import check_places
from heronpy.pipeline.job import Job
from heronpy.pipeline.masters import check_request
from heronpy.pipeline.session import refusals_named, spark_session

_LOCK = "_compact.lock"
_ROUNDS_PER_CORE = 8


@dataclass(slots=True)
class CompactReport:
    """What a compaction has done."""

    batches: int = 0
    """Batches that have fewer files now."""
    files_before: int = 0
    """Files that were merged."""
    files_after: int = 0
    """Files that they have become."""
    rows: int = 0
    """Rows in them."""
    removed: int = 0
    """Files removed that an earlier compaction had replaced."""
    skipped: list[str] = field(default_factory=list)
    """Why files were left as they are: one line each."""
    seconds: float = 0.0

    def __str__(self) -> str:
        merged = f"{self.files_before} files of {self.batches} batches became {self.files_after}"
        skipped = f", {len(self.skipped)} merges skipped" if self.skipped else ""
        return f"{merged} ({self.rows} rows), {self.removed} old files removed{skipped}, {self.seconds:.1f} s"


def compact(
    job: Job,
    *,
    master: str = "local[*]",
    min_files: int = 8,
    target_bytes: int = 128 * 1024 * 1024,
    keep_replaced_s: float = 600.0,
    conf: Mapping[str, str] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda line: None,
) -> CompactReport:
    """Merge the files of complete batches of all of a job's archives. Starts Spark only if there is something to merge.

    Args:
        job: whose archives.
        master: Spark's, as `local[2]` or `spark://host:7077`.
        min_files: batches with fewer small files stay as they are.
        target_bytes: of a merged file, about; files of at least half of it stay.
        keep_replaced_s: how long a replaced file stays for readers that have listed it before.
        conf: of Spark.
        progress: called with what happens, line by line.

    Raises:
        UsageError: executors are on other machines, and an archive in a directory of this one.
        UnavailableError, AlreadyExistsError: an archive is being compacted already.
        HeronError: an archive cannot be read or written.
    """
    archives = {f"the archive {name}": job.archive_path(node) for name, node in job.archives().items()}
    check_request(master, conf, archives)
    report = CompactReport()
    began_s = time.monotonic()
    with ExitStack() as locks:
        plans = []
        for name, node in job.archives().items():
            directory = job.archive_path(node)
            if Archive(directory).exists:
                locks.enter_context(_lock(directory, f"archive {name} is being compacted already"))
                report.removed += _tidy(directory, keep_replaced_s)
                plans += _plans(directory, min_files, target_bytes)
        if plans:
            progress(f"{sum(len(plan.files) for plan in plans)} files to merge into {len(plans)}")
            _run(plans, f"compact {job.name}", master, conf, report, progress)
    report.seconds = time.monotonic() - began_s
    return report


def _lock(directory: Location, what: str) -> AbstractContextManager[object]:
    if isinstance(directory, Path):
        return locked(directory / _LOCK, what, wait_s=0)
    # Of two that compact nevertheless, both publish: what is there twice then is there under the same ids.
    return lease(directory / _LOCK, what)


def _tidy(directory: Location, keep_replaced_s: float) -> int:
    """Remove what earlier compactions and dead writers have left; how many files were replaced ones.

    Raises:
        HeronError: a file cannot be removed, or a directory not be listed.
    """
    try:
        remove_stale(directory)
        replaced = Archive(directory).replaced(keep_replaced_s)
        files_of(directory).delete([file.path for file in replaced])
    except OSError as error:
        raise HeronError(f"cannot tidy up {directory}: {error}") from error
    return len(replaced)


def _plans(directory: Location, min_files: int, target_bytes: int) -> list[MergePlan]:
    archive = Archive(directory)
    before_ms = archive.complete_before_ms()
    length_ms = archive.batch_length_ms
    return [
        plan
        for batch, files in archive.batches().items()
        if before_ms is None or (batch + 1) * length_ms <= before_ms
        for plan in plan_merges(directory, batch, files, min_files=min_files, target_bytes=target_bytes)
    ]


def _run(
    plans: Sequence[MergePlan],
    app: str,
    master: str,
    conf: Mapping[str, str],
    report: CompactReport,
    progress: Callable[[str], None],
) -> None:
    batches = set()
    for merged in _merged(plans, app, master, conf):
        report.skipped += merged.skipped
        if merged.tmp is None:
            continue
        try:
            path = publish(merged)
        except OSError as error:
            raise HeronError(f"cannot publish the merged files of {merged.plan.directory}: {error}") from error
        if path is None:
            report.skipped.append(f"batch {merged.plan.batch}: another compaction has merged its files meanwhile")
            continue
        batches.add((merged.plan.directory, merged.plan.batch))
        report.files_before += len(merged.files)
        report.files_after += 1
        report.rows += merged.rows
        progress(f"{merged.plan.directory.name}: {len(merged.files)} files became {path.name}")
    report.batches = len(batches)


def _merged(plans: Sequence[MergePlan], app: str, master: str, conf: Mapping[str, str]) -> Iterator[Merged]:
    """Merge in Spark tasks, and hand out what is ready every few rounds: a crash loses little work."""
    with spark_session(app, master, conf) as session, refusals_named():
        context = session.sparkContext
        check_places(context, conf, [plan.directory for plan in plans])
        at_a_time = max(1, context.defaultParallelism) * _ROUNDS_PER_CORE
        for begin in range(0, len(plans), at_a_time):
            now = plans[begin : begin + at_a_time]
            yield from collected(context.parallelize(now, len(now)).map(merge_files))
