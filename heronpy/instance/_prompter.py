"""How the gateway reaches a task that is at work. Runs in the gateway."""

from __future__ import annotations

import asyncio

from heronpy.config import InstanceConfig
from heronpy.instance._channel import ThreadChannel
from heronpy.instance._core import Signal
from heronpy.instance._progress import ProgressMeter


class Prompter:
    """While its task has work, sets the signal's `due` every drain interval: between two tuples the task looks at it.

    A task has work from the moment at which a batch is handed to it, not only once its thread is awake: on a busy
    machine that may take longer than a drain interval, and then nothing would prompt the task for the whole batch.
    """

    def __init__(self, config: InstanceConfig, channel: ThreadChannel, signal: Signal, progress: ProgressMeter) -> None:
        self.always = False
        """The task works also if nothing is handed to it: it is a spout's."""
        self._interval_s = max(1.0, config.drain_interval_ms) / 1e3
        self._channel = channel
        self._signal = signal
        self._progress = progress
        self._armed = False

    def arm(self) -> None:
        """The task may have work from now on."""
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_later(self._interval_s, self._prompt)

    def _prompt(self) -> None:
        self._armed = False
        if self._channel.has_work:
            self._progress.looked(due=self._signal.due)
            self._signal.due = True
            self.arm()
        elif self.always:
            self.arm()
