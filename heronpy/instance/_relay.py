"""Watermarks that a bolt without event time passes on. Imported where there are some."""

from __future__ import annotations

from collections.abc import Callable

from heronpy.errors import ConfigError
from heronpy.instance._core import TaskCore
from heronpy.plan import passed_on
from heronpy.windows import Sent, Upstream

EVERY_MS = 50
"""Tasks before this one send more rarely, but there may be many."""


class WatermarkRelay:
    """Sends the least of the watermarks of the tasks before this one, behind what it has emitted."""

    def __init__(self, core: TaskCore, send: Callable[[int], None]) -> None:
        """Nothing is known of any of them yet.

        Raises:
            ConfigError: nothing is passed on, because the bolt is configured as if it had event time.
        """
        self._core, self._send = core, send
        self._sent = Sent(EVERY_MS)
        self._components = passed_on(core.plan.logical, core.component.name)
        if not self._components:
            raise ConfigError(
                f"component {core.component.name!r} declares watermarks and has a timestamp field or extractor, but "
                "neither windows nor timers: those who follow it would wait for ever"
            )
        self._upstream = Upstream(self._tasks())

    def receive(self, task: int, watermark: int) -> None:
        """A task has sent its watermark."""
        self._upstream.follow(self._tasks())  # an update may have changed them
        if task in self._upstream:
            self._upstream.mark(task, watermark)
            if self._sent.due(self._upstream.low, self._core.clock() // 1_000_000):
                self._send(self._upstream.low)

    def _tasks(self) -> list[int]:
        return [task for component in self._components for task in self._core.plan.component_tasks[component]]
