"""A task that only groups by one field chooses the tasks of its tuples when it sends them."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.config import InstanceConfig
from heronpy.errors import TupleError
from heronpy.hashing import index_of_group, key_group, stable_hashes
from heronpy.instance.task import SpoutTask, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.wire import decode_tuples

TASKS = 5


class Source(Spout):
    outputs = ["n", "key"]  # noqa: RUF012

    def next_tuple(self) -> None:
        pass


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        pass


class Run:
    """A spout's task, and what it has sent."""

    def __init__(self, reliability: str = "ATLEAST_ONCE") -> None:
        builder = TopologyBuilder("keyed")
        source = builder.add_spout("source", Source, 1)
        builder.add_bolt("sink", Sink, TASKS, {source: Grouping.fields("key")})
        builder.set_config({"topology.reliability.mode": reliability})
        proto = builder.build().protobuf_topology
        proto.state = 1
        logical = LogicalPlan.from_proto(proto)
        self.plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        self.sent: list[stmgr_pb2.Batch] = []
        task = make_task(TaskCore(plan=self.plan, task_id=1, config=InstanceConfig(), send=self.sent.extend))
        assert isinstance(task, SpoutTask)
        self.task = task
        task.open()
        apply_state(task, self.plan)

    def emit(self, values: Any, **named: Any) -> Sequence[int]:
        ids: Sequence[int] = self.task.user_object.emit(values, tup_id=1, **named)
        return ids

    def task_of(self, key: Any) -> int:
        return self.plan.component_tasks["sink"][index_of_group(key_group(key), TASKS)]

    def received(self) -> dict[int, list[Any]]:
        """The values that each task is sent, in order."""
        self.task.flush()
        values: dict[int, list[Any]] = defaultdict(list)
        for batch in self.sent:
            values[batch.dest_task] += pickle.loads(decode_tuples(batch.body).values)
        self.sent.clear()
        return values


integers = st.one_of(st.integers(-3, 3), st.integers())
keys = st.one_of(st.text(max_size=3), integers, st.none(), st.floats(allow_nan=False), st.tuples(st.text()))


@given(st.lists(st.tuples(keys, st.booleans()), max_size=60), st.sampled_from(["ATLEAST_ONCE", "ATMOST_ONCE"]))
def test_every_key_goes_to_its_task_in_the_order_of_emit(emits: list[tuple[Any, bool]], reliability: str) -> None:
    run = Run(reliability)
    expected: dict[int, list[Any]] = defaultdict(list)
    for n, (key, need_task_ids) in enumerate(emits):
        assert run.emit((n, key), need_task_ids=need_task_ids) == [run.task_of(key)]
        expected[run.task_of(key)].append((n, key))
    assert run.received() == expected
    run.task.check_invariants()
    assert run.task.pending == (len(emits) if reliability == "ATLEAST_ONCE" else 0)


def test_half_of_a_surrogate_pair_is_a_key() -> None:
    run = Run()
    run.emit([1, "\ud800"])
    run.emit([2, "word"])
    received = run.received()
    assert [1, "\ud800"] in received[run.task_of("\ud800")]
    assert [2, "word"] in received[run.task_of("word")]


def test_the_ids_that_emit_returns_are_a_sequence_like_the_list() -> None:
    run = Run()
    ids, expected = run.emit([1, "word"]), [run.task_of("word")]
    assert isinstance(ids, Sequence)
    assert (list(ids), len(ids), ids[0], ids[-1], ids[:1]) == (expected, 1, expected[0], expected[0], expected)
    assert ids == expected == ids
    assert ids == run.emit([2, "word"])
    assert ids != [*expected, 1]
    assert expected[0] in ids
    assert repr(ids) == repr(expected)
    assert (ids.index(expected[0]), ids.count(expected[0]), ids.count(-1), [*reversed(ids)]) == (0, 1, 0, expected)
    assert type(run.emit([3, "word"], need_task_ids=True)) is list


def test_the_ids_that_emit_returns_can_be_kept_in_a_state_or_emitted() -> None:
    run = Run()
    ids, expected = run.emit([1, "word"]), [run.task_of("word")]
    assert pickle.loads(pickle.dumps(ids)) == copy.deepcopy(ids) == expected
    run.emit([ids, "word"])
    assert run.received() == {expected[0]: [[1, "word"], [expected, "word"]]}


def test_an_emitted_object_that_keeps_the_ids_is_freed() -> None:
    class Order:
        sent_to: Sequence[int] = ()

        def __reduce__(self) -> Any:
            return str, ()

    run = Run()
    order = Order()
    order.sent_to = run.emit([order, "word"])
    run.received()
    freed = weakref.ref(order)
    del order
    gc.collect()
    assert freed() is None


def test_keys_of_several_types_are_not_chosen_for_all_at_once_after_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run()
    chosen: list[int] = []
    hashes = stable_hashes

    def counted(keys: Sequence[Any]) -> Any:
        chosen.append(len(keys))
        return hashes(keys)

    monkeypatch.setattr("heronpy.instance._unchosen.stable_hashes", counted)
    for n in range(100):
        run.emit((n, "word" if n % 2 else None))
    received = run.received()
    assert chosen == [1], "two calls of numpy for every second tuple cost twenty times the emit"
    assert sorted(n for values in received.values() for n, _ in values) == [*range(100)]


def test_a_list_that_is_emitted_may_be_changed_before_its_task_is_chosen() -> None:
    run = Run()
    values: list[Any] = [1, "word"]
    ids = run.emit(values)
    values[1] = "another"
    assert ids == [run.task_of("word")]
    assert run.received() == {run.task_of("word"): [[1, "word"]]}


@pytest.mark.parametrize(("values", "match"), [([1], "lacks a field"), ([1, object()], "cannot be a grouping key")])
def test_a_tuple_that_has_no_task_is_refused_by_its_emit(values: list[Any], match: str) -> None:
    run = Run()
    run.emit([0, "word"])
    with pytest.raises(TupleError, match=match):
        run.emit(values)
    assert run.received() == {run.task_of("word"): [[0, "word"]]}


def test_the_order_of_every_thread_is_kept_while_another_one_sends() -> None:
    run = Run()
    threads, count = 3, 3000

    def emits(thread: int) -> None:
        for n in range(count):
            # Every eleventh is chosen at once.
            run.emit(((thread, n), f"{n % 7}" if n % 11 else (n % 7,)))

    running = [threading.Thread(target=emits, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    while any(thread.is_alive() for thread in running) or run.task.core.outputs:
        for task, received in run.received().items():
            for (thread, n), _ in received:
                found[task, thread].append(n)
    for task, received in run.received().items():
        for (thread, n), _ in received:
            found[task, thread].append(n)
    assert sum(map(len, found.values())) == threads * count
    assert all(numbers == sorted(numbers) for numbers in found.values())
