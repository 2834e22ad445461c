"""Which processes are hung. Decisions only: no clock, no file.

The supervisor looks at the heartbeats of its processes about once a second. Silence is measured by what the supervisor
itself has seen of the time: a look that comes late proves nothing about anybody, because the supervisor was held up too
(the machine was suspended, frozen or overloaded), so the time before it counts for no process. Nor does the time for
which a process was ready to run and was given no CPU. And hung processes are reported one at a time with a pause in
between: what makes several of them silent at once is more likely one cause, which may be gone with the first of them,
than several.

Heartbeats are counted as well, because a call of user code may begin right after one and end right before another:
only what lies between two heartbeats without progress is known to have been in that call. A call is never taken for
longer than it was.

The event loop of an instance is also silent while user code keeps the interpreter to itself (a C extension that does
not release it). This looks like a hang of the loop, so such a loop has the longer of both limits; unless the
process is stopped, which can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

LATE = 2.5
"""A look that comes after so many intervals is late."""
START_MS_MIN = 60_000
START_TIMEOUTS = 4
"""Before its first heartbeat a process may take this many timeouts, but never less than START_MS_MIN."""
ONE_BY_ONE = 4
"""After a report there is none for a fraction of the timeout."""


class Look(Struct, frozen=True):
    """What can be seen of a process: its counters, from its heartbeat file, and whether it is stopped."""

    pid: int
    loop: int
    """Heartbeats of the event loop; 0: none yet."""
    task: int
    task_limit_ms: int | None
    """How long `task` may stand still, 0: for ever; None: there is no task."""
    stopped: bool
    starved_ms: float = 0.0
    """For how long since its start it has waited for a CPU, ready to run."""


class Hang(Struct, frozen=True):
    """A process that is hung, and why it is taken for that."""

    id: str
    pid: int
    stopped: bool
    why: str


class _Seen(Struct):
    look: Look
    loop_silent_ms: float = 0.0
    task_silent_ms: float = 0.0
    task_silent_beats: int = 0


@dataclass(slots=True)
class HangDetector:
    """Finds the hung among the processes of one supervisor."""

    timeout_ms: float
    """How long an event loop may stand still; 0: no process is ever hung."""
    interval_ms: float
    """How often `looked` is called, when the supervisor is not held up."""
    beat_ms: float = 1000.0
    """How often a process writes a heartbeat, at the most."""
    _last_ms: float | None = None
    _pause_ms: float = 0.0
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def looked(self, looks: Mapping[str, Look], now_ms: float) -> Hang | None:
        """Take a look at all processes that run. Returns one that is hung, if there is one."""
        elapsed_ms = 0.0 if self._last_ms is None else now_ms - self._last_ms
        self._last_ms = now_ms
        if elapsed_ms > LATE * self.interval_ms:
            elapsed_ms = 0.0
        self._pause_ms -= elapsed_ms
        self._seen = {id: self._update(self._seen.get(id), look, elapsed_ms) for id, look in looks.items()}
        if not self.timeout_ms or self._pause_ms > 0:
            return None
        for id, seen in self._seen.items():
            if why := self._why(seen):
                self._pause_ms = self.timeout_ms / ONE_BY_ONE
                return Hang(id, seen.look.pid, seen.look.stopped, why)
        return None

    def _update(self, seen: _Seen | None, look: Look, elapsed_ms: float) -> _Seen:
        if seen is None or seen.look.pid != look.pid:
            return _Seen(look)
        elapsed_ms = max(0.0, elapsed_ms - (look.starved_ms - seen.look.starved_ms))
        moved = seen.look.loop != look.loop
        progressed = seen.look.task != look.task
        return _Seen(
            look,
            0.0 if moved else seen.loop_silent_ms + elapsed_ms,
            0.0 if progressed else seen.task_silent_ms + elapsed_ms,
            0 if progressed else seen.task_silent_beats + look.loop - seen.look.loop,
        )

    def _why(self, seen: _Seen) -> str:
        look = seen.look
        if seen.loop_silent_ms > self._loop_limit_ms(look):
            state = "it is stopped, so there are no stacks" if look.stopped else "its event loop stands still"
            return f"no heartbeat for {seen.loop_silent_ms / 1000:.0f} s: {state}"
        task_silent_ms = min(seen.task_silent_ms, seen.task_silent_beats * self.beat_ms)
        if look.task_limit_ms and task_silent_ms > look.task_limit_ms:
            return f"its task has been in one call of user code for {task_silent_ms / 1000:.0f} s"
        return ""

    def _loop_limit_ms(self, look: Look) -> float:
        if look.stopped:
            return self.timeout_ms
        if not look.loop:
            return max(START_TIMEOUTS * self.timeout_ms, START_MS_MIN)
        if look.task_limit_ms is None:
            return self.timeout_ms
        # The call may have begun right after the last heartbeat, or right before the next.
        return max(self.timeout_ms, look.task_limit_ms + self.beat_ms) if look.task_limit_ms else float("inf")
