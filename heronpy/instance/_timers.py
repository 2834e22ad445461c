"""The timers of a bolt, fired between two tuples. Imported where there are some."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from heronpy.api.exceptions import FailedException
from heronpy.api.timers import Timers
from heronpy.api.tuple import Tuple
from heronpy.instance._core import TaskCore
from heronpy.windows import END

_BEHIND_MS = 1000


class TaskTimers:
    """The timers of one component object. Used by the task's thread."""

    def __init__(
        self,
        core: TaskCore,
        component: Any,
        user_error: Callable[[str, Exception], None],
        send_watermark: Callable[[int], None],
    ) -> None:
        """Declare them, before the component is initialized.

        Args:
            core: the task's.
            component: the user's, with `on_timer`; with `windows_reached` if it has windows, too.
            user_error: reports what it raises, and ends the task if that is the policy.
            send_watermark: sends one to the tasks after this one.
        """
        offset_ns = time.time_ns() - core.clock()
        self._core, self._on_timer, self._user_error = core, component.on_timer, user_error
        self._send_watermark = send_watermark
        self._windows_reached: Callable[[], tuple[int, bool]] = getattr(
            component, "windows_reached", lambda: (END, True)
        )
        self._timers = Timers(
            core.context,
            core.user_config,
            keyed=bool(core.context.key_fields()),
            wall_ms=lambda: (offset_ns + core.clock()) // 1_000_000,
        )
        if (ahead_ms := self._timers.ahead_ms) > _BEHIND_MS:
            core.logger.warning(
                "this host's clock is %.0f s behind that of the checkpoint: time of timers goes on from there",
                ahead_ms / 1000,
            )
        core.context.declare_timers(self._timers)
        self.receive_watermark = self._timers.receive_watermark
        core.context.before_snapshot(self._timers.save)

    @property
    def wait_s(self) -> float:
        """How long nothing is due."""
        return self._timers.wait_s

    def observing(self, process: Callable[[Tuple], None]) -> Callable[[Tuple], None]:
        """A `process` that takes notice of the times of tuples."""
        return self._timers.observing(process)

    def fire(self) -> None:
        """Call user code for what is due."""
        for timer in self._timers.due():
            try:
                self._on_timer(timer)
            except FailedException:
                self._core.logger.warning("on_timer() raised FailedException: a timer cannot be failed")
            except Exception as error:
                self._user_error("on_timer()", error)
        if (watermark := self._timers.watermark_due(self._windows_reached())) is not None:
            self._send_watermark(watermark)
