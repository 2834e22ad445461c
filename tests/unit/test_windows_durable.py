"""Engines with their windows in checkpoints: a run with restores is the run without them."""

from __future__ import annotations

import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import CheckpointError
from heronpy.state import TaskStates
from heronpy.windows import (
    END,
    FOREVER,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Collect,
    Counted,
    Effect,
    Global,
    Late,
    Pane,
    Reduce,
    Session,
    Sliding,
    Span,
    Timing,
    Tumbling,
    WindowEngine,
    Windowing,
    durable_engine,
)
from tests.unit.state_kit import Component

KEYS = ["a", "b", "c"]
windows = st.sampled_from(
    [Tumbling(10), Sliding(12, 4, 2), Sliding(7, 3), Session(5), Global(), Counted(4, 2), Counted(3, 3)]
)
triggers = st.sampled_from(
    [
        AfterWatermark(),
        AfterWatermark(early=AfterCount(2)),
        AfterWatermark(early=AfterProcessingTime(7), late=AfterProcessingTime(4)),
        AfterCount(3),
        AfterProcessingTime(5),
    ]
)
steps = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.integers(0, 40)),
    st.tuples(st.just("watermark"), st.integers(0, 50)),
    st.tuples(st.just("time"), st.integers(0, 6)),
    st.tuples(st.just("flush"), st.just(0)),
)
faults = st.sampled_from(["begin", "write", "commit", "checkpoint", "checkpoint", "abort", "restart", "restart"])
runs = st.lists(st.one_of(steps, faults), min_size=10, max_size=60)
"""What happens, and between it what befalls the tasks."""


def declaring(windowing: Windowing, *, keyed: bool = True) -> Callable[[TaskStates], WindowEngine]:
    return lambda states: durable_engine(windowing, Collect(), states, "windows", keyed=keyed)


class Run:
    """Engines of a component whose output is committed with its checkpoints."""

    def __init__(
        self,
        windowing: Windowing,
        run: list[Any],
        tasks: int = 1,
        *,
        keyed: bool = True,
        memory_bytes: int | None = None,
    ):
        self.component = Component(declaring(windowing, keyed=keyed), tasks, memory_bytes=memory_bytes)
        self.run = run
        self.script: list[tuple[str, int]] = [step for step in run if not isinstance(step, str)]
        self.keyed = keyed
        self.position = self.now_ms = 0
        self.output: list[Effect] = []
        self.begun = self.committed = (0, 0, 0)
        self.under_way = False

    @property
    def engines(self) -> list[WindowEngine]:
        return self.component.declared

    def play(self, until: int) -> None:
        while self.position < until:
            kind, at = self.script[self.position]
            self.position += 1
            if kind in KEYS:
                engine = self.component.of(kind) if self.keyed else self.engines[self.position % len(self.engines)]
                self.output += engine.add(kind if self.keyed else None, (self.position, at), at, self.now_ms)
            elif kind == "flush":
                for engine in self.engines:
                    self.output += engine.flush()
            else:
                self.now_ms += at if kind == "time" else 0
                for engine in self.engines:  # in checkpoints, the watermark says what has fired: it does not go back
                    watermark = engine.watermark if kind == "time" else max(at, engine.watermark)
                    self.output += engine.advance(watermark, self.now_ms)
        for engine in self.engines:
            engine.check_invariants()
        for task in self.component.tasks:
            task.check_invariants()

    def with_faults(self, tasks: Callable[[], int] = lambda: 1) -> None:
        """Play all of it; `tasks` says how many are restored."""
        for at, step in enumerate(self.run):
            if isinstance(step, str):
                self.play(sum(not isinstance(before, str) for before in self.run[:at]))
                self.fault(step, tasks() if step == "restart" else 0)

    def fault(self, what: str, tasks: int = 1) -> None:
        if what == "restart":
            self.component.restart(tasks)
            self.under_way = False
            self.position, self.now_ms, kept = self.committed
            del self.output[kept:]
            for engine in self.engines:
                engine.check_invariants()
        elif what in ("begin", "checkpoint") and not self.under_way:
            self.component.begin()
            self.under_way, self.begun = True, (self.position, self.now_ms, len(self.output))
            if what == "checkpoint":
                self.fault("commit")
        elif what == "write":
            self.component.write(2)
        elif what == "commit" and self.under_way:
            self.component.commit()
            self.under_way, self.committed = False, self.begun
        elif what == "abort" and self.under_way:
            self.component.abort()
            self.under_way = False

    def finish(self) -> list[Effect]:
        self.play(len(self.script))
        for engine in self.engines:
            self.output += engine.advance(END, 1 << 40)
        return self.output


