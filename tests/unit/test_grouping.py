"""Groupings: who gets a tuple."""

from __future__ import annotations

import decimal
import enum
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import TupleError
from heronpy.hashing import CELL_MASK, KEY_GROUPS, groups_of_cells, index_of_group, key_group
from heronpy.instance.task import Chooser, Edge, Pair, chooser, custom_grouping, for_all, partial_key
from heronpy.plan import GroupingKind

keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
tasks = st.integers(1, 7)


def edges(count: int, first: int = 10) -> list[Edge]:
    made = [Edge("default", Pair(first + n)) for n in range(count)]
    for edge in made:
        edge.seal()
    return made


def make(kind: GroupingKind, count: int, **kwargs: Any) -> Chooser:
    return chooser(kind, edges(count), **kwargs)


def chosen(choose: Chooser, values: list[Any]) -> list[int]:
    return choose(values).ids


class Fixed:
    """A custom grouping that always chooses the same."""

    def __init__(self, *tasks: Any) -> None:
        self.tasks = tasks

    def choose_tasks(self, values: list[Any]) -> Sequence[int]:
        return self.tasks


@given(st.integers(1, 9), st.integers(1, 20), st.integers(0, 5))
def test_shuffle_is_exactly_even(count: int, rounds: int, seed: int) -> None:
    choose = make(GroupingKind.SHUFFLE, count, seed=seed)
    found = Counter(task for _ in range(rounds * count) for task in chosen(choose, []))
    assert found == dict.fromkeys(range(10, 10 + count), rounds)


def test_shuffle_of_different_senders_starts_with_different_tasks() -> None:
    first = {chosen(make(GroupingKind.SHUFFLE, 8, seed=seed), [])[0] for seed in range(1, 20)}
    assert len(first) > 3


@given(keys, keys, tasks, st.booleans())
def test_equal_keys_meet_whoever_sends_them_and_whenever(key: Any, other: Any, count: int, lasting: bool) -> None:
    before, after_restart = (make(GroupingKind.FIELDS, count, indexes=[1], lasting=lasting) for _ in range(2))
    before(["x", other])  # what one sender remembers must not matter
    assert chosen(before, ["x", key]) == chosen(after_restart, ["y", key]) == chosen(before, ["z", key])
    assert len(chosen(before, ["x", key])) == 1


class Word(str):
    """Equal to its text."""

    __slots__ = ()


class Folded(str):
    """Grouped without regard to case."""

    __slots__ = ()

    def __stable_key__(self) -> str:
        return self.lower()


class Colour(enum.StrEnum):
    RED = "red"


@functools.cache
def chooser_of_many(count: int, groups: int) -> Chooser:
    """One that has seen so many texts that it remembers none."""
    choose = make(GroupingKind.FIELDS, count, indexes=[0], lasting=False, key_groups=groups)
    for number in range(17_000):
        choose([str(number)])
    return choose


@given(st.lists(keys, max_size=5), st.sampled_from((2, 7)), st.sampled_from((16, 1024)))
def test_a_task_gets_the_keys_of_its_groups_however_many_keys_there_are(
    found: list[Any], count: int, groups: int
) -> None:
    found += [
        "red",
        Word("red"),
        Colour.RED,
        "\ud800",
        1,
        True,
        1.0,
        2**61 - 2,
        2**70,
        float(2**70),
        -1,
        b"red",
        ("red",),
        None,
        [1],
        Folded("Rot"),
        np.bool_(True),
        np.uint64(1),
        np.float32(1),
        np.array(1),
        np.array([1]),
        np.str_("red"),
        np.float64("nan"),
    ]
    few = make(GroupingKind.FIELDS, count, indexes=[0], lasting=False, key_groups=groups)
    for choose in (few, chooser_of_many(count, groups)):
        for key in found * 2:
            owner = index_of_group(key_group(key, groups, lasting=False), count, groups)
            assert chosen(choose, [key]) == [10 + owner], key


