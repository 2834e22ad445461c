"""Storm's windows: the last elements, by number or time, every so many or so often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import ConfigError
from heronpy.state import TaskStates
from heronpy.windows import Count, Duration, Evaluated, Expired, TrailingWindows, saved_elements
from tests.unit.state_kit import Component


class Ledger:
    """Windows with all that they said."""

    def __init__(self, length: Count | Duration, slide: Count | Duration, **options: Any) -> None:
        def declare(states: TaskStates) -> TrailingWindows:
            return TrailingWindows(length, slide, **options, saved=saved_elements(states, "windows", block=3)[0])

        self.component = Component(declare)
        self.evaluated: list[Evaluated] = []
        self.expired: list[Any] = []

    def add(self, element: Any, time: float) -> None:
        self.take(self.windows.add(element, time))

    def add_all(self, times: dict[Any, float]) -> None:
        for element, time in times.items():
            self.add(element, time)

    def advance(self, time: float) -> list[list[Any]]:
        """Returns what is in the windows that this makes due."""
        before = len(self.evaluated)
        self.take(self.windows.advance(time))
        return [one.elements for one in self.evaluated[before:]]

    def take(self, effects: Sequence[Evaluated | Expired]) -> None:
        for effect in effects:
            if isinstance(effect, Evaluated):
                self.evaluated.append(effect)
            else:
                self.expired += effect.elements
        self.windows.check_invariants()

    @property
    def windows(self) -> TrailingWindows:
        return self.component.declared[0]  # type: ignore[no-any-return]

    def restore(self) -> None:
        self.windows.save()
        self.component.checkpoint()
        self.component.restart(1)

    @property
    def last(self) -> Evaluated:
        return self.evaluated[-1]


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def test_the_last_five_every_two() -> None:
    ledger = Ledger(Count(5), Count(2))
    for number in numbers(1, 6):
        ledger.add(number, number)
    assert [one.elements for one in ledger.evaluated] == [[1, 2], [1, 2, 3, 4], [2, 3, 4, 5, 6]]
    assert [one.new for one in ledger.evaluated] == [[1, 2], [3, 4], [5, 6]]
    assert [one.gone for one in ledger.evaluated] == [[], [], [1]]
    ledger.add(7, 7)
    assert len(ledger.evaluated) == 3
    ledger.add(8, 8)
    assert ledger.last.elements == numbers(4, 8)
    assert ledger.last.new == [7, 8]
    assert ledger.last.gone == [2, 3]


def test_three_by_three() -> None:
    ledger = Ledger(Count(3), Count(3))
    for number in numbers(1, 7):
        ledger.add(number, number)
    assert [one.elements for one in ledger.evaluated] == [numbers(1, 3), numbers(4, 6)]
    assert ledger.last.gone == numbers(1, 3)
    assert ledger.expired == numbers(1, 6)
    assert [element for _, element in ledger.windows.entries] == [7]


def test_the_last_so_many_are_kept_and_no_more_until_their_time_has_come() -> None:
    ledger = Ledger(Count(5), Duration(1000), first_end=1000)
    for number in numbers(1, 200):
        ledger.add(number, 1 + number / 1000)
    assert len(ledger.windows) == 5
    assert ledger.expired == numbers(1, 195)
    assert ledger.advance(1000) == [numbers(196, 200)]
    assert ledger.advance(2000) == [], "equal to the one before"
    ledger.add(201, 2100)
    assert ledger.advance(3000) == [numbers(197, 201)]


def test_the_last_so_many_of_each_time_also_if_it_is_looked_at_late() -> None:
    ledger = Ledger(Count(2), Duration(10), first_end=10)
    for number in (1, 2, 3, 11, 12, 13, 25):
        ledger.add(number, number)
    assert ledger.advance(30) == [[2, 3], [12, 13], [13, 25]]


def test_time_by_time_of_arrival() -> None:
    ledger = Ledger(Duration(1000), Duration(100), first_end=100)
    ledger.add_all({1: 10, 2: 20, 3: 150})
    assert ledger.advance(100) == [[1, 2]]
    assert ledger.advance(250) == [[1, 2, 3]]
    assert len(ledger.advance(1000)) == 8
    assert ledger.advance(1100) == [[3]]
    assert ledger.last.gone == [1, 2]
    assert ledger.advance(1e9) == []
    assert len(ledger.windows) == 0


def test_the_last_time_whenever_an_element_comes() -> None:
    ledger = Ledger(Duration(10), Count(1))
    for time in (1, 5, 11, 14, 100):
        ledger.add(time, time)
    assert [one.elements for one in ledger.evaluated] == [[1], [1, 5], [5, 11], [5, 11, 14], [100]]
    assert [one.gone for one in ledger.evaluated] == [[], [], [1], [], [5, 11, 14]]


def test_a_clock_that_goes_back_stands_still() -> None:
    ledger = Ledger(Duration(10), Duration(10), first_end=10)
    ledger.add_all({1: 5, 2: 3, 3: 6})
    assert ledger.advance(10) == [[1, 2, 3]]
    assert ledger.advance(2) == []
    ledger.add(4, 12)
    assert ledger.advance(20) == [[4]]


def test_time_by_time_of_the_event() -> None:
    ledger = Ledger(Duration(20), Duration(10), event_time=True)
    ledger.add_all({1: 603, 2: 605, 3: 607})
    assert ledger.advance(609) == []
    ledger.add_all({4: 618, 5: 626, 6: 636})
    assert ledger.advance(631) == [[1, 2, 3], [1, 2, 3, 4], [4, 5]]
    assert [one.new for one in ledger.evaluated] == [[1, 2, 3], [4], [5]]
    assert [one.gone for one in ledger.evaluated] == [[], [], [1, 2, 3]]
    assert [(one.start, one.end) for one in ledger.evaluated] == [(590, 610), (600, 620), (610, 630)]
    assert ledger.expired == [1, 2, 3, 4], "at once when no window to come has them"
    ledger.add_all({7: 825, 8: 826, 9: 827, 10: 839})
    assert ledger.advance(834) == [[5, 6], [6], [7, 8, 9]]
    assert [one.new for one in ledger.evaluated[3:]] == [[6], [], [7, 8, 9]]
    assert [one.gone for one in ledger.evaluated[3:]] == [[4], [5], [6]]


def test_the_last_three_of_event_time_every_ten_ms() -> None:
    ledger = Ledger(Count(3), Duration(10), event_time=True)
    ledger.add_all({1: 603, 2: 605, 3: 607, 4: 618, 5: 626, 6: 636})
    assert ledger.advance(631) == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    ledger.add_all({7: 665, 8: 666, 9: 667, 10: 679})
    assert ledger.advance(674) == [[4, 5, 6], [7, 8, 9]]
    assert ledger.advance(680) == [[8, 9, 10]]


def test_the_last_twenty_ms_every_three_events() -> None:
    ledger = Ledger(Duration(20), Count(3), event_time=True)
    ledger.add_all({1: 603, 2: 605, 3: 607, 4: 618, 5: 625, 6: 626, 7: 629, 8: 636})
    assert ledger.advance(631) == [[1, 2, 3], [3, 4, 5, 6]]
    ledger.add_all({9: 665, 10: 666, 11: 667, 12: 669, 13: 679})
    assert ledger.advance(674) == [[9], [9, 10, 11, 12]]


def test_events_of_one_time_count_one_by_one() -> None:
    times = dict(zip(numbers(1, 10), [10, 10, 11, 12, 12, 12, 12, 13, 14, 15], strict=True))
    pairs = Ledger(Count(2), Count(2), event_time=True)
    pairs.add_all(times)
    assert pairs.advance(20) == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    fives = Ledger(Count(5), Count(2), event_time=True)
    fives.add_all(times)
    assert fives.advance(20) == [[1, 2], [1, 2, 3, 4], numbers(2, 6), numbers(4, 8), numbers(6, 10)]


def test_events_out_of_order_are_in_their_windows() -> None:
    ledger = Ledger(Duration(20), Duration(10), event_time=True)
    ledger.add_all({1: 603, 2: 605, 3: 607, 4: 618, 5: 626, 6: 632, 7: 629, 8: 636})
    assert ledger.advance(631) == [[1, 2, 3], [1, 2, 3, 4], [4, 5, 7]]


def test_nothing_expires_before_the_first_watermark() -> None:
    for length in (Count(10), Duration(10)):
        ledger = Ledger(length, Count(10), event_time=True)
        for number in numbers(1, 1000):
            ledger.add(number, number)
        assert not ledger.expired
        assert ledger.advance(991)[0] == numbers(1, 10)
        assert ledger.expired[:900] == numbers(1, 900)


def test_a_gap_of_years_costs_nothing() -> None:
    ledger = Ledger(Duration(20), Duration(10), event_time=True)
    ledger.add(1, 5)
    ledger.add(2, 10**12 + 5)
    assert ledger.advance(2 * 10**12) == [[1], [1], [2], [2]]


combinations = [
    (Count(4), Count(3)),
    (Count(4), Count(1)),
    (Count(4), Duration(7)),
    (Duration(12), Duration(5)),
    (Duration(12), Count(1)),
    (Duration(12), Count(3)),
    (Count(4), Count(4)),
    (Duration(12), Duration(12)),
]
"""All of Storm's."""


