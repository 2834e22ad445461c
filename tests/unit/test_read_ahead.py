"""State that was read before it is restored: the same is restored as without, and less is read then."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_kit import GROUPS, NAME, Component

from heronpy.checkpoints import Manifest, ObjectReader, ObjectRef, ReadAhead, Saved, read_saved, reads_on
from heronpy.errors import CheckpointError, UnavailableError
from heronpy.hashing import key_group
from heronpy.instance.checkpoints import KEPT_S, ReadingAhead
from heronpy.proto import checkpoint_pb2
from heronpy.state import Place, TaskStates, read_entries
from heronpy.testing import eventually

KEYS = [f"key-{n}" for n in range(40)]


def nothing() -> None:
    """Rests not."""


@dataclass
class Point:
    """A class of the user."""

    x: int
    unpickled = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).unpickled += 1
        self.__dict__.update(state)


class Reader:
    """Restores tasks of a component, and notes down what of its objects is read."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.blocks_read: list[str] = []

    def opened(self, ref: ObjectRef) -> ObjectReader:
        found = self.component.opened(ref)
        blocks = found.blocks

        def noted(*args: Any) -> Any:
            for block in blocks(*args):
                self.blocks_read.append(ref.name)
                yield block

        found.blocks = noted  # type: ignore[method-assign]  # of this one only
        return found

    def ahead(self, index: int, tasks: int, before: ReadAhead | None = None) -> ReadAhead:
        """What is read ahead of the newest checkpoint, maybe on top of an older one."""
        manifest = self.component.manifest
        assert manifest is not None
        self.blocks_read.clear()
        saved = read_saved(manifest, NAME, index, tasks, self.opened, ahead=before)
        blocks = {name: entries.merged() for name, entries in read_entries(saved, nothing).items()}
        return ReadAhead(manifest.checkpoint_id, self.component.epoch, index, tasks, blocks)

    def states(self, ahead: ReadAhead | None, index: int, tasks: int) -> dict[str, dict[Any, Any]]:
        """What a task restores of the newest checkpoint, by state."""
        manifest = self.component.manifest
        assert manifest is not None
        self.blocks_read.clear()
        saved = read_saved(manifest, NAME, index, tasks, self.opened, ahead=ahead)
        states = TaskStates(Place("words-1", NAME, index, tasks, GROUPS), saved)
        declared = self.component.declare(states)
        states.check_claimed()
        return {name: state.copy() for name, state in declared.items()}


def declared(states: TaskStates) -> dict[str, Any]:
    return {
        "counts": states.keyed_state("counts", codec="msgpack"),
        "values": states.keyed_state("values"),
        "own": states.broadcast_state("own"),
    }


def component(tasks: int = 2) -> Component:
    return Component(declared, tasks)


def set_value(of: Component, key: Any, value: Any, state: str = "values") -> None:
    of.of(key)[state][key] = value


def merge(of: Component) -> None:
    """Merge the objects of the first task, if there are some."""
    assert of.manifest is not None
    if sum(ref.index == 0 for ref in of.manifest.objects) > 1:
        of.compact(0)


changes = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["counts", "values"]), st.integers(0, 5)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(
    before=st.lists(changes, min_size=1, max_size=4),
    between=st.lists(changes, max_size=2),
    after=st.lists(changes, max_size=3),
    merged=st.sampled_from(["not", "before", "between", "after"]),
    tasks=st.integers(1, 3),
    wanted=st.integers(1, 5),
)
def test_the_same_is_restored_as_without(
    before: list[list[Any]], between: list[list[Any]], after: list[list[Any]], merged: str, tasks: int, wanted: int
) -> None:
    of = component(tasks)
    for key in KEYS:
        set_value(of, key, [key])
        set_value(of, key, 1, "counts")

    def take(some: list[Any]) -> None:
        for key, state, value in some:
            if value == 0:
                of.of(key)[state].pop(key, None)
            else:
                set_value(of, key, Point(value) if value == 5 else (value, key), state="values")
                set_value(of, key, value, state=state if state == "counts" else "values")
        of.checkpoint()

    for some in before:
        take(some)
    reader = Reader(of)
    found = [reader.ahead(index, wanted) for index in range(wanted)]
    if merged == "before":
        merge(of)
    for some in between:
        take(some)
        found = [reader.ahead(index, wanted, found[index]) for index in range(wanted)]
        if merged == "between":
            merge(of)
    for some in after:
        take(some)
    if merged == "after":
        merge(of)
        take([])
    for index in range(wanted):
        assert reader.states(found[index], index, wanted) == reader.states(None, index, wanted)