def test_text_that_is_equal_is_in_one_group_and_its_own_stable_key_is_honoured() -> None:
    assert len({key_group(key, lasting=False) for key in ("red", Word("red"), Colour.RED)}) == 1
    assert key_group(Folded("Red"), lasting=False) == key_group(Folded("RED"), lasting=False)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 64])
@pytest.mark.parametrize(
    "name",
    ["{}", "{:06}", "user-{}", "{}-user", "10.0.{}", "{:x}", "sensor/{}/temperature", "2026-11-{}", "é{}", "{0}{0}"],
)
def test_text_is_divided_evenly_whatever_its_parts_have_in_common(name: str, count: int) -> None:
    total = 100 * count
    loads = Counter(
        index_of_group(key_group(name.format(number), lasting=False), count, KEY_GROUPS) for number in range(total)
    )
    assert len(loads) == count
    # as by chance: four standard deviations
    assert max(abs(load - 100) for load in loads.values()) < 4 * (100 * (1 - 1 / count)) ** 0.5


@pytest.mark.parametrize("count", [2, 3, 8, 64])
@pytest.mark.parametrize(
    "first_and_step",
    [(0, 1), (10**9, 1), (-500, 1), (0, 2), (0, 10), (0, 1000), (0, 1024), (0, 1 << 22), (0, 1 << 32), (1 << 60, 4096)],
)
def test_numbers_are_divided_evenly_whatever_lies_between_them(first_and_step: tuple[int, int], count: int) -> None:
    first, step = first_and_step
    for kind in (int, float):
        loads = Counter(
            index_of_group(key_group(kind(first + step * n) + kind(0), lasting=False), count, KEY_GROUPS)
            for n in range(100 * count)
        )
        assert len(loads) == count
        assert max(loads.values()) < 200


def test_fractions_are_divided() -> None:
    loads = Counter(index_of_group(key_group(n / 8 + 0.125, lasting=False), 4, KEY_GROUPS) for n in range(400))
    assert min(loads.values()) > 50 < max(loads.values()) < 200


@pytest.mark.parametrize("name", ["{}", "a{}", "key-{}", "{}-key", "{}.com", "{}xyz", "worker{}@host"])
def test_ten_names_that_differ_in_a_digit_are_not_all_in_one_place(name: str) -> None:
    for count in (2, 3, 4):
        loads = Counter(index_of_group(key_group(name.format(n), lasting=False), count, KEY_GROUPS) for n in range(10))
        assert max(loads.values()) < 10


@pytest.mark.parametrize("groups", [16, 1024, 4096])
def test_each_group_has_as_many_cells(groups: int) -> None:
    assert set(Counter(groups_of_cells(groups)).values()) == {(CELL_MASK + 1) // groups}


def test_groups_that_need_not_last_are_the_same_in_every_version() -> None:
    """Containers of one topology may have different releases for a while."""
    assert [key_group(key, lasting=False) for key in ("", "heron", "\u00e9", 7, -1, 2**70, 0.5, ("a", 1), b"a")] == [
        789,
        752,
        179,
        404,
        322,
        233,
        785,
        565,
        415,
    ]


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, decimal.Decimal(1)],
        [0, False, -0.0],
        [[1, "a"], (1, "a"), [1.0, "a"]],
        [{"a": 1}, {"a": True}],
        [{1, 2}, frozenset((2, 1))],
        [2**70, float(2**70)],
    ],
)
@pytest.mark.parametrize("kind", [GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY])
def test_keys_that_are_equal_meet_whatever_their_type(equal: list[Any], kind: GroupingKind) -> None:
    for count in range(2, 8):
        pairs = {frozenset(_tasks_of(make(kind, count, indexes=[0]), [key])) for key in equal}
        assert len(pairs) == 1


def test_keys_are_the_fields_named_in_their_order() -> None:
    choose = make(GroupingKind.FIELDS, 50, indexes=[2, 0])
    assert chosen(choose, ["a", "ignored", "b"]) == chosen(choose, ["a", "other", "b"])
    swapped = make(GroupingKind.FIELDS, 50, indexes=[0, 2])
    assert chosen(swapped, ["b", 0, "a"]) == chosen(choose, ["a", 0, "b"])
    tasks = {chosen(choose, [a, 0, b])[0] for a in "abcdef" for b in "uvwxyz"}
    assert len(tasks) > 15


