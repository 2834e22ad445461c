"""Live state behaves as a dict, and knows what a checkpoint owes."""

from __future__ import annotations

import decimal
import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from state_kit import GROUPS, Component, Ticks

from heronpy.checkpoints import DELETED, Block
from heronpy.errors import CheckpointError, ConfigError, TopologyError, TupleError, UsageError
from heronpy.hashing import index_of_group, key_group
from heronpy.state import KeyedState, Place, TaskStates

WORDS = [f"word-{n}" for n in range(40)]
UNTOUCHED = {f"untouched-{n}": n for n in range(8)}


def alone(**options: Any) -> tuple[TaskStates, KeyedState]:
    states = TaskStates(Place("words-1", "count", 0, 1, GROUPS))
    return states, states.keyed_state("counts", **options)


def written(states: TaskStates, checkpoint_id: int = 1) -> dict[Any, bytes | None]:
    """Begin a checkpoint and write it; its entries."""
    component = Component(lambda s: None)
    component.tasks = [states]
    component.checkpoint_id = checkpoint_id - 1
    component.begin()
    return entries_of(component)


def write_all(states: TaskStates) -> None:
    while states.pending:
        states.write()


def entries_of(component: Component) -> dict[Any, bytes | None]:
    before = set(component.objects)
    while component.writing:
        component.write()
    found: dict[Any, bytes | None] = {}
    for name in component.objects.keys() - before:
        ref = next(ref for ref in component.refs if ref.name == name)
        for block in component.opened(ref).blocks():
            found.update(zip(block.keys, block.entries.values, strict=True))
    return found


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


def test_a_task_that_declares_no_state_writes_nothing() -> None:
    states = TaskStates(Place("words-1", "count", 0, 1, 16))
    assert not states.begin(1, 0)
    states.commit(1)
    assert not states.begin(2, 0)
    states.check_invariants()


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


@dataclass
class Point:
    x: int


class OneWay:
    """Is written, and cannot be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@pytest.mark.parametrize(
    ("codec", "value", "why"),
    [
        ("pickle", OneWay(), "ValueError: invalid literal for int"),
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
