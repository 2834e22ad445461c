"""One Spark job for some batches: duplicates found, everything else computed, too many failures refused."""

from __future__ import annotations

import bisect
import secrets
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from heronpy.errors import HeronError, UserCodeError
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.duplicates import find_duplicate_candidates
from heronpy.pipeline.exchange import layout_of
from heronpy.pipeline.execute import JobContext, ScanTask, execute
from heronpy.pipeline.inputs import SPLIT_BYTES_MAX, ArchiveInput
from heronpy.pipeline.job import Job
from heronpy.pipeline.memory import LIMIT_KEY, limit_of
from heronpy.pipeline.partials import PartialsTask
from heronpy.pipeline.plan import BatchPlan
from heronpy.pipeline.progress import Progress, watched
from heronpy.pipeline.task import Report

if TYPE_CHECKING:
    from pyspark import SparkContext

FAILED_SHARE_MAX = 0.1
"""A run in which user code raises for more of the elements than this fails: the program is wrong, not the data."""


@dataclass(frozen=True)
class Batches:
    """All batch ids from one (None: the first) to another, but for some."""

    first: int | None
    last: int
    without: frozenset[int] = frozenset()

    def __contains__(self, batch: object) -> bool:
        inside = isinstance(batch, int) and batch <= self.last and (self.first is None or batch >= self.first)
        return inside and batch not in self.without


class Needed:
    """The batch ids that some are computed from."""

    def __init__(self, wanted: Iterable[int], lookback: int, without: frozenset[int] = frozenset()) -> None:
        """Name them.

        Args:
            wanted: what is computed.
            lookback: so many batches before each are read, too.
            without: none of these is.
        """
        self._wanted, self._lookback, self._without = sorted(wanted), lookback, without

    def __contains__(self, batch: object) -> bool:
        if not isinstance(batch, int) or batch in self._without:
            return False
        at = bisect.bisect_left(self._wanted, batch)
        return at < len(self._wanted) and self._wanted[at] - self._lookback <= batch


VERSION: Final = r"[0-9a-f]+-[0-9a-f]{8}"
"""What `new_version` makes, as a regular expression."""


def new_version() -> str:
    """A name for a version: later ones sort after it."""
    return f"{time.time_ns() // 1_000_000:x}-{secrets.token_hex(4)}"


def compute(
    sc: SparkContext,
    job: Job,
    plan: BatchPlan,
    archives: Sequence[ArchiveInput],
    readings: Sequence[ScanTask | PartialsTask],
    read: Container[int],
    *,
    wanted: frozenset[int] | None,
    last: int,
    batch_bytes: dict[int, int],
    total_bytes: int,
    version: str = "",
    carried: Mapping[int, int] = MappingProxyType({}),
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Report, str]:
    """Compute batches; what was done, and the version of the files, which count for nothing yet.

    Args:
        sc: Spark.
        job: the program.
        plan: what to compute of it.
        archives: what is read, with
        readings: of all inputs, and
        read: the batch ids that they are of.
        wanted: batch ids that are computed; None: all up to `last`.
        last: the latest.
        batch_bytes: input of each, as far as it is known.
        total_bytes: input of all.
        version: of the files; without it a new one.
        carried: those of which only what is behind reductions is computed, and how many parts each view has of them.
            If user code raised there, as the report says then, nothing of it counts.
        progress: see `run`.

    Raises:
        HeronError: it failed.
        UserCodeError: user code raised for too many elements.
    """
    began_s = time.monotonic()
    version = version or new_version()
    layout = layout_of(
        plan,
        batch_length_ms=job.batch_length_ms,
        wanted=wanted,
        last=last,
        batch_bytes=batch_bytes,
        total_bytes=total_bytes,
        parallelism=cores(sc),
        directory=job.directory,
        version=version,
        carried=carried,
        read=read if plan.is_resumed else None,
    )
    chosen = sorted(wanted or ())
    with watched(sc, "duplicates", chosen, progress):
        candidates, with_candidates, damaged = _duplicate_candidates(sc, archives, read)
    with watched(sc, "compute", chosen, progress):
        setting = JobContext(plan, layout, job.config.api_config, candidates, worker_memory(sc))
        report = execute(sc, setting, readings, with_candidates)
        if report.unsendable:  # of which elements is not known any more: once again, and all are looked at
            files_of(job.directory).delete([*(part.written for part in report.parts), *report.letters])
            setting = replace(setting, checked=frozenset(report.unsendable))
            report = execute(sc, setting, readings, with_candidates)
    # Three passes read the same files: hashes, elements, and elements that may be there twice. Where not all of them
    # found the same damage, elements would count twice, or not at all.
    if differing := sorted(({str(path) for path in damaged} | report.malformed_again) - report.malformed_in):
        raise HeronError(f"{differing[0]} could not be read, and at another time it could: run again")
    _refuse_other_rows(archives, read, report)
    _refuse_failures(report)
    report.divided = {part.batch: layout.parts_of(part.batch) for part in report.parts}
    report.took_s = round(time.monotonic() - began_s, 3)
    return report, version


def worker_memory(sc: SparkContext) -> int:
    """What the process of a task may use before it writes to disk."""
    return limit_of(str(sc.getConf().get(LIMIT_KEY, "")))


def cores(sc: SparkContext) -> int:
    return max(1, int(sc.defaultParallelism))


def _duplicate_candidates(
    sc: SparkContext, archives: Sequence[ArchiveInput], batches: Container[int]
) -> tuple[dict[str, Any], list[ScanTask], set[Location]]:
    """Hashes of ids that are there twice, by archive; readings of the files that they are in; damaged files."""
    candidates: dict[str, Any] = {}
    with_candidates: list[ScanTask] = []
    damaged: set[Location] = set()
    for one in archives:
        files = {file.path: file for file in one.chosen(batches)}
        if not files:
            continue
        hashes, paths, unreadable, rows = find_duplicate_candidates(
            sc, [(file.path, file.size_bytes) for file in files.values()], cores(sc)
        )
        damaged |= unreadable
        if not unreadable:
            _check_rows(one, one.rows(batches), rows)
        if len(hashes):
            candidates[one.stage] = hashes
            with_candidates += one.readings([files[path] for path in sorted(paths)], SPLIT_BYTES_MAX)
    return candidates, with_candidates, damaged


def _refuse_other_rows(archives: Sequence[ArchiveInput], read: Container[int], report: Report) -> None:
    """Whatever may have kept tasks from reading something, or had them read it twice: nothing of it counts.

    Raises:
        HeronError: they have read other rows than the files have.
    """
    if report.malformed_in:
        return  # whose rows are unknown
    for one in archives:
        _check_rows(one, one.rows(read), report.rows[one.stage])
    if report.held_back != report.compared:
        raise HeronError(
            f"{report.held_back} rows may be there twice, and {report.compared} were compared: nothing was replaced, "
            "run again"
        )


def _check_rows(one: ArchiveInput, there: int, read: int) -> None:
    if there != read:
        raise HeronError(
            f"{one.archive.directory} has {there} rows in what is computed, and {read} were read: nothing was "
            "replaced, run again"
        )


def _refuse_failures(report: Report) -> None:
    if report.first_failure is not None and report.raised > FAILED_SHARE_MAX * report.read:
        what, trace = report.first_failure
        raise UserCodeError(
            f"user code raised for {report.raised} of {report.read} elements, first in {what}; nothing was replaced",
            trace,
        )
