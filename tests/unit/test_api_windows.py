"""Window bolts: every tuple is in exactly the windows that its arrival falls into, and is acked after the last."""

from __future__ import annotations

import itertools
import logging
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import tick_interval_s
from heronpy.api.bolt import Bolt, window_bolt
from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt, WindowContext
from heronpy.api.tuple import Detached, Tuple, TupleHelper
from heronpy.errors import ConfigError

TICK = TupleHelper.make_tick_tuple()


class Recorder:
    """The engine's side of a bolt: remembers what was acked."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("test")
        self.acked: list[Any] = []

    def ack(self, tup: Tuple) -> None:
        self.acked.append(tup.values[0])


class _Recording:
    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        self.__dict__.setdefault("windows", []).append((window_info, [tup.values[0] for tup in tuples]))


class Sliding(_Recording, SlidingWindowBolt):
    windows: list[tuple[WindowContext, list[Any]]]


class Tumbling(_Recording, TumblingWindowBolt):
    windows: list[tuple[WindowContext, list[Any]]]


class Clock:
    """A bolt's clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tup(value: Any) -> Tuple:
    return Tuple([value], Detached("numbers", "default", 1, ("number",)), 0)


def started(kind: type[Bolt], config: dict[str, Any]) -> tuple[Bolt, Clock, Recorder]:
    recorder, clock = Recorder(), Clock()
    bolt: Any = kind(recorder)
    bolt.windows = []
    with mock.patch.object(window_bolt, "wall_clock_s", return_value=clock):
        bolt.initialize(config, None)  # window bolts do not look at their context
    return bolt, clock, recorder


def sliding(duration: float, slide: float) -> tuple[Sliding, Clock, Recorder]:
    config = {Sliding.WINDOW_DURATION_SECS: duration, Sliding.WINDOW_SLIDEINTERVAL_SECS: slide}
    return started(Sliding, config)  # type: ignore[return-value]  # it is one


def test_sliding_windows_overlap_and_ack_after_the_last() -> None:
    bolt, clock, recorder = sliding(duration=4, slide=2)
    for now, value in ((0.5, "a"), (1.5, "b"), (2.5, "c")):
        clock.now = now
        bolt.process(tup(value))
        if value == "b":
            clock.now = 2.0
            bolt.process_tick(TICK)
    assert bolt.windows == [((-2, 2), ["a", "b"])]
    assert recorder.acked == []
    clock.now = 4.1
    bolt.process_tick(TICK)
    assert bolt.windows[1:] == [((0, 4), ["a", "b", "c"])]
    assert recorder.acked == ["a", "b"]
    clock.now = 6.0
    bolt.process_tick(TICK)
    assert bolt.windows[2:] == [((2, 6), ["c"])]
    assert recorder.acked == ["a", "b", "c"]


def test_tumbling_windows_hold_every_tuple_once() -> None:
    bolt: Any
    bolt, clock, recorder = started(Tumbling, {Tumbling.WINDOW_DURATION_SECS: "3"})
    for now, value in ((0.0, "a"), (2.9, "b"), (3.0, "c")):
        clock.now = now
        bolt.process(tup(value))
    clock.now = 3.2
    bolt.process_tick(TICK)
    assert bolt.windows == [((0, 3), ["a", "b"])]
    assert recorder.acked == ["a", "b"]


@given(
    slide=st.integers(1, 5),
    factor=st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from(["tuple", "tick"]), st.floats(0, 9)), max_size=60),
)
def test_every_tuple_is_in_exactly_its_windows_however_late_ticks_are(
    slide: int, factor: int, steps: list[tuple[str, float]]
) -> None:
    bolt, clock, recorder = sliding(duration=slide * factor, slide=slide)
    numbers = itertools.count()
    arrived: dict[int, float] = {}
    for kind, wait in steps:
        clock.now += wait
        if kind == "tuple":
            number = next(numbers)
            arrived[number] = clock.now
            bolt.process(tup(number))
        else:
            bolt.process_tick(TICK)
    clock.now += slide * (factor + 1)
    bolt.process_tick(TICK)
    ends = [window.end for window, _ in bolt.windows]
    assert ends == sorted(set(ends))
    for number, at in arrived.items():
        seen = [window for window, values in bolt.windows if number in values]
        assert len(seen) == factor
        assert all(window.start <= at < window.end for window in seen)
    assert sorted(recorder.acked) == sorted(arrived)
    assert not bolt.current_tuples


def test_a_long_silence_costs_one_window() -> None:
    bolt, clock, _ = sliding(duration=1, slide=1)
    clock.now = 1_000_000.5
    bolt.process_tick(TICK)
    assert bolt.windows == [((999_999, 1_000_000), [])]


def test_windows_ask_for_the_ticks_that_they_need() -> None:
    config: dict[str, Any] = {Sliding.WINDOW_DURATION_SECS: 10, Sliding.WINDOW_SLIDEINTERVAL_SECS: 0.5}
    spec = Sliding.spec(name="windows", config=config)
    assert spec.custom_config is not None
    assert tick_interval_s(spec.custom_config) == 0.5
    Sliding(Recorder()).initialize(config, None)  # type: ignore[arg-type]  # not looked at
    assert tick_interval_s(config) == 0.5


@pytest.mark.parametrize(
    "config",
    [
        {Sliding.WINDOW_DURATION_SECS: 1, Sliding.WINDOW_SLIDEINTERVAL_SECS: 2},
        {Sliding.WINDOW_DURATION_SECS: 0},
        {Sliding.WINDOW_DURATION_SECS: "soon"},
        {Sliding.WINDOW_SLIDEINTERVAL_SECS: 1},
    ],
)
def test_impossible_spans_are_refused_when_the_topology_is_declared(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="slidingwindowbolt_"):
        Sliding.spec(config=config)


def test_a_missing_span_is_refused_when_the_bolt_starts() -> None:
    with pytest.raises(ConfigError, match="needs tumblingwindowbolt_duration_secs"):
        Tumbling(Recorder()).initialize({}, None)  # type: ignore[arg-type]  # not looked at
