"""An operator does the same to elements that come one by one and to those that come in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.state import HashMapState
from heronpy.api.tuple import Detached
from heronpy.streamlet.graph import EventTimeNode, FilterNode, FlatMapNode, JoinType, MapNode, Node, RepartitionNode
from heronpy.streamlet.operators import (
    Operator,
    Place,
    Transform,
    TransformContext,
    Transformer,
    copies,
    joined,
    operator_of,
    partitions_of,
)
from heronpy.windows import Clock

Row = tuple[Any, int]
"""(element, time in ms)"""


class Task:
    """Sets aside what fails."""

    def __init__(self) -> None:
        self.place = Place()
        self.refused: list[tuple[str, Any, int, str]] = []

    def failed(self, stage: str, element: Any, error: Exception) -> None:
        self.chunk_failed(stage, element, self.place.time_ms, error)

    def chunk_failed(self, stage: str, element: Any, time_ms: int, error: Exception) -> None:
        self.refused.append((stage, element, time_ms, repr(error)))

    def clock_of(self, stage: str) -> Clock:
        return Clock(0, None, 0)


def by_element(operator: Operator, rows: list[Row], *, ided: bool) -> tuple[list[Row], list[Any]]:
    task, out = Task(), []
    put = operator.by_element(lambda element: out.append((element, task.place.time_ms)), task, ided=ided)
    for element, task.place.time_ms in rows:
        put(element)
    return out, task.refused


def by_chunk(operator: Operator, rows: list[Row]) -> tuple[list[Row], list[Any]]:
    task, out = Task(), []

    def then(values: list[Any], times: Any) -> None:
        out.extend(zip(values, [times] * len(values) if isinstance(times, int) else times, strict=True))

    push = operator.by_chunk(then, task.chunk_failed)
    values, times = [value for value, _ in rows], [time for _, time in rows]
    push(values, times[0] if times and len(set(times)) == 1 else times)
    return out, task.refused


class Context(TransformContext):
    """Of an operator in no task."""

    def get_task_id(self) -> int:
        return 0

    def get_config(self) -> dict[str, Any]:
        return {}

    def get_stream_name(self) -> str:
        return "s"

    def get_num_partitions(self) -> int:
        return 1

    def get_partition_index(self) -> int:
        return 0

    def get_state(self) -> HashMapState:
        return HashMapState()


class Running:
    """Emits what it has seen so far, often; fails half-way at a 3, and emits two values at once at a 4."""

    def setup(self, context: Any) -> None:
        self._context, self._total = context, 0

    def transform(self, tup: Any) -> None:
        (number,) = tup.values
        self._total += number
        self._context.emit([self._total])
        if number == 3:
            raise ValueError("three")
        self._context.emit([number, number] if number == 4 else [-number])


def transform() -> Operator:
    return Transform("s", Transformer(Running(), Context, Detached("c", "s", 0)))


def of_node(kind: type[Node], function: Callable[[Any], Any]) -> Callable[[], Operator]:
    def make() -> Operator:
        operator = operator_of(kind(parents=(), name="s", function=function))  # type: ignore[call-arg]
        assert operator is not None
        return operator

    return make


def repartition(function: Callable[[Any], Any]) -> Callable[[], Operator]:
    return lambda: copies(RepartitionNode(parents=(), name="s", partitions=3, function=function))


def _first_of(n: int) -> int:
    return next(i for i in range(n) if i > 1)  # StopIteration, if there is none


OPERATORS = {
    "map": of_node(MapNode, lambda n: 12 // n),
    "filter": of_node(FilterNode, lambda n: 12 // n % 2),
    "filter by what has no truth": of_node(FilterNode, lambda n: np.arange(n)),
    "flat_map": of_node(FlatMapNode, lambda n: range(n) if n % 3 else None),
    "flat_map that fails half-way": of_node(FlatMapNode, lambda n: (12 // (2 - i) for i in range(n))),
    "map that finds nothing": of_node(MapNode, _first_of),
    "filter that finds nothing": of_node(FilterNode, _first_of),
    "flat_map that finds nothing": of_node(FlatMapNode, lambda n: range(_first_of(n))),
    "event_time that finds nothing": of_node(EventTimeNode, _first_of),
    "event_time": of_node(EventTimeNode, lambda n: 1e15 if n == 3 else n),
    "transform": transform,
    "repartition": repartition(lambda n: n),
    "repartition to several": repartition(lambda n: [[], {0, 1}, (0, 0), True, "2"][n]),
}


@pytest.mark.parametrize("name", OPERATORS)
@given(
    numbers=st.lists(st.integers(0, 4), max_size=8),
    times=st.lists(st.integers(0, 3), min_size=8),
    ided=st.booleans(),
)
def test_both_forms_of_an_operator_agree(name: str, numbers: list[int], times: list[int], ided: bool) -> None:
    rows = list(zip(numbers, times, strict=False))
    assert by_chunk(OPERATORS[name](), rows) == by_element(OPERATORS[name](), rows, ided=ided)


@pytest.mark.parametrize(
    ("name", "number", "reason"),
    [
        ("filter by what has no truth", 2, "truth value"),
        ("repartition", 3, "3 is not a partition: there are 0 to 2"),
        ("repartition to several", 3, "True is not a partition"),
        ("transform", 4, "too many values"),
    ],
)
def test_an_element_that_one_form_refuses_is_refused_by_the_other(name: str, number: int, reason: str) -> None:
    rows = [(1, 5), (number, 5)]
    for out, refused in (by_chunk(OPERATORS[name](), rows), by_element(OPERATORS[name](), rows, ided=False)):
        ((stage, element, time_ms, error),) = refused
        assert (stage, element, time_ms) == ("s", number, 5)
        assert reason in error
        assert all(time == 5 for _, time in out)


@pytest.mark.parametrize("kind", [MapNode, FilterNode, FlatMapNode, EventTimeNode])
def test_a_function_that_changes_elements_gets_each_once(kind: type[Node]) -> None:
    def change(element: list[int]) -> Any:
        element[0] += 1
        made = 12 // (element[0] - 3)
        return [element] if kind is FlatMapNode else made

    def rows() -> list[Row]:
        return [([n], 5) for n in range(4)]

    made = by_chunk(of_node(kind, change)(), rows())
    assert made == by_element(of_node(kind, change)(), rows(), ided=False)


def test_a_set_of_partitions_is_several() -> None:
    assert sorted(partitions_of(lambda _: {0, 2}, "e", 3)) == [0, 2]
    assert by_chunk(repartition(lambda _: {0, 2})(), [("e", 1)]) == ([("e", 1)] * 2, [])


@pytest.mark.parametrize(
    ("how", "without_right", "without_left"),
    [
        (JoinType.INNER, [], []),
        (JoinType.OUTER_LEFT, [("a", None), ("b", None)], []),
        (JoinType.OUTER_RIGHT, [], [(None, "x"), (None, "y")]),
        (JoinType.OUTER, [("a", None), ("b", None)], [(None, "x"), (None, "y")]),
    ],
)
def test_a_join_keeps_the_sides_that_it_says(how: JoinType, without_right: list[Any], without_left: list[Any]) -> None:
    pairs = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert list(joined(how, ["a", "b"], ["x", "y"], None)) == pairs
    assert list(joined(how, ["a", "b"], [], None)) == without_right
    assert list(joined(how, [], ["x", "y"], None)) == without_left
