"""Windows of streamlets beyond tumbling and sliding: by number, global, with triggers, lateness and evictors."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlet_kit import ACKED, WRITTEN, ListReader, ListSink, ListSource, config, outcome, run, topology

from heronpy.connectors import Record, SourceContext, SourceReader
from heronpy.errors import ConfigError, TopologyError
from heronpy.streamlet import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Builder,
    Config,
    KeyedWindow,
    Streamlet,
    Window,
    WindowConfig,
)
from heronpy.streamlet.parts import Evicting, HeldValues, ReducedValues, StageBolt, plan_stages
from heronpy.testing import Simulator
from heronpy.windows import END, Counted, Global, Pane, Session, Sliding, Tumbling, Windowing, window_engine

NUMBERS = list(range(25))
TIMES = [n * 400 for n in NUMBERS]
"""25 elements in 10 s."""


@pytest.fixture(autouse=True)
def swift_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageBolt, "commit_every_ms", 10)
    monkeypatch.setattr("heronpy.streamlet._spout.FLUSH_EVERY_MS", 10)
    monkeypatch.setattr("heronpy.streamlet._spout.CHORES_EVERY_MS", 5)
    monkeypatch.setattr("heronpy.streamlet._task.WATERMARK_EVERY_MS", 10)


@pytest.fixture(params=[(True, True), (False, True), (True, False), (False, False)], ids=str)
def mode(request: pytest.FixtureRequest) -> Config:
    fusion, acked = request.param
    return config(fusion=fusion, at_least_once=acked)


def plus(a: Any, b: Any) -> Any:
    return a + b


def as_lists(numbers: Streamlet, window: WindowConfig) -> Streamlet:
    """The elements of each pane, sorted, by their window."""
    lists = numbers.map(lambda n: [n]).reduce_by_window(window, plus)
    return lists.map(lambda e: (e[0], sorted(e[1])))


def by_parity(numbers: Streamlet, window: WindowConfig) -> Streamlet:
    """The elements of each pane, sorted, by their parity and window."""
    lists = numbers.map(lambda n: (n % 2, [n])).reduce_by_key_and_window(window, plus)
    return lists.map(lambda e: (e[0], sorted(e[1])))


def numbers_in(builder: Builder, times: list[int] | None = TIMES) -> Streamlet:
    return builder.new_source(ListSource("in", NUMBERS, times))


def panes(make: Callable[[Streamlet], Streamlet], mode: Config, results: int, times: list[int] | None = TIMES) -> Any:
    def program(builder: Builder) -> int:
        make(numbers_in(builder, times)).to_sink(ListSink())
        return len(NUMBERS)

    return outcome(program, mode, results, within_s=20)


def span(elements: list[int]) -> Window:
    """What windows without an end in time are called by: their first and last element."""
    return Window(elements[0] * 400 / 1000, (elements[-1] * 400 + 1) / 1000)


# By number


def test_a_window_by_number_has_so_many_elements_of_each_key() -> None:
    # At most once: what does not fill a window is not acked.
    window = WindowConfig.create_tumbling_count_window(4)
    found = panes(lambda s: by_parity(s, window), config(at_least_once=False), 6)
    expected = [list(range(parity + 8 * n, parity + 8 * n + 8, 2)) for parity in (0, 1) for n in range(3)]
    assert found == sorted([(KeyedWindow(part[0] % 2, span(part)), part) for part in expected], key=repr)


def test_sliding_windows_by_number_have_the_last_elements(mode: Config) -> None:
    window = WindowConfig.create_sliding_count_window(10, 5)
    builder = Builder()
    ACKED.clear()
    as_lists(numbers_in(builder), window).to_sink(ListSink())
    run(builder, mode, until=lambda: len(WRITTEN["out"]) == 5)
    expected = [NUMBERS[max(0, end - 10) : end] for end in range(5, 26, 5)]
    assert WRITTEN["out"] == [(span(part), part) for part in expected]


def test_windows_by_number_take_no_time_from_streamlets_that_have_none(mode: Config) -> None:
    window = WindowConfig.create_tumbling_count_window(5)
    found = panes(lambda s: as_lists(s, window), mode, 5, None)
    assert sorted(part for _, part in found) == [NUMBERS[n : n + 5] for n in range(0, 25, 5)]
    assert all(window.start < window.end for window, _ in found)


def test_a_join_by_number_is_of_the_elements_of_both_sides(mode: Config) -> None:
    def make(numbers: Streamlet) -> Streamlet:
        pairs = numbers.map(lambda n: (0, n))
        return pairs.join(pairs, WindowConfig.create_tumbling_count_window(10), lambda a, b: a == b)

    found = panes(make, mode, 5 * 25)
    assert len(found) == 5 * 25
    assert sum(equal for _, equal in found) <= 25


# Global


@pytest.mark.parametrize("times", [TIMES, None], ids=["timed", "arrival"])
def test_a_global_window_has_a_pane_whenever_its_trigger_says_so_and_one_of_the_rest(
    mode: Config, times: list[int] | None
) -> None:
    mode.set_idle_timeout(1)
    window = WindowConfig.create_global_window(AfterCount(10))
    found = panes(lambda s: as_lists(s, window), mode, 3, times)
    assert sorted(part for _, part in found) == [NUMBERS[:10], NUMBERS[10:20], NUMBERS[20:]]


@pytest.mark.parametrize("times", [TIMES, None], ids=["timed", "arrival"])
def test_what_waits_to_fill_a_window_does_not_hold_up_the_end_of_those_after_it(times: list[int] | None) -> None:
    fours, everything = WindowConfig.create_tumbling_count_window(4), WindowConfig.create_global_window(AfterCount(100))

    def make(numbers: Streamlet) -> Streamlet:
        return as_lists(numbers, fours).map(lambda e: len(e[1])).reduce_by_window(everything, plus)

    found = panes(make, config(at_least_once=False), 1, times)
    assert [total for _, total in found] == [24]


def test_a_global_window_accumulates_also_after_a_pause() -> None:
    window = WindowConfig.create_global_window(AfterCount(10), accumulating=True)
    builder = Builder()
    as_lists(numbers_in(builder), window).to_sink(ListSink())
    mode = config(at_least_once=False)
    with Simulator(topology(builder, mode)) as simulator:
        simulator.run(until=lambda: len(WRITTEN["out"]) == 3)
        assert WRITTEN["out"] == [(span(part), part) for part in (NUMBERS[:10], NUMBERS[:20], NUMBERS)]
        (bolt,) = simulator.component("reduce_by_window-1")
        assert len(bolt._engine) == 1


def test_a_global_window_fires_after_a_processing_time(mode: Config) -> None:
    window = WindowConfig.create_global_window(AfterProcessingTime(timedelta(milliseconds=1)))
    builder = Builder()
    as_lists(numbers_in(builder, None), window).to_sink(ListSink())
    run(builder, mode, until=lambda: sorted(n for _, part in WRITTEN["out"] for n in part) == NUMBERS)


def test_what_accumulates_for_ever_is_refused_where_its_tuples_would_be_held_for_ever() -> None:
    builder = Builder()
    window = WindowConfig.create_global_window(AfterCount(10), accumulating=True)
    numbers_in(builder).reduce_by_window(window, plus).log()
    with pytest.raises(TopologyError, match=r"reduce_by_window-1 accumulates without an end, .* checkpoints"):
        topology(builder, config())
    topology(builder, config(at_least_once=False))
    made = config()
    made.set_user_config("topology.stateful.checkpoint.interval.seconds", 10)
    topology(builder, made)


# Triggers


def test_early_panes_add_up(mode: Config) -> None:
    window = WindowConfig(4, 4).with_trigger(AfterWatermark(early=AfterCount(3)))
    found = panes(lambda s: as_lists(s, window), mode, 9)
    expected = [
        part for w in range(0, 25, 10) for at in range(w, w + 10, 3) if (part := NUMBERS[at : min(at + 3, w + 10)])
    ]
    assert sorted(part for _, part in found) == expected
    assert all(window == Window(part[0] // 10 * 4.0, part[0] // 10 * 4.0 + 4) for window, part in found)


def test_panes_that_accumulate_have_everything_so_far(mode: Config) -> None:
    trigger = AfterWatermark(early=AfterCount(4))
    window = WindowConfig(4, 4).with_trigger(trigger, accumulating=True).with_allowed_lateness(0)
    early = [NUMBERS[0:4], NUMBERS[0:8], NUMBERS[10:14], NUMBERS[10:18], NUMBERS[20:24]]
    whole = [NUMBERS[0:10], NUMBERS[10:20], NUMBERS[20:25]]
    expected = {(part[0] // 10 * 4.0, *part) for part in early + whole}
    builder = Builder()
    as_lists(numbers_in(builder), window).to_sink(ListSink())
    run(builder, mode, until=lambda: {(made.start, *part) for made, part in WRITTEN["out"]} == expected, within_s=20)


def test_a_window_that_fires_by_number_alone_shows_the_rest_when_it_closes(mode: Config) -> None:
    window = WindowConfig(4, 4).with_trigger(AfterCount(7)).with_allowed_lateness(1)
    found = panes(lambda s: as_lists(s, window), mode, 5)
    assert sorted(part for _, part in found) == [
        NUMBERS[0:7],
        NUMBERS[7:10],
        NUMBERS[10:17],
        NUMBERS[17:20],
        NUMBERS[20:25],
    ]


def test_sessions_have_early_panes_as_far_as_they_reach(mode: Config) -> None:
    window = WindowConfig.create_session_window(1).with_trigger(AfterWatermark(early=AfterCount(20)))
    found = panes(lambda s: as_lists(s, window), mode, 2)
    assert found == sorted([(Window(0.0, 8.6), NUMBERS[:20]), (Window(0.0, 10.6), NUMBERS[20:])], key=repr)


# Lateness

LATE_TIMES = [n * 400 - (9000 if n == 24 else 0) for n in NUMBERS]
"""As `TIMES`, but the last element comes 9 s late: at 600 ms."""


class Gated(ListSource):
    """Gives its last element when the gate is opened."""

    opened = False

    def open(self, context: SourceContext) -> SourceReader:
        return GatedReader(self.name, super().open(context).records)  # type: ignore[attr-defined]


class GatedReader(ListReader):
    def read(self, limit: int) -> Sequence[Record]:
        left = len(self.records) - self.at - (not Gated.opened)
        return super().read(min(limit, left)) if left > 0 else []


def with_a_late_element(make: Callable[[Streamlet], Streamlet], mode: Config, results: int) -> list[Any]:
    """So many results of a program, whose last element comes when the watermark of "windows" has passed 9 s."""
    mode.set_max_lateness(0)
    Gated.opened = False
    builder = Builder()
    make(builder.new_source(Gated("in", NUMBERS, LATE_TIMES))).to_sink(ListSink())
    with Simulator(topology(builder, mode)) as simulator:
        (windows,) = simulator.component("windows")
        simulator.run(seconds=20, until=lambda: windows._engine.watermark >= 9000)
        Gated.opened = True
        simulator.run(seconds=20, until=lambda: len(WRITTEN["out"]) >= results)
    assert len(WRITTEN["out"]) == results, WRITTEN
    return sorted(WRITTEN["out"], key=repr)


def test_what_is_too_late_is_a_streamlet(mode: Config) -> None:
    def make(numbers: Streamlet) -> Streamlet:
        window = WindowConfig(2, 2).with_allowed_lateness(1)
        counted = numbers.map(lambda n: (n % 2, [n])).reduce_by_key_and_window(window, plus).set_name("windows")
        late = counted.late().map(lambda e: ("late", e))
        return counted.map(lambda e: ("timely", sorted(e[1]))).union(late)

    found = with_a_late_element(make, mode, 11)
    assert [element for kind, element in found if kind == "late"] == [(0, [24])]
    assert sorted(n for kind, part in found if kind == "timely" for n in part) == NUMBERS[:24]


def test_what_is_late_has_its_own_time(mode: Config) -> None:
    def make(numbers: Streamlet) -> Streamlet:
        counted = numbers.reduce_by_window(WindowConfig(2, 2).with_allowed_lateness(0), plus).set_name("windows")
        return counted.late().reduce_by_window(WindowConfig(0.5, 0.5), plus)

    assert with_a_late_element(make, mode, 1) == [(Window(0.5, 1.0), 24)]


def test_within_the_allowed_lateness_an_element_makes_a_late_pane(mode: Config) -> None:
    window = WindowConfig(2, 2).with_allowed_lateness(timedelta(seconds=30))

    def make(numbers: Streamlet, window: WindowConfig) -> Streamlet:
        lists = numbers.map(lambda n: [n]).reduce_by_window(window, plus).set_name("windows")
        return lists.filter(lambda e: e[0].start == 0).map(lambda e: sorted(e[1]))

    assert with_a_late_element(lambda s: make(s, window), mode, 2) == [[0, 1, 2, 3, 4], [24]]
    whole = window.with_trigger(AfterWatermark(), accumulating=True)
    assert with_a_late_element(lambda s: make(s, whole), mode, 2) == [[0, 1, 2, 3, 4, 24], [0, 1, 2, 3, 4]]


def test_late_elements_are_counted_and_logged_where_nobody_reads_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    builder, mode = Builder(), config()
    mode.set_max_lateness(0)
    Gated.opened = False
    source = builder.new_source(Gated("in", NUMBERS, LATE_TIMES))
    counted = source.reduce_by_window(WindowConfig(2, 2).with_allowed_lateness(0), plus)
    counted.late()
    counted.to_sink(ListSink())
    with Simulator(topology(builder, mode)) as simulator:
        (bolt,) = simulator.component("reduce_by_window-1")
        simulator.run(seconds=20, until=lambda: bolt._engine.watermark >= 9000)
        Gated.opened = True
        simulator.run(seconds=20, until=lambda: len(ACKED["in"]) == len(NUMBERS))
        assert bolt._late.get_value_and_reset() == 1
    assert "left out, because it is late: 24" in caplog.text


def test_nothing_is_late_because_of_a_pause(mode: Config) -> None:
    """All input is idle, so what there is fires; but windows close by the times that there were."""
    mode.set_idle_timeout(0.05)
    mode.set_max_lateness(0)
    Gated.opened = False
    builder = Builder()
    window = WindowConfig(20, 20).with_allowed_lateness(0)
    as_lists(builder.new_source(Gated("in", NUMBERS, LATE_TIMES)), window).to_sink(ListSink())
    with Simulator(topology(builder, mode)) as simulator:
        simulator.run(seconds=20, until=lambda: bool(WRITTEN["out"]))
        Gated.opened = True
        simulator.run(seconds=20, until=lambda: len(WRITTEN["out"]) == 2)
    assert WRITTEN["out"] == [(Window(0.0, 20.0), NUMBERS[:24]), (Window(0.0, 20.0), [24])]


def test_what_late_is_of_must_have_late_elements() -> None:
    numbers = numbers_in(Builder())
    for streamlet in (numbers, numbers.reduce_by_window(WindowConfig(1, 1), plus)):
        with pytest.raises(TopologyError, match=r"has no late elements: .* with_allowed_lateness\(\)"):
            streamlet.late()
    arrivals = Builder()
    numbers_in(arrivals, None).reduce_by_window(WindowConfig(1, 1).with_allowed_lateness(1), plus).late().log()
    with pytest.raises(TopologyError, match=r"reduce_by_window-1 allows a lateness, but .* arrival times"):
        topology(arrivals, config())


def test_late_elements_leave_the_tasks_that_have_the_windows() -> None:
    builder = Builder()
    counted = numbers_in(builder).reduce_by_window(WindowConfig(1, 1).with_allowed_lateness(1), plus)
    counted.late().set_num_partitions(4).map(str).log()
    counted.log()
    for fusion in (True, False):
        stages = plan_stages(builder._graph.named(), fusion=fusion)
        windows = next(stage for stage in stages if stage.name == "reduce_by_window-1")
        assert "late-1" in [operator.name for operator in windows.operators()]
        assert windows.partitions == 1


# Evictors


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (WindowConfig(4, 4).keep_last(3), [[7, 8, 9], [17, 18, 19], [22, 23, 24]]),
        (WindowConfig(4, 4).keep_within(1), [[7, 8, 9], [17, 18, 19], [22, 23, 24]]),
        (WindowConfig(4, 4).keep_within(1).keep_last(2), [[8, 9], [18, 19], [23, 24]]),
        (WindowConfig.create_session_window(1).keep_last(2), [[23, 24]]),
        (WindowConfig.create_tumbling_count_window(5).keep_last(1), [[4], [9], [14], [19], [24]]),
        (WindowConfig.create_global_window(AfterCount(20)).keep_last(2), [[18, 19], [23, 24]]),
    ],
    ids=repr,
)
def test_an_evictor_leaves_the_latest_elements(mode: Config, window: WindowConfig, expected: list[Any]) -> None:
    found = panes(lambda s: as_lists(s, window), mode, len(expected))
    assert sorted(part for _, part in found) == expected


def test_a_global_window_that_evicts_is_one_of_the_last_elements() -> None:
    window = WindowConfig.create_global_window(AfterCount(5), accumulating=True).keep_last(8)
    found = panes(lambda s: as_lists(s, window), config(at_least_once=False), 5)
    assert sorted(part for _, part in found) == [NUMBERS[max(0, end - 8) : end] for end in range(5, 26, 5)]
    assert {made for made, _ in found} == {span(part) for _, part in found}


def test_a_join_of_the_latest(mode: Config) -> None:
    def make(numbers: Streamlet) -> Streamlet:
        left = numbers.filter(lambda n: n % 2).map(lambda n: (0, n))
        right = numbers.filter(lambda n: n % 2 == 0).map(lambda n: (0, n))
        return left.join(right, WindowConfig(4, 4).keep_last(4), lambda a, b: (a, b)).map(lambda e: e[1])

    expected = [(a, b) for w in (6, 16, 21) for a in range(w, w + 4) for b in range(w, w + 4) if a % 2 and not b % 2]
    assert panes(make, mode, len(expected)) == sorted(expected, key=repr)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("aab")), max_size=30),
    st.sampled_from([Tumbling(10), Sliding(12, 4), Session(5), Counted(6, 2), Counted(4, 4), Global()]),
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.integers(1, 8)),
    st.integers(0, 30),
    st.booleans(),
)
def test_what_an_evictor_leaves_does_not_depend_on_slices_restores_and_the_order_of_arrival(
    arrivals: list[tuple[int, str]], windows: Any, count: int | None, span_ms: int | None, restored: int, held: bool
) -> None:
    inner = HeldValues(plus) if held else ReducedValues(plus)
    fold = Evicting(inner, count, span_ms, holds=held)
    windowing = Windowing(windows=windows, trigger=AfterCount(1000) if windows == Global() else AfterWatermark())
    engine, effects, added = window_engine(windowing, fold), list[Any](), dict[str, list[tuple[int, int]]]()
    for number, (time_ms, key) in enumerate(arrivals):
        if number == restored:
            engine = window_engine(windowing, fold, pickle.loads(pickle.dumps(engine.state)))
        value = ([(time_ms, number)], number) if held else [(time_ms, number)]  # a number in the place of a tuple
        effects += engine.add(key, (time_ms, value), time_ms)
        added.setdefault(key, []).append((time_ms, number))
    effects += engine.advance(END)

    def left(elements: list[tuple[int, int]]) -> list[tuple[int, int]]:
        elements = sorted(elements)[-(count or len(elements)) :]
        return [element for element in elements if span_ms is None or element[0] > elements[-1][0] - span_ms]

    shown = Counter(
        (pane.key, tuple(pane.value[2][0] if held else pane.value[2])) for pane in effects if isinstance(pane, Pane)
    )
    assert shown == Counter((key, tuple(left(part))) for key, all_ in added.items() for part in parts_of(windows, all_))
    if held and not isinstance(windows, (Sliding, Counted)):
        released = [number for pane in effects for acc in pane.released for number in fold.tuples(acc)]
        assert sorted(released) == list(range(len(arrivals)))


def parts_of(windows: Any, elements: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The elements of each window of a key, by looking at all of them, in the order of their arrival."""
    if isinstance(windows, Counted):
        ends = range(windows.slide, len(elements) + 1, windows.slide)
        return [elements[max(0, end - windows.length) : end] for end in ends]
    if isinstance(windows, Global):
        return [elements]
    if isinstance(windows, Session):
        sessions: list[list[tuple[int, int]]] = []
        for element in sorted(elements):
            if not sessions or element[0] - sessions[-1][-1][0] >= windows.gap_ms:
                sessions.append([])
            sessions[-1].append(element)
        return sessions
    by_start: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for element in elements:
        for start in windows.starts(element[0]):
            by_start[start].append(element)
    return list(by_start.values())


