"""Whether a process is known to be unreachable, and who may try it again: decisions, no clock, no network.

A call to one that hangs takes the whole timeout. Only the first callers pay that. From then on the circuit is open:
every caller is answered at once from what is known, and a probe finds out when it is back. There is one probe at a
time, started by a caller, at the earliest `PROBE_S` after the last one failed.
"""

from __future__ import annotations

from dataclasses import dataclass

PROBE_S = 1.0
"""The pause after a failed call before the next probe."""


@dataclass(slots=True)
class CircuitBreaker:
    """The state of one Topology Master or heron-shell: its location, and since when it has been unreachable."""

    location: object | None = None
    since_s: float | None = None
    """Since when it does not answer, in seconds since the epoch; None if the last call was answered."""
    why: str = ""
    probing: bool = False
    probe_due_s: float = 0.0

    @property
    def open(self) -> bool:
        """Whether it is known to be unreachable."""
        return self.since_s is not None

    def located(self, location: object | None) -> None:
        """Handle a new value of its node. A new location, or the same after it was gone, closes the circuit."""
        if location == self.location:
            return
        self.location = location
        if location is not None:  # a node that is gone does not change since when it has been unreachable
            self.answered()

    def answered(self) -> None:
        """Close the circuit."""
        self.since_s, self.why, self.probe_due_s = None, "", 0.0

    def failed(self, location: object | None, why: str, now_s: float, clock_s: float) -> None:
        """Open the circuit after a call without an answer. A call to an earlier location changes nothing.

        Args:
            location: Where the call went.
            why: What the error says.
            now_s: Of a monotonic clock.
            clock_s: Since the epoch.
        """
        if location != self.location:
            return
        if self.since_s is None:
            self.since_s = clock_s
        self.why, self.probe_due_s = why, now_s + PROBE_S

    def may_probe(self, now_s: float) -> bool:
        """Whether the current caller should probe it."""
        return self.open and not self.probing and now_s >= self.probe_due_s