def test_only_what_is_newer_is_read() -> None:
    of = component()
    for key in KEYS:
        set_value(of, key, [key])
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 1)
    set_value(of, KEYS[0], ["newer"])
    newest = of.checkpoint()
    assert reader.states(ahead, 0, 1)["values"] == {key: [key] for key in KEYS} | {KEYS[0]: ["newer"]}
    assert {ref.checkpoint_id for ref in newest.objects if ref.name in reader.blocks_read} == {2}


def test_what_is_newer_is_read_ahead_on_top_of_what_was_read() -> None:
    of = component()
    for key in KEYS:
        set_value(of, key, [key])
    of.checkpoint()
    reader = Reader(of)
    first = reader.ahead(0, 1)
    set_value(of, KEYS[0], ["newer"])
    set_value(of, KEYS[1], Point(1))
    del of.of(KEYS[2])["values"][KEYS[2]]
    newer = of.checkpoint()
    second = reader.ahead(0, 1, first)
    assert {ref.checkpoint_id for ref in newer.objects if ref.name in reader.blocks_read} == {2}
    assert list(second.blocks["values"].encoded) == [KEYS[1]]
    set_value(of, KEYS[1], ["newest"])
    newest = of.checkpoint()
    expected = {key: [key] for key in KEYS} | {KEYS[0]: ["newer"], KEYS[1]: ["newest"]}
    del expected[KEYS[2]]
    assert reader.states(second, 0, 1)["values"] == expected
    assert {ref.checkpoint_id for ref in newest.objects if ref.name in reader.blocks_read} == {3}


def test_merged_meanwhile_it_is_of_use_all_the_same() -> None:
    of = component()
    for key in KEYS:
        set_value(of, key, [key])
    of.checkpoint()
    set_value(of, KEYS[1], ["second"])
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 1)
    of.compact(0)
    of.compact(1)
    set_value(of, KEYS[0], ["newer"])
    newest = of.checkpoint()
    assert len(newest.objects) == 3
    assert reader.states(ahead, 0, 1)["values"][KEYS[1]] == ["second"]
    assert len(reader.blocks_read) == 1


def test_of_a_newer_base_all_is_read_again() -> None:
    of = component(1)
    for key in KEYS:
        set_value(of, key, [key])
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 1)
    for key in KEYS[1:]:
        set_value(of, key, ["newer"])
    del of.of(KEYS[0])["values"][KEYS[0]]
    newest = of.checkpoint()
    assert [ref.since for ref in newest.objects] == [0]
    assert reader.states(ahead, 0, 1)["values"] == {key: ["newer"] for key in KEYS[1:]}


@pytest.mark.parametrize("share", [(0, 2), (1, 3)])
def test_it_is_of_no_use_to_another_task(share: tuple[int, int]) -> None:
    of = component()
    for key in KEYS:
        set_value(of, key, [key])
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 3)
    assert reader.states(ahead, *share) == reader.states(None, *share)
    assert reader.blocks_read


def test_what_follows_it_was_taken_in_the_epoch_in_which_it_was_the_newest() -> None:
    ahead = ReadAhead(7, 3, 0, 1, {})
    assert ahead.precedes(7, 2), "it is the same"
    assert ahead.precedes(9, 3)
    assert not ahead.precedes(9, 4), "something older may have been restored before"
    assert not ahead.precedes(6, 3)