def oracle(length: Any, slide: Any, events: list[tuple[int, int]], until: int) -> list[list[int]]:
    """Windows of events (time, number) in the order of their times, by looking at everything."""
    settled = [event for event in events if event[0] < until]

    def window(after: list[tuple[int, int]], end: int) -> list[int]:
        if isinstance(length, Count):
            after = after[-length.value :]
        else:
            after = [event for event in after if event[0] >= end - length.value]
        return [number for _, number in after]

    if isinstance(slide, Count):
        ends = range(slide.value, len(settled) + 1, slide.value)
        return [window(settled[:count], settled[count - 1][0] + 1) for count in ends]
    found = [window([e for e in events if e[0] < end], end) for end in range(0, until + 1, slide.value)]
    if isinstance(length, Count):
        found = [one for before, one in zip([[], *found], found, strict=False) if one != before]
    return [one for one in found if one]


@given(
    st.sampled_from(combinations),
    st.lists(st.integers(0, 60), max_size=40),
    st.integers(0, 25),
    st.data(),
)
def test_windows_of_events_are_the_oracles(pair: Any, times: list[int], lag: int, data: st.DataObject) -> None:
    ledger = Ledger(*pair, event_time=True)
    watermark = -100
    taken: list[tuple[int, int]] = []
    for number, time in enumerate(times):
        if time < watermark:
            continue
        ledger.add(number, time)
        taken.append((time, number))
        if data.draw(st.booleans()):
            watermark = max(watermark, max(t for t, _ in taken) - lag)
            ledger.advance(watermark)
        elif data.draw(st.booleans()):
            ledger.restore()
    ledger.advance(100)
    assert [one.elements for one in ledger.evaluated] == oracle(*pair, sorted(taken), 100)
    check_differences(ledger)
    assert Counter(ledger.expired + [element for _, element in ledger.windows.entries]) == Counter(
        number for _, number in taken
    )


