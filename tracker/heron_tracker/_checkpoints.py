"""The checkpoints of a topology: what its Topology Master says, and what is stored, as one answer. Pure."""

from __future__ import annotations

from heron_tracker import _models as m
from heron_tracker._stored_checkpoints import Stored
from heron_tracker._tmasters import iso_time
from heron_tracker._topology import Topology
from heronpy.proto import tmaster_pb2
from heronpy.submit import StoredCheckpoint


def checkpoints_model(
    topology: Topology, reported: tmaster_pb2.CheckpointStatus | None, tmaster: str, stored: Stored
) -> m.Checkpoints:
    """The answer.

    Args:
        topology: Whose checkpoints.
        reported: What the Topology Master reported last; None: nothing.
        tmaster: How the Topology Master is.
        stored: What is stored.
    """
    status = reported if reported is not None else tmaster_pb2.CheckpointStatus(age_ms=-1)
    known = reported is not None
    by_id = {one.id: one for one in stored.checkpoints}
    ended = {one.checkpoint: one for one in status.ended}
    read_to = max(by_id, default=0)  # what is newer may be stored by now
    # A Topology Master that is silent since then does not know that it is committed.
    done = status.in_progress in by_id and by_id[status.in_progress].committed
    under_way = 0 if done else status.in_progress
    ids = sorted((by_id.keys() | ended.keys()) - {under_way}, reverse=True)
    return m.Checkpoints(
        tmaster=tmaster,
        storage=stored.problem or "ok",
        location=stored.location,
        start_from=stored.start_from,
        start_checkpoint=stored.start_checkpoint or None,
        phase=status.phase if known else None,
        restore_epoch=status.restore_epoch if known else None,
        newest=status.newest if known else None,
        interval_ms=status.interval_ms if known else None,
        age_ms=status.age_ms if status.age_ms >= 0 else None,
        under_way=_under_way(topology, status) if under_way else None,
        problem=status.problem or None,
        fallback=status.fallback or None,
        committed=status.committed if known else None,
        failed=status.failed if known else None,
        restores=status.restores if known else None,
        checkpoints=[
            _checkpoint(id, ended.get(id), by_id.get(id), kept=id > read_to or bool(stored.problem)) for id in ids
        ],
        rollbacks=[
            m.Restore(
                epoch=one.epoch,
                checkpoint=one.checkpoint,
                time=iso_time(one.began_ms / 1000),
                reason=one.reason or None,
            )
            for one in reversed(status.restored)
        ],
    )


def _under_way(topology: Topology, status: tmaster_pb2.CheckpointStatus) -> m.CheckpointUnderWay:
    containers = topology.packing.containers if topology.packing is not None else ()
    named = {i.task_id: (i.component, i.instance_id(c.id)) for c in containers for i in c.instances}
    missing = []
    for task in status.missing_tasks:
        component, instance = named.get(task, ("", ""))
        missing.append(m.MissingTask(task=task, component=component, instance=instance))
    return m.CheckpointUnderWay(id=status.in_progress, elapsed_ms=status.in_progress_ms, missing=missing)


def _checkpoint(
    id: int, ended: tmaster_pb2.EndedCheckpoint | None, stored: StoredCheckpoint | None, *, kept: bool
) -> m.Checkpoint:
    """One of which at least one of both knows; the manifest knows best what is in it.

    Args:
        kept: It may be stored, although it was not seen there.
    """
    one = stored if stored is not None else StoredCheckpoint(id=id, committed=False)
    sized = stored is not None and not stored.error
    if stored is not None and stored.error:
        state = "damaged"
    elif ended is not None and ended.failure:
        state = "failed"
    elif one.committed or (ended is not None and kept):
        state = "committed"
    else:
        state = "replaced" if ended is not None else "not committed"
    at_ms = ended.ended_ms if ended is not None else one.created_ms
    duration_ms = ended.took_ms if ended is not None else one.duration_ms
    reported = ended if ended is not None and ended.size else None
    return m.Checkpoint(
        id=id,
        state=state,
        time=iso_time(at_ms / 1000) if at_ms else None,
        duration_ms=duration_ms or None,
        aligned_ms=ended.aligned_ms if ended is not None and not ended.failure else None,
        size=one.size if sized else reported.size if reported is not None else None,
        added=one.added if sized else reported.added if reported is not None else None,
        logged=one.logged if sized else reported.logged if reported is not None else None,
        reason=one.error or (ended.failure if ended is not None else "") or None,
        components={
            name: m.StoredState(tasks=one.tasks[name], size=size, by_task=list(one.by_task[name]))
            for name, size in one.components.items()
        }
        if sized
        else None,
    )
