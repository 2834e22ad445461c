"""The capacity of an instance's data-in queue, adapted as in the Heron paper (§5.5.2).

What waits in a queue is live objects, and a full queue that never drains only adds memory and latency. So the capacity
is checked periodically: while more waits than expected, it is halved, down to one batch; while less waits, it grows
again by steps up to its maximum.
"""

from __future__ import annotations

from heronpy.config import InstanceConfig


class QueueCapacity:
    """Capacity in bytes. Pure: given what waits, at a regular interval."""

    def __init__(self, config: InstanceConfig) -> None:
        self._most = config.in_queue_bytes
        self._expected = config.in_queue_bytes_expected
        self._least = min(config.frame_bytes, self._expected)
        self.bytes = self._most

    def observed(self, waiting_bytes: int) -> int:
        """Adapt to what waits now. Returns the capacity."""
        if waiting_bytes > self._expected:
            self.bytes = max(self._least, self.bytes // 2)
        else:
            self.bytes = min(self._most, self.bytes + self._most // 8)
        return self.bytes


BYTES_AT_FIRST = 64 << 10
LEAST_BYTES = 8 << 10
WORTH_S = 1.0
"""So long the task is to be busy with what waits."""
LOOK_S = 1.0
"""Batches are executed as wholes, which in less time may be none, or several."""


class TimedCapacity:
    """The capacity with checkpoints: what the task executes in a second, as far as that is known.

    Markers, and orders to restore, stand behind what waits here. Pure, like `QueueCapacity`.
    """

    def __init__(self, config: InstanceConfig) -> None:
        self._most = config.in_queue_bytes
        self._least = min(LEAST_BYTES, self._most)
        self.bytes = min(BYTES_AT_FIRST, self._most)
        self._executed_bytes = 0
        self._at_s: float | None = None

    def observed(self, executed_bytes: int, waiting_bytes: int, now_s: float) -> int:
        """Adapt to what was executed since the start. Returns the capacity.

        While little waits, the task could do more than it did: then the capacity only grows.
        """
        if self._at_s is not None and now_s - self._at_s < LOOK_S:
            return self.bytes
        if self._at_s is not None:
            worth = int((executed_bytes - self._executed_bytes) / (now_s - self._at_s) * WORTH_S)
            starved = waiting_bytes < self.bytes // 2
            wanted = max(worth, self.bytes) if starved else (self.bytes + worth) // 2
            self.bytes = max(self._least, min(self._most, wanted))
        self._executed_bytes, self._at_s = executed_bytes, now_s
        return self.bytes
