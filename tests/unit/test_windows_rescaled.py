"""Windows of tasks whose number changes: none of their elements is lost, and none counts twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.bolt.window_state import TaskWindows
from heronpy.api.tuple import Detached, Tuple
from heronpy.state import TaskStates
from heronpy.windows import Count, Duration, Evaluated, TrailingWindows
from tests.unit.state_kit import Component


class Context:
    """Of a task without a topology."""

    def __init__(self, states: TaskStates) -> None:
        self.keyed_state, self.split_state, self.task_state = states.keyed_state, states.split_state, states.task_state
        self.before_snapshot = lambda _save: None  # done by `rescale`

    def get_component_output_fields(self, _component: str, _stream: str) -> tuple[str, ...]:
        return ("number",)


def component(extent: Any, *, event_time: bool, tasks: int) -> Component:
    first_end = 10 if isinstance(extent, Duration) and not event_time else None

    def declare(states: TaskStates) -> TaskWindows:
        return TaskWindows(
            lambda saved, _own: TrailingWindows(
                extent, extent, event_time=event_time, first_end=first_end, saved=saved
            ),
            Context(states),  # type: ignore[arg-type]
            durable=True,
        )

    return Component(declare, tasks)


def rescale(running: Component, tasks: int) -> None:
    for windows in running.declared:
        windows.save()
    running.checkpoint()
    running.restart(tasks)


def number(value: int) -> Tuple:
    return Tuple([value], Detached("numbers", "default", 1, ("number",)), 0)


@settings(max_examples=60)
@given(
    st.sampled_from([Duration(10), Count(3)]),
    st.booleans(),
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 5)),
            st.tuples(st.just("time"), st.integers(1, 9)),
            st.tuples(st.just("tasks"), st.integers(1, 4)),
        ),
        max_size=50,
    ),
)
def test_every_element_is_in_one_tumbling_window(extent: Any, event_time: bool, script: list[tuple[str, int]]) -> None:
    running = component(extent, event_time=event_time, tasks=2)
    windows: list[list[int]] = []
    now, added = 0, 0

    def take(effects: Any) -> None:
        windows.extend([tup["number"] for tup in each.elements] for each in effects if isinstance(each, Evaluated))

    for what, value in script:
        if what == "add":
            tasks = running.declared
            take(tasks[value % len(tasks)].add(number(added), now + (value if event_time else 0)))
            added += 1
        elif what == "time":
            now += value
            for task in running.declared:
                take(task.advance(now))
        else:
            rescale(running, value)
    for task in running.declared:
        take(task.advance(now + 1000))
    kept = [tup["number"] for task in running.declared for _, tup in task.own.waiting()]
    counted = Counter(found for window in windows for found in window)
    assert counted + Counter(kept) == Counter(range(added))
    if isinstance(extent, Count):
        assert all(len(window) == 3 for window in windows)
    assert not any(task._others for task in running.declared)


@pytest.mark.parametrize("tasks", [1, 3])
def test_sliding_windows_of_a_task_that_is_no_more_go_on_to_their_end(tasks: int) -> None:
    def declare(states: TaskStates) -> TaskWindows:
        return TaskWindows(
            lambda saved, _own: TrailingWindows(Duration(20), Duration(10), event_time=True, saved=saved),
            Context(states),  # type: ignore[arg-type]
            durable=True,
        )

    running = Component(declare, 2)
    for task, values in enumerate([(1, 12), (3, 14)]):
        for value in values:
            running.declared[task].add(number(value), value)
    found = [running.declared[0].advance(20), running.declared[1].advance(10)]
    rescale(running, tasks)
    found += [task.advance(time) for time in (20, 30, 100) for task in running.declared]
    windows = [
        (each.end, [tup["number"] for tup in each.elements])
        for effects in found
        for each in effects
        if isinstance(each, Evaluated)
    ]
    assert sorted(windows) == [
        (10, [1]), (10, [3]), (20, [1, 12]), (20, [3, 14]), (30, [12]), (30, [14]),
    ]  # fmt: skip
    rescale(running, 2)
    assert not any(task.advance(1000) for task in running.declared), "nothing is left"
