"""How much may wait in an outbox so that a marker is not stuck behind it. Pure.

With checkpoints, what waits for a slow bolt must be little in time, not in bytes: a marker gets through when all before
it was executed. The high water mark follows the rate at which the outbox empties while something waits in it. An
outbox that empties by itself shows only that its reader is at least as quick as that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heronpy.stmgr._outbox import Outbox

IN_FLIGHT_S = 2.0
"""As much may wait as leaves in this time."""
BYTES_MIN = 1 << 20
"""Whatever the rate: a few frames, so that a reader need not wait for them."""


class InFlightBound:
    """The high water marks of all outboxes of a Stream Manager."""

    def __init__(self, bytes_max: int) -> None:
        """Know no rate: the mark of each outbox is `bytes_max`."""
        self._bytes_max = bytes_max
        self._looked_ns = 0
        self._before: dict[str, tuple[int, bool]] = {}
        """By outbox, what had left it at the last look, and whether something waited."""
        self._rates: dict[str, float] = {}
        """Bytes per second."""
        self._marks: dict[str, int] = {}

    def looked(self, outboxes: Mapping[str, Outbox], now_ns: int) -> Iterator[tuple[str, int]]:
        """Look at all outboxes, about once a second. Yields those whose mark is another one now, and the mark."""
        passed_s, self._looked_ns = (now_ns - self._looked_ns) / 1e9, now_ns
        known, self._before = self._before, {n: (outbox.drained, outbox.bytes > 0) for n, outbox in outboxes.items()}
        for name, outbox in outboxes.items():
            if name not in known or passed_s <= 0:
                continue
            drained, waited = known[name]
            rate, before = (outbox.drained - drained) / passed_s, self._rates.get(name)
            if waited and outbox.bytes:
                self._rates[name] = rate if before is None else (before + rate) / 2
            elif before is not None and rate > before:
                self._rates[name] = rate
            if name in self._rates:
                mark = int(min(max(IN_FLIGHT_S * self._rates[name], BYTES_MIN), self._bytes_max))
                if mark != self._marks.get(name, self._bytes_max):
                    self._marks[name] = mark
                    yield name, mark
        for gone in self._rates.keys() - outboxes.keys():
            del self._rates[gone]
            self._marks.pop(gone, None)