spilling = st.sampled_from([None, 0]) if find_spec("lmdb") else st.none()
"""Memory for what is committed: as much as it needs, or none."""


@given(runs, windows, triggers, st.sampled_from([0, 20]), st.booleans(), st.booleans(), spilling)
def test_a_run_with_restores_says_what_the_run_without_them_says(
    run: list[Any], of: Any, trigger: Any, lateness: int, accumulating: bool, keyed: bool, memory_bytes: int | None
) -> None:
    windowing = Windowing(windows=of, trigger=trigger, lateness_ms=lateness, accumulating=accumulating)
    calm = Run(windowing, run, keyed=keyed)
    faulty = Run(windowing, run, keyed=keyed, memory_bytes=memory_bytes)
    faulty.with_faults()
    by_key: dict[Any, list[Effect]] = defaultdict(list)  # sessions of several keys may end in any order
    expected: dict[Any, list[Effect]] = defaultdict(list)
    for found, effects in ((by_key, faulty.finish()), (expected, calm.finish())):
        for effect in effects:
            found[getattr(effect, "key", None)].append(effect)
    for task in faulty.component.tasks:
        task.close()
    assert by_key == expected


@pytest.mark.skipif(find_spec("lmdb") is None, reason="lmdb is not installed")
def test_a_session_that_has_grown_and_is_in_a_file_ends_after_a_restore() -> None:
    component = Component(declaring(Windowing(windows=Session(16))), 1, memory_bytes=0)
    for time_ms in (0, 10, 20, 30):
        component.declared[0].add("a", time_ms, time_ms)
    component.checkpoint()
    component.restart(1)
    (engine,) = component.declared
    engine.check_invariants()
    (pane,) = engine.advance(100)
    assert isinstance(pane, Pane)
    assert (pane.span, pane.value) == (Span(0, 46), [0, 10, 20, 30])
    component.tasks[0].close()