@given(
    st.sampled_from(combinations), st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 0, 1, 2])), max_size=50)
)
def test_windows_of_arrivals_are_the_oracles(pair: Any, script: list[tuple[int, int]]) -> None:
    ledger = Ledger(*pair, first_end=pair[1].value if isinstance(pair[1], Duration) else None)
    now, taken = 0, []
    for number, (wait, then) in enumerate(script):
        now += wait
        ledger.add(number, now)
        taken.append((now, number))
        if then == 1:
            ledger.advance(now)
        elif then == 2:
            ledger.restore()
    ledger.advance(1000)
    assert [one.elements for one in ledger.evaluated] == oracle(*pair, taken, 1000)
    check_differences(ledger)
    if isinstance(pair[0], Count):
        assert len(ledger.windows) <= pair[0].value


def check_differences(ledger: Ledger) -> None:
    """`new` and `gone` lead from each window to the next."""
    have: Counter[Any] = Counter()
    for one in ledger.evaluated:
        have.update(one.new)
        have.subtract(one.gone)
        assert +have == Counter(one.elements)
        assert not -have


@pytest.mark.parametrize(
    "make",
    [
        lambda: Count(0),
        lambda: Duration(-1),
        lambda: Count(True),
        lambda: TrailingWindows(Count(2), Count(3)),
        lambda: TrailingWindows(Duration(2), Duration(3)),
    ],
)
def test_impossible_windows_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()
