"""Watermarks of several inputs, and clocks that cannot be believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.windows import NEVER, EventClock, Watermarks

DAY = 24 * 3600 * 1000


def test_it_is_the_latest_time_less_the_lag() -> None:
    marks = Watermarks(["a"], lag_ms=5)
    for time in (100, 110, 104):
        assert marks.observe("a", time)
    assert marks.advance() == 105


def test_it_waits_for_all_inputs() -> None:
    marks = Watermarks(["a", "b"], lag_ms=5)
    for time in (100, 110):
        marks.observe("a", time)
    assert marks.advance() == NEVER
    for time in (95, 98):
        marks.observe("b", time)
    assert marks.advance() == 93


def test_without_elements_nothing_is_known() -> None:
    assert Watermarks(["a"]).advance() == NEVER
    assert Watermarks().advance() == NEVER


def test_it_never_goes_back() -> None:
    marks = Watermarks(["a"], lag_ms=5)
    for time in (100, 110):
        marks.observe("a", time)
    assert marks.advance() == 105
    for time in (104, 105, 106):
        marks.observe("a", time)
    assert marks.advance() == 105
    marks.observe("a", 115)
    assert marks.advance() == 110
    for time in (1, 2):
        marks.observe("late joiner", time)
    assert marks.advance() == 110


def test_idle_inputs_are_not_waited_for_and_waited_for_again_when_they_wake() -> None:
    marks = Watermarks(["a", "b"], idle_after_ms=1000)
    for time in (10, 20):
        marks.observe("a", time, now_ms=0)
        marks.observe("b", time - 9, now_ms=0)
    assert marks.advance(999) == 11
    marks.observe("a", 500, now_ms=999)
    assert marks.advance(1000) == 500
    marks.observe("b", 30, now_ms=1100)
    for time in (600, 700):
        marks.observe("a", time, now_ms=1100)
    assert marks.advance(1100) == 500
    marks.observe("b", 650, now_ms=1200)
    assert marks.advance(1200) == 650


def test_an_input_that_closes_a_cycle_neither_holds_it_up_nor_moves_it() -> None:
    marks = Watermarks(["a", "back"], ignored=["back"])
    for time in (10, 20):
        marks.observe("a", time)
    assert marks.advance() == 20
    assert marks.observe("back", 500)
    assert marks.observe("back", 12)
    assert marks.advance() == 20
    before = Watermarks(["a", "back"])
    before.observe("back", 7)
    marks.restore(before.saved())
    marks.observe("a", 21)
    marks.observe("a", 22)
    assert marks.advance() == 22


def test_an_input_that_never_had_anything_is_idle_too() -> None:
    marks = Watermarks(["a", "silent"], idle_after_ms=1000)
    for time in (10, 20):
        marks.observe("a", time, now_ms=900)
    assert marks.advance(999) == NEVER
    assert marks.advance(1000) == 20


def test_when_all_are_idle_the_foremost_counts() -> None:
    marks = Watermarks(["a", "b"], idle_after_ms=1000)
    for time in (10, 20):
        marks.observe("a", time, now_ms=0)
        marks.observe("b", time + 70, now_ms=0)
    assert marks.advance(0) == 20
    assert marks.advance(5000) == 90


def test_a_clock_that_jumps_back_makes_nothing_idle_and_nothing_awake() -> None:
    marks = Watermarks(["a", "b"], idle_after_ms=1000, now_ms=10_000)
    for time in (10, 20):
        marks.observe("a", time, now_ms=10_900)
        marks.observe("b", time - 9, now_ms=10_000)
    assert marks.advance(10_900) == 11
    assert marks.advance(0) == 11
    marks.observe("a", 40, now_ms=11_500)
    marks.observe("a", 41, now_ms=5)
    assert marks.advance(11_899) == 11
    assert marks.advance(11_900) == 41


def test_one_time_far_in_the_future_makes_no_other_late() -> None:
    marks = Watermarks(["a"], lag_ms=5, max_advance_ms=DAY)
    for time in range(0, 1000, 10):
        assert marks.observe("a", time)
    assert not marks.observe("a", 4000 * DAY)
    assert marks.advance() == 985
    for time in range(1000, 2000, 10):
        assert marks.observe("a", time)
        assert marks.advance() == time - 5
    assert not marks.observe("a", 4000 * DAY), "between two outliers was an element of the present"
    assert marks.outliers == 2


def test_also_if_it_is_the_first_of_all() -> None:
    marks = Watermarks(["a"], max_advance_ms=DAY)
    marks.observe("a", 4000 * DAY)
    assert marks.advance() == NEVER
    marks.observe("a", 10)
    assert marks.advance() == NEVER
    marks.observe("a", 20)
    assert marks.advance() == 20


def test_two_in_a_row_are_believed() -> None:
    marks = Watermarks(["a"], max_advance_ms=DAY)
    for time in (10, 20):
        marks.observe("a", time)
    assert not marks.observe("a", 40 * DAY)
    assert marks.observe("a", 40 * DAY - 7)
    assert marks.advance() == 40 * DAY
    assert marks.outliers == 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 100), st.integers(-50, 50)), max_size=40))
def test_watermarks_are_monotone_and_never_ahead_of_what_was_seen(script: list[tuple[str, int, int]]) -> None:
    marks, now, last = Watermarks("ab", lag_ms=3, idle_after_ms=40, max_advance_ms=30), 0, NEVER
    seen: list[int] = []
    for source, time, step in script:
        now += step
        if marks.observe(source, time, now):
            seen.append(time)
        watermark = marks.advance(now)
        assert watermark >= last
        assert watermark == NEVER or watermark <= max(seen) - 3
        last = watermark


def test_sparse_elements_confirm_one_another() -> None:
    marks = Watermarks(["a"], max_advance_ms=DAY)
    for week in range(1, 10):
        assert marks.observe("a", week * 7 * DAY)
        assert marks.advance() == ((week - 1) * 7 * DAY if week > 1 else NEVER)
    assert marks.outliers == 0


@given(st.lists(st.integers(0, 500), min_size=2, max_size=40), st.integers(0, 40))
def test_one_outlier_anywhere_changes_nothing(times: list[int], place: int) -> None:
    clock, spoilt = EventClock(1000), EventClock(1000)
    place = min(place, len(times) - 1)  # something comes after it
    for time in times:
        clock.observe(time)
    for at, time in enumerate(times):
        if at == place:
            spoilt.observe(1_000_000)
        spoilt.observe(time)
    assert spoilt.latest_ms == clock.latest_ms
