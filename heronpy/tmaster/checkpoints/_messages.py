"""The coordinator's effects and events as messages between Topology Master and Stream Managers."""

from __future__ import annotations

from heronpy.proto import checkpoint_pb2
from heronpy.tmaster.checkpoints._events import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckpointDamaged,
    ReadAhead,
    RestoreTasks,
    ResumeTasks,
    RollbackRequested,
    StmgrReported,
    TaskPhase,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TaskStatus,
)

InstanceEvent = TaskSnapshotted | TaskSnapshotFailed | RollbackRequested | CheckpointDamaged
Order = BeginCheckpoint | AbortCheckpoint | AnnounceCommit | RestoreTasks | ResumeTasks | ReadAhead


def order_of(effect: Order) -> checkpoint_pb2.CheckpointOrder:
    """The message that carries out an effect."""
    p = checkpoint_pb2
    match effect:
        case BeginCheckpoint(_, checkpoint, epoch):
            return p.CheckpointOrder(begin=p.BeginCheckpoint(checkpoint=checkpoint, epoch=epoch))
        case AbortCheckpoint(_, checkpoint, epoch, whole):
            return p.CheckpointOrder(abort=p.AbortCheckpoint(checkpoint=checkpoint, epoch=epoch, whole=whole))
        case AnnounceCommit(_, checkpoint):
            return p.CheckpointOrder(commit=p.CommitCheckpoint(checkpoint=checkpoint))
        case RestoreTasks(_, epoch, checkpoint, tasks, set_aside):
            letters = [p.SetAside(tuple=tup, reason=reason) for tup, reason in set_aside.items()]
            return p.CheckpointOrder(
                restore=p.RestoreTasks(
                    epoch=epoch,
                    checkpoint=checkpoint,
                    tasks=sorted(tasks),
                    set_aside=letters,
                )
            )
        case ResumeTasks(_, epoch, incarnations):
            return p.CheckpointOrder(resume=p.ResumeTasks(epoch=epoch, incarnations=incarnations))
        case ReadAhead(_, epoch, checkpoint, shares):
            by_task = {task: p.TaskShare(index=index, tasks=tasks) for task, (index, tasks) in shares.items()}
            return p.CheckpointOrder(read_ahead=p.ReadAhead(epoch=epoch, checkpoint=checkpoint, shares=by_task))


def stmgr_reported(stmgr_id: str, report: checkpoint_pb2.StmgrReport, now_s: float) -> StmgrReported:
    """The event of a Stream Manager's report."""
    tasks = {
        status.task: TaskStatus(
            status.incarnation,
            status.epoch,
            TaskPhase(status.phase),
            status.committed,
            status.read_ahead,
            (status.read_share.index, status.read_share.tasks),
        )
        for status in report.tasks
    }
    return StmgrReported(stmgr_id, report.incarnation, report.epoch, report.taint, tasks, now_s)


def instance_reported(report: checkpoint_pb2.InstanceReport, now_s: float) -> InstanceEvent | None:
    """The event of an instance's report; None if it is not for the Topology Master."""
    match report.WhichOneof("report"):
        case "stored":
            s = report.stored
            objects, aligned_s = tuple(s.objects), s.aligned_us / 1e6
            return TaskSnapshotted(
                s.task,
                s.incarnation,
                s.checkpoint,
                s.epoch,
                now_s,
                s.unaligned,
                objects,
                aligned_s,
                s.undivided,
                s.whole,
            )
        case "failed":
            f = report.failed
            return TaskSnapshotFailed(f.task, f.checkpoint, f.epoch, f.reason, now_s, f.lasting)
        case "rollback":
            r = report.rollback
            return RollbackRequested(r.task, r.epoch, r.reason, now_s, r.tuple, r.lasting)
        case "damaged":
            d = report.damaged
            return CheckpointDamaged(d.task, d.epoch, d.checkpoint, d.reason, now_s, d.unreadable)
        case _:
            return None
