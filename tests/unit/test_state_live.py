"""Live state behaves as a dict, and knows what a checkpoint owes."""

from __future__ import annotations

import decimal
import enum
import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from live_state import WORDS, alone, written
from state_kit import GROUPS, Component

from heronpy.checkpoints import DELETED, Block
from heronpy.errors import ConfigError, TopologyError, TupleError, UsageError
from heronpy.hashing import index_of_group, key_group
from heronpy.state import KeyedState, Place, TaskStates


def test_it_behaves_as_a_dict() -> None:
    _, state = alone()
    state.update(a=1, b=2)
    assert (len(state), dict(state), list(state), "a" in state, "x" in state) == (
        2,
        {"a": 1, "b": 2},
        ["a", "b"],
        True,
        False,
    )
    assert (state.get("a"), state.get("x"), state.get("x", 7), state.setdefault("c", 3)) == (1, None, 7, 3)
    assert (state.pop("c"), state.pop("c", 9), state.popitem()) == (3, 9, ("a", 1))
    for call in (lambda: state["x"], lambda: state.pop("x"), lambda: state.__delitem__("x")):
        with pytest.raises(KeyError, match="x"):
            call()
    assert state == {"b": 2}
    state.clear()
    assert not state
    assert repr(state) == "<KeyedState 'counts': 0 keys>"


def test_a_default_is_read_and_only_a_mutable_one_is_kept() -> None:
    states, counts = alone(default=0)
    lists = states.keyed_state("lists", default=list)
    numbers = states.keyed_state("numbers", default=int)
    assert (counts["a"], numbers["a"], lists["a"]) == (0, 0, [])
    lists["b"].append(1)
    counts["b"] += 1
    assert (dict(counts), dict(numbers), dict(lists)) == ({"b": 1}, {}, {"a": [], "b": [1]})
    assert counts.get("a") is None
    with pytest.raises(
        TypeError, match=r"state 'shared': all keys would share this list; give a function: default=list"
    ):
        states.keyed_state("shared", default=[])


@pytest.mark.parametrize(
    "use",
    [
        lambda state, key: state[key],
        lambda state, key: state.get(key),
        lambda state, key: key in state,
        lambda state, key: state.__setitem__(key, 1),
        lambda state, key: state.pop(key, None),
        lambda state, key: state.setdefault(key, 1),
        lambda state, key: state.__delitem__(key),
    ],
)
def test_a_key_of_another_task_is_refused_by_name(use: Callable[[KeyedState, str], Any]) -> None:
    state = TaskStates(Place("words-1", "count", 1, 4, GROUPS)).keyed_state("counts", default=0)
    for word in WORDS:
        owner = index_of_group(key_group(word, GROUPS), 4, GROUPS)
        if owner != 1:
            with pytest.raises(
                UsageError, match=f"component 'count', state 'counts': key '{word}' belongs to task {owner}"
            ):
                use(state, word)
    assert dict(state) == {}


def test_a_key_without_a_stable_hash_is_refused() -> None:
    _, state = alone()
    with pytest.raises(TupleError, match="cannot be a grouping key"):
        state[object()] = 1


