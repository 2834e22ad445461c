"""Looking into what a checkpoint has of a state, without a task."""

from __future__ import annotations

import sys
import types
from typing import Any

from state_kit import NAME, Component

from heronpy.checkpoints import SavedState, read_saved
from heronpy.state import StoredEntry, TaskStates, Undecoded, stored_entries


def saved(component: Component, state: str) -> SavedState:
    assert component.manifest is not None
    return read_saved(component.manifest, NAME, 0, 1, component.opened).states[state]


def entries(component: Component, state: str) -> list[StoredEntry]:
    return [*stored_entries(saved(component, state))]


def test_keys_of_all_tasks_have_their_newest_values_and_their_types() -> None:
    component = Component(lambda states: states.keyed_state("counts"), 3)
    values: dict[Any, Any] = {"a": 1, 7: [1, 2], ("de", 3): {"x": 1}, "gone": 0}
    for key, value in values.items():
        component.of(key)[key] = value
    component.checkpoint()
    del component.of("gone")["gone"]
    component.of("a")["a"] = values["a"] = 2
    component.checkpoint()
    del values["gone"]
    found = entries(component, "counts")
    assert {one.key: one.value for one in found} == values
    assert {type(one.key) for one in found} == {str, int, tuple}
    assert {one.task for one in found} == {None}


def test_times_of_writes_are_known_where_the_state_keeps_them() -> None:
    component = Component(lambda states: states.keyed_state("counts", ttl_s=10), 1)
    component.of("a")["a"] = 1
    component.checkpoint()
    assert [one.written_ms for one in entries(component, "counts")] == [component.now_ms]


def test_what_each_task_has_is_shown_with_the_task() -> None:
    component = Component(lambda states: states.task_state("position", default=0), 2)
    for index, state in enumerate(component.declared):
        state.value = 10 + index
    component.checkpoint()
    assert [(one.task, one.key, one.value) for one in entries(component, "position")] == [(0, None, 10), (1, None, 11)]


def test_a_value_of_a_class_that_is_not_here_is_shown_as_one_and_hides_no_other() -> None:
    module = types.ModuleType("orders_of_a_topology")
    exec("class Order:\n    pass\n", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        module.Order.__module__ = module.__name__

        def declare(states: TaskStates) -> Any:
            return states.keyed_state("orders")

        component = Component(declare, 1)
        component.of("a")["a"] = module.Order()
        component.of("b")["b"] = 2
        component.checkpoint()
    finally:
        del sys.modules[module.__name__]
    found = {one.key: one.value for one in entries(component, "orders")}
    assert found["b"] == 2
    assert isinstance(found["a"], Undecoded)
    assert "bytes: ModuleNotFoundError: No module named 'orders_of_a_topology'" in repr(found["a"])
