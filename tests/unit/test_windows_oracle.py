"""Window engines against a brute-force oracle: any order of arrival, any trigger, any moment of a restore."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.errors import ConfigError
from heronpy.windows import (
    END,
    FOREVER,
    NEVER,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Closed,
    Collect,
    Counted,
    Effect,
    FoldFailed,
    Global,
    KeepLast,
    KeepWithin,
    Late,
    Pane,
    Placed,
    Reduce,
    Session,
    Sliding,
    Span,
    Timing,
    Tumbling,
    WindowEngine,
    Windowing,
    window_engine,
)

Element = tuple[int, int]
"""(number, time): the number makes it unique."""


def spans_of(windows: Any, elements: Iterable[Element]) -> dict[Span, list[Element]]:
    """What each window of one key has, by looking at everything."""
    elements = sorted(elements, key=lambda element: element[1])
    found: dict[Span, list[Element]] = defaultdict(list)
    if isinstance(windows, Session):
        session: list[Element] = []
        for element in elements:
            if session and element[1] - session[-1][1] >= windows.gap_ms:
                found[Span(session[0][1], session[-1][1] + windows.gap_ms)] = session
                session = []
            session.append(element)
        if session:
            found[Span(session[0][1], session[-1][1] + windows.gap_ms)] = session
    elif isinstance(windows, Global):
        if elements:
            found[Span(NEVER, END)] = elements
    else:
        for element in elements:
            for start in range(-200, 400):
                on_grid = (start - windows.offset_ms) % windows.slide_ms == 0
                if on_grid and start <= element[1] < start + windows.size_ms:
                    found[Span(start, start + windows.size_ms)].append(element)
    return dict(found)


class Ledger:
    """Runs an engine, and keeps accounts of what it says."""

    def __init__(self, windowing: Windowing) -> None:
        self.engine: WindowEngine = window_engine(windowing, Collect())
        self.windowing = windowing
        self.added: dict[str, list[Element]] = defaultdict(list)
        self.panes: dict[tuple[str, Span], list[Pane]] = defaultdict(list)
        self.order: list[Pane] = []
        self.late: list[Element] = []
        self.placed: Counter[Element] = Counter()
        self.released: Counter[Element] = Counter()
        self.watermark, self.now_ms = NEVER, 0

    def add(self, key: str, element: Element, now_ms: int = 0) -> None:
        effects = self.engine.add(key, element, element[1], now_ms)
        places = 1
        for effect in effects:
            if isinstance(effect, Placed):
                places = effect.times
            elif isinstance(effect, Late):
                places = 0
                assert (effect.key, effect.value) == (key, element)
                self.late.append(element)
        self.placed[element] += places
        if places:
            self.added[key].append(element)
        self.take(effects)

    def advance(self, watermark: int, now_ms: int = 0) -> None:
        self.take(self.engine.advance(watermark, now_ms))

    def flush(self) -> None:
        self.take(self.engine.flush())

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Pane):
                self.panes[effect.key, effect.span].append(effect)
                self.order.append(effect)
            if isinstance(effect, (Pane, Closed)):
                for acc in effect.released:
                    self.released.update(acc)
            assert not isinstance(effect, FoldFailed)
        self.engine.check_invariants()

    def restore(self) -> None:
        """Go on in another engine, as after a death."""
        state = pickle.loads(pickle.dumps(self.engine.state))
        self.engine = window_engine(self.windowing, Collect(), state, self.engine.watermark)
        self.engine.check_invariants()

    def finish(self) -> None:
        self.advance(END, 1 << 40)
        assert not self.engine.state
        assert self.placed == self.released

    def oracle(self) -> dict[tuple[str, Span], list[Element]]:
        return {
            (key, span): sorted(elements)
            for key, added in self.added.items()
            for span, elements in spans_of(self.windowing.windows, added).items()
        }


grids = [Tumbling(10), Tumbling(7, 3), Sliding(10, 5), Sliding(9, 3), Sliding(7, 3), Sliding(12, 4, 2)]
mergeable = [Session(5), Session(11)]
triggers = [
    AfterWatermark(),
    AfterWatermark(early=AfterCount(2)),
    AfterWatermark(early=AfterProcessingTime(7), late=AfterCount(2)),
    AfterWatermark(late=AfterProcessingTime(4)),
    AfterCount(3),
    AfterProcessingTime(5),
]
element_lists = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99)), max_size=40)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Any]:
    """Elements in any order, and between them watermarks that none of the later ones is behind."""
    elements = draw(element_lists)
    script: list[Any] = []
    for at, (key, time) in enumerate(elements):
        script.append((key, time))
        ahead = min((later for _, later in elements[at + 1 :]), default=200)
        what = draw(st.sampled_from(["nothing", "watermark", "time", "restore", "flush"]))
        if what == "watermark":
            script.append(("watermark", draw(st.integers(-5, ahead))))
        elif what != "nothing":
            script.append((what, draw(st.integers(0, 6))))
    return script


def play(ledger: Ledger, script: list[Any]) -> None:
    for number, (kind, at) in enumerate(script):
        play_one(ledger, kind, number, at)


def play_one(ledger: Ledger, kind: str, number: int, at: int) -> None:
    if kind == "watermark":
        ledger.watermark = max(ledger.watermark, at)
        ledger.advance(ledger.watermark, ledger.now_ms)
    elif kind == "time":
        ledger.now_ms += at
        ledger.advance(ledger.watermark, ledger.now_ms)
    elif kind == "restore":
        ledger.restore()
    elif kind == "flush":
        ledger.flush()
    else:
        ledger.add(kind, (number, at), ledger.now_ms)


@given(arrivals(), st.sampled_from([*grids, *mergeable, Global()]), st.sampled_from(triggers), st.booleans())
def test_final_panes_are_the_oracles_whatever_the_order_of_arrival(
    script: list[Any], windows: Any, trigger: Any, accumulating: bool
) -> None:
    ledger = Ledger(Windowing(windows=windows, trigger=trigger, accumulating=accumulating))
    play(ledger, script)
    ledger.finish()
    assert not ledger.late
    expected = ledger.oracle()
    if accumulating:
        for place, elements in expected.items():
            assert sorted(ledger.panes[place][-1].value) == elements
    elif isinstance(windows, Session):  # a pane has the span that its session had then
        for key in "ab":
            found = [element for pane in ledger.order if pane.key == key for element in pane.value]
            assert sorted(found) == sorted(ledger.added[key])
    else:
        found_in = {place: sorted(e for pane in panes for e in pane.value) for place, panes in ledger.panes.items()}
        assert found_in == expected
    if trigger == AfterWatermark() and "flush" not in [kind for kind, _ in script]:
        assert {place: sorted(panes[0].value) for place, panes in ledger.panes.items()} == expected
        assert all(len(panes) == 1 and panes[0].timing is Timing.ON_TIME for panes in ledger.panes.values())


any_script = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.integers(0, 99)),
        st.tuples(st.just("watermark"), st.integers(0, 120)),
        st.tuples(st.just("time"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["restore", "flush"]), st.just(0)),
    ),
    max_size=50,
)


@given(any_script, st.sampled_from([*grids, *mergeable]), st.sampled_from(triggers), st.integers(0, 30), st.booleans())
def test_within_the_lateness_nothing_is_lost_and_beyond_it_everything_is_reported(
    script: list[Any], windows: Any, trigger: Any, lateness: int, accumulating: bool
) -> None:
    ledger = Ledger(Windowing(windows=windows, trigger=trigger, accumulating=accumulating, lateness_ms=lateness))
    watermark = NEVER
    for number, (kind, at) in enumerate(script):
        if kind == "watermark":
            watermark = max(watermark, at)
            ledger.advance(at)  # also backwards: that changes nothing
            assert ledger.engine.watermark == watermark
        elif kind == "restore":
            ledger.restore()
        elif kind == "flush":
            ledger.flush()
        elif kind != "time":
            before = len(ledger.late)
            ledger.add(kind, (number, at))
            if not isinstance(windows, Session):
                closed = all(start + windows.size_ms + lateness <= watermark for start in windows.starts(at))
                assert (len(ledger.late) > before) == closed
    ledger.finish()
    shown = {element for pane in ledger.order for element in pane.value}
    assert shown == {element for added in ledger.added.values() for element in added}
    assert shown.isdisjoint(ledger.late)
    if not accumulating:
        once = Counter((pane.span, element) for pane in ledger.order for element in pane.value)
        assert set(once.values()) <= {1}


@given(any_script, st.sampled_from(grids), st.sampled_from([AfterWatermark(), triggers[3]]))
def test_where_nothing_is_ever_late_parts_add_up_also_when_the_watermark_goes_back(
    script: list[Any], windows: Any, trigger: Any
) -> None:
    ledger = Ledger(Windowing(windows=windows, trigger=trigger, lateness_ms=FOREVER))
    now = 0
    for number, (kind, at) in enumerate(script):
        if kind == "watermark":
            ledger.advance(END if at == 120 else at, now)
        elif kind == "time":
            now += at
            ledger.advance(ledger.engine.watermark, now)
        elif kind == "flush":
            ledger.flush()
        elif kind != "restore":
            ledger.add(kind, (number, at), now)
    ledger.finish()
    parts = {place: sorted(e for pane in panes for e in pane.value) for place, panes in ledger.panes.items()}
    assert parts == ledger.oracle()


@settings(max_examples=500)
@given(any_script, st.sampled_from([*grids, *mergeable, Global()]), st.sampled_from(triggers), st.booleans())
def test_a_flush_shows_what_is_new_and_only_that(
    script: list[Any], windows: Any, trigger: Any, accumulating: bool
) -> None:
    ledger = Ledger(Windowing(windows=windows, trigger=trigger, accumulating=accumulating, lateness_ms=20))
    shown: set[tuple[Span, Element]] = set()
    for number, (kind, at) in enumerate([*script, ("flush", 0)]):
        before = len(ledger.order)
        play_one(ledger, kind, number, at)
        panes = ledger.order[before:]
        if kind == "flush":
            assert all(any((pane.span, element) not in shown for element in pane.value) for pane in panes)
        shown.update((pane.span, element) for pane in panes for element in pane.value)
        if kind == "flush":
            assert {element for _, element in shown} == {
                element for added in ledger.added.values() for element in added
            }
    if not accumulating and not isinstance(windows, Session):  # those know how far they reach until they are closed
        assert not ledger.engine.state
    ledger.finish()


@pytest.mark.parametrize(("accumulating", "shown"), [(False, [[1], [2]]), (True, [[1], [1, 2]])])
@pytest.mark.parametrize("windows", [Tumbling(100), Sliding(100, 100), Session(50)])
def test_a_window_takes_elements_after_a_flush(windows: Any, accumulating: bool, shown: list[list[int]]) -> None:
    engine = window_engine(Windowing(windows=windows, accumulating=accumulating, lateness_ms=10), Collect())
    engine.add("key", 1, 0)
    effects = list(engine.flush())
    engine.add("key", 2, 1)
    effects += [*engine.flush(), *engine.flush()]
    assert [pane.value for pane in effects if isinstance(pane, Pane)] == shown
    assert {pane.timing for pane in effects if isinstance(pane, Pane)} == {Timing.EARLY}
    list(engine.advance(200))
    assert not engine.state


@given(any_script, st.sampled_from(mergeable))
def test_a_late_session_is_one_of_its_own_where_nothing_is_ever_late(script: list[Any], windows: Session) -> None:
    ledger = Ledger(Windowing(windows=windows, lateness_ms=FOREVER))
    play(ledger, script)
    ledger.finish()
    shown = Counter(element for pane in ledger.order for element in pane.value)
    assert shown == ledger.placed
    for pane in ledger.order:
        assert all(pane.span.start_ms <= time < pane.span.end_ms for _, time in pane.value)


@given(
    st.lists(st.sampled_from("ab"), max_size=60),
    st.integers(1, 6).flatmap(lambda length: st.tuples(st.just(length), st.integers(1, length))),
    st.integers(0, 60),
)
def test_windows_by_number_have_the_last_elements(keys: list[str], sizes: tuple[int, int], restore_at: int) -> None:
    length, slide = sizes
    ledger = Ledger(Windowing(windows=Counted(length, slide)))
    expected = defaultdict(list)
    for number, key in enumerate(keys):
        if number == restore_at:
            ledger.restore()
        ledger.add(key, (number, 0))
        if len(ledger.added[key]) % slide == 0:
            expected[key].append(ledger.added[key][-length:])
    for key in "ab":
        assert [pane.value for pane in ledger.order if pane.key == key] == expected[key]
    held = Counter(ledger.placed)
    held.subtract(ledger.released)
    assert all(count in (0, 1) for count in held.values())
    if length == slide:
        assert set(ledger.engine.state) == {key for key in "ab" if len(ledger.added[key]) % slide}


@pytest.mark.parametrize("at_once", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_sessions_of_one_element_leave_nothing_behind(at_once: int) -> None:
    engine = window_engine(Windowing(windows=Session(100)), Reduce(max))

    def wave(first: int) -> int:
        fired = 0
        for number in range(first, first + at_once):
            engine.add(f"user {number}", number, number)
            if number % 100 == 0:
                fired += sum(isinstance(effect, Pane) for effect in engine.advance(number - 50))
        return fired + sum(isinstance(effect, Pane) for effect in engine.advance(first + 2 * at_once))

    wave(0)
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        assert sum(wave(number * 3 * at_once) for number in range(1, 11)) == 10 * at_once
        grown = sum(stat.size_diff for stat in tracemalloc.take_snapshot().compare_to(before, "filename"))
    finally:
        tracemalloc.stop()
    assert not engine.state
    assert grown < 100_000, "what grows does not depend on the number of sessions"


@pytest.mark.parametrize("lateness", [50, FOREVER])
def test_late_sessions_leave_nothing_behind_either(lateness: int) -> None:
    engine = window_engine(Windowing(windows=Session(10), lateness_ms=lateness), Reduce(max))
    list(engine.advance(1000))
    for number in range(1000):
        assert engine.add(number, 1, 985)
    list(engine.advance(1100))
    engine.check_invariants()
    assert not engine.state


def test_a_fold_keeps_an_accumulator_and_not_the_elements() -> None:
    for windows in (Tumbling(1000), Sliding(1000, 100), Session(1000), Counted(10_000, 10_000), Global()):
        engine = window_engine(Windowing(windows=windows), Reduce(max))
        for number in range(5000):
            engine.add("key", number, number % 900)
        assert len(pickle.dumps(engine.state)) < 500, windows


def test_elements_that_do_not_fit_with_those_before_them_are_reported_with_the_window_of_these() -> None:
    engine = window_engine(Windowing(windows=Sliding(6, 2)), Reduce(lambda a, b: a + b))
    for time_ms, value in ((0, 1), (2, "one"), (4, 2)):
        engine.add("key", value, time_ms)
    panes = [effect for effect in engine.advance(END) if isinstance(effect, Pane)]
    found = [(pane.span.start_ms, pane.value, [acc for acc, _ in pane.refused], pane.released) for pane in panes]
    assert found == [
        (-4, 1, [], ()),
        (-2, 1, ["one"], ()),
        (0, 3, ["one"], (1,)),
        (2, "one", [2], ("one",)),
        (4, 2, [], (2,)),
    ]
    assert {type(error) for pane in panes for _, error in pane.refused} == {TypeError}


def test_what_a_fold_cannot_show_is_reported_with_its_window() -> None:
    class Refusing(Collect):
        def result(self, acc: list[Any]) -> list[Any]:
            raise ValueError(acc)

    engine = window_engine(Windowing(windows=Sliding(4, 2)), Refusing())
    engine.add("key", 1, 2)
    failed = [effect for effect in engine.advance(END) if isinstance(effect, FoldFailed)]
    assert [(f.key, f.span, f.accs, f.released) for f in failed] == [
        ("key", Span(0, 4), ([1],), ()),
        ("key", Span(2, 6), ([1],), ([1],)),
    ]


def test_a_fold_that_raises_changes_nothing() -> None:
    engine = window_engine(Windowing(windows=Tumbling(10)), Reduce(lambda a, b: a + b))
    engine.add("key", 1, 0)
    with pytest.raises(TypeError):
        engine.add("key", "one", 1)
    with pytest.raises(TypeError):
        engine.add(["no", "key"], 1, 1)
    assert [pane.value for pane in engine.advance(END) if isinstance(pane, Pane)] == [1]


def test_evictors_keep_a_part_of_the_elements() -> None:
    def shown(fold: Any, windows: Any) -> list[list[int]]:
        engine = window_engine(Windowing(windows=windows), fold)
        for time in (1, 2, 3, 6, 9):
            engine.add("key", time, time)
        return [pane.value for pane in engine.advance(END) if isinstance(pane, Pane)]

    assert shown(KeepLast(2), Sliding(10, 5)) == [[2, 3], [6, 9], [6, 9]]
    assert shown(KeepWithin(4, lambda time: time), Sliding(10, 5)) == [[1, 2, 3], [6, 9], [6, 9]]
    assert shown(KeepLast(1), Session(4)) == [[9]]


def test_a_processing_time_that_goes_back_stands_still_and_an_overdue_timer_fires_once() -> None:
    engine = window_engine(Windowing(windows=Global(), trigger=AfterProcessingTime(10)), Collect())
    engine.add("key", 1, 0, now_ms=1000)
    engine.add("key", 2, 0, now_ms=3)
    assert list(engine.advance(NEVER, now_ms=900)) == []
    engine.add("key", 3, 0, now_ms=0)
    fired = list(engine.advance(NEVER, now_ms=5000))
    assert [pane.value for pane in fired if isinstance(pane, Pane)] == [[1, 2, 3]]
    assert list(engine.advance(NEVER, now_ms=5000)) == []
    engine.add("key", 4, 0, now_ms=4000)
    assert list(engine.advance(NEVER, now_ms=5009)) == []
    assert len(list(engine.advance(NEVER, now_ms=5010))) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tumbling(0),
        lambda: Sliding(5, 6),
        lambda: Session(-1),
        lambda: Counted(2, 3),
        lambda: AfterCount(0),
        lambda: AfterProcessingTime(-1),
        lambda: KeepLast(0),
        lambda: KeepWithin(0, int),
        lambda: Windowing(windows=Tumbling(1), lateness_ms=-1),
        lambda: Windowing(windows=Session(1), accumulating=True, lateness_ms=FOREVER),
    ],
)
def test_impossible_windows_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()
