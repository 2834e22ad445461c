"""How far the task of an instance is: for its heartbeats. Runs in the gateway; the task thread does nothing for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_TASK_TIMEOUT_SECS
from heronpy.config import InstanceConfig
from heronpy.runtime import TaskProgress


class ProgressMeter:
    """Finds out whether a task gets on.

    The gateway sets the flag `due` every drain interval while the task is busy, and the task clears it between two
    tuples. So a flag that was cleared in the meantime is a task that has left the call of user code in which it was.
    A task that waits for the engine (for tuples, for room in data-out) counts as getting on.
    """

    def __init__(self, config: InstanceConfig) -> None:
        self._limit_ms = config.task_timeout_ms
        self._moved = 0
        self._ended = False

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the component's own limit, if it has one."""
        own_s = settings.get(TOPOLOGY_COMPONENT_TASK_TIMEOUT_SECS)
        if own_s is not None:
            self._limit_ms = int(float(own_s) * 1000)

    def looked(self, *, due: bool) -> None:
        """The flag is about to be set: `due` is what it is until then."""
        self._moved += not due

    def ended(self) -> None:
        """User code runs no more: what remains is the gateway's."""
        self._ended = True

    def progress(self, *, rounds: int | None, busy: bool, waits: int) -> TaskProgress:
        """The progress until now.

        Args:
            rounds: Rounds of the task's loop, 0 while it is being made and initialized; None: there is no task yet.
            busy: The task is at work, not waiting.
            waits: How often it has waited for room in data-out.
        """
        waiting = rounds is None or (rounds > 0 and not busy) or self._ended
        self._moved += waiting
        return TaskProgress((self._moved, rounds, waits), self._limit_ms)
