"""Windows of tasks whose number changes: none of their elements is lost, and none counts twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Grouping,
    KeyedWindowBolt,
    Spout,
    StatefulComponent,
    TopologyBuilder,
    TopologyContext,
    TupleWindow,
)
from heronpy.api.bolt.window_state import TaskWindows
from heronpy.api.tuple import Detached, Tuple
from heronpy.errors import CheckpointError
from heronpy.state import TaskStates
from heronpy.testing import Simulator
from heronpy.windows import END, Count, Duration, Evaluated, Pane, TrailingWindows, Tumbling
from tests.unit.state_kit import Component


class Context:
    """Of a task without a topology."""

    def __init__(self, states: TaskStates) -> None:
        self.keyed_state, self.split_state, self.task_state = states.keyed_state, states.split_state, states.task_state
        self.before_snapshot = lambda _save: None  # done by `rescale`

    def get_component_output_fields(self, _component: str, _stream: str) -> tuple[str, ...]:
        return ("number",)


def component(extent: Any, *, event_time: bool, tasks: int, slide: Any = None) -> Component:
    slide = slide or extent
    first_end = 10 if isinstance(slide, Duration) and not event_time else None

    def declare(states: TaskStates) -> TaskWindows:
        return TaskWindows(
            lambda saved, _own: TrailingWindows(extent, slide, event_time=event_time, first_end=first_end, saved=saved),
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


def play(
    running: Component, script: Sequence[tuple[str, int]], take: Callable[[Any], None], *, event_time: bool
) -> tuple[int, int]:
    """Add numbers, have time pass and rescale, as a script says: how many were added, and what time it is then."""
    now, added = 0, 0
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
    return added, now


scripts = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5)),
        st.tuples(st.just("time"), st.integers(1, 9)),
        st.tuples(st.just("tasks"), st.integers(1, 4)),
    ),
    max_size=50,
)
SLIDING = [
    (Count(5), Count(2)),
    (Duration(25), Duration(10)),
    (Count(4), Duration(10)),
    (Duration(20), Count(3)),
]


@settings(max_examples=300)
@given(st.sampled_from(SLIDING), st.booleans(), scripts)
def test_an_element_comes_into_sliding_windows_once_and_leaves_them_once(
    of: tuple[Any, Any], event_time: bool, script: list[tuple[str, int]]
) -> None:
    length, slide = of
    running = component(length, slide=slide, event_time=event_time, tasks=2)
    seen, new, gone, expired = set[int](), Counter[int](), Counter[int](), Counter[int]()

    def take(effects: Any) -> None:
        for each in effects:
            if isinstance(each, Evaluated):
                seen.update(tup["number"] for tup in each.elements)
                new.update(tup["number"] for tup in each.new)
                gone.update(tup["number"] for tup in each.gone)
            else:
                expired.update(tup["number"] for tup in each.elements)

    added, _ = play(running, [*script, *[("time", 10)] * 10], take, event_time=event_time)
    assert seen == set(new)
    assert max([*new.values(), *gone.values(), *expired.values()], default=1) == 1
    waiting = {tup["number"] for task in running.declared for _, tup in task.own.waiting()}
    if type(length) is type(slide):  # else windows need not have all elements
        assert seen | waiting == {*range(added)}
        assert not seen & waiting


@settings(max_examples=60)
@given(st.sampled_from([Duration(10), Count(3)]), st.booleans(), scripts)
def test_every_element_is_in_one_tumbling_window(extent: Any, event_time: bool, script: list[tuple[str, int]]) -> None:
    running = component(extent, event_time=event_time, tasks=2)
    windows: list[list[int]] = []

    def take(effects: Any) -> None:
        windows.extend([tup["number"] for tup in each.elements] for each in effects if isinstance(each, Evaluated))

    added, now = play(running, script, take, event_time=event_time)
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


class Given(Spout, StatefulComponent):
    """What a test gives it."""

    outputs = ["at"]  # noqa: RUF012  # Heron's way to declare
    given: ClassVar[list[int]] = []
    over: ClassVar[bool] = False

    def init_state(self, state: Any) -> None:
        self.state = state

    def pre_save(self, checkpoint_id: str) -> None:
        """Nothing."""

    def next_tuple(self) -> None:
        if self.over:
            self.send_watermark(END)
        at = self.state.get("next", 0)
        if at < len(self.given):
            self.state["next"] = at + 1
            self.emit([self.given[at]])


class Whole(BaseWindowedBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        self.emit([[tup["at"] for tup in window.get()]])


class Numbers(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.found = context.task_state("found", default=list)

    def process(self, tup: Tuple) -> None:
        late = tup.stream == "late"
        self.found.value += [("late", tup["late_tuple"]["at"])] if late else [("window", at) for at in tup["numbers"]]
        self.ack(tup)


def test_a_task_that_comes_back_knows_what_was_late_while_its_windows_were_another_tasks() -> None:
    builder = TopologyBuilder("rescaled")
    source = builder.add_spout("source", Given, 1)
    windows = Whole.with_tumbling_window(Duration(10)).with_timestamp_field("at").with_late_tuple_stream("late")
    own = {"topology.bolts.watermark.event.interval.ms": 1}
    whole = builder.add_bolt("windows", windows, 2, {source: Grouping.SHUFFLE}, own)
    builder.add_bolt("numbers", Numbers, 1, {whole: Grouping.SHUFFLE, whole["late"]: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    Given.given = [*range(58)]
    with Simulator(builder) as simulator:

        def found() -> list[tuple[str, int]]:
            return list(simulator.component("numbers")[0].found.value)

        def rescaled(tasks: int) -> None:
            simulator.drain()
            simulator.checkpoint()
            simulator.restore({"windows": tasks})

        simulator.run(until=lambda: len(found()) >= 50, seconds=60)
        rescaled(1)
        rescaled(2)
        Given.given = [*range(58), 11, 12, *range(60, 100)]
        simulator.run(until=lambda: len(found()) >= 58 + 2 + 30, seconds=60)
        assert Counter(found()) == Counter(
            [("late", 11), ("late", 12), *(("window", at) for at in (*range(58), *range(60, 90)))]
        )


class Panes(KeyedWindowBolt):
    outputs = ["numbers"]  # noqa: RUF012

    def value(self, tup: Tuple) -> Any:
        return tup["at"]

    def on_pane(self, pane: Pane) -> None:
        self.emit([list(pane.value)])


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_windows_that_came_from_other_tasks_fire_when_the_input_ends(
    before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = TopologyBuilder("ended")
    source = builder.add_spout("source", Given, 1, {"topology.component.watermark.field": "at"})
    own = {"topology.bolts.watermark.event.interval.ms": 1}
    panes = Panes.with_windows(Tumbling(10)).with_timestamp_field("at")
    keyed = builder.add_bolt("windows", panes, before, {source: Grouping.fields("at")}, own)
    builder.add_bolt("numbers", Numbers, 1, {keyed: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    monkeypatch.setattr(Given, "given", [*range(25)])
    with Simulator(builder) as simulator:
        simulator.run(until=lambda: simulator.total("__execute-count/source/default") >= 25, seconds=60)
        simulator.drain()
        simulator.checkpoint()
        simulator.restore({"windows": after})
        monkeypatch.setattr(Given, "over", True)

        def found() -> list[int]:
            return sorted(at for _, at in simulator.component("numbers")[0].found.value)

        simulator.run(until=lambda: len(found()) >= 20, seconds=30)
        assert found() == list(range(20))


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize(
    ("extent", "slide", "event_time"),
    [
        (Count(10), Count(2), False),
        (Count(9), Count(5), False),
        (Count(10), Duration(5), False),
        (Duration(10), Count(5), False),
        (Count(10), Count(5), True),
    ],
)
def test_other_windows_than_those_of_the_checkpoint_are_refused(
    extent: Any, slide: Any, event_time: bool, tasks: int
) -> None:
    running = component(Count(10), slide=Count(5), event_time=False, tasks=2)
    for task in running.declared:
        for value in range(3):
            task.add(number(value), value)
    running.declare = component(extent, slide=slide, event_time=event_time, tasks=1).declare
    with pytest.raises(CheckpointError, match=r"component 'count': the checkpoint has .*, and the program "):
        rescale(running, tasks)