def test_after_a_fallback_what_was_read_is_not_used() -> None:
    of = component(1)
    for key in KEYS:
        set_value(of, key, [key])
    of.checkpoint()
    set_value(of, KEYS[0], ["lost"])
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 1)
    del of.manifests[-1]  # it is damaged
    of.restart(1)
    set_value(of, KEYS[1], ["newer"])
    of.checkpoint()
    assert reader.states(ahead, 0, 1)["values"][KEYS[0]] == [KEYS[0]]


def test_code_of_the_user_runs_only_at_the_restore() -> None:
    of = component(1)
    set_value(of, KEYS[0], Point(1))
    set_value(of, KEYS[1], {"when": datetime.timedelta(1), "set": {1, 2}})
    of.checkpoint()
    reader = Reader(of)
    before = Point.unpickled
    block = reader.ahead(0, 1).blocks["values"]
    assert Point.unpickled == before
    assert list(block.encoded) == [KEYS[0]]
    assert block.merged[KEYS[1]] == {"when": datetime.timedelta(1), "set": {1, 2}}
    assert reader.states(reader.ahead(0, 1), 0, 1)["values"][KEYS[0]] == Point(1)
    assert Point.unpickled == before + 1


def test_keys_that_only_unpickling_brings_back_are_left_to_the_restore() -> None:
    of = component(1)
    set_value(of, True, [1])
    set_value(of, KEYS[0], 1, "counts")
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 1)
    assert set(ahead.blocks) == {"counts"}
    assert [type(key) for key in reader.states(ahead, 0, 1)["values"]] == [bool]


def test_times_of_writes_are_kept() -> None:
    of = Component(lambda states: {"seen": states.keyed_state("seen", ttl_s=10.0)}, 1)
    set_value(of, KEYS[0], [1], "seen")
    of.checkpoint()
    reader = Reader(of)
    ahead = reader.ahead(0, 1)
    assert ahead.blocks["seen"].entries.stamps == [1_000_000]
    of.now_ms += 1000
    set_value(of, KEYS[1], [1], "seen")
    set_value(of, KEYS[0], [2], "seen")
    of.checkpoint()
    block = reader.ahead(0, 1, ahead).blocks["seen"]
    assert dict(zip(block.merged, block.entries.stamps, strict=True)) == {KEYS[0]: 1_001_000, KEYS[1]: 1_001_000}


# An instance


