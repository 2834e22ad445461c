"""Those who have asked for a checkpoint, and wait for it: decisions only, see `_core`.

What is wanted is a checkpoint that was begun after the call, and of whose commit all tasks know, so that sinks have
committed what belongs to it. One that fails is followed by another until time is up, or until it is known that the next
is bound to fail, too.
"""

from __future__ import annotations

from msgspec import Struct

from heronpy.tmaster.checkpoints import CheckpointCoordinator

RETRY_S = 1.0
LASTING_MAX = 2
"""So many failures of a kind that the next one is bound to meet are enough: the first may be of something that was
under way."""
_SHOWN = 10


class CheckpointAsked(Struct, frozen=True):
    """Somebody waits for a checkpoint; answered by one `Reply`."""

    call: int
    divisible: bool
    """Any number of tasks must be able to restore it, also of another topology: the spouts rest until it is there."""
    timeout_s: float
    now_s: float


class RequestWithdrawn(Struct, frozen=True):
    """The caller who asked for a checkpoint, or for an update, waits no longer."""

    call: int
    now_s: float


class _Waiting(Struct):
    asked: CheckpointAsked
    lasting: int
    """How many failures were of a kind that the next one meets, when it was asked for."""
    after: int | None = None
    """A checkpoint newer than this is wanted; None: it is not known yet what was begun before."""

    @property
    def deadline_s(self) -> float:
        return self.asked.now_s + self.asked.timeout_s


class CheckpointCalls:
    """The calls that wait."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._again_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def divisible(self) -> bool:
        """Whether one of them wants a checkpoint that any number of tasks can restore."""
        return any(waiting.asked.divisible for waiting in self._waiting)

    @property
    def due_s(self) -> float | None:
        """When something is to be done next."""
        return min((min(self._again_s, waiting.deadline_s) for waiting in self._waiting), default=None)

    def add(self, asked: CheckpointAsked, coordinator: CheckpointCoordinator) -> None:
        """One more waits."""
        begun = coordinator.newest_begun if coordinator.is_read else None
        self._waiting.append(_Waiting(asked, coordinator.counts.lasting, begun))
        self._again_s = asked.now_s

    def withdraw(self, call: int) -> None:
        """One waits no longer."""
        self._waiting = [waiting for waiting in self._waiting if waiting.asked.call != call]

    def wants_one(self, now_s: float) -> bool:
        """Whether a checkpoint is to be begun, if none is under way."""
        due = bool(self._waiting) and now_s >= self._again_s
        if due:
            self._again_s = now_s + RETRY_S
        return due

    def answered(self, coordinator: CheckpointCoordinator, now_s: float) -> list[tuple[int, str]]:
        """Those that wait no longer: the numbers of the calls, and why there is no checkpoint, if there is none."""
        known, answers = coordinator.known_everywhere, list[tuple[int, str]]()
        for waiting in list(self._waiting):
            if waiting.after is None and coordinator.is_read:
                waiting.after = coordinator.newest_begun
            if waiting.after is not None and known > waiting.after:
                answers.append((waiting.asked.call, ""))
            elif why := hopeless(coordinator, waiting.lasting):
                answers.append((waiting.asked.call, f"{why}{_newest(coordinator)}"))
            elif now_s >= waiting.deadline_s:
                why = f"no checkpoint within {waiting.asked.timeout_s:g} s: {problem_of(coordinator)}"
                answers.append((waiting.asked.call, f"{why}{_newest(coordinator)}"))
            else:
                continue
            self._waiting.remove(waiting)
        return answers


def hopeless(coordinator: CheckpointCoordinator, lasting: int) -> str:
    """Why there will be no checkpoint; empty: there may be one.

    Args:
        coordinator: What is known.
        lasting: How many failures were of a kind that the next one meets, when the wait began.
    """
    if coordinator.fallback.lasts:
        return coordinator.fallback.problem
    counts = coordinator.counts
    return counts.lasting_reason if counts.lasting - lasting >= LASTING_MAX else ""


def _newest(coordinator: CheckpointCoordinator) -> str:
    newest = coordinator.record.newest
    return f"; checkpoint {newest} is kept" if newest else "; there is no earlier checkpoint"


def problem_of(coordinator: CheckpointCoordinator) -> str:
    """Why there is no checkpoint."""
    if coordinator.fallback.problem:
        return coordinator.fallback.problem
    counts = coordinator.counts
    if not coordinator.missing:
        return counts.last_failure or f"checkpoints are {coordinator.phase.value}"
    waits = f"tasks {', '.join(map(str, coordinator.missing[:_SHOWN]))} have not stored their snapshots"
    # One that has just begun would hide why those before it have failed.
    return f"{waits}; {counts.last_failure}" if counts.ended and counts.ended[-1].failure else waits
