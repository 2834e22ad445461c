"""The batch side of a topology: what its last run has reported, and how far the archive is by now.

The report is a node of the state manager, so nothing is read here but memory: no file of a job, no storage. How far the
archive is between two runs, the topology reports as a metric of its archive's writers. What follows from both is
computed by `heronpy.pipeline.record`, as for `heron pipeline status`.
"""

from __future__ import annotations

from collections.abc import Mapping

from heron_tracker import _pipeline_models as p
from heron_tracker._tmasters import Tmasters
from heron_tracker._topology import Topology
from heronpy.errors import HeronError
from heronpy.pipeline.batch_times import batch_name
from heronpy.pipeline.record import Drifted, Figures, Record, figures
from heronpy.plan import COMPLETE_BEFORE_METRIC, BatchSide
from heronpy.proto import tmaster_pb2

_RECENT_S = 600
"""A writer that has said nothing for so long does not say how far the archive is."""


async def complete_before(tmasters: Tmasters, topology: Topology, side: BatchSide) -> tuple[dict[str, int], str]:
    """How far archives are by now, in ms since the epoch, as far as it is known; and `ok`, or why nothing is.

    Never raises for a Topology Master that does not answer.
    """
    request = tmaster_pb2.MetricsRequest(metrics=[COMPLETE_BEFORE_METRIC], interval_s=_RECENT_S)
    try:
        reply = await tmasters.metrics(topology, request)
    except HeronError as e:
        return {}, str(e)
    said: dict[str, dict[str, int]] = {}
    for series in reply.series:
        if abs(series.value) < 2**62:  # also no NaN
            said.setdefault(series.component, {})[series.instance] = int(series.value)
    found = {}
    for archive, component in side.archives.items():
        tasks = topology.instances(component)
        known = said.get(component, {})
        if tasks and all(task in known for task in tasks):  # one that says nothing may hold the archive up
            found[archive] = min(known[task] for task in tasks)
    return found, "ok"


def pipeline_model(
    topology: Topology, side: BatchSide, live: Mapping[str, int], tmaster: str, now_ms: int
) -> p.Pipeline:
    """The answer.

    Args:
        topology: Whose.
        side: What its program has.
        live: How far archives are by now.
        tmaster: How the Topology Master is.
        now_ms: Now.
    """
    record = topology.pipeline or Record(job=topology.key.name[:255], at_ms=0, batch_length_ms=side.batch_length_ms)
    known = topology.pipeline is not None
    now = figures(record, now_ms, live)
    return p.Pipeline(
        now_ms=now_ms,
        batch_length_ms=record.batch_length_ms,
        max_lateness_ms=record.max_lateness_ms if known else None,
        reported_ms=record.at_ms if known else None,
        problem=topology.pipeline_problem or None,
        tmaster=tmaster,
        closed=_name(record, record.committed_watermark),
        closed_before_ms=now.closed_before_ms,
        lag_ms=now.lag_ms,
        archive_complete_before_ms=now.archive_complete_before_ms if known else min(live.values(), default=None),
        archive_ended=now.archive_ended,
        archive_lag_ms=now.archive_lag_ms,
        next=_next(record, now),
        done=record.done if known else None,
        waiting=record.waiting if known else None,
        elements=record.elements if known else None,
        duplicates=record.duplicates if known else None,
        damaged_batches=record.damaged_batches if known else None,
        dead_letters=[
            p.PipelineLetters(origin=x.origin, reason=x.reason, side=x.side, count=x.count) for x in record.dead_letters
        ],
        run=_run(record),
        reconciled_ms=int(record.reconciled.at_s * 1000) if record.reconciled is not None else None,
        archives=_archives(record, side, live) if known else _unreported(side, live),
        views=_views(record) if known else [_view(name, None, None, None) for name in side.views],
        batches=[_batch(record, n) for n in range(len(record.newest))],
    )


def _name(record: Record, batch: int | None) -> str | None:
    return None if batch is None else batch_name(batch, record.batch_length_ms)


def _next(record: Record, now: Figures) -> p.PipelineNext | None:
    if now.next_batch is None or now.next_end_ms is None or now.next_complete_at_ms is None:
        return None
    return p.PipelineNext(
        batch=now.next_batch,
        name=batch_name(now.next_batch, record.batch_length_ms),
        end_ms=now.next_end_ms,
        complete_at_ms=now.next_complete_at_ms,
        complete=now.complete,
    )


def _run(record: Record) -> p.PipelineRun | None:
    if (run := record.run) is None:
        return None
    began_ms = int(run.began_at_s * 1000)
    return p.PipelineRun(began_ms=began_ms, seconds=run.seconds, batches=run.batches, error=run.error or None)


def _archives(record: Record, side: BatchSide, live: Mapping[str, int]) -> list[p.PipelineArchive]:
    found = []
    for one in record.archives:
        said = [ms for ms in (one.complete_before_ms, live.get(one.archive)) if ms is not None]
        found.append(
            p.PipelineArchive(
                archive=one.archive,
                component=side.archives.get(one.archive),
                complete_before_ms=max(said, default=None),
                ended=one.ended,
                newest=_name(record, one.newest_batch),
                batches=one.batches,
                files=one.files,
                bytes=one.bytes,
                waiting_batches=one.waiting_batches,
                waiting_bytes=one.waiting_bytes,
            )
        )
    return found


def _unreported(side: BatchSide, live: Mapping[str, int]) -> list[p.PipelineArchive]:
    """What is known of archives before the first run."""
    return [
        p.PipelineArchive(
            archive=name,
            component=component,
            complete_before_ms=live.get(name),
            ended=False,
            newest=None,
            batches=0,
            files=0,
            bytes=0,
            waiting_batches=0,
            waiting_bytes=0,
        )
        for name, component in side.archives.items()
    ]


def _views(record: Record) -> list[p.PipelineView]:
    drifts = {one.view: one for one in record.reconciled.views} if record.reconciled is not None else {}
    return [
        _view(one.view, one.batch_rows, _name(record, one.newest_live_batch), drifts.get(one.view))
        for one in record.views
    ]


def _view(name: str, rows: int | None, newest: str | None, drift: Drifted | None) -> p.PipelineView:
    return p.PipelineView(
        view=name,
        batch_rows=rows,
        newest_live=newest,
        drifted=None if drift is None else drift.drifted,
        keys=None if drift is None else drift.keys,
        drift_percent=None if drift is None else drift.percent,
    )


def _batch(record: Record, n: int) -> p.PipelineBatch:
    one = record.newest[n]
    return p.PipelineBatch(
        batch=one.batch,
        name=batch_name(one.batch, record.batch_length_ms),
        version=one.version,
        elements=one.elements,
        duplicates=one.duplicates,
        dead_letters=one.dead_letters,
        rows=one.rows,
        damaged=one.damaged or None,
        finished_ms=int(one.finished_at_s * 1000),
        took_s=one.took_s,
    )
