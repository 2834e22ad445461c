"""With checkpoints, an outbox keeps about two seconds of what its reader takes."""

from __future__ import annotations

from test_outbox import CONFIG as OUTBOX
from test_outbox import batch

from heronpy.stmgr import InFlightBound, Outbox, frame_bytes

MOST, AT_FIRST, LEAST = 100 << 20, 128 << 10, 8 << 10
IN_FLIGHT_S = 2
SECOND = 10**9
RATE = 5 << 20


class Reader:
    """Takes so much of one outbox in each second."""

    def __init__(self) -> None:
        self.bound = InFlightBound(MOST)
        self.outbox = Outbox("slow", OUTBOX)
        self.now_ns = 0
        self.mark = 0
        self.passes(0, waits=False)

    def passes(self, taken: int, *, waits: bool) -> None:
        self.now_ns += SECOND
        self.outbox.drained += taken
        self.outbox.bytes = 1 if waits else 0
        for name, mark in self.bound.looked({"slow": self.outbox}, self.now_ns):
            assert name == "slow"
            self.mark = mark


def test_little_may_wait_as_long_as_nothing_is_known() -> None:
    reader = Reader()
    assert reader.mark == AT_FIRST
    reader.passes(0, waits=False)
    assert reader.mark == AT_FIRST


def test_as_much_may_wait_as_the_reader_takes_in_two_seconds() -> None:
    for rate in (RATE, AT_FIRST // 10):
        reader = Reader()
        reader.passes(0, waits=True)
        for _ in range(3):
            reader.passes(rate, waits=True)
        assert reader.mark == IN_FLIGHT_S * rate


def test_the_mark_rises_when_the_reader_is_quicker_than_was_known() -> None:
    reader = Reader()
    reader.passes(RATE, waits=False)
    assert reader.mark == IN_FLIGHT_S * RATE
    reader.passes(3 * RATE, waits=False)
    assert reader.mark == IN_FLIGHT_S * 3 * RATE
    reader.passes(RATE, waits=False)
    assert reader.mark == IN_FLIGHT_S * 3 * RATE, "it had no more to take"
    reader.passes(RATE, waits=True)
    reader.passes(RATE, waits=True)
    assert reader.mark == IN_FLIGHT_S * 2 * RATE, "now it had: half of what was known, and half of what is seen"


def test_a_reader_that_stands_still_keeps_some_batches_and_gets_more_later() -> None:
    reader = Reader()
    for _ in range(10):
        reader.passes(0, waits=True)
    assert reader.mark == LEAST
    reader.passes(10 * MOST, waits=False)
    assert reader.mark == MOST, "never above that of the configuration"


def test_a_look_right_after_another_finds_new_outboxes_and_no_rates() -> None:
    reader = Reader()
    reader.outbox.drained += RATE
    new = Outbox("new", OUTBOX)
    assert list(reader.bound.looked({"slow": reader.outbox, "new": new}, reader.now_ns + SECOND // 100)) == [
        ("new", AT_FIRST)
    ]
    reader.passes(0, waits=False)
    assert reader.mark == IN_FLIGHT_S * RATE, "what left before that look counts"


def test_a_new_outbox_of_the_same_name_is_not_known() -> None:
    reader = Reader()
    reader.passes(RATE, waits=False)
    assert list(reader.bound.looked({}, reader.now_ns)) == []
    reader.passes(0, waits=False)
    assert reader.mark == AT_FIRST


def test_frames_for_a_slow_reader_are_short() -> None:
    assert frame_bytes(LEAST) == 2 << 10
    assert frame_bytes(256 << 10) == 16 << 10
    assert frame_bytes(MOST) == 256 << 10


def test_an_outbox_counts_what_has_left() -> None:
    outbox = Outbox("slow", OUTBOX)
    outbox.put(batch(3))
    before = outbox.bytes
    outbox.take()
    assert outbox.drained == 0
    outbox.written()
    assert (outbox.bytes, outbox.drained) == (0, before)