class Store:
    """A Checkpoint Manager with one checkpoint after the other."""

    def __init__(self) -> None:
        self.component = component(1)
        self.component.epoch = 1
        for key in KEYS:
            set_value(self.component, key, {key})
        self.component.checkpoint()
        self.asked: list[tuple[int, int, int]] = []
        self.ahead: list[int] = []
        """Of which checkpoint something had been read before, each time."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.steps = 1
        self.had: Callable[[], object] = lambda: None
        """One of the values that were read before, as long as something refers to it."""
        self.had_then: list[object] = []
        """That, each time that reading has begun."""

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Store]:
        yield self

    async def read_ahead(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        *,
        pause: Callable[[], None],
        ahead: ReadAhead | None = None,
    ) -> Saved:
        self.asked.append((checkpoint, index, tasks))
        self.ahead.append(ahead.checkpoint_id if ahead is not None else 0)
        self.had_then.append(self.had())
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        for _ in range(self.steps):
            pause()
            await asyncio.sleep(0.01 if self.steps > 1 else 0)
        return read_saved(self.manifest(checkpoint), NAME, index, tasks, self.component.opened, ahead=ahead)

    async def reads_on(self, checkpoint: int, component: str, index: int, tasks: int, ahead: ReadAhead) -> bool:
        self.had = weakref.ref(next(iter(ahead.blocks["values"].merged.values())))
        return reads_on(self.manifest(checkpoint), NAME, index, tasks, ahead)

    def manifest(self, checkpoint: int) -> Manifest:
        (manifest,) = (each for each in self.component.manifests if each.checkpoint_id == checkpoint)
        return manifest


def order(checkpoint: int, index: int, tasks: int, *, task: int = 5, epoch: int = 1) -> checkpoint_pb2.ReadAhead:
    shares = {task: checkpoint_pb2.TaskShare(index=index, tasks=tasks)}
    return checkpoint_pb2.ReadAhead(epoch=epoch, checkpoint=checkpoint, shares=shares)


@contextlib.asynccontextmanager
async def instance(store: Store) -> AsyncIterator[tuple[ReadingAhead, list[int]]]:
    async with asyncio.TaskGroup() as tasks:
        reading = ReadingAhead(store.connect, NAME, 5, tasks)
        said: list[int] = []
        reading.report = lambda checkpoint, _share: said.append(checkpoint)
        yield reading, said
        reading.stop()


async def until(said: list[int], *expected: int) -> None:
    async def as_expected() -> None:
        assert said == [*expected]

    await eventually(as_expected)


async def test_what_is_ordered_is_read_once_and_reported_as_often_as_it_is_ordered() -> None:
    async with instance(store := Store()) as (reading, said):
        reading.order(order(1, 0, 2))
        reading.order(order(1, 0, 2))
        await until(said, 1)
        reading.order(order(1, 0, 2, epoch=2))
        reading.order(order(1, 0, 2, task=6))
        assert said == [1, 1]
        assert store.asked == [(1, 0, 2)]
        ahead = reading.take()
        assert ahead is not None
        assert (ahead.checkpoint_id, ahead.epoch, ahead.index, ahead.tasks) == (1, 2, 0, 2)
        expected = {key for key in KEYS if key_group(key, GROUPS) < GROUPS // 2}
        assert set(ahead.blocks["values"].merged) == expected
        assert reading.take() is None
        assert said == [1, 1, 0]


async def test_what_another_update_wants_too_is_kept_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, kept = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def noted(after_s: float, *args: Any) -> asyncio.TimerHandle:
        handle = call_later(after_s, *args)
        if after_s == KEPT_S:
            kept.append(handle)
        return handle

    monkeypatch.setattr(loop, "call_later", noted)
    async with instance(store := Store()) as (reading, said):
        for times in (1, 2):
            reading.order(order(1, 0, 2))
            await until(said, *[1] * times)
        assert [handle.cancelled() for handle in kept] == [True, False]
        assert reading.take() is not None
        assert store.asked == [(1, 0, 2)]


async def test_of_two_orders_the_last_counts() -> None:
    async with instance(store := Store()) as (reading, said):
        store.gate.clear()
        reading.order(order(1, 0, 2))
        reading.order(order(1, 1, 2))
        store.gate.set()
        await until(said, 1)
        ahead = reading.take()
        assert ahead is not None
        assert ahead.index == 1


async def test_a_newer_checkpoint_is_read_on_top_of_the_one_that_is_being_read() -> None:
    async with instance(store := Store()) as (reading, said):
        store.gate.clear()
        reading.order(order(1, 0, 2))
        await asyncio.sleep(0)
        assert store.asked
        set_value(store.component, KEYS[0], {"newer"})
        store.component.checkpoint()
        reading.order(order(2, 0, 2))
        store.gate.set()
        await until(said, 1, 2)
        assert (store.asked, store.ahead) == ([(1, 0, 2), (2, 0, 2)], [0, 1])
        ahead = reading.take()
        assert ahead is not None
        assert (ahead.checkpoint_id, ahead.epoch) == (2, 1)


async def test_what_was_read_stays_where_what_is_newer_cannot_be_read() -> None:
    async with instance(store := Store()) as (reading, said):
        reading.order(order(1, 0, 2))
        await until(said, 1)
        store.component.checkpoint()
        store.error = UnavailableError("away")
        reading.order(order(2, 0, 2, epoch=2))
        await until(said, 1, 2)
        ahead = reading.take()
        assert ahead is not None
        assert (ahead.checkpoint_id, ahead.epoch) == (1, 1)


async def test_what_does_not_fit_any_more_is_let_go_before_all_is_read_again() -> None:
    async with instance(store := Store()) as (reading, said):
        reading.order(order(1, 0, 1))
        await until(said, 1)
        store.component.epoch = 2
        store.component.checkpoint()
        reading.order(order(2, 0, 1, epoch=2))
        await until(said, 1, 2)
        set_value(store.component, KEYS[0], {"newest"})
        store.component.checkpoint()
        reading.order(order(3, 0, 1, epoch=2))
        await until(said, 1, 2, 3)
        assert store.ahead == [0, 0, 2]
        assert [had is not None for had in store.had_then] == [False, False, True]
        ahead = reading.take()
        assert ahead is not None
        assert ahead.blocks["values"].merged == {key: {key} for key in KEYS} | {KEYS[0]: {"newest"}}


async def test_a_restore_has_what_is_being_read_completed_without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.instance._reading_ahead.WORK_S", 0.0)
    monkeypatch.setattr("heronpy.instance._reading_ahead.REST_S_MAX", 3600.0)
    monkeypatch.setattr("heronpy.instance._reading_ahead.time.thread_time", itertools.count(0, 3600).__next__)
    async with instance(store := Store()) as (reading, said):
        store.gate.clear()
        reading.order(order(1, 0, 2))
        asyncio.get_running_loop().call_later(0.05, store.gate.set)
        await reading.finish(1, 0, 2)
        assert said == [1]
        assert reading.take() is not None


async def test_a_restore_waits_for_as_long_as_something_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.instance._reading_ahead.FINISH_S", 0.1)
    async with instance(store := Store()) as (reading, said):
        store.steps = 40
        reading.order(order(1, 0, 2))
        await reading.finish(1, 0, 2)
        assert said == [1]
        assert reading.take() is not None


async def test_a_restore_of_an_older_checkpoint_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.instance._reading_ahead.FINISH_S", 3600.0)
    async with asyncio.timeout(30.0), instance(store := Store()) as (reading, said):
        reading.order(order(1, 0, 2))
        await until(said, 1)
        store.component.checkpoint()
        store.gate.clear()
        reading.order(order(2, 0, 2))
        await reading.finish(1, 0, 2)
        ahead = reading.take()
        assert ahead is not None
        assert ahead.checkpoint_id == 1


async def test_a_restore_does_not_wait_for_long_nor_for_another_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.instance._reading_ahead.FINISH_S", 0.05)
    async with instance(store := Store()) as (reading, said):
        store.gate.clear()
        reading.order(order(1, 0, 2))
        await reading.finish(1, 0, 2)
        assert reading.take() is None
        monkeypatch.setattr("heronpy.instance._reading_ahead.FINISH_S", 3600.0)
        reading.order(order(1, 0, 2))
        await reading.finish(1, 0, 3)
        assert reading.take() is None
        store.gate.set()
        reading.order(order(1, 0, 2))
        await until(said, 0, 0, 1)


@pytest.mark.parametrize("error", [CheckpointError("torn"), UnavailableError("away")])
async def test_what_cannot_be_read_is_done_with(error: Exception) -> None:
    async with instance(store := Store()) as (reading, said):
        store.error = error
        reading.order(order(1, 0, 2))
        await until(said, 1)
        assert reading.take() is None


async def test_what_nobody_restores_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with instance(Store()) as (reading, said):
        reading.order(order(1, 0, 1))
        await until(said, 1)
        monkeypatch.setattr("heronpy.instance._reading_ahead.KEPT_S", 0.05)
        reading.order(order(1, 0, 1))
        await until(said, 1, 1, 0)
        assert reading.take() is None


def test_blocks_are_not_shared_between_restores() -> None:
    """A value may be changed by the task that it was restored for."""
    of = component(1)
    set_value(of, KEYS[0], [1])
    of.checkpoint()
    reader = Reader(of)
    first, second = reader.ahead(0, 1), reader.ahead(0, 1)
    merged = [each.blocks["values"].merged for each in (first, second)]
    assert merged[0][KEYS[0]] is not merged[1][KEYS[0]]
    assert replace(first, blocks={}) == replace(second, blocks={})
