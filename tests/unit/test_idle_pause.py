"""A spout that has nothing to emit is asked again soon, but not a thousand times a second for ever."""

from __future__ import annotations

import itertools

import pytest

from heronpy.instance.task import IdlePause

MS = 1_000_000


def asked_within(pause: IdlePause, *, start_ns: int, lasts_ns: int) -> list[int]:
    """The times at which a spout is asked that has nothing."""
    at_ns, times = start_ns, []
    while at_ns < start_ns + lasts_ns:
        times.append(at_ns)
        at_ns += pause.pause_ns(at_ns)
    return times


def test_after_a_tuple_it_is_asked_every_millisecond() -> None:
    assert len(asked_within(IdlePause(1, 10), start_ns=5 * MS, lasts_ns=100 * MS)) == 100


def test_a_tuple_waits_for_a_hundredth_of_the_silence_before_it_or_a_millisecond() -> None:
    start_ns = 7 * MS
    times = asked_within(IdlePause(1, 10), start_ns=start_ns, lasts_ns=60_000 * MS)
    for earlier, later in itertools.pairwise(times):
        assert later - earlier <= max(MS, (earlier - start_ns) / 100)
        assert later - earlier <= 10 * MS
    assert times[-1] - times[-2] == 10 * MS


def test_a_tuple_begins_anew() -> None:
    pause = IdlePause(1, 10)
    asked_within(pause, start_ns=MS, lasts_ns=60_000 * MS)
    pause.emitted()
    assert pause.pause_ns(70_000 * MS) == MS


@pytest.mark.parametrize("longest_ms", [0, 1, 3])
def test_a_longest_pause_that_is_not_above_the_shortest_keeps_it_constant(longest_ms: float) -> None:
    pause = IdlePause(3, longest_ms)
    assert {pause.pause_ns(at_s * 1000 * MS) for at_s in range(1, 100)} == {3 * MS}