# What is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowConfig.create_tumbling_count_window(0), "above 0"),
        (lambda: WindowConfig.create_tumbling_count_window(1.5), "above 0"),
        (lambda: WindowConfig.create_sliding_count_window(2, 3), "must not be larger"),
        (lambda: WindowConfig.create_global_window(AfterWatermark()), "no end for the watermark"),
        (lambda: WindowConfig.create_global_window(5), "a trigger is AfterWatermark, "),
        (lambda: WindowConfig(1, 1).with_trigger("early"), "a trigger is AfterWatermark, "),
        (lambda: WindowConfig.create_tumbling_count_window(2).with_trigger(AfterCount(1)), "when they are full"),
        (lambda: WindowConfig.create_tumbling_count_window(2).with_allowed_lateness(1), "nothing is late"),
        (lambda: WindowConfig(1, 1).with_allowed_lateness(-1), "at least 0"),
        (lambda: WindowConfig(1, 1).keep_last(0), "above 0"),
        (lambda: WindowConfig(1, 1).keep_within(0), "above 0"),
        (lambda: AfterProcessingTime(timedelta(seconds=-1)), "AfterProcessingTime takes"),
        (lambda: AfterProcessingTime(timedelta(microseconds=1500)), "AfterProcessingTime takes"),
    ],
)
def test_impossible_windows_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    "window",
    [
        WindowConfig(1, 1).with_trigger(AfterWatermark(), accumulating=True),
        WindowConfig(1, 1).with_trigger(AfterCount(2)),
        WindowConfig.create_session_window(1).with_trigger(AfterWatermark(late=AfterCount(2))),
    ],
    ids=repr,
)
def test_windows_that_would_wait_for_ever_need_an_allowed_lateness(window: WindowConfig) -> None:
    numbers = numbers_in(Builder())
    with pytest.raises(ConfigError, match=r"need an end to their lateness.*; call with_allowed_lateness\(\)"):
        numbers.reduce_by_window(window, plus)
    assert numbers.reduce_by_window(window.with_allowed_lateness(1), plus)


def test_a_window_config_is_changed_in_a_copy_and_shows_all_of_it() -> None:
    window = WindowConfig.create_tumbling_window(60)
    changed = window.with_trigger(AfterCount(3), accumulating=True).with_allowed_lateness(0.5).keep_last(2)
    assert repr(window) == "WindowConfig(60, 60)"
    assert repr(changed.keep_within(1)) == (
        "WindowConfig(60, 60).with_trigger(AfterCount(count=3), accumulating=True).with_allowed_lateness(0.5)"
        ".keep_last(2).keep_within(1)"
    )
    assert eval(repr(changed)).windowing == changed.windowing
