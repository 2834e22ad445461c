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
