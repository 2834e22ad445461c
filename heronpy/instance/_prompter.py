"""How the gateway reaches a task that is at work. Runs in the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from heronpy.config import InstanceConfig
from heronpy.instance._channel import ThreadChannel
from heronpy.instance._core import Signal
from heronpy.instance._progress import ProgressMeter

INTERVALS_MAX: Final = 8
"""So many drain intervals pass between two looks at a task that comes round by itself."""


class Prompted(Protocol):
    """What a prompter sees of a task's thread; see `TaskThread`."""

    @property
    def rounds(self) -> int:
        """How often the task's loop has gone round."""

    @property
    def writing(self) -> bool:
        """Whether a slice of a snapshot is written at each prompt."""


class Prompter:
    """While its task has work, sets the signal's `due` every drain interval: between two tuples the task looks at it.

    A task has work from the moment at which a batch is handed to it, not only once its thread is awake: on a busy
    machine that may take longer than a drain interval, and then nothing would prompt the task for the whole batch.

    A task that has come round since the last look has done by itself what it would be prompted to do. To look at it
    is dear: the gateway takes the interpreter from the task, both switch threads, and both find their caches cold. So
    such a task is looked at ever more rarely. Price: when its calls become slow, the first prompt is up to
    `INTERVALS_MAX` drain intervals late.
    """

    def __init__(
        self,
        config: InstanceConfig,
        channel: ThreadChannel,
        signal: Signal,
        progress: ProgressMeter,
        thread: Callable[[], Prompted | None],
    ) -> None:
        """Prompt nobody until `arm`.

        Args:
            config: the instance's.
            channel: to the task.
            signal: what the task looks at.
            progress: is notified of what is seen of the task.
            thread: the task's, if there is one.
        """
        self.always = False
        """The task works also if nothing is handed to it: it is a spout's."""
        self.looks = 0
        self._interval_s = max(1.0, config.drain_interval_ms) / 1e3
        self.next_s = self._interval_s
        """Time until the next look."""
        self._channel = channel
        self._signal = signal
        self._progress = progress
        self._thread = thread
        self._rounds = 0
        self._armed = False

    def arm(self) -> None:
        """The task may have work from now on."""
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_later(self.next_s, self._prompt)

    def _prompt(self) -> None:
        self._armed = False
        self.looks += 1
        comes_round = self._comes_round()
        self.next_s = min(2 * self.next_s, INTERVALS_MAX * self._interval_s) if comes_round else self._interval_s
        if self._channel.has_work:
            if not comes_round:
                self._progress.looked(due=self._signal.due)
                self._signal.due = True
            self.arm()
        elif self.always:
            self.arm()

    def _comes_round(self) -> bool:
        """Whether the task has come round since the last look, and nothing waits for the next tuple."""
        if (thread := self._thread()) is None:
            return False
        before, self._rounds = self._rounds, thread.rounds
        return self._rounds != before and not thread.writing
