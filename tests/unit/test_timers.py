"""Timers of bolts: by event time and processing time, kept by checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Timer, TimerKind, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.timers import AT_ONCE_MAX, STALE_MAX, Timers
from heronpy.api.tuple import Detached
from heronpy.errors import UsageError
from heronpy.instance.task import TaskFailed
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.state import TaskStates
from heronpy.windows import NEVER
from tests.unit.snapshot_kit import Hand, Numbers, Stored, numbers
from tests.unit.state_kit import Component

TIMED = 2
"""Task id."""
MINUTE = 60_000


class Timed(Bolt):
    """Asks for timers by what `asked` does for each number, and emits those that fire."""

    outputs = ["timer"]  # noqa: RUF012  # Heron's way to declare
    asked: Callable[..., None] = staticmethod(lambda _timers, _number: None)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.timers = context.timers

    def process(self, tup: Tuple) -> None:
        self.asked(self.timers, tup["number"])
        self.ack(tup)

    def on_timer(self, timer: Timer) -> None:
        self.emit([(timer.key, timer.at_ms, timer.kind)])


class Untimed(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        _ = context.timers


def plan_of(bolt: type[Bolt], grouping: Any = None, tasks: int = 1, **config: Any) -> PhysicalPlan:
    builder = TopologyBuilder("timers")
    spout = builder.add_spout("numbers", Numbers, 1)
    by = Grouping.fields("number") if grouping is None else grouping
    builder.add_bolt("timed", bolt, tasks, {spout: by}, config=config)
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    proto = builder.build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


class Running:
    """One task with timers, and a clock that is moved by hand."""

    def __init__(self, asked: Callable[..., None], *, grouping: Any = None, **config: Any) -> None:
        bolt = type("Asking", (Timed,), {"asked": staticmethod(asked), "__module__": __name__})
        globals()["Asking"] = bolt
        self.stored = Stored(plan_of(bolt, grouping, **config))
        self.hand = Hand(self.stored, TIMED)
        self.fired: list[Any] = []
        self.wrap()

    def wrap(self) -> None:
        self.hand.user.emit = lambda values: self.fired.append(values[0])
        self.start_ms = self.hand.user.timers.now_ms

    def receive(self, *values: Any) -> None:
        self.hand.task.offer(numbers(values, TIMED))  # type: ignore[union-attr]  # it is a bolt

    def after(self, ms: int) -> list[Any]:
        """What fires so much later."""
        self.fired.clear()
        self.hand.now_ns += ms * 1_000_000
        self.hand.task.poll()
        self.hand.user.timers.check_invariants()
        return list(self.fired)

    def restore(self) -> None:
        self.hand.checkpoint(1)
        self.receive(99)  # of no checkpoint
        self.stored.commit(1)
        self.hand = Hand(self.stored, TIMED, 1, epoch=2)
        self.wrap()


def keys(fired: list[Any]) -> list[Any]:
    return [key for key, _, _ in fired]


IDLE_AFTER = "topology.bolts.watermark.idle.after.ms"
EVENT_TIME = {"topology.bolts.tuple.timestamp.field.name": "number"}


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("grouping", [None, Grouping.SHUFFLE])
def test_timers_of_processing_time_fire_in_the_order_of_their_times(restored: bool, grouping: Any) -> None:
    running = Running(lambda timers, n: timers.processing(n, timers.now_ms + MINUTE * n), grouping=grouping)
    running.receive(3, 1, 2)
    if restored:
        running.restore()
    assert keys(running.after(MINUTE * 3 // 2)) == [1]
    assert running.after(0) == [], "once"
    assert keys(running.after(MINUTE * 2)) == [2, 3]


@pytest.mark.parametrize("restored", [False, True])
def test_timers_of_event_time_fire_when_the_watermark_reaches_them(restored: bool) -> None:
    lag = {"topology.bolts.tuple.timestamp.max.lag.ms": 5}
    running = Running(lambda timers, n: timers.event(n, n + 10), **EVENT_TIME, **lag)
    running.receive(0, 1, 4, 16)
    assert running.after(1000) == [(0, 10, TimerKind.EVENT), (1, 11, TimerKind.EVENT)]
    if restored:
        running.restore()
    assert running.after(1000) == []
    running.receive(19)
    assert keys(running.after(1000)) == [4]
    assert running.hand.user.timers.watermark == 14


def test_a_time_far_in_the_future_fires_nothing() -> None:
    running = Running(lambda timers, n: timers.event(n, 100), **EVENT_TIME)
    running.receive(0, 1, 10**12)
    assert running.after(1000) == []


def test_without_a_timestamp_field_event_time_stands_still() -> None:
    running = Running(lambda timers, n: timers.event(n, n))
    running.receive(1, 2)
    assert running.after(5000) == []
    assert running.hand.user.timers.watermark == NEVER


def test_the_same_timer_twice_is_one_and_cancelled_ones_do_not_fire() -> None:
    def asked(timers: Any, number: int) -> None:
        timers.processing(number % 3, 5)
        timers.processing(number % 3, 5)
        timers.processing(number % 3, 7)
        if number == 5:
            timers.cancel(2)

    running = Running(asked, grouping=Grouping.SHUFFLE)
    running.receive(0, 1, 2, 3, 5)
    assert running.after(1) == [(key, at, TimerKind.PROCESSING) for key, at in [(0, 5), (1, 5), (0, 7), (1, 7)]], (
        "overdue ones fire once, in the order of their times"
    )


def test_a_timer_that_on_timer_sets_fires_in_its_turn() -> None:
    running = Running(lambda timers, n: timers.processing(n, 0))
    user = running.hand.user
    user.emit = lambda values: (
        running.fired.append(values[0]),
        user.timers.processing(values[0][0], user.timers.now_ms),
    )
    running.receive(1)
    assert keys(running.after(0)) == [1]
    assert keys(running.after(1)) == [1], "not for ever at once"


def test_many_timers_do_not_keep_the_task_from_everything_else() -> None:
    running = Running(
        lambda timers, n: [timers.processing((n, i), i) for i in range(AT_ONCE_MAX + 5)], grouping=Grouping.SHUFFLE
    )
    running.receive(1)
    assert len(running.after(0)) == AT_ONCE_MAX
    assert len(running.after(0)) == 5


def test_the_task_sleeps_until_the_next_timer_at_the_latest() -> None:
    running = Running(lambda timers, n: timers.processing(n, timers.now_ms + 300))
    running.receive(1)
    running.after(100)
    assert 0.19 < running.hand.task.poll() <= 0.2


def test_a_clock_that_goes_back_stands_still() -> None:
    running = Running(lambda timers, n: timers.processing(n, timers.now_ms + 10))
    running.receive(1)
    before = running.hand.user.timers.now_ms
    assert running.after(-5000) == []
    assert running.hand.user.timers.now_ms == before
    assert keys(running.after(5010)) == [1]


@pytest.mark.parametrize("keyed", [False, True])
def test_after_a_clock_that_was_a_day_ahead_timers_and_idle_inputs_do_not_wait_for_a_day(keyed: bool) -> None:
    day_ms = 24 * 3600 * 1000
    now_ms = day_ms
    config = {**EVENT_TIME, "topology.bolts.watermark.event.interval.ms": 1, IDLE_AFTER: 5000}

    def declare(states: TaskStates) -> Timers:
        return Timers(Declaring(states), config, keyed=keyed, wall_ms=lambda: now_ms)  # type: ignore[arg-type]

    def come(timers: Timers, **times: int) -> None:
        process = timers.observing(lambda _tup: None)
        for stream, at_ms in times.items():
            process(Tuple([at_ms], Detached("numbers", stream, 1, ("number",)), 0))

    component = Component(declare, 1)
    (timers,) = component.declared
    for at in (1, 2):
        come(timers, slow=50 + at, fast=200 + at)
    timers.processing("before", timers.now_ms + MINUTE)
    list(timers.due())
    timers.save()
    component.checkpoint()
    now_ms = 0  # put right, or another host
    component.restart(1)
    (timers,) = component.declared
    assert timers.ahead_ms == day_ms
    timers.processing("after", timers.now_ms + 2 * MINUTE)
    assert not list(timers.due())
    assert timers.watermark == 52, "the slow input is waited for: nothing shows that it is idle"
    now_ms += MINUTE
    assert [timer.key for timer in timers.due()] == ["before"]
    now_ms += MINUTE
    assert [timer.key for timer in timers.due()] == ["after"]


def test_a_bolt_without_on_timer_has_no_timers() -> None:
    with pytest.raises(UsageError, match="component 'timed' has no timers: a bolt with on_timer"):
        Hand(Stored(plan_of(Untimed)), TIMED)


def test_a_key_of_another_task_is_refused() -> None:
    running = Running(lambda timers, _n: [timers.processing(key, 0) for key in range(20)], tasks=2)
    with pytest.raises(TaskFailed) as failed:
        running.receive(1)
    assert "state 'timers': key" in str(failed.value.__cause__)


class Declaring:
    """A context of a task without a topology."""

    def __init__(self, states: TaskStates) -> None:
        self.keyed_state, self.split_state, self.task_state = states.keyed_state, states.split_state, states.task_state

    def get_this_sources(self) -> dict[Any, int]:
        return {}

    def feedback_sources(self) -> frozenset[Any]:
        return frozenset()

    def watermark_sources(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def sends_watermarks(self) -> bool:
        return False


def test_an_input_is_not_idle_because_the_watermark_is_looked_at_seldom() -> None:
    now_ms = 0
    config = {**EVENT_TIME, "topology.bolts.watermark.event.interval.ms": 1000}
    states = Component(lambda states: states, 1).declared[0]
    idle = {"topology.bolts.watermark.idle.after.ms": 500}
    timers = Timers(Declaring(states), {**config, **idle}, keyed=True, wall_ms=lambda: now_ms)  # type: ignore[arg-type]
    process = timers.observing(lambda _tup: None)
    for now_ms in range(0, 2000, 100):
        for stream, behind in (("fast", 0), ("slow", 900)):
            process(Tuple([now_ms - behind], Detached("numbers", stream, 1, ("number",)), 0))
        list(timers.due())
    assert timers.watermark == 100, "of the slow input when it was looked at"


def test_timers_that_are_set_anew_again_and_again_take_no_memory_and_fire_once() -> None:
    now_ms = 0
    states = Component(lambda states: states, 1).declared[0]
    timers = Timers(Declaring(states), {}, keyed=True, wall_ms=lambda: now_ms)  # type: ignore[arg-type]
    for now_ms in range(20_000):  # the clock reads it
        timers.cancel("user")
        timers.processing("user", now_ms // 2 + 100_000)
        assert timers.indexed <= STALE_MAX + 3
    now_ms = 200_000
    assert [timer.at_ms for timer in timers.due()] == [109_999]
    timers.check_invariants()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_timers_that_came_from_other_tasks_fire_when_the_input_ends(after: int, keyed: bool, again: bool) -> None:
    now_ms = 0
    config = {**EVENT_TIME, "topology.bolts.watermark.event.interval.ms": 1, IDLE_AFTER: 500}

    def declare(states: TaskStates) -> Timers:
        return Timers(Declaring(states), config, keyed=keyed, wall_ms=lambda: now_ms)  # type: ignore[arg-type]

    component = Component(declare, 2)
    # Of two inputs, the watermark of the first task is farther, and the latest time that the second one has read.
    read = [{"fast": 100, "slow": 50}, {"fast": 200, "slow": 40}]
    for number, (timers, latest) in enumerate(zip(component.declared, read, strict=True)):
        process = timers.observing(lambda _tup: None)
        for stream, at_ms in latest.items():
            for _ in range(2):  # the second one confirms the first
                process(Tuple([at_ms], Detached("numbers", stream, 1, ("number",)), 0))
        key = next(key for key in range(100) if not keyed or component.of(key) is timers)
        timers.event(key, latest["fast"] - 10 + number)
        now_ms += 10
        assert not list(timers.due())
    assert [timers.watermark for timers in component.declared] == [50, 40]
    for _ in range(1 + again):
        for timers in component.declared:
            timers.save()
        component.checkpoint()
        component.restart(after)
    now_ms += 1000
    assert sorted(timer.at_ms for timers in component.declared for timer in timers.due()) == [90, 191]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=20),
    st.lists(st.tuples(st.sampled_from(["checkpoint", "restore", "time"]), st.integers(1, 4)), max_size=8),
    st.booleans(),
)
def test_each_timer_fires_once_whatever_the_number_of_tasks(
    asked: list[tuple[int, int]], events: list[tuple[str, int]], keyed: bool
) -> None:
    now_ms = 0

    def declare(states: TaskStates) -> Timers:
        return Timers(Declaring(states), {}, keyed=keyed, wall_ms=lambda: now_ms)  # type: ignore[arg-type]

    component = Component(declare, 2)
    for number, (key, at_ms) in enumerate(asked):
        tasks = component.declared
        (component.of(key) if keyed else tasks[number % 2]).processing(key if keyed else (number, key), at_ms)
    component.checkpoint()
    fired: list[Any] = []
    committed = list(fired), now_ms
    for what, number in events:
        if what == "checkpoint":
            for timers in component.declared:
                timers.save()
            component.checkpoint()
            committed = list(fired), now_ms
        elif what == "restore":
            component.restart(number)
            fired, now_ms = list(committed[0]), committed[1] - number  # another machine's clock
        else:
            now_ms += 5 * number
            fired += (timer for timers in component.declared for timer in timers.due())
        for timers in component.declared:
            timers.check_invariants()
    now_ms = 1000
    fired += (timer for timers in component.declared for timer in timers.due())
    expected = {(key if keyed else (number, key), at_ms) for number, (key, at_ms) in enumerate(asked)}
    assert sorted((timer.key, timer.at_ms) for timer in fired) == sorted(expected)
