"""What others are shown of checkpoints: in `GetStatus`, as metrics, and for the verdict on health."""

from __future__ import annotations

from heronpy.health import RESTART_WINDOW_S, CheckpointProgress
from heronpy.proto import metrics_pb2, tmaster_pb2
from heronpy.tmaster.checkpoints import CheckpointCoordinator

_SHOWN = 5
"""So many tasks are named."""


def checkpoint_status(coordinator: CheckpointCoordinator, now_s: float, now_ms: int) -> tmaster_pb2.CheckpointStatus:
    """How checkpoints are going, at a time on the monotonic and on the wall clock."""
    counts, began_s = coordinator.counts, coordinator.began_s

    def at_ms(time_s: float) -> int:
        return now_ms - int((now_s - time_s) * 1000)

    return tmaster_pb2.CheckpointStatus(
        phase=coordinator.phase.value,
        restore_epoch=coordinator.epoch,
        newest=coordinator.record.newest,
        in_progress=coordinator.in_progress,
        in_progress_ms=int((now_s - began_s) * 1000) if began_s is not None else 0,
        missing_tasks=coordinator.missing,
        last_failure=counts.last_failure,
        last_took_s=counts.last_took_s,
        problem=coordinator.fallback.problem,
        obstacle=_obstacle(coordinator, now_s),
        fallback=coordinator.fallback.used,
        interval_ms=int(coordinator.interval_s * 1000),
        age_ms=int((now_s - counts.since_s) * 1000) if counts.since_s is not None else -1,
        committed=counts.committed,
        failed=counts.failed.total(),
        restores=counts.restores,
        ended=[
            tmaster_pb2.EndedCheckpoint(
                checkpoint=one.id,
                ended_ms=at_ms(one.ended_s),
                took_ms=int(one.took_s * 1000),
                failure=one.failure,
                aligned_ms=int(one.aligned_s * 1000),
                size=one.size.total,
                added=one.size.added,
                logged=one.size.logged,
            )
            for one in counts.ended
        ],
        restored=[
            tmaster_pb2.BegunRestore(
                epoch=one.epoch, checkpoint=one.checkpoint, began_ms=at_ms(one.began_s), reason=one.reason
            )
            for one in counts.restored
        ],
    )


def checkpoint_progress(coordinator: CheckpointCoordinator, now_s: float) -> CheckpointProgress:
    """What the verdict on health goes by."""
    counts = coordinator.counts
    recent = [one for one in counts.restored if now_s - one.began_s <= RESTART_WINDOW_S]
    return CheckpointProgress(
        interval_s=coordinator.interval_s,
        age_s=now_s - counts.since_s if counts.since_s is not None else None,
        obstacle=_obstacle(coordinator, now_s),
        rollbacks=len(recent),
        last_rollback=recent[-1].reason if recent else "",
    )


def _obstacle(coordinator: CheckpointCoordinator, now_s: float) -> str:
    ended, began_s, missing = coordinator.counts.ended, coordinator.began_s, coordinator.missing
    failure = coordinator.counts.last_failure if ended and ended[-1].failure else ""
    # One that has just begun would hide why those before it have failed, and all after a task that fails wait, too.
    if missing and began_s is not None and (not failure or now_s - began_s > coordinator.interval_s):
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        tasks = ", ".join(f"{task} ({coordinator.component_of(task)})" for task in missing[:_SHOWN])
        waits = f"checkpoint {coordinator.in_progress} waits for the snapshots of tasks {tasks}{more}"
        return f"{waits}; {failure}" if failure else waits
    return failure


class CheckpointMetrics:
    """The same for the Metrics Manager. Counts are of this Topology Master."""

    def __init__(self) -> None:
        self._collected: dict[str, int] = {}

    def collect(self, coordinator: CheckpointCoordinator, now_s: float) -> list[metrics_pb2.Metric]:
        """Counters since the last call, and gauges of what is known."""
        counts, size = coordinator.counts, coordinator.counts.last_size
        counters = {
            "__checkpoint-count": counts.committed,
            "__checkpoint-failure-count": counts.failed.total(),
            "__checkpoint-damaged-count": counts.damaged,
            "__restore-count": counts.restores,
        }
        gauges = {"__checkpoint-interval-ms": coordinator.interval_s * 1000}
        if counts.since_s is not None:
            gauges["__checkpoint-age-ms"] = (now_s - counts.since_s) * 1000
        if counts.committed:
            gauges |= {
                "__checkpoint-duration-ms": counts.last_took_s * 1000,
                "__checkpoint-size-bytes": size.total,
                "__checkpoint-added-bytes": size.added,
                "__checkpoint-logged-bytes": size.logged,
            }
        found = [
            metrics_pb2.Metric(name=name, value=value - self._collected.get(name, 0), kind=metrics_pb2.Metric.COUNTER)
            for name, value in counters.items()
        ]
        self._collected = counters
        found += [metrics_pb2.Metric(name=n, value=v, kind=metrics_pb2.Metric.GAUGE) for n, v in gauges.items()]
        return found
