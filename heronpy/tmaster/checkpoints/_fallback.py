"""What is restored when the newest checkpoint cannot be read.

A task that finds a checkpoint damaged says so, and tries again. All that are kept are looked at then, and the newest
that is intact becomes the newest of the record, durably, before a newer epoch restores it: one epoch restores one
checkpoint. What the topology did after it is done again; so a sink that has committed more since then repeats it.

The same is done if the newest is damaged while all run, and even checkpoints that need nothing of it cannot be made.

Batches in the logs of a checkpoint are for as many tasks as there were. After a rescaling one with logs is passed over,
too; if there is no other, it waits for an update back to those numbers of tasks.

If none is intact, the record stays as it is and nothing runs, unless that is allowed: storage that is put right is
found by the next look. A storage that does not answer says nothing about a checkpoint.

A checkpoint may be intact and have batches in its log that nobody can deserialize any more. With an older one their
senders send them again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from heronpy.tmaster.checkpoints._counts import CheckpointCounts
from heronpy.tmaster.checkpoints._events import (
    INITIAL,
    CheckpointDamaged,
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
)
from heronpy.tmaster.checkpoints._record import Record

log = logging.getLogger(__name__)

AGAIN_S = 10.0
"""From one look to the next, as each reads everything."""
RECENT_S = 600.0
"""So long it is a reason not to be healthy that an older checkpoint was restored, or that the newest was lost."""
_REFUSED_SHOWN = 2


class Fallback:
    """Looks for an intact checkpoint in one restore epoch at a time."""

    def __init__(self, counts: CheckpointCounts, *, allow_empty: bool) -> None:
        """Nothing is damaged, as far as is known."""
        self._counts, self._allow_empty = counts, allow_empty
        self.problem = ""
        """Why nothing can be restored, and so nothing runs."""
        self.lasts = False
        """Whether that is more than a storage that does not answer."""
        self.logged_tasks: Mapping[str, int] = {}
        """If it is only that: the numbers of tasks with which something can be, of components with batches in logs."""
        self.used = ""
        """What was restored or made instead of what, the last time."""
        self._used_s = 0.0
        self._looking = 0
        """In which epoch; 0: not now."""
        self._asked: tuple[int, ...] = ()
        """With which checkpoints in the record."""
        self._unreadable = ""
        """Why the newest of them cannot be restored, though it is intact."""
        self._next_s = 0.0

    def recent(self, now_s: float) -> str:
        """What was restored or made instead of what, if that was lately."""
        return self.used if now_s - self._used_s < RECENT_S else ""

    def entered(self) -> None:
        """A newer epoch has begun, or everybody has restored the present one."""
        self.problem, self.lasts, self.logged_tasks, self._looking, self._next_s = "", False, {}, 0, 0.0

    def damaged(self, event: CheckpointDamaged, record: Record, tasks: Mapping[str, int]) -> list[FindIntact]:
        """A task cannot restore the newest checkpoint or, before the first one, what the topology began with.

        Args:
            event: What it says.
            record: With the checkpoints that are kept.
            tasks: As in `FindIntact`.
        """
        if event.checkpoint == INITIAL:
            self.problem = f"what the topology was submitted from cannot be restored: {event.reason}"
            self.lasts = True
            return []
        found = self._look(event, f"task {event.task}: {event.reason}", record, tasks)
        if found and event.unreadable:
            self._unreadable = f"checkpoint {event.checkpoint}: {event.reason}"
            older = tuple(id for id in record.committed if id < event.checkpoint)
            return [FindIntact(event.epoch, older, tasks)]
        return found

    def not_followed(self, event: ManifestFailed, record: Record, tasks: Mapping[str, int]) -> list[FindIntact]:
        """No checkpoint can be made that follows the newest. The arguments are as in `damaged`."""
        return self._look(event, event.reason, record, tasks) if event.damage else []

    def _look(
        self, event: CheckpointDamaged | ManifestFailed, reason: str, record: Record, tasks: Mapping[str, int]
    ) -> list[FindIntact]:
        epoch, now_s = event.epoch, event.now_s
        if not record.committed or self._looking == epoch or now_s < self._next_s:
            return []
        log.error("checkpoint %d may be damaged: %s", record.newest, reason)
        self._looking, self._asked, self._unreadable = epoch, record.committed, ""
        return [FindIntact(epoch, record.committed, tasks)]

    def look_again(self) -> None:
        """What was found cannot be used."""
        self._looking = 0

    def lost(self, checkpoint: int, reason: str) -> None:
        """The newest checkpoint is lost while all run."""
        self.problem = f"checkpoint {checkpoint} is lost, so the next has the whole state: {reason}"
        log.error("%s", self.problem)

    def made_anew(self, checkpoint: int, now_s: float) -> None:
        """The whole state is in a checkpoint again."""
        self.used, self._used_s = f"checkpoint {checkpoint} has the whole state, because the one before was lost", now_s
        log.warning("%s", self.used)

    def committed(self) -> None:
        """There is a newer checkpoint."""
        self.problem, self.lasts = "", False

    def unknown(self, event: IntactUnknown) -> None:
        """It is unknown now."""
        self._looking, self._next_s = 0, event.now_s + AGAIN_S
        self.problem, self.lasts = f"the storage of checkpoints does not answer: {event.reason}", False
        log.warning("%s", self.problem)

    def found(self, event: IntactFound, record: Record, *, running: bool) -> Record | None:
        """The record to go on with; None: as it is. While all run, none intact is no reason to begin without state."""
        stale = self._looking != event.epoch or self._asked != record.committed
        self._looking, self._next_s = 0, event.now_s + AGAIN_S
        if stale:
            return None  # there is a newer one by now, or this one was restored
        refused = [self._unreadable, *event.refused] if self._unreadable else event.refused
        log.error("checkpoints that cannot be restored: %s", "; ".join(refused))
        more = len(refused) - _REFUSED_SHOWN
        why = "; ".join([*refused[:_REFUSED_SHOWN], *([f"and {more} more"] if more > 0 else [])])
        if event.checkpoint == record.newest:
            log.warning("checkpoint %d is intact, as its Checkpoint Manager sees it", record.newest)
            return None
        if event.checkpoint == INITIAL and event.logged_tasks and not running:
            self.logged_tasks, self.lasts = event.logged_tasks, True
            before = " ".join(f"--component-parallelism {name}:{n}" for name, n in sorted(event.logged_tasks.items()))
            self.problem = f"no checkpoint can be restored with these numbers of tasks: {why}; heron update {before}"
            log.error("%s", self.problem)
            return None
        if event.checkpoint == INITIAL and (running or not self._allow_empty):
            what = "none can be taken" if running else "the topology does not begin without state"
            mended = "bring back what can read its log" if self._unreadable else "put its storage right"
            way_out = f"{mended}, or begin without state: heron kill --force, then heron submit"
            self.problem = f"no checkpoint can be restored, and {what}: {why}; {way_out}"
            self.lasts = True
            log.error("%s", self.problem)
            return None
        instead = f"checkpoint {event.checkpoint} is" if event.checkpoint else "no state is"
        self.used = f"{instead} restored instead of {record.newest}: {why}"
        self._used_s = event.now_s
        log.error("%s", self.used)
        self._counts.damaged += len([id for id in record.committed if id > event.checkpoint])
        return record.without_newer(event.checkpoint)
