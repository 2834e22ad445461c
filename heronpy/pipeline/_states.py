"""The state that a topology would have after all closed batches: what its unwindowed reductions begin with."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.errors import DamagedInputError, HeronError, NotFoundError, StateError
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.batch_times import batch_name
from heronpy.pipeline.computing import Batches, compute, cores
from heronpy.pipeline.inputs import (
    ArchiveInput,
    archive_readings,
    damaged_batches,
    fingerprints,
    open_archives,
    sizes,
    source_readings,
)
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest, lock
from heronpy.pipeline.masters import check_request
from heronpy.pipeline.pending import with_lost
from heronpy.pipeline.plan import BatchPlan, plan_batch, refuse_twins
from heronpy.pipeline.reductions import state_directory
from heronpy.pipeline.session import refusals_named, spark_session
from heronpy.pipeline.task import Report
from heronpy.streamlet.graph import ReduceByKeyNode

if TYPE_CHECKING:
    from pyspark import SparkContext


_BUFFERED_BYTES = 1 << 20


class State:
    """(key, value) of one stage, read from files as often as it is iterated over."""

    def __init__(self, files: list[Location]) -> None:
        self._files = files

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for path in self._files:
            with files_of(path).opened(path) as (file, _), contextlib.suppress(EOFError):
                source = io.BufferedReader(file, _BUFFERED_BYTES) if isinstance(file, io.RawIOBase) else file
                while True:
                    yield from pickle.load(source)


@contextlib.contextmanager
def states(job: Job, *, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[dict[str, State]]:
    """(key, value) of each reduce_by_key stage over all closed batches, by stage name. Files go when the block ends.

    Values are pickled in the job's own directory meanwhile.

    Raises:
        UsageError: executors are on other machines that do not share its directory.
        AlreadyExistsError: a batch run, or another bootstrap, works on the job's directory.
        NotFoundError: no batch is closed yet.
        TopologyError: a stage has no batch side, or nothing tells it from another.
        DamagedInputError: input is damaged, and no run was ordered to do without it.
        StateError: archives have lost rows that batches were computed from.
    """
    check_request(master, conf or {}, job.places())
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    nodes = [node for node in job.graph.nodes() if isinstance(node, ReduceByKeyNode)]
    if not nodes:
        yield {}
        return
    if manifest.committed_watermark is None:
        raise NotFoundError(f"{job.name} has no closed batch yet: run its batch job first")
    refuse_twins(nodes)
    plan = plan_batch(job, nodes)
    with lock(job.directory):  # runs and vacuums remove what others have left
        with spark_session(f"heronpy {job.name}", master, conf or {}) as session, refusals_named():
            report, version = _computed(session.sparkContext, job, plan, manifest, manifest.committed_watermark)
        try:
            files = {node.stage: [p.written for p in report.parts if p.stage == node.stage] for node in nodes}
            yield {stage: State(found) for stage, found in files.items()}
        finally:
            folder = state_directory(job.directory, version)
            with contextlib.suppress(HeronError):  # the next run removes it
                files_of(folder).delete_folder(folder)


def _computed(sc: SparkContext, job: Job, plan: BatchPlan, manifest: Manifest, upto: int) -> tuple[Report, str]:
    archives = open_archives(job, plan, manifest.batches)
    read = Batches(None, upto)
    _refuse_less(job, archives, manifest, manifest.unread, upto)
    readings, total_bytes = source_readings(plan.sources(), cores(sc))
    readings += archive_readings(archives, read, cores(sc))
    total_bytes += sum(size for batch, size in sizes(archives).items() if batch in read)
    report, version = compute(
        sc, job, plan, archives, readings, read, wanted=None, last=upto, batch_bytes={}, total_bytes=total_bytes
    )
    _refuse_less(job, archives, manifest, report.malformed_in, upto)
    return report, version


def _refuse_less(
    job: Job, archives: Sequence[ArchiveInput], manifest: Manifest, unread: Container[str], upto: int
) -> None:
    """A topology must not begin with less than batches were computed from.

    Raises:
        DamagedInputError, StateError: it would.
    """
    for batch, what in damaged_batches(archives, unread).items():
        done = manifest.batches.get(batch)
        if batch <= upto and not (done is not None and done.damaged):
            raise DamagedInputError(
                f"the state of reductions cannot be computed: {what}; put back what is damaged, or have batch "
                f"{batch_name(batch, job.batch_length_ms)} computed without it: heron pipeline backfill --accept-damage"
            )
    _, lost = with_lost(manifest, fingerprints(archives, {}), {one.stage: one.name for one in archives})
    if less := [batch for batch in lost if batch <= upto]:
        raise StateError(
            "the state of reductions cannot be computed: the archive has lost rows of batch "
            f"{batch_name(min(less), job.batch_length_ms)}, which is done; put them back"
        )
