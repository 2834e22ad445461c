"""A task reads of a checkpoint what it restores, and little more, whatever the numbers of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_kit import GROUPS, NAME, Component

from heronpy.checkpoints import Header, Kind, Manifest, ObjectReader, ObjectRef, ObjectWriter, StateEntry, read_saved
from heronpy.hashing import key_group
from heronpy.state import Place, TaskStates

FORMAT_1 = Path(__file__).parent / "checkpoint_format_1"
"""Written by a release that knew no other: task 0 of 2 is merged, task 1 as it wrote itself, each with a delta."""
KEYS = [f"key-{n}" for n in range(6000)]
VALUES: dict[str, Callable[[int], Any]] = {
    "pickled": lambda n: (n, bytes(1000)),
    "bytes": lambda n: n.to_bytes(8) + bytes(1000),
    "text": lambda n: f"{n:08}" + 1000 * "x",
}


@dataclass
class Counted:
    """An object that notes down how much is read of it."""

    name: str
    data: bytes
    reads: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append(length)
        return self.data[offset : offset + length]


def read_by(component: Component, manifest: Manifest, index: int, tasks: int) -> tuple[int, int]:
    """What a task reads to restore, besides indexes: bytes, and in how many pieces."""
    sources: list[Counted] = []

    def opened(ref: ObjectRef) -> ObjectReader:
        source = Counted(ref.name, component.objects[ref.name])
        reader = ObjectReader(source)
        source.reads.clear()
        sources.append(source)
        return reader

    saved = read_saved(manifest, NAME, index, tasks, opened)
    TaskStates(Place("words-1", NAME, index, tasks, GROUPS), saved).keyed_state("values")
    return sum(sum(source.reads) for source in sources), sum(len(source.reads) for source in sources)


def filled(value: Callable[[int], Any], tasks: int, *, merged: bool, memory_bytes: int | None = None) -> Component:
    component = Component(lambda states: states.keyed_state("values"), tasks, memory_bytes=memory_bytes, at_once=256)
    for n, key in enumerate(KEYS):
        component.of(key)[key] = value(n)
    component.checkpoint()
    for n, key in enumerate(KEYS[::4]):
        component.of(key)[key] = value(n)
    component.checkpoint()
    if merged:
        for index in range(tasks):
            component.compact(index)
        component.of(KEYS[0])[KEYS[0]] = value(1)
        component.checkpoint()
    return component


@pytest.mark.parametrize("merged", [False, True], ids=["as-written", "merged"])
@pytest.mark.parametrize("kind", VALUES)
def test_tasks_read_together_hardly_more_than_there_is(kind: str, merged: bool) -> None:
    for before, after in ((2, 3), (3, 8), (8, 1)):
        component = filled(VALUES[kind], before, merged=merged)
        manifest = component.manifest
        assert manifest is not None
        read = [read_by(component, manifest, index, after) for index in range(after)]
        blocks = 2 * 70_000 * len(manifest.objects)  # at both ends of each range
        assert sum(size for size, _ in read) < manifest.size + after * blocks
        assert max(size for size, _ in read) < 1.2 * manifest.size / after + blocks
        assert max(pieces for _, pieces in read) <= 4 * len(manifest.objects)


def test_state_beyond_memory_is_written_in_order_too() -> None:
    component = filled(VALUES["pickled"], 2, merged=False, memory_bytes=400_000)
    manifest = component.manifest
    assert manifest is not None
    read = [read_by(component, manifest, index, 8)[0] for index in range(8)]
    assert sum(read) < manifest.size + 8 * 2 * 70_000 * len(manifest.objects)
    for index in range(2):
        component.tasks[index].close()


def header() -> Header:
    return Header(
        topology_id="words-1",
        component=NAME,
        index=0,
        tasks=1,
        generation=0,
        checkpoint_id=1,
        since=0,
        epoch=0,
        groups=GROUPS,
        first_group=0,
        end_group=GROUPS,
        states=(StateEntry("values", Kind.KEYED, "pickle", 1),),
    )


def test_order_is_made_a_block_at_a_time() -> None:
    writer = ObjectWriter(header(), run_bytes=1 << 20)
    blocks: list[int] = []
    for n in range(5000):
        before = len(writer.chunks)
        writer.add(0, key_group(n, GROUPS), (n, None, bytes(1000), 0))
        blocks.append(len(writer.chunks) - before)
    assert max(blocks) == 1
    assert sum(blocks) > 60  # it keeps up: no more than two runs are in memory
    flushed = 0
    while not writer.flush(0.0):
        flushed += 1
    assert flushed > 10


MUTABLE = st.lists(st.integers(), max_size=3)
ANY_KEYS = st.one_of(
    st.integers(0, 60),
    st.sampled_from(["a", "bé", "c" * 100]),
    st.booleans(),
    st.tuples(st.text(max_size=2), st.none()),
)
ANY_VALUES = st.one_of(
    st.integers(), st.text(max_size=4), st.just("x" * 300), st.binary(min_size=90, max_size=90), MUTABLE
)
WRITES = st.dictionaries(ANY_KEYS, ANY_VALUES | st.just(...), max_size=25)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, GROUPS), WRITES, WRITES, st.booleans()), min_size=2, max_size=5))
def test_any_numbers_of_tasks_restore_exactly(steps: list[tuple[int, dict[Any, Any], dict[Any, Any], bool]]) -> None:
    component = Component(lambda states: states.keyed_state("values"), steps[0][0], at_once=4)
    expected: dict[Any, Any] = {}

    def write(writes: dict[Any, Any]) -> None:
        for key, value in writes.items():
            if value is not ...:
                component.of(key)[key] = expected[key] = value
            elif key in expected:
                del component.of(key)[key], expected[key]

    for tasks, first, second, merge in steps:
        component.restart(tasks)
        assert {key: value for state in component.declared for key, value in state.items()} == expected
        write(first)
        component.checkpoint()
        write(second)
        if merge:
            for index in range(tasks):
                component.compact(index)
        component.checkpoint()


def of_format_1() -> Component:
    """A component whose newest checkpoint is in those files."""

    def declare(states: TaskStates) -> Any:
        return (
            states.keyed_state("words", default=0),
            states.keyed_state("values"),
            states.split_state("offsets"),
            states.task_state("sum", default=0, split=lambda v, n: [v - n + 1] + [1] * (n - 1), merge=sum),
        )

    component = Component(declare, 2)
    manifest = Manifest.decode((FORMAT_1 / "manifest.json").read_bytes(), "manifests/00000000000000000002.json")
    component.manifests.append(manifest)
    component.objects = {ref.name: (FORMAT_1 / ref.name.rsplit("/", 1)[1]).read_bytes() for ref in manifest.objects}
    component.checkpoint_id = 2
    return component


def check_format_1(component: Component) -> None:
    words, values, offsets, sums = ([declared[at] for declared in component.declared] for at in range(4))
    expected = {f"word-{n}": n + 100 * (n < 10) for n in range(60) if not 10 <= n < 14}
    assert {key: value for state in words for key, value in state.items()} == expected
    found = {key: value for state in values for key, value in state.items()}
    others: dict[Any, Any] = {
        True: "true",
        (1, "two"): [1, 2],
        2**70: {"a": 1},
        b"bytes": None,
        "\ud800": "half",
    }
    old = {f"word-{n}": (n, f"word-{n}".encode() * 3) for n in range(14, 60)}
    assert found == {**others, **old, **{f"word-{n}": ("new", f"word-{n}") for n in range(10)}}
    assert next(type(key) for key in found if key == 1) is bool
    assert {key: value["line"] for state in offsets for key, value in state.items()} == {
        f"part-{n}": n for n in range(6)
    }
    assert sum(state.value for state in sums) == 21


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 16])
def test_objects_of_format_1_are_restored_by_any_number_of_tasks_and_merged(tasks: int) -> None:
    component = of_format_1()
    component.restart(tasks)
    check_format_1(component)
    component.declared[0][3].value += 0
    component.checkpoint()
    for index in range(tasks):
        component.compact(index)
    component.checkpoint()
    for number in (3, tasks):
        component.restart(number)
        check_format_1(component)
        component.checkpoint()


def test_a_share_of_format_1_is_picked() -> None:
    component = of_format_1()
    manifest = component.manifest
    assert manifest is not None
    shares = [read_saved(manifest, NAME, index, 16, component.opened) for index in range(16)]
    keys = [{key for block in share.states["words"].blocks for key in block.keys} for share in shares]
    assert all(key_group(key, GROUPS) == index for index, found in enumerate(keys) for key in found)
    assert sum(map(len, keys)) == 60
    assert all(not a & b for a, b in pairwise(keys))
