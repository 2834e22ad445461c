"""Any sequence of reads, writes, markers, slices, commits, aborts and restores: the state equals that of the marker."""

from __future__ import annotations

import copy
import decimal
import enum
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from state_kit import NAME, Component

from heronpy.checkpoints import parts_for
from heronpy.hashing import groups_of
from heronpy.state import KeyedState, TaskStates


class Pair(NamedTuple):
    left: str
    right: int


class Color(enum.Enum):
    RED = 1


KEYS: list[Any] = [*"abcdefgh", *range(6), True, 1.0, decimal.Decimal(2), 2.5, None, b"x", ("a", 1), Pair("a", 1)]
KEYS += [Pair("b", 2), Color.RED, frozenset({1, "a"}), ("nested", ("a", True)), 1 << 70]
VALUES: list[Callable[[], Any]] = [
    lambda: 0,
    lambda: "text",
    lambda: None,
    lambda: (1, 2),
    lambda: [1],
    lambda: {"a": [1]},
    lambda: ([],),
    lambda: Pair("a", 1),
]
keys = st.sampled_from(KEYS)


def declare(states: TaskStates) -> KeyedState:
    return states.keyed_state("values")


class Model(RuleBasedStateMachine):
    """A dict beside a component with state by key."""

    memory_bytes: st.SearchStrategy[int | None] = st.none()

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Any, Any] = {}
        self.committed: dict[Any, Any] = {}
        self.at_marker: dict[Any, Any] = {}
        self.begun = False
        self.changes = 0

    @initialize(tasks=st.integers(1, 4), at_once=st.integers(1, 4), data=st.data())
    def start(self, tasks: int, at_once: int, data: st.DataObject) -> None:
        memory_bytes = data.draw(self.memory_bytes)
        self.component = Component(declare, tasks, at_once=at_once, memory_bytes=memory_bytes)

    def teardown(self) -> None:
        for task in self.component.tasks:
            task.close()

    # --- what user code does

    @rule(some=st.lists(st.tuples(keys, st.sampled_from(VALUES)), min_size=1, max_size=12))
    def put(self, some: list[tuple[Any, Callable[[], Any]]]) -> None:
        for key, value in some:
            self.component.of(key)[key] = value()
            self.model[key] = value()

    @rule(some=st.lists(keys, min_size=1, max_size=8))
    def put_new_lists(self, some: list[Any]) -> None:
        for key in some:
            self.changes += 1
            self.component.of(key)[key] = [self.changes]
            self.model[key] = [self.changes]

    @rule(some=st.lists(keys, min_size=1, max_size=8))
    def delete(self, some: list[Any]) -> None:
        for key in some:
            assert (key in self.component.of(key)) == (key in self.model)
            if key in self.model:
                del self.component.of(key)[key]
                del self.model[key]

    @rule(key=keys)
    def pop_and_change(self, key: Any) -> None:
        self._change(self.component.of(key).pop(key, None))
        self.model.pop(key, None)

    @rule(some=st.lists(keys, min_size=1, max_size=8))
    def read_and_change(self, some: list[Any]) -> None:
        for key in some:
            assert self.component.of(key).get(key) == self.model.get(key)
            self.changes += 1
            self._change(self.component.of(key).get(key))
            self._change(self.model.get(key))

    @rule(key=keys)
    def set_default_and_change(self, key: Any) -> None:
        self.changes += 1
        self._change(self.component.of(key).setdefault(key, []))
        self._change(self.model.setdefault(key, []))

    @rule(pick=st.integers(0, 3))
    def iterate_and_change(self, pick: int) -> None:
        self.changes += 1
        for state in self.component.declared:
            for key, value in state.items():
                if hash(str(key)) % 4 == pick:
                    self._change(value)
                    self._change(self.model[key])

    @precondition(lambda self: self.component.checkpoint_id > 3)
    @rule()
    def clear_one(self) -> None:
        for key in list(self.component.declared[0]):
            del self.model[key]
        self.component.declared[0].clear()

    def _change(self, value: Any) -> None:
        match value:
            case list():
                value.append(self.changes)
            case {"a": list() as inner}:
                inner.append(self.changes)
            case (list() as inner,):
                inner.append(self.changes)

    # --- what the engine does

    @precondition(lambda self: not self.component.writing)
    @rule()
    def marker(self) -> None:
        # Also while it is not known what became of the last checkpoint.
        self.component.begin()
        self.at_marker = copy.deepcopy(self.model)
        self.begun = True

    @precondition(lambda self: self.component.writing)
    @rule(entries=st.integers(1, 5))
    def slice(self, entries: int) -> None:
        self.component.write(entries)

    @rule(others=st.integers(1, 8))
    def commit(self, others: int) -> None:
        if not self.begun:
            self.marker()
        self.component.commit()
        self.committed = self.at_marker
        self.begun = False
        self._check_restored(others)

    @rule(entries=st.integers(0, 20))
    def abort(self, entries: int) -> None:
        if not self.begun:
            self.marker()
        if entries:
            self.component.write(entries)
        self.component.abort()
        self.begun = False

    @rule()
    def late_messages(self) -> None:
        for task in self.component.tasks:
            task.commit(self.component.checkpoint_id - 1)
            task.abort(self.component.checkpoint_id - 1)

    @precondition(lambda self: self.component.manifest is not None)
    @rule(tasks=st.integers(1, 8))
    def restart(self, tasks: int) -> None:
        self.component.restart(tasks)
        self.model = copy.deepcopy(self.committed)
        self.begun = False

    @precondition(lambda self: self.component.manifest is not None)
    @rule(data=st.data(), keep=st.integers(1, 3))
    def compact_and_delete(self, data: st.DataObject, keep: int) -> None:
        manifest = self.component.manifest
        assert manifest is not None
        index = data.draw(st.integers(0, manifest.components[NAME].tasks - 1))
        own = groups_of(index, manifest.components[NAME].tasks, manifest.groups)
        if any(part.ref.since for part in parts_for(manifest.objects, own, manifest.name)):
            self.component.compact(index)
        self.component.retain(keep)

    def _check_restored(self, tasks: int) -> None:
        found: dict[Any, Any] = {}
        types = {}
        for index in range(tasks):
            states = self.component.restored(index, tasks)
            state = declare(states)
            assert not found.keys() & set(state)
            found.update(state)
            types.update({key: type(key) for key in state})
            states.close()
        assert found == self.committed
        for key, kind in types.items():
            assert kind in {type(one) for one in KEYS if one == key}, "an equal key, of one of the types that were used"

    @invariant()
    def live_state_equals_the_model(self) -> None:
        found: dict[Any, Any] = {}
        for task, state in zip(self.component.tasks, self.component.declared, strict=True):
            task.check_invariants()
            found.update(state.copy())  # reading would make everything dirty
        assert found == self.model

    @invariant()
    def every_manifest_that_is_kept_is_complete(self) -> None:
        for manifest in self.component.manifests:
            assert {ref.name for ref in manifest.objects} <= self.component.objects.keys()
            parts_for(manifest.objects, range(manifest.groups), manifest.name)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class SpilledModel(Model):
    """The same with memory for none of what is committed, or for some of it."""

    memory_bytes = st.sampled_from([0, 2_000])


@pytest.mark.skipif(find_spec("lmdb") is None, reason="lmdb is not installed")
class TestSpilledModel(SpilledModel.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
