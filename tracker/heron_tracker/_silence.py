"""Whether a Topology Master is known to be silent, and who may try it again: decisions, without clock or network.

Whoever asks one that hangs waits for the whole of a call's timeout. That is paid once, by those who find out. From then
on everybody is told at once what is remembered, and a probe finds out when it is back: one at a time, begun by somebody
who asks, and not sooner than `PROBE_S` after the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.proto import state_pb2

PROBE_S = 1.0
"""How long nobody tries after a try that failed."""


@dataclass(slots=True)
class Silence:
    """What is remembered of one Topology Master: where it is, and since when it is silent."""

    location: state_pb2.TmasterLocation | None = None
    since_s: float | None = None
    """Since when it does not answer, in seconds since the epoch; None if the last call was answered."""
    why: str = ""
    probing: bool = False
    probe_due_s: float = 0.0

    @property
    def known(self) -> bool:
        """Whether it is known to be silent."""
        return self.since_s is not None

    def located(self, location: state_pb2.TmasterLocation | None) -> None:
        """Take notice of its node. Another one, or the same after it was gone, may answer: what was known is over."""
        if location == self.location:
            return
        self.location = location
        if location is not None:  # gone alone does not end the silence, nor its beginning
            self.answered()

    def answered(self) -> None:
        """Forget the silence."""
        self.since_s, self.why, self.probe_due_s = None, "", 0.0

    def failed(self, location: state_pb2.TmasterLocation | None, why: str, now_s: float, clock_s: float) -> None:
        """Take notice of a call that was not answered. One to an earlier address says nothing about this one.

        Args:
            now_s: Of a monotonic clock.
            clock_s: Since the epoch.
        """
        if location != self.location:
            return
        if self.since_s is None:
            self.since_s = clock_s
        self.why, self.probe_due_s = why, now_s + PROBE_S

    def may_probe(self, now_s: float) -> bool:
        """Whether whoever asks now shall try it."""
        return self.known and not self.probing and now_s >= self.probe_due_s
