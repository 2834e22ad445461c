"""State that is larger than memory: what is committed and does not fit is in a file."""

from __future__ import annotations

import logging
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from state_kit import GROUPS, NAME, Component

from heronpy.checkpoints import BytesSource, ObjectReader, ObjectRef, SpooledSource, read_saved
from heronpy.errors import ConfigError
from heronpy.state import KeyedState, Memory, Place, TaskStates

lmdb: Any = pytest.importorskip("lmdb", reason="lmdb is not installed")

MIB = 1 << 20


def keyed(**options: Any) -> Callable[[TaskStates], KeyedState]:
    return lambda states: states.keyed_state("values", **options)


def spilled(**options: Any) -> Component:
    """A component that keeps in memory only what is not committed."""
    return Component(keyed(**options), 1, memory_bytes=0)


def released(component: Component) -> None:
    """After a checkpoint, with all of it done that is done between batches."""
    component.checkpoint()
    for task in component.tasks:
        while not task.release():
            pass


def test_state_of_ten_times_the_budget_takes_no_more_memory_than_the_budget() -> None:
    def value(key: int) -> tuple[Any, ...]:
        return (key, f"{key:0100d}")

    keys, budget = 8_000, MIB // 5  # an entry takes 270 bytes
    component = Component(keyed(), 1, at_once=64, memory_bytes=budget)
    tracemalloc.start()
    try:
        for start in range(0, keys, 100):
            component.declared[0].update((key, value(key)) for key in range(start, start + 100))
            released(component)
            stored = sum(map(len, component.objects.values()))
            assert tracemalloc.get_traced_memory()[0] - stored < 1.2 * budget
    finally:
        tracemalloc.stop()
    assert len(component.declared[0]) == keys
    assert component.declared[0][keys // 2] == value(keys // 2)
    component.tasks[0].close()


def test_nothing_is_left_of_the_file_when_its_process_is_killed(tmp_path: Path) -> None:
    memory = Memory(0, tmp_path)
    states = TaskStates(Place("words-1", "count", 0, 1, GROUPS), memory=memory)
    state = states.keyed_state("values")
    state.update(dict.fromkeys(range(100), 1))
    states.begin(1, 0)
    while states.pending:
        states.write()
    states.commit(1)
    while not states.release():
        pass
    assert len(memory.spills[0].cold) == 100
    assert list(tmp_path.iterdir()) == []
    assert dict(state) == dict.fromkeys(range(100), 1)
    states.close()


def test_keys_of_any_length_and_type_are_found_again() -> None:
    values = {"k" * 500: 1, "k" * 501: [2], True: 3, ("a", 2.0): None, "": b"", 1 << 70: {"a": 4}, "ü" * 300: 5}
    component = spilled()
    component.declared[0].update(values)
    released(component)
    state = component.declared[0]
    assert dict(state.items()) == values
    assert {repr(key) for key in state} == {repr(key) for key in values}
    state["k" * 501].append(3)
    del state[True]
    component.checkpoint()
    component.restart(2)
    expected = {key: value for key, value in values.items() if key != 1} | {"k" * 501: [2, 3]}
    assert {key: value for state in component.declared for key, value in state.items()} == expected
    for task in component.tasks:
        task.close()


def test_a_ttl_forgets_what_is_in_the_file_in_memory_and_in_checkpoints() -> None:
    component = spilled(ttl_s=10, default=0)
    component.declared[0].update(dict.fromkeys("abc", 1))
    released(component)
    component.now_ms += 6_000
    state = component.declared[0]
    state["a"] += 1  # lives on
    state["d"] = 4
    released(component)
    component.restart(1)
    state = component.declared[0]
    assert sorted(state) == ["a", "b", "c", "d"]
    component.now_ms += 5_000
    assert "b" not in state
    assert dict(state) == {"a": 2, "d": 4}
    assert len(state) == 2
    released(component)
    component.now_ms = 0  # the clock does not go back
    component.restart(3)
    assert {key: value for state in component.declared for key, value in state.items()} == {"a": 2, "d": 4}
    component.now_ms = 1_000_000 + 30_000
    assert [len(state) for state in component.declared] == [0, 0, 0]
    for task in component.tasks:
        task.close()


def test_a_write_forgets_what_has_expired_in_the_file() -> None:
    component = spilled(ttl_s=1)
    state = component.declared[0]
    for number in range(40):
        state[f"once-{number}"] = [number]
        released(component)
        component.now_ms += 100
    assert len(state.copy()) <= 11, "those of a second, and one that the next write forgets"
    component.tasks[0].close()


class FullDisk:
    """LMDB's environment; nothing can be written while it is full."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def begin(self, *args: Any, write: bool = False, **options: Any) -> Any:
        if write and self.full:
            raise lmdb.DiskError("no space left on device")
        return self.environment.begin(*args, write=write, **options)


def on_a_disk(**options: Any) -> tuple[Component, KeyedState, FullDisk]:
    """A component with two keys, which are in its file."""
    component = spilled(**options)
    state = component.declared[0]
    state.update(old=1, older=[2])
    released(component)
    assert state._spill is not None
    file = state._spill.cold._file
    file.environment = disk = FullDisk(file.environment)
    return component, state, disk


def written_while_it_grows() -> None:
    """Another topology begins with some state, and writes all of it while there is ever less room in memory."""
    component = Component(keyed(), 1, at_once=2, memory_bytes=80_000)  # some hundreds of entries
    for start in range(0, 200, 10):
        component.declared[0].update((key, (key, "value")) for key in range(start, start + 10))
        released(component)
    manifest, memory = component.manifest, Memory(80_000, Path(tempfile.gettempdir()))
    assert manifest is not None
    saved = read_saved(manifest, NAME, 0, 1, component.opened, kept=False).elsewhere()
    task = TaskStates(Place("words-1", NAME, 0, 1, GROUPS), saved, entries_at_once=2, memory=memory)
    state = task.keyed_state("values")
    component.tasks[0].close()
    component.tasks, component.declared, component.manifests, component.generation = [task], [state], [], 0
    state[0] = "changed"
    expected = dict(state)
    component.begin()
    spill = state._spill
    assert spill is not None
    in_file, added = len(spill.cold), 1000
    while component.writing:
        state.update((key, (key, "more")) for key in range(added, added + 10))
        component.write(3)
        added += 10
    component.commit()
    while not task.release():
        pass
    assert len(spill.cold) > in_file + 50, "there was less room"
    task.check_invariants()
    component.restart(1)
    assert dict(component.declared[0]) == expected
    component.tasks[0].close()


def test_nothing_leaves_a_base_while_it_is_written() -> None:
    written_while_it_grows()


def test_it_would_be_found_if_something_left_a_base_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KeyedState._make_room

    def without_the_guard(self: Any, deadline_s: float, clock: Any) -> bool:
        owed, self._owed = self._owed, None
        try:
            return right(self, deadline_s, clock)
        finally:
            self._owed = owed

    monkeypatch.setattr(KeyedState, "_make_room", without_the_guard)
    with pytest.raises((RuntimeError, AssertionError)):
        written_while_it_grows()


def test_a_full_disk_costs_memory_and_no_state(caplog: pytest.LogCaptureFixture) -> None:
    component, state, disk = on_a_disk()
    disk.full = True
    state.update(new=3, older=[4])
    with caplog.at_level(logging.WARNING):
        released(component)
    assert "'values' takes more memory than it may: the file for state beyond memory" in caplog.text
    assert caplog.text.count("no space left on device") == 1
    assert dict(state) == {"old": 1, "older": [4], "new": 3}
    disk.full = False
    released(component)
    assert dict(state) == {"old": 1, "older": [4], "new": 3}
    component.tasks[0].close()


@pytest.mark.parametrize("options", [{}, {"ttl_s": 100}], ids=str)
def test_what_is_deleted_while_the_disk_is_full_does_not_come_back(options: dict[str, Any]) -> None:
    component, state, disk = on_a_disk(**options)
    disk.full = True
    del state["old"]
    released(component)
    assert ("old" in state, state.get("old"), dict(state), len(state)) == (False, None, {"older": [2]}, 1)
    state.update(dict.fromkeys("abcdef", 0))  # so many that all is written anew
    released(component)
    component.tasks[0].check_invariants()
    disk.full = False
    del state["older"]
    released(component)
    assert dict(state) == dict.fromkeys("abcdef", 0)
    state["old"] = 5
    released(component)
    component.restart(1)
    assert dict(component.declared[0]) == {**dict.fromkeys("abcdef", 0), "old": 5}
    component.tasks[0].close()


def test_a_ttl_is_kept_while_the_disk_is_full() -> None:
    component, state, disk = on_a_disk(ttl_s=10)
    disk.full = True
    component.now_ms += 6_000
    state["new"] = 3
    released(component)
    assert dict(state) == {"old": 1, "older": [2], "new": 3}
    component.now_ms += 6_000
    state["newer"] = 4
    assert dict(state.items()) == {"new": 3, "newer": 4}
    component.now_ms += 6_000
    assert "new" not in state
    disk.full = False
    component.now_ms += 6_000
    assert dict(state) == {}
    assert len(state) == 0
    released(component)
    component.tasks[0].check_invariants()
    component.tasks[0].close()


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ConfigError, match=r"needs the package lmdb: pip install 'heron-engine\[state\]'"):
        Memory(16 * MIB, tmp_path)


def test_what_was_read_of_an_object_is_not_asked_for_again(tmp_path: Path) -> None:
    asked = []

    class Asked(BytesSource):
        def read(self, offset: int, length: int) -> bytes:
            asked.append((offset, length))
            return super().read(offset, length)

    source = SpooledSource(Asked("objects/a", bytes(range(100))), tmp_path)
    assert [source.read(10, 20), source.read(10, 20), source.read(15, 5)] == [
        bytes(range(10, 30)),
        bytes(range(10, 30)),
        bytes(range(15, 20)),
    ]
    assert asked == [(10, 20)]
    assert [source.read(40, 10), source.read(25, 15), source.read(12, 30)] == [
        bytes(range(40, 50)),
        bytes(range(25, 40)),
        bytes(range(12, 42)),
    ]
    assert asked == [(10, 20), (40, 10), (25, 15)]
    source.read(50, 10)
    source.read(8, 4)
    assert source.read(8, 52) == bytes(range(8, 60))
    source.read(8, 53)
    assert asked[3:] == [(50, 10), (8, 4), (8, 53)]
    assert list(tmp_path.iterdir()) == []


def test_several_states_are_restored_without_asking_the_storage_again(tmp_path: Path) -> None:
    component = Component(lambda states: [states.keyed_state(name) for name in ("a", "b")], 1, memory_bytes=0)
    for state in component.declared[0]:
        state.update((f"key {n}", n) for n in range(200))
    component.checkpoint()
    assert component.manifest is not None

    class Source(BytesSource):
        away = False

        def read(self, offset: int, length: int) -> bytes:
            assert not self.away, "the storage may be away by now"
            return super().read(offset, length)

    def opened(ref: ObjectRef) -> ObjectReader:
        return ObjectReader(SpooledSource(Source(ref.name, component.objects[ref.name]), tmp_path))

    saved = read_saved(component.manifest, NAME, 0, 1, opened, kept=False)
    Source.away = True
    states = TaskStates(Place("words-1", NAME, 0, 1, GROUPS), saved, memory=Memory(0, tmp_path))
    for name in ("a", "b"):
        assert dict(states.keyed_state(name)) == {f"key {n}": n for n in range(200)}
    states.close()
    component.tasks[0].close()