def test_many_keys_are_spread_evenly_over_the_tasks() -> None:
    for make_key in (str, int, lambda n: f"user-{n}@example.org", lambda n: [n, n % 7], lambda n: n * 1024):
        choose = make(GroupingKind.FIELDS, 8, indexes=[0])
        found = Counter(chosen(choose, [make_key(n)])[0] for n in range(8000))
        assert len(found) == 8
        assert max(found.values()) < 1.2 * min(found.values())


def test_the_memory_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.instance._grouping.KEYS_MAX", 10)
    choose = make(GroupingKind.FIELDS, 5, indexes=[0])
    before = [chosen(choose, [n]) for n in range(100)]
    assert [chosen(choose, [n]) for n in range(100)] == before
    known = next(c.cell_contents for c in choose.__closure__ or () if isinstance(c.cell_contents, dict))
    assert 0 < len(known) <= 10


@given(st.lists(keys, min_size=1, max_size=60), st.integers(1, 6))
def test_partial_key_gives_a_key_at_most_two_tasks_the_same_for_every_sender(stream: list[Any], count: int) -> None:
    here, there = edges(count), edges(count)
    send, other = partial_key(here, [0]), partial_key(there, [0])
    where: dict[str, set[int]] = {}
    for number, key in enumerate(stream):
        for choose in (send, other) if number % 3 else (send,):
            where.setdefault(repr(key), set()).update(chosen(choose, [key]))
    assert all(len(found) <= 2 for found in where.values())


def test_partial_key_evens_out_a_skewed_stream_that_fields_does_not() -> None:
    stream = [f"word{n % (1 + n % 97)}" for n in range(20_000)]  # the smaller the number the more frequent
    stream += ["the"] * 10_000
    imbalance = {}
    for kind in (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY):
        choose = make(kind, 5, indexes=[0])
        found = Counter(chosen(choose, [word])[0] for word in stream)
        imbalance[kind] = max(found.values()) - len(stream) / 5
    assert imbalance[GroupingKind.PARTIAL_KEY] < imbalance[GroupingKind.FIELDS] / 2
    assert max(found.values()) <= 10_000 / 2 + len(stream) / 5


def test_all_lowest_and_direct() -> None:
    assert chosen(make(GroupingKind.ALL, 3), []) == [10, 11, 12]
    assert chosen(make(GroupingKind.ALL, 1), []) == [10]
    assert chosen(chooser(GroupingKind.LOWEST, edges(3)[::-1]), []) == [10]
    assert chosen(make(GroupingKind.DIRECT, 3), []) == []


def test_none_is_shuffle() -> None:
    assert Counter(chosen(make(GroupingKind.NONE, 2), [])[0] for _ in range(1)).keys() <= {10, 11}
    choose = make(GroupingKind.NONE, 4)
    assert {chosen(choose, [])[0] for _ in range(4)} == {10, 11, 12, 13}


def test_local_or_shuffle_stays_in_the_container_where_it_can() -> None:
    local = make(GroupingKind.LOCAL_OR_SHUFFLE, 4, local=lambda edge: edge.task in (11, 13))
    assert Counter(chosen(local, [])[0] for _ in range(10)) == {11: 5, 13: 5}
    remote = make(GroupingKind.LOCAL_OR_SHUFFLE, 4, local=lambda edge: False)
    assert Counter(chosen(remote, [])[0] for _ in range(8)) == {10: 2, 11: 2, 12: 2, 13: 2}


def test_a_custom_grouping_may_choose_none_one_or_several() -> None:
    assert chosen(custom_grouping(edges(3), Fixed()), []) == []
    assert chosen(custom_grouping(edges(3), Fixed(11)), []) == [11]
    choose = custom_grouping(edges(3), Fixed(12, 10))
    assert chosen(choose, []) == [12, 10]
    choose([]).put(["x"])
    assert [edge.pair.take().values for edge in choose([]).edges] == [[["x"]], [["x"]]]


