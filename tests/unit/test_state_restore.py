"""What task i of m restores of a checkpoint that n tasks wrote; versions, codecs, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_kit import GROUPS, NAME, Component

from heronpy.checkpoints import BytesSource, ObjectReader, ObjectRef, read_saved
from heronpy.errors import CheckpointError, UsageError
from heronpy.state import Place, TaskStates

WORDS = [f"word-{n}" for n in range(200)]
FILES = [f"part-{n}.csv" for n in range(20)]


def all_of(component: Component) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for state in component.declared:
        assert not found.keys() & state.keys()
        found.update(state)
    return found


def count(component: Component, words: list[str]) -> None:
    for word in words:
        component.of(word)[word] += 1


@settings(max_examples=20)
@given(st.lists(st.integers(1, GROUPS), min_size=2, max_size=6), st.data())
def test_counts_are_exact_through_any_rescaling(tasks: list[int], data: st.DataObject) -> None:
    component = Component(lambda states: states.keyed_state("counts", default=0), tasks[0])
    expected: Counter[str] = Counter()
    for number in tasks[1:]:
        words = data.draw(st.lists(st.sampled_from(WORDS), max_size=100))
        count(component, words)
        expected.update(words)
        component.checkpoint()
        count(component, WORDS[:50])  # is lost with the tasks
        component.restart(number)
        assert all_of(component) == expected


def test_two_to_three_to_eight_to_one_is_exact() -> None:
    component = Component(lambda states: states.keyed_state("counts", default=0), 2)
    for round_, tasks in enumerate((3, 8, 1), 1):
        count(component, WORDS)
        component.checkpoint()
        count(component, WORDS[::2])
        component.checkpoint()
        component.restart(tasks)
        assert all_of(component) == {word: round_ * (2 if n % 2 == 0 else 1) for n, word in enumerate(WORDS)}


def test_states_that_are_kept_belong_to_the_generation_of_the_checkpoint_that_others_go_back_to() -> None:
    component = Component(lambda states: states.keyed_state("counts", default=0), 2)
    for _ in range(2):
        count(component, WORDS)
        component.checkpoint()
    component.restart(3)
    older, newest = (read_saved(each, NAME, 0, 3, component.opened) for each in component.manifests[-2:])
    assert older.generation != newest.generation, "the number of tasks has changed behind the one or the other"
    states, expected = component.tasks[0], dict(component.declared[0])
    states.keep(older)
    assert states.begin(9, 0)
    ref = None
    data = []
    while ref is None:
        pieces, ref = states.write()
        data += pieces
    assert (ref.generation, ref.since) == (older.generation, 0)
    found: dict[Any, Any] = {}
    for block in ObjectReader(BytesSource(ref.name, b"".join(data))).blocks():
        found.update(zip(block.keys, block.entries.values, strict=True))
    assert found == expected


def test_a_task_reads_only_the_groups_that_it_takes_over() -> None:
    component = Component(lambda states: states.keyed_state("counts", default=0), 2)
    count(component, WORDS)
    manifest = component.checkpoint()
    opened: list[str] = []

    def noting(ref: ObjectRef) -> Any:
        opened.append(ref.name)
        return component.opened(ref)

    saved = read_saved(manifest, NAME, 3, 4, noting)
    # The last object is opened for its keys, both for what is not divided by key.
    assert sum(len(block.keys) for block in saved.states["counts"].blocks) < len(WORDS) / 2
    opened.clear()
    read_saved(manifest, NAME, 1, 2, noting)
    assert len(opened) == 1


def test_splits_are_divided_again_and_finished_ones_stay_finished() -> None:
    component = Component(lambda states: states.split_state("offsets"), 3)

    def owned() -> dict[str, int]:
        owner = {file: [n for n, state in enumerate(component.declared) if state.owns(file)] for file in FILES}
        assert all(len(indexes) == 1 for indexes in owner.values())
        return {file: indexes[0] for file, indexes in owner.items()}

    for number, file in enumerate(FILES):
        component.declared[owned()[file]][file] = {"line": number}
    component.declared[owned()[FILES[3]]].finish(FILES[3])
    component.checkpoint()
    component.declared[owned()[FILES[4]]][FILES[4]]["line"] = 77
    component.checkpoint()
    for tasks in (2, 5, 1, 5):
        component.restart(tasks)
        found = {file: position["line"] for state in component.declared for file, position in state.items()}
        assert found == {file: 77 if n == 4 else n for n, file in enumerate(FILES) if n != 3}
        assert component.declared[owned()[FILES[3]]].is_finished(FILES[3])
        assert FILES[3] not in component.declared[owned()[FILES[3]]]
        component.checkpoint()
        for index in range(tasks):
            component.compact(index)
        component.checkpoint()


def test_splits_by_number_go_to_that_number_modulo_the_tasks() -> None:
    component = Component(lambda states: states.split_state("partitions", index=lambda partition: partition), 2)
    for partition in range(7):
        component.declared[partition % 2][partition] = 10 * partition
    with pytest.raises(UsageError, match=r"state 'partitions': split 3 belongs to task 1 of 2, not to this one \(0\)"):
        component.declared[0][3] = 1
    component.checkpoint()
    component.restart(3)
    assert [dict(state) for state in component.declared] == [{0: 0, 3: 30, 6: 60}, {1: 10, 4: 40}, {2: 20, 5: 50}]


def declare_sum(states: TaskStates) -> Any:
    return states.task_state("sum", default=0, split=lambda value, n: [value - n + 1] + [1] * (n - 1), merge=sum)


def test_a_value_per_task_is_merged_and_split_when_their_number_changes() -> None:
    component = Component(declare_sum, 3)
    component.declared[0].value = 100
    component.declared[2].value += 20
    component.checkpoint()
    component.restart(3)
    assert [state.value for state in component.declared] == [100, 0, 20]
    component.restart(2)
    assert [state.value for state in component.declared] == [119, 1]
    component.checkpoint()
    component.checkpoint()
    component.restart(2)
    assert [state.value for state in component.declared] == [119, 1]
    for index in range(2):
        component.compact(index)
    component.declared[1].value = 2
    component.checkpoint()
    component.restart(3)
    assert [state.value for state in component.declared] == [119, 1, 1]
    component.checkpoint()
    component.restart(1)
    assert [state.value for state in component.declared] == [121]


def test_a_value_of_an_aborted_rescaling_is_that_of_the_commit() -> None:
    component = Component(declare_sum, 2)
    component.declared[0].value = 5
    component.checkpoint()
    component.restart(4)
    component.begin()
    component.write()
    component.restart(2)
    assert [state.value for state in component.declared] == [5, 0]
    component.declared[1].value = 6
    component.checkpoint()
    component.restart(1)
    assert component.declared[0].value == 11


def test_without_split_and_merge_another_number_of_tasks_is_refused_by_name() -> None:
    component = Component(lambda states: states.task_state("model"), 2)
    component.declared[1].value = [1]
    component.checkpoint()
    component.restart(2)
    assert component.declared[0].value is None
    component.declared[1].value.append(2)
    component.checkpoint()
    component.restart(2)
    assert component.declared[1].value == [1, 2]
    with pytest.raises(CheckpointError, match=r"component 'count', state 'model': 2 tasks had it, now there are 3"):
        component.restart(3)
    component.declare = lambda states: states.task_state("model", merge=max, split=lambda value, n: [value])
    with pytest.raises(CheckpointError, match="its split made 1 values for 3 tasks"):
        component.restart(3)
    component.declare = lambda states: states.task_state("model", merge=lambda values: 1 / 0, split=list)
    component.declared[0].value = [3]
    component.checkpoint()
    with pytest.raises(CheckpointError, match=r"its split or merge failed: ZeroDivisionError"):
        component.restart(1)


def test_the_state_of_init_state_cannot_be_divided_unless_nobody_has_any() -> None:
    """A component may have `init_state` because it must, and keep everything in states of its own."""
    component = Component(lambda states: [states.component_state(), states.keyed_state("counts", default=0)], 2)
    component.checkpoint()
    for tasks in (3, 1, 2):
        component.restart(tasks)
        component.checkpoint()
    component.declared[1][0]["model"] = 1
    component.checkpoint()
    component.restart(2)
    assert dict(component.declared[1][0]) == {"model": 1}
    with pytest.raises(
        CheckpointError, match=r"component 'count': 2 tasks had the state of init_state\(\), now there are 3"
    ):
        component.restart(3)
    component.restart(2)
    del component.declared[1][0]["model"]
    component.checkpoint()
    component.restart(3)
    assert [dict(own) for own, _ in component.declared] == [{}, {}, {}]


def test_broadcast_state_is_whole_in_every_task() -> None:
    component = Component(lambda states: states.broadcast_state("rules"), 2)
    for state in component.declared:
        state.update({"a": [1], "b": 2})
    component.checkpoint()
    for state in component.declared:
        state["a"].append(2)
        del state["b"]
    component.checkpoint()
    for tasks in (3, 1, 8, 8):
        component.restart(tasks)
        assert [dict(state) for state in component.declared] == [{"a": [1, 2]}] * tasks
        component.checkpoint()


def test_several_states_of_all_kinds_are_kept_apart() -> None:
    def declare(states: TaskStates) -> list[Any]:
        return [
            states.keyed_state("same"),
            states.keyed_state("other"),
            states.broadcast_state("third"),
            states.split_state("fourth", codec="msgpack"),
        ]

    component = Component(declare)
    for number, state in enumerate(component.declared[0]):
        state["key"] = [number]
    component.checkpoint()
    component.compact(0)
    component.checkpoint()
    component.restart(1)
    assert [dict(state) for state in component.declared[0]] == [{"key": [number]} for number in range(4)]


def test_values_of_an_older_version_are_migrated_also_when_versions_are_mixed() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0].update({"a": 1, "b": 2})
    component.checkpoint()
    component.declare = lambda states: states.keyed_state(
        "counts", version=3, codec="msgpack", migrate=lambda old, value: {"n": value, "was": old}
    )
    component.restart(1)
    assert component.declared[0]["a"] == {"n": 1, "was": 1}
    component.declared[0]["c"] = {"n": 3, "was": None}
    component.checkpoint()
    component.compact(0)
    component.checkpoint()
    component.restart(2)
    migrated = {"a": {"n": 1, "was": 1}, "b": {"n": 2, "was": 1}, "c": {"n": 3, "was": None}}
    assert all_of(component) == migrated
    component.declare = lambda states: states.keyed_state("counts", version=4)
    with pytest.raises(CheckpointError, match=r"state 'counts': the checkpoint has version \d, this program version 4"):
        component.restart(1)
    component.declare = lambda states: states.keyed_state("counts", version=2, migrate=lambda old, value: value)
    with pytest.raises(CheckpointError, match=r"has version 3, and this program version 2: it is older"):
        component.restart(1)


def test_positions_are_migrated_too() -> None:
    component = Component(lambda states: states.split_state("offsets"))
    component.declared[0].update({"a": 1})
    component.declared[0].finish("b")
    component.checkpoint()
    component.declare = lambda states: states.split_state("offsets", version=2, migrate=lambda old, value: [value, old])
    component.restart(1)
    assert dict(component.declared[0]) == {"a": [1, 1]}
    assert component.declared[0].is_finished("b")


class Unpickled:
    """Knows how often one of its kind was unpickled."""

    times = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __setstate__(self, state: dict[str, int]) -> None:
        type(self).times += 1
        self.__dict__.update(state)


def test_of_a_key_that_changed_often_only_the_newest_value_is_decoded() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    state = component.declared[0]
    for key in range(10):
        state[key] = Unpickled(0)
    component.checkpoint()
    for number in (1, 2):
        state[1] = Unpickled(number)
        component.checkpoint()
    del state[2]
    component.checkpoint()
    Unpickled.times = 0
    component.restart(1)
    assert {key: value.number for key, value in component.declared[0].items()} == {
        key: 2 if key == 1 else 0 for key in (0, 1, *range(3, 10))
    }
    assert Unpickled.times == 9


def test_what_was_read_is_taken_once() -> None:
    component = Component(lambda states: states.keyed_state("counts", default=0))
    count(component, WORDS)
    saved = read_saved(component.checkpoint(), NAME, 0, 1, component.opened)
    place = Place(component.declared[0].place.topology_id, NAME, groups=GROUPS)
    assert len(TaskStates(place, saved).keyed_state("counts")) == len(WORDS)
    with pytest.raises(AssertionError, match="taken already"):
        TaskStates(place, saved).keyed_state("counts")


def test_a_migration_that_fails_names_the_key() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0]["a"] = 1
    component.checkpoint()
    component.declare = lambda states: states.keyed_state("counts", version=2, migrate=lambda old, value: value["n"])
    with pytest.raises(
        CheckpointError, match=r"component 'count', state 'counts': the value of key 'a' cannot be restored"
    ):
        component.restart(1)


def test_a_state_that_is_no_longer_declared_is_refused_unless_it_may_be_lost() -> None:
    component = Component(lambda states: [states.keyed_state("counts"), states.task_state("sum")])
    component.checkpoint()
    component.declare = lambda states: states.keyed_state("counts")
    with pytest.raises(CheckpointError, match=r"component 'count': the checkpoint has state 'sum', which the program"):
        component.restart(1)
    states = component.restored(0, 1)
    states.keyed_state("counts")
    states.check_claimed(dropped=["sum"])


def test_a_state_of_another_kind_is_refused() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    component.declared[0]["a"] = 1
    component.checkpoint()
    component.declare = lambda states: states.broadcast_state("counts")
    with pytest.raises(CheckpointError, match="has keyed state of this name, and this is broadcast"):
        component.restart(1)


def test_a_component_that_the_checkpoint_does_not_have_starts_empty() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    manifest = component.checkpoint()
    assert read_saved(manifest, "new", 0, 3, component.opened).states == {}
    with pytest.raises(CheckpointError, match="has 16 key groups, and this is task 0 of 17"):
        read_saved(manifest, NAME, 0, 17, component.opened)


@given(
    st.dictionaries(st.text() | st.integers(), st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.none()))
)
def test_plain_values_come_back_with_their_types(values: dict[Any, Any]) -> None:
    values |= {"long": "x" * 100_000, "bytes": bytes(100_000), "large": 1 << 64, "bool": True, "\udc80": "\udc80"}
    component = Component(lambda states: states.keyed_state("values"))
    component.declared[0].update(values)
    component.checkpoint()
    component.compact(0)
    component.checkpoint()
    component.restart(1)
    assert {repr(item) for item in component.declared[0].items()} == {repr(item) for item in values.items()}


def test_another_number_of_key_groups_is_refused() -> None:
    component = Component(lambda states: states.keyed_state("counts"))
    manifest = component.checkpoint()
    saved = read_saved(manifest, NAME, 0, 1, component.opened)
    with pytest.raises(CheckpointError, match=r"checkpoint 1 has 16 key groups, and the topology 32: set topology\."):
        TaskStates(Place("words-1", NAME, 0, 1, 32), saved)
