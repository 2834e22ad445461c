"""With checkpoints, an outbox keeps about two seconds of what its reader takes."""

from __future__ import annotations

from test_outbox import CONFIG as OUTBOX
from test_outbox import batch

from heronpy.stmgr import InFlightBound, Outbox

MOST = 100 << 20
LEAST = 1 << 20
IN_FLIGHT_S = 2
SECOND = 10**9
RATE = 5 << 20


class Reader:
    """Takes so much of one outbox in each second."""

    def __init__(self) -> None:
        self.bound = InFlightBound(MOST)
        self.outbox = Outbox("slow", OUTBOX)
        self.now_ns = 0
        self.mark = MOST

    def passes(self, taken: int, *, waits: bool) -> None:
        self.now_ns += SECOND
        self.outbox.drained += taken
        self.outbox.bytes = 1 if waits else 0
        for name, mark in self.bound.looked({"slow": self.outbox}, self.now_ns):
            assert name == "slow"
            self.mark = mark


def test_a_slow_reader_lowers_the_mark_to_what_it_takes_in_two_seconds() -> None:
    reader = Reader()
    reader.passes(0, waits=True)
    for _ in range(3):
        reader.passes(RATE, waits=True)
    assert reader.mark == IN_FLIGHT_S * RATE


def test_one_that_nothing_waits_for_changes_nothing() -> None:
    reader = Reader()
    for _ in range(5):
        reader.passes(RATE, waits=False)
    assert reader.mark == MOST


def test_the_mark_rises_when_the_reader_is_quicker_than_was_known() -> None:
    reader = Reader()
    reader.passes(0, waits=True)
    reader.passes(RATE, waits=True)
    reader.passes(3 * RATE, waits=False)
    assert reader.mark == IN_FLIGHT_S * 3 * RATE
    reader.passes(RATE, waits=False)
    assert reader.mark == IN_FLIGHT_S * 3 * RATE, "it had no more to take"


def test_a_reader_that_stands_still_keeps_a_few_frames_and_gets_them_later() -> None:
    reader = Reader()
    for _ in range(10):
        reader.passes(0, waits=True)
    assert reader.mark == LEAST
    reader.passes(10 * MOST, waits=False)
    assert reader.mark == MOST, "never above that of the configuration"


def test_an_outbox_counts_what_has_left() -> None:
    outbox = Outbox("slow", OUTBOX)
    outbox.put(batch(3))
    before = outbox.bytes
    outbox.take()
    assert outbox.drained == 0
    outbox.written()
    assert (outbox.bytes, outbox.drained) == (0, before)
