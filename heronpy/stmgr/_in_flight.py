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
BYTES_AT_FIRST = 128 << 10
"""While the rate is not known. It is after a second or two, and until then a slow bolt gets no more than this."""
BYTES_MIN = 8 << 10
"""Whatever the rate: some batches, so that a reader need not wait for one."""
FRAME_BYTES_MAX = 256 << 10
"""Of a frame to an instance."""
_FRAME_BYTES_MIN = 2 << 10
_FRAMES = 16
"""Frames to an instance are such a part of what may wait for it: orders stand behind those that were written."""
_LOOK_S_MIN = 0.5
"""A rate over less than this says little."""


def frame_bytes(mark: int) -> int:
    """How large frames to an instance are, for the mark of its outbox. A batch is never divided."""
    return min(FRAME_BYTES_MAX, max(_FRAME_BYTES_MIN, mark // _FRAMES))


class InFlightBound:
    """The high water marks of all outboxes of a Stream Manager."""

    def __init__(self, bytes_max: int) -> None:
        """Know no rate; `bytes_max` is the highest mark."""
        self._bytes_max = bytes_max
        self._looked_ns = 0
        self._before: dict[str, tuple[int, bool]] = {}
        """By outbox, what had left it at the last check, and whether something waited."""
        self._rates: dict[str, float] = {}
        """Bytes per second, where they are known."""
        self._marks: dict[str, int] = {}

    def looked(self, outboxes: Mapping[str, Outbox], now_ns: int) -> Iterator[tuple[str, int]]:
        """Look at all outboxes, about once a second. Yields those whose mark is another one now, and the mark."""
        seen = {name: (outbox.drained, outbox.bytes > 0) for name, outbox in outboxes.items()}
        passed_s, before = (now_ns - self._looked_ns) / 1e9, self._before
        if passed_s < _LOOK_S_MIN:  # a plan has come in between, maybe with new outboxes
            self._before = {name: before.get(name, seen[name]) for name in seen}
        else:
            self._looked_ns, self._before = now_ns, seen
        for name, (drained, waits) in seen.items():
            mark = self._marks.get(name, 0)
            if name not in before:
                new = min(BYTES_AT_FIRST, self._bytes_max)
            elif passed_s < _LOOK_S_MIN:
                continue
            else:
                drained_before, waited = before[name]
                new = self._next(name, mark, (drained - drained_before) / passed_s, waited and waits)
            if new != mark:
                self._marks[name] = new
                yield name, new
        for gone in self._marks.keys() - outboxes.keys():
            del self._marks[gone]
            self._rates.pop(gone, None)

    def _next(self, name: str, mark: int, rate: float, waited: bool) -> int:
        if waited:
            before = self._rates.get(name)
            rate = rate if before is None else (before + rate) / 2
            self._rates[name] = rate
            return int(min(max(IN_FLIGHT_S * rate, BYTES_MIN), self._bytes_max))
        if IN_FLIGHT_S * rate <= mark:
            return mark
        self._rates[name] = rate
        return int(min(IN_FLIGHT_S * rate, self._bytes_max))
