"""A spout that was held comes back to speed step by step: it may be told again to emit nothing."""

from __future__ import annotations

from heronpy.instance.task import Ramp

MS = 1_000_000
FULL_SPEED = 500_000
"""Tuples a second."""


def emitted(ramp: Ramp, for_ms: int) -> int:
    """By a spout that emits as fast as it may."""
    total = 0
    for ms in range(for_ms):
        sent = FULL_SPEED // 1000 if ramp.over else min(FULL_SPEED // 1000, ramp.room(ms * MS))
        ramp.sent(sent)
        total += sent
    return total


def test_what_it_has_emitted_when_it_is_told_again_is_little_beside_what_fitted_in() -> None:
    for fitted_in in (500, 2_000, 20_000):
        full_ms = next(ms for ms in range(1000) if emitted(Ramp(), ms) >= fitted_in)
        assert emitted(Ramp(), full_ms + 20) < 2 * fitted_in


def test_it_is_over_in_less_than_half_a_second() -> None:
    ramp = Ramp()
    emitted(ramp, 450)
    assert ramp.over


def test_it_says_when_more_may_be_sent() -> None:
    ramp = Ramp()
    ramp.sent(ramp.room(0))
    assert ramp.room(4 * MS) == 0
    assert ramp.wait_s(4 * MS) == 0.006
    assert ramp.room(10 * MS) > 0
    assert ramp.wait_s(30 * MS) == 0.0
