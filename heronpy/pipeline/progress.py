"""How far a Spark job is, for those who wait for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_POLL_S = 0.5
_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""What `setJobGroup` sets."""


@dataclass(frozen=True)
class Progress:
    """A moment of a run."""

    phase: str
    """`duplicates`, `compute` or `roll up`."""
    done: int
    """Tasks that have ended, of the stages known so far."""
    total: int
    """Tasks of the stages known so far."""
    batches: tuple[int, ...] = ()
    """Batch ids that are computed; empty if they are not known before."""


@contextlib.contextmanager
def job_group(sc: Any, group: str, description: str) -> Iterator[None]:
    """Inside, Spark jobs of this thread are of a group; afterwards of the one that they were of before, if any."""
    before = {name: sc.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    sc.setJobGroup(group, description)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Spark may be gone, and the code that lost it says so
            for name, value in before.items():
                sc.setLocalProperty(name, value)


@contextlib.contextmanager
def watched(sc: Any, phase: str, batches: Sequence[int], progress: Callable[[Progress], None] | None) -> Iterator[None]:
    """Inside, report on the Spark jobs that this thread runs, about twice a second."""
    if progress is None:
        yield
        return
    group = f"heronpy-{phase}-{id(progress)}"
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(sc.statusTracker(), group, phase, tuple(batches), progress, over), daemon=True
    )
    watcher.start()
    try:
        with job_group(sc, group, phase):
            yield
    finally:
        over.set()
        watcher.join(10 * _POLL_S)


def _watch(
    tracker: Any,
    group: str,
    phase: str,
    batches: tuple[int, ...],
    progress: Callable[[Progress], None],
    over: threading.Event,
) -> None:
    while True:
        last = over.wait(_POLL_S)
        with contextlib.suppress(Exception):  # the JVM may be going: the run itself says so
            done = total = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    if status := tracker.getStageInfo(stage):
                        done, total = done + status.numCompletedTasks, total + status.numTasks
            progress(Progress(phase, done, total, batches))
        if last:
            return
