"""A key lives for `ttl_s` after its last write, also if its value is mutable, and then a change in place is a write."""

from __future__ import annotations

import copy
import time
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from state_kit import Component

from heronpy.state import Place, TaskStates

TTL_MS = 1_000
IN_DOUBT_MS = TTL_MS // 10
needs_lmdb = pytest.mark.skipif(find_spec("lmdb") is None, reason="lmdb is not installed")


def with_ttl(**options: Any) -> Component:
    return Component(lambda states: states.keyed_state("sessions", ttl_s=TTL_MS / 1000), **options)


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("memory_bytes", [None, pytest.param(0, marks=needs_lmdb)])
def test_who_only_reads_a_mutable_value_does_not_keep_it(checkpoints: bool, memory_bytes: int | None) -> None:
    component = with_ttl(memory_bytes=memory_bytes)
    component.declared[0]["a"] = [1]
    lived_ms = 0
    while component.declared[0].get("a") is not None:
        component.now_ms += 50
        lived_ms += 50
        if checkpoints:
            component.checkpoint()
            component.tasks[0].release()
        assert lived_ms <= TTL_MS + IN_DOUBT_MS
    assert lived_ms >= TTL_MS


def test_restores_do_not_keep_what_is_only_read() -> None:
    component = with_ttl()
    component.declared[0]["a"] = [1]
    lived_ms = 0
    while component.declared[0].get("a") is not None:
        component.now_ms += 50
        lived_ms += 50
        component.checkpoint()
        component.restart(1)
        assert lived_ms <= TTL_MS + IN_DOUBT_MS


@pytest.mark.parametrize("memory_bytes", [None, pytest.param(0, marks=needs_lmdb)])
def test_keys_live_as_long_after_a_restore_on_a_host_whose_clock_is_behind(memory_bytes: int | None) -> None:
    component = with_ttl(memory_bytes=memory_bytes)
    component.declared[0]["a"] = 1
    component.now_ms += TTL_MS // 2
    component.declared[0]["b"] = 1
    component.checkpoint()
    component.now_ms -= 900_000
    component.restart(1)
    component.declared[0]["c"] = 1
    component.now_ms += TTL_MS // 2
    assert sorted(component.declared[0]) == ["b", "c"]
    component.now_ms += TTL_MS // 2
    assert list(component.declared[0]) == []


@pytest.mark.parametrize("memory_bytes", [None, pytest.param(0, marks=needs_lmdb)])
def test_that_all_keys_expire_with_a_restore_is_logged(
    memory_bytes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    component = with_ttl(memory_bytes=memory_bytes)
    component.declared[0]["a"] = 1
    component.checkpoint()
    component.now_ms += TTL_MS - 1
    component.restart(1)
    assert not caplog.text
    component.now_ms += 86_400_000
    component.restart(1)
    assert "component 'count', state 'sessions': by this host's clock the newest of its keys was written" in caplog.text
    assert list(component.declared[0]) == []


def test_setting_the_clock_expires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    states = TaskStates(Place("words-1", "count"))
    state = states.keyed_state("sessions", ttl_s=3600)
    state["a"] = 1
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 86_400 * 10**9)
    assert list(state) == ["a"]


def test_what_is_changed_in_place_lives_on() -> None:
    component = with_ttl()
    state = component.declared[0]
    state["a"] = [0]
    for number in range(1, 40):
        component.now_ms += 900
        state["a"].append(number)
        if number % 3 == 0:
            component.checkpoint()
    assert state["a"] == list(range(40))
    component.now_ms += 1_000
    assert dict(state) == {}


def test_a_key_that_was_read_is_neither_counted_nor_iterated_after_its_time() -> None:
    component = with_ttl()
    state = component.declared[0]
    state.update(a=[1], b=[1])
    component.checkpoint()
    for _ in range(3):
        component.now_ms += 300
        assert state["a"] == [1]
        state["b"].append(1)
    component.now_ms += 100
    assert (len(state), list(state), dict(state.items())) == (1, ["b"], {"b": [1] * 4})
    component.tasks[0].check_invariants()
    component.checkpoint()
    component.restart(1)
    assert dict(component.declared[0]) == {"b": [1] * 4}


