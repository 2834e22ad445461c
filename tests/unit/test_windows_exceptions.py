"""Exceptions of user code in one of several windows that are due at once, where the task goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar
from unittest import mock

import pytest
from streamlet_kit import WRITTEN, ListSink, ListSource, config
from streamlet_kit import topology as topology_of

from heronpy.api import (
    BaseWindowedBolt,
    Duration,
    Grouping,
    KeyedWindowBolt,
    Spout,
    TopologyBuilder,
    Tuple,
    TupleWindow,
)
from heronpy.api.bolt import window_bolt
from heronpy.api.tuple import Detached, TupleHelper
from heronpy.streamlet import Builder, Streamlet, WindowConfig
from heronpy.streamlet.parts import StageBolt
from heronpy.testing import Simulator
from heronpy.windows import Collect, Pane, Sliding, Tumbling

NUMBERS = 30
KEYS = 3
FAIL = {"topology.exception.policy": "fail"}
EVENT_TIME = {"topology.bolts.tuple.timestamp.field.name": "at"}
SEEN: list[Any] = []
"""What windows have shown."""


class Numbers(Spout):
    """30 numbers, in three windows of three keys, and then one that ends them all."""

    outputs: ClassVar[list[str]] = ["at", "key"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.left = [*range(NUMBERS), 1000]
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        left, self.left = self.left, []
        for at in left:
            self.emit([at, at % KEYS], tup_id=at)

    def ack(self, tup_id: int) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: int) -> None:
        self.failed.append(tup_id)


def shown(key: Any, numbers: list[int]) -> None:
    SEEN.append((key, tuple(numbers)))
    if 10 in numbers:
        raise ValueError("this window is not wanted")


class Keyed(KeyedWindowBolt):
    def value(self, tup: Tuple) -> Any:
        return tup["at"]

    def on_pane(self, pane: Pane) -> None:
        shown(pane.key, pane.value)


class NoResult(Collect):
    """Has no result of one window."""

    def result(self, acc: list[Any]) -> list[Any]:
        if 10 in acc:
            shown(10 % KEYS, acc)
        return super().result(acc)


class Unfit(Keyed):
    fold = NoResult()


class Storms(BaseWindowedBolt):
    def execute(self, window: TupleWindow) -> None:
        shown(None, [tup["at"] for tup in window.get()])


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "tumbling by key": (
        Keyed.with_windows(Tumbling(10)).with_timestamp_field("at"),
        [(key, [n for n in range(at, at + 10) if n % KEYS == key]) for at in (0, 10, 20) for key in range(KEYS)],
    ),
    "a fold by key": (
        Unfit.with_windows(Tumbling(10)).with_timestamp_field("at"),
        [(key, [n for n in range(at, at + 10) if n % KEYS == key]) for at in (0, 10, 20) for key in range(KEYS)],
    ),
    "sliding by key": (
        Keyed.with_windows(Sliding(20, 10)).with_timestamp_field("at"),
        [
            (key, [n for n in range(max(0, at), min(30, at + 20)) if n % KEYS == key])
            for at in (-10, 0, 10, 20)
            for key in range(KEYS)
        ],
    ),
    "of a task": (
        Storms.with_tumbling_window(Duration(10)).with_timestamp_field("at"),
        [(None, [*range(at, at + 10)]) for at in (0, 10, 20)],
    ),
}


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    monkeypatch.setattr(StageBolt, "commit_every_ms", 10)
    monkeypatch.setattr("heronpy.streamlet._task.WATERMARK_EVERY_MS", 10)


@pytest.mark.parametrize(
    "mode",
    [
        {"topology.reliability.mode": "ATMOST_ONCE"},
        {"topology.reliability.mode": "ATLEAST_ONCE"},
        {"topology.reliability.mode": "ATLEAST_ONCE", "topology.stateful.checkpoint.interval.seconds": 3600},
    ],
    ids=["at most once", "at least once", "with checkpoints"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_that_are_due_with_one_that_raises_are_shown(kind: str, mode: dict[str, Any]) -> None:
    bolt, expected = KINDS[kind]
    builder = TopologyBuilder("windows")
    numbers = builder.add_spout("numbers", Numbers, 1)
    builder.add_bolt("windows", bolt, 1, {numbers: Grouping.fields("key")})
    builder.set_config({**FAIL, **mode})
    clock = itertools.count(1_000_000_000, 10_000_000)
    with Simulator(builder, clock=clock.__next__) as simulator:
        for _ in range(300):
            simulator.step()
        assert sorted(SEEN, key=repr) == sorted(((key, tuple(found)) for key, found in expected), key=repr)
        assert simulator.total("__exception-count") >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_at_least_once_the_tuples_of_a_window_that_raises_fail_and_no_others(kind: str) -> None:
    bolt, shown = KINDS[kind]
    builder = TopologyBuilder("windows")
    numbers = builder.add_spout("numbers", Numbers, 1)
    builder.add_bolt("windows", bolt, 1, {numbers: Grouping.fields("key")})
    builder.set_config({**FAIL, "topology.reliability.mode": "ATLEAST_ONCE"})
    with Simulator(builder, clock=itertools.count(1_000_000_000, 10_000_000).__next__) as simulator:
        (spout,) = simulator.component("numbers")
        simulator.run(until=lambda: len(spout.acked) + len(spout.failed) >= NUMBERS, seconds=60)
        failed = {number for _, found in shown if 10 in found for number in found}
        assert sorted(spout.failed) == sorted(failed)
        assert sorted(spout.acked) == sorted({*range(NUMBERS)} - failed)


@pytest.mark.parametrize("evicts", [False, True])
@pytest.mark.parametrize("joins", [False, True])
def test_at_least_once_elements_of_a_streamlets_window_that_raises_come_again(joins: bool, evicts: bool) -> None:
    keys = 9
    builder = Builder()
    source = ListSource("in", [*range(keys), 0], [*[1000] * keys, 60_000])
    pairs = builder.new_source(source).map(lambda n: (n, n))
    window = WindowConfig.create_tumbling_window(10)
    if evicts:
        window = window.keep_last(5)
    if joins:
        made = pairs.join(pairs, window, lambda a, b: a)
    else:
        made = pairs.reduce_by_key_and_window(window, lambda a, b: a + b)
    made.map(lambda e: refused_once(e[1])).to_sink(ListSink())
    with Simulator(topology_of(builder, config(at_least_once=True, topology_exception_policy="fail"))) as simulator:
        simulator.run(until=lambda: {*range(keys)} <= {*WRITTEN["out"]}, seconds=20)
    assert SEEN == [4]
    assert {*WRITTEN["out"]} == {*range(keys)}


class Arrivals(window_bolt.TumblingWindowBolt):
    def processWindow(self, window_info: Any, tuples: list[Tuple]) -> None:
        shown(None, [tup.values[0] for tup in tuples])


def test_intervals_of_arrival_that_are_due_with_one_that_raises_are_shown_and_its_tuples_fail() -> None:
    settled: list[tuple[str, int]] = []
    now_s = [0.0]
    delegate = mock.Mock(
        ack=lambda tup: settled.append(("ack", tup.values[0])), fail=lambda tup: settled.append(("fail", tup.values[0]))
    )
    bolt: Any = Arrivals(delegate)
    with mock.patch.object(window_bolt, "wall_clock_s", return_value=lambda: now_s[0]):
        bolt.initialize({Arrivals.WINDOW_DURATION_SECS: 10, **FAIL}, None)
    for now_s[0] in (1, 10, 11, 21):
        bolt.process(Tuple([int(now_s[0])], Detached("numbers", "default", 1, ("number",)), 0))
    now_s[0] = 60
    with pytest.raises(ValueError, match="not wanted"):
        bolt.process_tick(TupleHelper.make_tick_tuple())
    assert SEEN[:3] == [(None, (1,)), (None, (10, 11)), (None, (21,))]
    assert settled == [("ack", 1), ("fail", 10), ("fail", 11), ("ack", 10), ("ack", 11), ("ack", 21)], (
        "the first counts"
    )


@pytest.mark.parametrize(
    "program",
    [
        lambda pairs: pairs.reduce_by_key_and_window(WindowConfig(10, 10), lambda a, b: a + b).map(
            lambda e: (e[0].key, refused(e[1]))
        ),
        lambda pairs: (
            pairs.join(pairs, WindowConfig(10, 10), lambda a, b: refused(a) if a == b else None)
            .filter(lambda e: e[1] is not None)
            .map(lambda e: (e[0].key, e[1]))
        ),
    ],
    ids=["reduced", "joined"],
)
@pytest.mark.parametrize("at_least_once", [False, True])
def test_keys_of_a_streamlet_that_are_due_with_one_that_raises_are_shown(
    program: Callable[[Streamlet], Streamlet], at_least_once: bool
) -> None:
    keys = 9
    builder = Builder()
    source = ListSource("in", [*range(keys), 0], [*[1000] * keys, 60_000])
    program(builder.new_source(source).map(lambda n: (n, n))).to_sink(ListSink())
    made = config(at_least_once=at_least_once, topology_exception_policy="fail")
    with Simulator(topology_of(builder, made)) as simulator:
        simulator.run(until=lambda: len(WRITTEN["out"]) >= keys, seconds=3)
    assert sorted(WRITTEN["out"]) == [(key, key) for key in (0, 0, 1, 2, 3, 5, 6, 7, 8)]


def refused(number: int) -> int:
    if number == 4:
        raise ValueError("it is not wanted")
    return number


def refused_once(number: int) -> int:
    if number == 4 and not SEEN:
        SEEN.append(number)
        raise ValueError("it is not wanted yet")
    return number