@pytest.mark.skipif(find_spec("lmdb") is None, reason="lmdb is not installed")
@pytest.mark.parametrize(
    "windowing",
    [
        Windowing(windows=Sliding(20, 10)),
        Windowing(windows=Session(10)),
        Windowing(windows=Tumbling(10), trigger=AfterWatermark(early=AfterCount(2))),
    ],
)
def test_a_restore_of_windows_in_a_file_has_few_of_them_in_memory_at_once(windowing: Windowing) -> None:
    keys, value_bytes = 1000, 16 * 1024
    component = Component(declaring(windowing), 1, memory_bytes=0)
    for number in range(keys):
        component.declared[0].add(number, f"{number:0{value_bytes}d}", 5)
        if number % 100 == 99:
            component.checkpoint()
    tracemalloc.start()
    try:
        component.restart(1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < keys * value_bytes / 2
    assert sum(isinstance(effect, Pane) for effect in component.declared[0].advance(15)) == keys
    component.tasks[0].close()


@given(runs, windows, st.data(), st.booleans())
def test_with_another_number_of_tasks_every_element_is_in_all_of_its_windows(
    run: list[Any], of: Any, data: st.DataObject, keyed: bool
) -> None:
    windowing = Windowing(windows=of, lateness_ms=FOREVER)
    calm, faulty = (Run(windowing, run, 2, keyed=keyed) for _ in range(2))
    faulty.with_faults(lambda: data.draw(st.integers(1, 4)))
    if isinstance(of, (Tumbling, Sliding)):
        assert shown(faulty.finish(), keyed) == shown(calm.finish(), keyed)
    elif not isinstance(of, Counted):
        elements = {element for found in shown(faulty.finish(), keyed).values() for element in found}
        assert elements == {(at + 1, time) for at, (kind, time) in enumerate(calm.script) if kind in KEYS}


@given(
    runs,
    windows.filter(lambda of: not isinstance(of, Counted)),
    triggers,
    st.sampled_from([0, 20]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_with_another_number_of_tasks_every_element_is_shown_or_late_and_in_no_pane_twice(
    run: list[Any], of: Any, trigger: Any, lateness: int, accumulating: bool, keyed: bool, data: st.DataObject
) -> None:
    windowing = Windowing(windows=of, trigger=trigger, lateness_ms=lateness, accumulating=accumulating)
    faulty = Run(windowing, run, 2, keyed=keyed)
    faulty.with_faults(lambda: data.draw(st.integers(1, 4)))
    effects = faulty.finish()
    panes = [effect for effect in effects if isinstance(effect, Pane)]
    in_panes = Counter((pane.span, element) for pane in panes for element in pane.value)
    late = {effect.value for effect in effects if isinstance(effect, Late)}
    assert late.isdisjoint(element for _, element in in_panes)
    added = {(at + 1, time) for at, (kind, time) in enumerate(faulty.script) if kind in KEYS}
    assert late.union(element for _, element in in_panes) == added
    assert accumulating or set(in_panes.values()) <= {1}
    assert not any(engine.state for engine in faulty.engines)


def shown(effects: list[Effect], keyed: bool) -> dict[Any, Counter[Any]]:
    """The elements of every window, in whatever panes."""
    found: dict[Any, Counter[Any]] = defaultdict(Counter)
    for effect in effects:
        assert isinstance(effect, Pane) or not isinstance(effect, Late)
        if isinstance(effect, Pane):
            found[effect.key if keyed else None, effect.span].update(effect.value)
    return found


def test_windows_that_only_one_of_two_former_tasks_has_fired_fire_once_in_one_task() -> None:
    windowing = Windowing(windows=Sliding(20, 10))
    component = Component(declaring(windowing), 2)
    first, second = component.declared
    one, other = (next(key for key in map(str, range(99)) if component.of(key) is engine) for engine in (first, second))
    for key in (one, other):
        component.of(key).add(key, key, 5)
        component.of(key).add(key, key, 15)
    assert [pane.span for pane in first.advance(20)] == [Span(-10, 10), Span(0, 20)]
    component.checkpoint()
    component.restart(1)
    (engine,) = component.declared
    component.checkpoint()
    component.restart(1)  # what was overdue is not lost with a checkpoint in between
    (engine,) = component.declared
    engine.add(other, other, 25)
    panes = [(pane.key, pane.span) for pane in engine.advance(40) if isinstance(pane, Pane)]
    assert panes[:2] == [(other, Span(-10, 10)), (other, Span(0, 20))]
    assert sorted(panes[2:]) == sorted([(one, Span(10, 30)), (other, Span(10, 30)), (other, Span(20, 40))])
    component.checkpoint()
    component.restart(2)
    assert [list(engine.advance(41)) for engine in component.declared] == [[], []]


def test_a_timer_of_processing_time_fires_after_a_restore() -> None:
    component = Component(declaring(Windowing(windows=Global(), trigger=AfterProcessingTime(10))), 1)
    component.declared[0].add("a", 1, 0, now_ms=100)
    component.checkpoint()
    component.restart(1)
    (pane,) = component.declared[0].advance(0, now_ms=110)
    assert isinstance(pane, Pane)
    assert (pane.value, pane.timing) == ([1], Timing.EARLY)


def test_a_timer_of_processing_time_is_as_long_with_another_number_of_tasks() -> None:
    component = Component(declaring(Windowing(windows=Tumbling(10), trigger=AfterProcessingTime(10))), 2)
    first, second = component.declared
    key = next(key for key in map(str, range(99)) if component.of(key) is second)
    second.add(key, 1, 25, now_ms=100)
    list(first.advance(20))  # farther than the other
    component.checkpoint()
    component.restart(1)
    (engine,) = component.declared
    assert list(engine.advance(20, now_ms=109)) == []
    assert [pane.value for pane in engine.advance(20, now_ms=110) if isinstance(pane, Pane)] == [[1]]


def test_a_timer_that_a_clock_ahead_has_set_fires_after_its_delay_at_the_latest() -> None:
    for windows in (Global(), Tumbling(10), Session(10)):
        component = Component(declaring(Windowing(windows=windows, trigger=AfterProcessingTime(10))), 1)
        component.declared[0].add("a", 1, 0, now_ms=86_400_000)
        component.checkpoint()
        component.restart(1)
        (engine,) = component.declared
        assert list(engine.advance(0, now_ms=100)) == []
        engine.check_invariants()
        assert [pane.value for pane in engine.advance(0, now_ms=110) if isinstance(pane, Pane)] == [[1]]


@pytest.mark.parametrize("keyed", [True, False])
def test_closed_windows_leave_nothing_in_a_checkpoint(keyed: bool) -> None:
    windowing = Windowing(windows=Session(10))
    component = Component(lambda states: durable_engine(windowing, Reduce(max), states, "windows", keyed=keyed), 1)

    def size() -> int:
        component.checkpoint()
        while len(component.manifest.objects) > 1:  # type: ignore[union-attr]
            component.compact(0)
            component.checkpoint()
        component.retain(1)
        return sum(map(len, component.objects.values()))

    (engine,) = component.declared
    engine.add(None if not keyed else "first", 1, 0)
    list(engine.advance(1000))
    before = size()
    for number in range(2000):
        engine.add(number if keyed else None, 1, 2000 + number)
    assert size() > before
    list(engine.advance(10_000))
    assert not engine.state
    assert size() <= before + 100


@pytest.mark.parametrize(
    "windowing",
    [
        Windowing(windows=Sliding(20, 10)),
        Windowing(windows=Session(10)),
        Windowing(windows=Tumbling(10), trigger=AfterWatermark(early=AfterCount(2))),
    ],
)
def test_after_a_restore_a_checkpoint_has_only_what_has_changed(windowing: Windowing) -> None:
    component = Component(declaring(windowing), 1)
    for number in range(500):
        component.declared[0].add(number, number, 5)
    component.checkpoint()
    component.restart(1)
    component.declared[0].add(0, 1, 6)
    component.checkpoint()
    whole, changed = (len(component.objects[ref.name]) for ref in component.manifest.objects)  # type: ignore[union-attr]
    assert changed < whole / 5


def test_windows_that_are_given_a_lateness_do_not_take_all_that_comes_after_a_pause_for_late() -> None:
    """Where nothing was late, the watermark was at the end whenever nothing came; it goes back only there."""
    component = Component(declaring(Windowing(windows=Tumbling(10), lateness_ms=FOREVER)), 1)
    (engine,) = component.declared
    engine.add("a", 1, 3)
    assert len(list(engine.advance(END))) == 1
    component.checkpoint()
    component.declare = declaring(Windowing(windows=Tumbling(10), lateness_ms=5))
    component.restart(1)
    (engine,) = component.declared
    assert not engine.add("a", 2, 14)
    assert [pane.value for pane in engine.advance(20) if isinstance(pane, Pane)] == [[2]]


@pytest.mark.skipif(find_spec("lmdb") is None, reason="lmdb is not installed")
def test_a_flush_looks_at_what_is_in_a_file_only_if_something_came() -> None:
    windowing = Windowing(windows=Global(), trigger=AfterCount(10), accumulating=True)
    component = Component(declaring(windowing), 1, memory_bytes=0)
    (engine,) = component.declared
    for number in range(10):
        engine.add(number, number, 0)
    component.checkpoint()
    assert len(list(engine.flush())) == 10
    looked: list[Any] = []
    saved, engine._saved = engine._saved, lambda: looked.append(1) or saved()
    assert not list(engine.flush())
    assert not looked
    engine.add(3, 30, 0)
    assert [pane.value for pane in engine.flush()] == [[3, 30]]
    assert looked
    component.tasks[0].close()


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Windowing(windows=Tumbling(10)), Windowing(windows=Tumbling(7))),
        (Windowing(windows=Tumbling(10)), Windowing(windows=Tumbling(20))),
        (Windowing(windows=Tumbling(10)), Windowing(windows=Tumbling(10, 3))),
        (Windowing(windows=Sliding(20, 10)), Windowing(windows=Tumbling(10))),
        (Windowing(windows=Session(10)), Windowing(windows=Tumbling(10))),
        (Windowing(windows=Session(10)), Windowing(windows=Session(50))),
        (Windowing(windows=Counted(4, 2)), Windowing(windows=Counted(6, 3))),
        (Windowing(windows=Global(), trigger=AfterCount(2)), Windowing(windows=Tumbling(10), trigger=AfterCount(2))),
        (Windowing(windows=Tumbling(10)), Windowing(windows=Tumbling(10), trigger=AfterCount(2))),
    ],
)
def test_other_windows_than_those_of_the_checkpoint_are_refused(
    before: Windowing, after: Windowing, keyed: bool
) -> None:
    component = Component(declaring(before, keyed=keyed), 2)
    component.of("a").add("a" if keyed else None, 1, 21)
    component.checkpoint()
    component.declare = declaring(after, keyed=keyed)
    for tasks in (2, 1, 3):
        with pytest.raises(CheckpointError, match=r"component 'count': the checkpoint has .*, and the program "):
            component.restart(tasks)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Windowing(windows=Tumbling(10)), Windowing(windows=Sliding(10, 10), lateness_ms=FOREVER)),
        (
            Windowing(windows=Tumbling(10), trigger=AfterCount(5)),
            Windowing(windows=Tumbling(10), trigger=AfterWatermark(early=AfterCount(2)), accumulating=True),
        ),
    ],
)
def test_windows_go_on_with_another_trigger_or_lateness(before: Windowing, after: Windowing) -> None:
    component = Component(declaring(before), 1)
    component.declared[0].add("a", 1, 21)
    component.checkpoint()
    component.declare = declaring(after)
    component.restart(1)
    (engine,) = component.declared
    assert [(pane.span, pane.value) for pane in engine.advance(30)] == [(Span(20, 30), [1])]  # type: ignore[union-attr]