def test_a_value_that_cannot_be_saved_is_taken_for_changed() -> None:
    component = with_ttl()
    state = component.declared[0]
    state["a"] = [(each for each in "generators cannot be pickled")]
    for _ in range(30):
        component.now_ms += 100
        assert "a" in state
        assert len(state["a"]) == 1
    component.now_ms += 1_000
    assert "a" not in state


class Model(RuleBasedStateMachine):
    """Values and when each was last written, beside a component."""

    memory_bytes: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, tuple[list[int], int]] = {}
        self.committed: dict[str, tuple[list[int], int]] = {}
        self.at_marker: dict[str, tuple[list[int], int]] = {}
        self.begun = False
        self.changes = 0

    @initialize(at_once=st.integers(1, 4))
    def start(self, at_once: int) -> None:
        self.component = with_ttl(at_once=at_once, memory_bytes=self.memory_bytes)

    def teardown(self) -> None:
        for task in self.component.tasks:
            task.close()

    keys = st.sampled_from("abcdef")

    @rule(ms=st.sampled_from([1, 40, 90, 150, 400, 1_100]))
    def wait(self, ms: int) -> None:
        self.component.now_ms += ms

    @rule(key=keys)
    def put(self, key: str) -> None:
        self.changes += 1
        self.component.of(key)[key] = [self.changes]
        self.model[key] = [self.changes], self.component.now_ms

    @rule(key=keys, change=st.booleans())
    def read(self, key: str, change: bool) -> None:
        value = self.component.of(key).get(key)
        self._compare(key, value)
        if value is not None and change:
            self.changes += 1
            value.append(self.changes)
            self.model[key] = list(value), self.component.now_ms

    @rule()
    def iterate(self) -> None:
        found: dict[str, list[int]] = {}
        for state in self.component.declared:
            count = len(state)
            found.update(state.items())
            assert count == len(state)
        for key in "abcdef":
            self._compare(key, found.get(key))

    @rule(key=keys)
    def delete(self, key: str) -> None:
        self.component.of(key).pop(key, None)
        self.model.pop(key, None)

    def _compare(self, key: str, value: list[int] | None) -> None:
        expected, written_ms = self.model.get(key, (None, 0))
        age_ms = self.component.now_ms - written_ms
        if expected is None or age_ms >= TTL_MS + IN_DOUBT_MS:
            assert value is None
        elif age_ms < TTL_MS:
            assert value == expected
        else:
            assert value in (None, expected)
        if value is None:
            self.model.pop(key, None)

    @precondition(lambda self: not self.component.writing)
    @rule()
    def marker(self) -> None:
        self.component.begin()
        self.at_marker = copy.deepcopy(self.model)
        self.begun = True

    @precondition(lambda self: self.component.writing)
    @rule(entries=st.integers(1, 3))
    def slice(self, entries: int) -> None:
        self.component.write(entries)

    @precondition(lambda self: self.begun)
    @rule()
    def commit(self) -> None:
        self.component.commit()
        self.committed, self.begun = self.at_marker, False

    @precondition(lambda self: self.begun)
    @rule()
    def abort(self) -> None:
        self.component.abort()
        self.begun = False

    @precondition(lambda self: self.component.manifest is not None)
    @rule(tasks=st.integers(1, 3))
    def restart(self, tasks: int) -> None:
        self.component.restart(tasks)
        self.model, self.begun = copy.deepcopy(self.committed), False

    @invariant()
    def times_are_in_order(self) -> None:
        for task in self.component.tasks:
            task.check_invariants()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


class SpilledModel(Model):
    memory_bytes = 0


@needs_lmdb
class TestSpilledModel(SpilledModel.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