class Color(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Spot:
    x: float


@dataclass(frozen=True, slots=True)
class Route:
    start: str
    number: int
    stops: tuple[Any, ...]
    note: str = field(default="", compare=False)


class Identity:
    """Equal to nothing but itself."""

    def __stable_key__(self) -> str:
        return "one"

    def __repr__(self) -> str:
        return "Identity()"


@pytest.mark.parametrize(
    "key",
    [
        math.nan,
        (1, math.nan),
        ("a", (math.nan,)),
        decimal.Decimal("nan"),
        complex(0, math.nan),
        frozenset({math.nan}),
        Spot(math.nan),
        np.float64("nan"),
        Identity(),
        decimal.Decimal("1E+5000"),
    ],
    ids=repr,
)
def test_a_key_that_a_restore_would_not_find_again_is_refused_by_name(key: Any) -> None:
    """What is stored under nan before a checkpoint and deleted after it would be there again."""
    states = TaskStates(Place("words-1", "count", 0, 1, GROUPS))
    for state in (states.keyed_state("counts", default=0), states.broadcast_state("seen")):
        for use in (lambda: state.get(key), lambda: state.__setitem__(key, 1), lambda: key in state):  # noqa: B023
            with pytest.raises(TupleError, match=r"a .* cannot be a key"):
                use()
        assert dict(state) == {}


@pytest.mark.parametrize("key", [Spot(0.5), Color.RED, decimal.Decimal("0.5"), frozenset({1}), -0.0, (0.0, True)])
def test_a_key_that_is_equal_to_its_copy_is_taken(key: Any) -> None:
    _, state = alone()
    state[key] = 1
    assert state == {key: 1}


def test_without_checkpoints_nan_is_a_key_as_in_a_dict() -> None:
    state = TaskStates(Place("words-1", "count", 0, 1, GROUPS, lasting=False)).keyed_state("counts", default=0)
    state[math.nan] = 1
    assert list(state.values()) == [1]


def test_more_tasks_than_key_groups_are_refused() -> None:
    with pytest.raises(TopologyError, match="task 0 of 17 with 16 key groups"):
        Place("words-1", "count", 0, 17, GROUPS)


def test_a_name_is_declared_once_and_arguments_are_checked() -> None:
    states, _ = alone()
    with pytest.raises(ConfigError, match="declares two states 'counts'"):
        states.task_state("counts")
    for options in ({"codec": "json"}, {"version": -1}, {"ttl_s": 0}, {"max_keys": 0}):
        with pytest.raises(ConfigError, match="state 'x'"):
            states.keyed_state("x", **options)
    with pytest.raises(ConfigError, match="characters"):
        states.keyed_state("")


def test_what_iteration_hands_out_may_be_changed_in_place() -> None:
    component = Component(lambda states: states.keyed_state("lists"))
    component.declared[0].update({word: [0] for word in WORDS})
    component.checkpoint()
    component.begin()
    for number, (_, value) in enumerate(component.declared[0].items()):
        value.append(number)
    component.commit()
    component.restart(2)
    assert {tuple(value) for state in component.declared for value in state.values()} == {(0,)}
    for state in component.declared:
        for value in state.values():
            value.append(1)
    component.checkpoint()
    component.restart(1)
    assert {tuple(value) for value in component.declared[0].values()} == {(0, 1)}


def test_keys_are_counted_and_iterated_once_whatever_layer_they_are_in() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    state = component.declared[0]
    state.update(dict.fromkeys(WORDS, 1))
    component.checkpoint()
    state.update(dict.fromkeys(WORDS[:10], 2) | {"new": 1})
    component.begin()
    state.update(dict.fromkeys(WORDS[5:12], 3) | {"newer": 1})
    del state[WORDS[7]], state[WORDS[20]], state["new"]
    keys = {*WORDS, "newer"} - {WORDS[7], WORDS[20]}
    assert (len(state), sorted(state), state.keys()) == (len(keys), sorted(keys), keys)
    state.clear()
    assert (len(state), list(state), dict(state.items())) == (0, [], {})


def test_a_ttl_forgets_in_memory_and_in_checkpoints() -> None:
    component = Component(lambda states: states.keyed_state("sessions", ttl_s=10, default=0))
    state = component.declared[0]
    state["a"] = 1
    component.now_ms += 6_000
    state["b"] = 2
    assert component.checkpoint().objects
    component.now_ms += 5_000
    assert (state["a"], state.get("a"), "a" in state, dict(state.items()), len(state)) == (0, None, False, {"b": 2}, 1)
    component.restart(2)
    assert {key: value for state in component.declared for key, value in state.items()} == {"b": 2}
    component.checkpoint()
    component.now_ms += 4_000
    component.restart(1)
    assert len(component.declared[0]) == 1, "its time is that of the write, not that of the restore"
    component.now_ms += 1_000
    assert len(component.declared[0]) == 0
    component.tasks[0].check_invariants()
    component.checkpoint()
    component.compact(0)
    component.checkpoint()
    assert all(not list(component.opened(ref).blocks()) for ref in component.manifest.objects if ref.since == 0)


def test_writes_forget_what_has_expired_so_that_one_shot_keys_leave_nothing() -> None:
    component = Component(lambda states: states.keyed_state("sessions", ttl_s=1))
    state = component.declared[0]
    for number in range(2_000):
        component.now_ms += 100
        state[number] = [number]
        assert len(state.copy()) <= 12
    assert list(state) == list(range(1_990, 2_000))
    for key, _ in state.items():
        component.now_ms += 1_000
        state[f"{key}-again"] = 1  # expires the others while they are iterated
    component.tasks[0].check_invariants()


def test_a_clock_that_jumps_back_expires_nothing_early_and_keeps_the_order() -> None:
    component = Component(lambda states: states.keyed_state("sessions", ttl_s=10))
    state = component.declared[0]
    state["a"] = 1
    component.now_ms -= 500_000
    state["b"] = 1
    component.tasks[0].check_invariants()
    assert set(state) == {"a", "b"}
    component.now_ms += 500_000 + 10_001
    assert set(state) == set()


def test_max_keys_evicts_what_was_not_used_for_the_longest_time() -> None:
    component = Component(lambda states: states.keyed_state("cache", max_keys=3))
    state = component.declared[0]
    for key in "abc":
        component.now_ms += 1
        state[key] = key
    assert state["a"] == "a"
    component.now_ms += 1
    state["d"] = "d"
    assert set(state) == {"c", "a", "d"}
    component.tasks[0].check_invariants()
    component.checkpoint()
    component.restart(1)
    component.declared[0]["e"] = "e"
    assert set(component.declared[0]) == {"c", "d", "e"}, "after a restore, keys were last used when they were written"
    component.tasks[0].check_invariants()


def test_a_bound_that_is_new_holds_for_what_is_restored() -> None:
    component = Component(lambda states: states.keyed_state("cache"))
    component.declared[0].update(dict.fromkeys(range(100), 1))
    component.checkpoint()
    component.declare = lambda states: states.keyed_state("cache", max_keys=10, ttl_s=5)
    component.restart(1)
    assert len(component.declared[0]) == 10
    component.tasks[0].check_invariants()
    component.checkpoint()
    component.restart(1)
    assert len(component.declared[0]) == 10
    component.now_ms += 5_001
    assert len(component.declared[0]) == 0


def test_a_key_that_came_back_after_an_aborted_deletion_can_still_be_deleted() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    state = component.declared[0]
    state.update({"a": 1, "b": 1, "c": 1})
    component.checkpoint()
    state.clear()
    component.begin()
    state["a"] = 2
    component.abort()
    del state["a"]
    component.checkpoint()
    component.restart(1)
    assert component.declared[0] == {}


class Corner(NamedTuple):
    x: int


def test_a_key_that_is_deleted_twice_between_two_markers_stays_deleted() -> None:
    states, state = alone()
    state.update(a=1, b=2, c=3)
    assert written(states)
    states.commit(1)
    states.release()
    del state["a"]
    state["a"] = 4
    del state["a"]
    assert dict(state) == {"b": 2, "c": 3}
    assert written(states, 2) == {"a": DELETED}


def test_keys_come_back_with_their_types() -> None:
    keys = [True, 2.0, 2.5, decimal.Decimal(3), Corner(1), (1, Corner(2)), "text", b"bytes", None, 1 << 80]
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0].update(dict.fromkeys(keys, 0))
    component.checkpoint()
    component.compact(0)
    component.checkpoint()
    component.restart(1)
    assert {repr(key) for key in component.declared[0]} == {repr(key) for key in keys}


