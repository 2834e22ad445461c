"""How far event time has come in what one task reads of a source."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from heronpy.connectors.spi import Record
from heronpy.windows import END, Clock, Sent, SplitClocks

EVERY_MS: Final = 200
UNASKED_MS: Final = 1000
"""A source that was not asked for longer, because the task was held or waited for acks, was not silent meanwhile."""
_ALL: Final = ("",)
MARKS_PER_LIMIT: Final = 8


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class SourceTimes:
    """Sends the watermark of a task: that of the split that is furthest behind. An idle split holds up no other.

    By how much records may be out of order is not known here: bolts subtract their lag.
    """

    def __init__(self, idle_after_s: float, pending_max: int | None, send: Callable[[int], None]) -> None:
        """Nothing is read yet.

        Args:
            idle_after_s: how long a split without records holds up the watermark.
            pending_max: how many records may be emitted and not acked; None: any number.
            send: sends it, behind what was emitted before.
        """
        self._clocks = SplitClocks(lambda: Clock(0, int(idle_after_s * 1000), _now_ms()))
        self._clocks.of(_ALL[0])
        self._send = send
        self._sent = Sent(EVERY_MS)
        self._asked_ms = _now_ms()
        self._unmarked = 0
        """Records since the last watermark."""
        self._unmarked_max = None if pending_max is None else max(1, pending_max // MARKS_PER_LIMIT)

    def emitted(self, split: str | None, records: Sequence[Record]) -> None:
        """Records of a split were emitted; None: splits are not distinguished."""
        clock = self._clocks.of(split or _ALL[0])
        for record in records:
            if record.time_ms > clock.latest_ms:
                clock.observe(record.time_ms)
        if records:
            clock.fresh = True
            self._unmarked += len(records)

    @property
    def pressing(self) -> bool:
        """Whether a watermark is to be sent now, as the task may soon have to wait for acks.

        Windows that hold what is pending wait for the watermark, and ack nothing before it.
        """
        return self._unmarked_max is not None and self._unmarked >= self._unmarked_max

    def mark(self, splits: Collection[str] | None) -> None:
        """Send the watermark of what was emitted, however short it is after the last one."""
        self._unmarked = 0
        now_ms = _now_ms()
        watermark = self._clocks.watermark(_ALL if splits is None else splits, now_ms)
        if self._sent.due(watermark, now_ms, hurry=True):
            self._send(watermark)

    def read(self, split: str | None) -> None:
        """A read has returned records of a split, where they are distinguished; None: nothing."""
        self._clocks.read(split)

    def kept_back(self, splits: Collection[str]) -> None:
        """These were not asked, so this is no silence of theirs."""
        self._clocks.kept_back(splits)

    def asked(self, splits: Collection[str] | None, *, ended: bool) -> None:
        """The source was asked for records, and all that it had given before is emitted."""
        now_ms = _now_ms()
        if (unasked_ms := now_ms - self._asked_ms) > UNASKED_MS:
            self._clocks.paused(unasked_ms)
        self._asked_ms = now_ms
        if self._sent.ready(now_ms):
            watermark = END if ended else self._clocks.watermark(_ALL if splits is None else splits, now_ms)
            if self._sent.due(watermark, now_ms):
                self._send(watermark)
