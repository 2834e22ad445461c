"""What a checkpoint has of live state, and what cannot be in one."""

from __future__ import annotations

import decimal
import sys
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hostile_objects import ERRORS
from live_state import UNTOUCHED, WORDS, alone, write_all, written
from state_kit import Component, Ticks

from heronpy.checkpoints import DELETED
from heronpy.errors import CheckpointError
from heronpy.state import Place, TaskStates


def test_a_checkpoint_has_the_values_of_the_marker() -> None:
    component = Component(lambda states: states.keyed_state("values"))
    state = component.declared[0]
    state.update({"set": 1, "mutated": [1], "deleted": 1, "deleted-list": [1], "popped": [1], "untouched": (1, [2])})
    component.begin()
    state["set"] = 2
    state["mutated"].append(2)
    del state["deleted"]
    del state["deleted-list"]
    state.pop("popped").append(2)
    state["new"] = 1
    component.commit()
    component.restart(1)
    marker = {"set": 1, "mutated": [1], "deleted": 1, "deleted-list": [1], "popped": [1], "untouched": (1, [2])}
    assert component.declared[0] == marker


def test_reading_what_cannot_change_costs_no_entry() -> None:
    class Point(NamedTuple):
        x: int
        y: decimal.Decimal

    states, state = alone()
    free = {"a": 1, "b": "x", "c": (1, ("y", None)), "d": Point(1, decimal.Decimal(2)), "e": frozenset({1})}
    state.update({**free, "f": [1], "g": (1, [2])})
    written(states)
    states.commit(1)
    for key in free:
        assert state[key] == free[key]
    assert not states.begin(2, 0)
    assert (state["f"], state["g"]) == ([1], (1, [2]))
    assert written(states, 3).keys() == {"f", "g"}


def test_a_checkpoint_has_what_changed_since_the_last_committed_one() -> None:
    states, state = alone()
    state.update({"a": 1, "b": 1, "c": 1} | UNTOUCHED)
    assert written(states, 1).keys() == {"a", "b", "c"} | UNTOUCHED.keys()
    states.commit(1)
    state["a"] = 2
    del state["b"]
    state["short-lived"] = 1
    del state["short-lived"]
    assert {key: value == DELETED for key, value in written(states, 2).items()} == {"a": False, "b": True}
    states.abort(2)
    state["c"] = 2
    assert written(states, 3).keys() == {"a", "b", "c"}, "an aborted checkpoint gives its changes back"
    states.commit(3)
    assert not states.begin(4, 0)
    states.commit(4)
    state["a"] = 3
    assert written(states, 5).keys() == {"a"}


def test_a_marker_that_comes_before_the_last_checkpoint_is_decided_covers_it() -> None:
    states, state = alone()
    state["a"] = 1
    written(states, 1)
    state["b"] = 1
    assert written(states, 2).keys() == {"a", "b"}
    states.commit(1)
    states.abort(2)
    assert written(states, 3).keys() == {"a", "b"}, "nothing was committed that the task was told of in time"
    states.commit(3)
    assert not states.begin(4, 0)


def test_slices_end_at_their_budget_whatever_the_size_of_the_state() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0].update(dict.fromkeys(range(1000), "x" * 100))
    component.begin()
    assert component.tasks[0].pending
    slices = 0
    while component.writing:
        before = component.clock.now
        component.write(10)
        assert component.clock.now - before <= 14
        slices += 1
    assert slices > 90


