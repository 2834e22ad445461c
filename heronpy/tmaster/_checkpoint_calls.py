"""Those who have asked for a checkpoint, and wait for it: decisions only, see `_core`.

What is wanted is a checkpoint that was begun after the call, and of whose commit all tasks know, so that sinks have
committed what belongs to it. One that fails is followed by another until time is up.
"""

from __future__ import annotations

from msgspec import Struct

from heronpy.tmaster.checkpoints import CheckpointCoordinator

RETRY_S = 1.0
_SHOWN = 10


class CheckpointAsked(Struct, frozen=True):
    """Somebody waits for a checkpoint; answered by one `Reply`."""

    call: int
    divisible: bool
    """Any number of tasks must be able to restore it, also of another topology: the spouts rest until it is there."""
    timeout_s: float
    now_s: float


class _Waiting(Struct):
    asked: CheckpointAsked
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
        self._waiting.append(_Waiting(asked, coordinator.newest_begun if coordinator.is_read else None))
        self._again_s = asked.now_s

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
            elif now_s >= waiting.deadline_s:
                why = f"no checkpoint within {waiting.asked.timeout_s:g} s: {problem_of(coordinator)}"
                answers.append((waiting.asked.call, why))
            else:
                continue
            self._waiting.remove(waiting)
        return answers


def problem_of(coordinator: CheckpointCoordinator) -> str:
    """Why there is no checkpoint."""
    if coordinator.fallback.problem:
        return coordinator.fallback.problem
    if coordinator.missing:
        return f"tasks {', '.join(map(str, coordinator.missing[:_SHOWN]))} have not stored their snapshots"
    return coordinator.counts.last_failure or f"checkpoints are {coordinator.phase.value}"