def test_a_custom_grouping_that_chooses_a_stranger_is_told_the_targets() -> None:
    with pytest.raises(TupleError, match=r"Fixed.choose_tasks\(\) chose task 99, .* targets \[10, 11\]"):
        custom_grouping(edges(2), Fixed(10, 99))([])


@pytest.mark.parametrize("kind", [GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY])
@pytest.mark.parametrize("indexes", [[1], [0, 1]])
def test_a_tuple_without_its_key_field_is_refused(kind: GroupingKind, indexes: list[int]) -> None:
    choose = make(kind, 3, indexes=indexes)
    choose(["a", "b"])
    with pytest.raises(TupleError, match="1 values on stream 'default' lacks a field"):
        choose(["a"])


@pytest.mark.parametrize("kind", [GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY])
def test_a_key_without_a_stable_hash_is_refused(kind: GroupingKind) -> None:
    with pytest.raises(TupleError, match="object cannot be a grouping key"):
        make(kind, 3, indexes=[0])([object()])


class Raising:
    """A key some of whose methods raise."""

    def __init__(self, method: str, error: type[Exception]) -> None:
        self.method, self.error = method, error

    def __stable_key__(self) -> str:
        return self._or("__stable_key__", "key")  # type: ignore[no-any-return]

    def __hash__(self) -> int:
        return self._or("__hash__", 1)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return self._or("__eq__", True)  # type: ignore[no-any-return]

    def _or(self, method: str, value: Any) -> Any:
        if method == self.method:
            raise self.error("this key is broken")
        return value


@pytest.mark.parametrize("error", [StopIteration, KeyError, IndexError, AttributeError, RuntimeError])
@pytest.mark.parametrize("kind", [GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY])
def test_a_key_that_raises_is_refused_as_a_key_or_goes_where_its_stable_key_says(
    kind: GroupingKind, error: type[Exception]
) -> None:
    choose = make(kind, 3, indexes=[0])
    with pytest.raises(TupleError, match=f"'default' cannot be grouped: {error.__name__}: .*this key is broken"):
        choose([Raising("__stable_key__", error)])
    sound = make(GroupingKind.FIELDS, 3, indexes=[0])
    for method in ("__hash__", "__eq__"):
        for _ in range(3):
            found = chosen(choose, [Raising(method, error)])
            assert kind is GroupingKind.PARTIAL_KEY or found == chosen(sound, [Raising("", error)])


@pytest.mark.parametrize("kind", [GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY])
def test_a_key_that_is_nested_too_deep_is_refused_as_a_key(kind: GroupingKind) -> None:
    key: Any = ()
    for _ in range(5000):
        key = (key,)
    with pytest.raises(TupleError, match="cannot be grouped: RecursionError"):
        make(kind, 3, indexes=[0])([key])


@given(st.lists(st.text(max_size=2), min_size=1, max_size=40))
def test_two_consumers_of_a_stream_each_get_it_by_their_own_grouping(words: list[str]) -> None:
    first, second = edges(3), edges(2, first=20)
    choose = for_all([chooser(GroupingKind.FIELDS, first, indexes=[0]), chooser(GroupingKind.ALL, second)])
    alone = make(GroupingKind.FIELDS, 3, indexes=[0])
    for word in words:
        target = choose([word])
        assert target.ids == [*chosen(alone, [word]), 20, 21]
        target.put([word])
    assert [edge.pair.take().values for edge in second] == [[[w] for w in words]] * 2
    assert sum(len(edge.pair) for edge in first) == len(words)


def test_a_stream_that_nobody_reads_goes_nowhere() -> None:
    target = for_all([])(["x"])
    target.put(["x"])
    assert target.ids == []


def test_copies_of_a_tuple_are_lists_of_their_own() -> None:
    fan = make(GroupingKind.ALL, 2)([])
    fan.put(["x"])
    one, other = (edge.pair.take() for edge in fan.edges)
    one.values[0].append("changed")
    assert other.values == [["x"]]


def _tasks_of(choose: Chooser, values: list[Any]) -> set[int]:
    return {chosen(choose, values)[0] for _ in range(10)}