@pytest.mark.parametrize("share", [4, 1])
def test_what_was_committed_is_moved_and_freed_in_slices(share: int) -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0].update(dict.fromkeys(range(10_000), 1))
    component.checkpoint()
    component.declared[0].update(dict.fromkeys(range(10_000 // share), 2))
    component.begin()
    while component.writing:
        component.write()
    component.tasks[0].commit(2)
    clock = Ticks()
    slices = 0
    while not component.tasks[0].release(1, clock):
        component.tasks[0].check_invariants()
        slices += 1
    assert slices > 5
    assert dict(component.declared[0]) == dict.fromkeys(range(10_000), 1) | dict.fromkeys(range(10_000 // share), 2)


def test_if_most_keys_have_changed_all_are_written_so_that_nothing_is_merged() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    state = component.declared[0]
    state.update(dict.fromkeys(WORDS, 1))
    component.checkpoint()
    state.update(dict.fromkeys(WORDS[:10], 2))
    assert [ref.since for ref in component.checkpoint().objects] == [0, 1]
    state.update(dict.fromkeys(WORDS[:20], 3))
    del state[WORDS[30]]
    expected = dict(state)
    component.begin()
    state[WORDS[0]] = 4
    del state[WORDS[35]]
    (ref,) = component.commit().objects
    assert ref.since == 0
    assert {key for block in component.opened(ref).blocks() for key in block.keys} == expected.keys()
    component.restart(2)
    assert {key: value for each in component.declared for key, value in each.items()} == expected


def hot() -> Component:
    """A component most of whose keys change between two checkpoints, with a marker that has just come."""
    component = Component(lambda states: states.keyed_state("counts"))
    state = component.declared[0]
    state.update(dict.fromkeys(WORDS, 1))
    component.checkpoint()
    state.update(dict.fromkeys(WORDS[:30], 2))
    del state[WORDS[39]]
    component.begin()
    return component


@pytest.mark.parametrize("slices", [0, 5, 35, 60])
@pytest.mark.parametrize("aborted", [False, True])
def test_a_layer_that_is_written_in_place_has_the_values_of_the_marker(slices: int, aborted: bool) -> None:
    component = hot()
    state = component.declared[0]
    marker = dict.fromkeys(WORDS, 1) | dict.fromkeys(WORDS[:30], 2)
    del marker[WORDS[39]]
    for _ in range(slices):
        component.write(1)
    changes = {WORDS[0]: 3, WORDS[29]: [4], WORDS[30]: 5, WORDS[38]: 6, WORDS[39]: 7, "new": 8}
    state.update(changes)
    del state[WORDS[1]], state[WORDS[31]]
    state[WORDS[1]] = 9
    live = marker | changes | {WORDS[1]: 9}
    del live[WORDS[31]]
    assert (dict(state), len(state), sorted(state)) == (live, len(live), sorted(live))
    state[WORDS[29]].append(10)
    expected = marker
    if aborted:
        component.abort()
        component.begin()
        expected = live | {WORDS[29]: [4, 10]}
        state[WORDS[2]] = 11
    component.commit()
    component.tasks[0].check_invariants()
    assert dict(state) == live | {WORDS[29]: [4, 10]} | ({WORDS[2]: 11} if aborted else {})
    component.restart(2)
    assert {key: value for each in component.declared for key, value in each.items()} == expected


def test_changes_are_told_apart_again_after_some_bases_or_when_little_changes() -> None:
    component = hot()
    state = component.declared[0]
    since = []
    for number in range(40):
        state[WORDS[number % 7]] = number
        del state[WORDS[number % 8 + 10]]
        since.append(component.commit().objects[-1].since)
        state[WORDS[number % 8 + 10]] = 0
        component.begin()
    assert since == [0] * 33 + list(range(34, 41))
    component.commit()
    live = dict(state)
    component.restart(2)
    assert {key: value for each in component.declared for key, value in each.items()} == live

    component = hot()
    since = []
    for number in range(3):
        since.append(component.commit().objects[-1].since)
        component.declared[0][WORDS[0]] = number
        component.begin()
    assert since == [0, 0, 3]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("holds a\nsocket")


@pytest.mark.parametrize("value", [Unpicklable(), threading.Lock(), [threading.Lock()]])
def test_a_value_that_cannot_be_saved_fails_the_checkpoint_by_name_and_nothing_else(value: Any) -> None:
    states, state = alone()
    state.update({"good": 1, "bad": value})
    states.begin(1, 0)
    with pytest.raises(
        CheckpointError, match=r"component 'count', state 'counts': the value of key 'bad', a \w+, cannot"
    ) as e:
        write_all(states)
    assert "\n" not in str(e.value)
    assert not states.pending
    states.abort(1)
    states.check_invariants()
    state["bad"] = "mended"
    assert written(states, 2).keys() == {"good", "bad"}


@pytest.mark.parametrize("slices", [1, 3, 1 << 30])
def test_behind_others_of_its_type_too_a_value_is_that_of_the_marker_or_fails_the_checkpoint(slices: int) -> None:
    component = Component(lambda states: states.keyed_state("lists"), at_once=16)
    (state,) = component.declared
    state.update({word: [word] for word in WORDS})
    component.begin()
    while component.writing:
        component.write(slices)
        for value in state.values():
            value.append("later")
    component.commit()
    component.restart(1)
    assert component.declared[0] == {word: [word] for word in WORDS}
    (states,), (state,) = component.tasks, component.declared
    state.update({word: [1] for word in WORDS} | {WORDS[-1]: [threading.Lock()]})
    states.begin(2, 0)
    with pytest.raises(CheckpointError, match=f"the value of key '{WORDS[-1]}', a list, cannot"):
        write_all(states)


def test_a_value_that_cannot_be_saved_when_it_is_read_does_not_fail_the_reader() -> None:
    states, state = alone()
    state["bad"] = [threading.Lock()]
    states.begin(1, 0)
    state["bad"].append(1)
    with pytest.raises(CheckpointError, match="key 'bad'"):
        states.write()
    assert len(state["bad"]) == 2


def test_what_only_cloudpickle_can_save_is_saved() -> None:
    component = Component(lambda states: states.keyed_state("functions"))
    factor = 3
    component.declared[0]["triple"] = lambda x: factor * x
    component.checkpoint()
    component.restart(1)
    assert component.declared[0]["triple"](5) == 15


def test_a_task_that_declares_no_state_writes_nothing() -> None:
    states = TaskStates(Place("words-1", "count", 0, 1, 16))
    assert not states.begin(1, 0)
    states.commit(1)
    assert not states.begin(2, 0)
    states.check_invariants()


@dataclass
class Point:
    x: int


class OneWay:
    """Is written, and cannot be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class Leaving:
    """Is written, and ends the process that reads it."""

    def __reduce__(self) -> Any:
        return sys.exit, (3,)


class Unwritten:
    """Raises when it is written."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(3), *(each() for each in ERRORS)], ids=lambda error: type(error).__name__)
def test_whatever_a_value_raises_when_it_is_written_fails_the_checkpoint_and_names_it(
    error: BaseException,
) -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0]["bad"] = Unwritten(error)
    with pytest.raises(
        CheckpointError, match=f"the value of key 'bad', a Unwritten, .*{type(error).__name__}"
    ) as named:
        component.checkpoint()
    assert len(str(named.value)) < 5000


@pytest.mark.parametrize(
    ("codec", "value", "why"),
    [
        ("pickle", OneWay(), "ValueError: invalid literal for int"),
        ("pickle", Leaving(), "SystemExit: 3"),
        ("msgpack", Point(1), "msgpack brings back dict"),
        ("msgpack", {"a": [(1, {2, 3})]}, "msgpack brings back dict"),
    ],
)
def test_what_cannot_be_read_back_fails_the_first_checkpoint_and_names_the_key(
    codec: str, value: object, why: str
) -> None:
    component = Component(lambda states: states.keyed_state("counts", codec=codec))
    component.declared[0]["fine"] = [1]
    component.checkpoint()
    component.declared[0]["bad"] = value
    for _ in range(2):
        named = rf"component 'count', state 'counts': the value of key 'bad', a \w+, cannot be saved as {codec}: "
        with pytest.raises(CheckpointError, match=named + ".*cannot be read back: .*" + why):
            component.checkpoint()
    component.declared[0]["bad"] = {"a": [(1, None)], "b": float("nan"), 3: b"x"}
    component.checkpoint()
    component.restart(1)
    assert component.declared[0].keys() == {"fine", "bad"}


@pytest.mark.parametrize(
    ("split", "merge", "why"),
    [
        (lambda value, n: [value], max, "its split made 1 values for 3 tasks"),
        (lambda value, n: [value] * n, lambda values: 1 / 0, "its split or merge failed: ZeroDivisionError"),
    ],
)
def test_a_split_or_merge_that_fails_is_found_at_the_first_checkpoint(split: Any, merge: Any, why: str) -> None:
    component = Component(lambda states: states.task_state("model", split=split, merge=merge), 2)
    component.checkpoint()
    component.declared[1].value = [1]
    with pytest.raises(CheckpointError, match=f"component 'count', state 'model': {why}"):
        component.checkpoint()


def test_split_and_merge_are_tried_with_a_copy() -> None:
    def split(value: list[int], n: int) -> list[list[int]]:
        return [[value.pop()] for _ in range(n)]

    def merge(values: Any) -> list[int]:
        return [each for value in values for each in value]

    component = Component(lambda states: states.task_state("model", split=split, merge=merge))
    component.declared[0].value = [1, 2, 3]
    component.checkpoint()
    assert component.declared[0].value == [1, 2, 3]


@dataclass(unsafe_hash=True)
class Changing:
    """A key that can be changed, and so should not be one."""

    number: int


class OfOtherCode:
    """A key that newer code compares in another way."""

    version = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def __stable_key__(self) -> tuple[str, int]:
        return self.name, self.version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OfOtherCode) and self.__stable_key__() == other.__stable_key__()

    def __hash__(self) -> int:
        return hash(self.__stable_key__())


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize("owner", [0, 1])
def test_a_key_that_was_changed_after_it_was_entered_fails_the_checkpoint_by_name(base: bool, owner: int) -> None:
    place = Place("words-1", "count", 0, 2)
    states = TaskStates(place)
    state = states.keyed_state("counts", default=0)
    own = [n for n in range(100) if place.group_of(Changing(n)) in place.own]
    keys = [Changing(n) for n in own]
    for key in keys:
        state[key] += 1
    if not base:
        written(states, 1)
        states.commit(1)
        state[keys[0]] += 1
    keys[0].number = next(n for n in range(100, 200) if (place.group_of(Changing(n)) in place.own) is (owner == 0))
    states.begin(2, 0)
    with pytest.raises(CheckpointError, match=r"'count', state 'counts': key Changing\(number=\d+\) has been changed"):
        write_all(states)
    states.abort(2)
    assert state[keys[1]] == 1, "what is there goes on"


def test_a_key_that_is_another_one_for_newer_code_is_refused_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    component = Component(lambda states: states.keyed_state("counts", default=0))
    for name in WORDS:
        component.declared[0][OfOtherCode(name)] = 1
    component.begin()
    while component.writing:
        component.write(1 << 30)
    component.commit()
    component.restart(1)
    assert component.declared[0][OfOtherCode(WORDS[0])] == 1
    monkeypatch.setattr(OfOtherCode, "version", 2)
    with pytest.raises(CheckpointError, match=r"is another one than when it was saved, as .*OfOtherCode compares"):
        component.restart(1)