@pytest.mark.parametrize("options", [{"ttl_s": 1}, {"max_keys": 60_000}], ids=str)
def test_to_forget_a_key_takes_no_longer_after_many_were_forgotten(options: dict[str, Any]) -> None:
    def least_s(keys: int) -> float:
        now_ms = [0]
        states = TaskStates(Place("words-1", "count"), clock_ms=lambda: now_ms[0])
        state = states.keyed_state("sessions", **options | ({"max_keys": keys} if "max_keys" in options else {}))
        rounds = []
        for key in range(int(1.8 * keys)):
            now_ms[0] = key * 1000 // keys
            if key % 200 == 0:
                rounds.append(time.thread_time())
            state[key] = 0
        return min(after - before for before, after in zip(rounds[-6:], rounds[-5:], strict=False))

    assert least_s(60_000) < 3 * least_s(2_000)


def test_what_was_read_of_a_checkpoint_is_not_kept() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0].update(dict.fromkeys(WORDS, 1))
    component.checkpoint()
    gc.collect()
    of_others = [each for each in gc.get_objects() if isinstance(each, Block)]
    component.restart(1)
    assert dict(component.declared[0]) == dict.fromkeys(WORDS, 1)
    gc.collect()
    assert len([each for each in gc.get_objects() if isinstance(each, Block)]) == len(of_others)


def test_states_that_another_number_of_tasks_cannot_restore_are_named_once_they_have_a_value() -> None:
    one, two = (TaskStates(Place("words-1", "count", 0, tasks, GROUPS)) for tasks in (1, 2))
    for states in (one, two):
        states.task_state("both", split=lambda value, n: [value] * n, merge=sum).value = 1
    total = two.task_state("total", default=0)
    assert (one.undivided, two.undivided) == ("", "")
    total.value = 1
    assert "'total'" in two.undivided


@pytest.mark.parametrize("given", [{"merge": sum}, {"split": lambda value, n: [value] * n}])
def test_a_value_that_can_only_be_merged_or_only_be_split_is_refused_when_it_is_declared(given: Any) -> None:
    states = TaskStates(Place("words-1", "count", 0, 2, GROUPS))
    lacks = {"merge", "split"} - set(given)
    with pytest.raises(ConfigError, match=rf"component 'count', state 'total': it has no {lacks.pop()}"):
        states.task_state("total", **given)


def test_a_codec_that_there_is_not_is_refused_with_component_and_state() -> None:
    states = TaskStates(Place("words-1", "count", 0, 2, GROUPS))
    with pytest.raises(ConfigError, match=r"component 'count', state 'counts': no codec 'json'"):
        states.keyed_state("counts", codec="json")


def test_keys_that_are_dataclasses_come_back_wherever_their_groups_go() -> None:
    keys: list[Any] = [Route("a", n, (n, "x"), note=f"not compared {n}") for n in range(40)]
    keys += [Spot(n / 2) for n in range(5)] + [(Spot(7.5), "b")]
    component = Component(lambda states: states.keyed_state("counts"))
    for _ in range(2):
        for key in keys:
            state = component.of(key)
            state[key] = state.get(key, 0) + 1
        component.checkpoint()
        component.restart(3)
    assert {key: value for state in component.declared for key, value in state.items()} == dict.fromkeys(keys, 2)
    assert {repr(key) for state in component.declared for key in state} == {repr(key) for key in keys}
    for key in (Spot(math.nan), Route("a", 1, (1, Spot(math.nan)))):
        with pytest.raises(TupleError, match="not equal to its own copy"):
            component.of(key)[key] = 1
