"""While much waits to be sent, values are serialized early, and all arrives as it was emitted."""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.config import InstanceConfig
from heronpy.instance.task import BoltTask, Pair, SpoutTask, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan, TopologyState
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, DATA, MalformedBatch, Tuples, decode_tuples, tuple_batch

MANY = 2000
"""More than are serialized at once, fewer than are sent at once when a task has learned how large they are."""


class Source(Spout):
    outputs = ["n", "key"]  # noqa: RUF012

    def next_tuple(self) -> None:
        pass

    def ack(self, tup_id: Any) -> None:
        acked.append(tup_id)

    def fail(self, tup_id: Any) -> None:
        failed.append(tup_id)


class Sink(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


acked: list[Any] = []
failed: list[Any] = []


class Run:
    """A spout's task and a bolt's, and what the spout has sent."""

    def __init__(self, reliability: str = "ATLEAST_ONCE", tasks: int = 3) -> None:
        acked.clear()
        failed.clear()
        builder = TopologyBuilder("staged")
        source = builder.add_spout("source", Source, 1)
        builder.add_bolt("sink", Sink, tasks, {source: Grouping.fields("key")})
        builder.set_config({"topology.reliability.mode": reliability, "topology.exception.policy": "fail"})
        proto = builder.build().protobuf_topology
        proto.state = TopologyState.RUNNING.value
        logical = LogicalPlan.from_proto(proto)
        self.plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
        self.sent: list[stmgr_pb2.Batch] = []
        spout = self._task(1)
        assert isinstance(spout, SpoutTask)
        self.spout = spout
        for n in range(200_000):  # until it has learned that many of them fit into a frame
            self.spout.user_object.emit((n, n % 100), tup_id=None)
            if len(self.sent) > 100:
                break
        self.spout.flush()
        self.sent.clear()

    def _task(self, task_id: int) -> Any:
        core = TaskCore(plan=self.plan, task_id=task_id, config=InstanceConfig(), send=lambda b: self.sent.extend(b))
        task = make_task(core)
        task.open()
        apply_state(task, self.plan)
        return task

    def emit(self, n: Any, key: Any = "k", tup_id: Any = 1) -> None:
        self.spout.user_object.emit((n, key), tup_id=tup_id)

    def received(self) -> dict[int, list[Any]]:
        """The values that each task is sent, in order."""
        self.spout.flush()
        values: dict[int, list[Any]] = defaultdict(list)
        for batch in self._batches():
            values[batch.dest_task] += decode_tuples(batch.body).deserialized(pickle.loads)
        return values

    def _batches(self) -> Iterator[stmgr_pb2.Batch]:
        sent, self.sent[:] = self.sent[:], []
        yield from sent

    def execute(self) -> None:
        """Have bolts execute what was sent, and the spout take their acks."""
        self.spout.flush()
        for batch in [*self._batches()]:
            bolt = self._task(batch.dest_task)
            assert isinstance(bolt, BoltTask)
            bolt.offer(stmgr_pb2.Batch.FromString(batch.SerializeToString()))
            bolt.flush()
        for batch in [*self._batches()]:
            assert batch.kind == ACK
            self.spout.offer(batch)


@pytest.mark.parametrize("reliability", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_many_tuples_go_in_one_batch_of_several_parts_in_the_order_of_emit(reliability: str) -> None:
    run = Run(reliability)
    expected: dict[Any, list[Any]] = defaultdict(list)
    for n in range(MANY):
        run.emit(n, n % 7)
        expected[n % 7].append((n, n % 7))
    assert not run.sent, "all of it waits"
    run.spout.flush()
    batches = [batch for batch in run.sent if batch.kind == DATA]
    assert len(batches) == len({batch.dest_task for batch in batches})
    assert sum(batch.count for batch in batches) == MANY
    assert all(len(decode_tuples(batch.body).part_sizes) > 1 for batch in batches)
    found: dict[Any, list[Any]] = defaultdict(list)
    for values in run.received().values():
        for n, key in values:
            found[key].append((n, key))
    assert found == expected


def test_every_tuple_of_a_batch_of_several_parts_is_acked() -> None:
    run = Run()
    for n in range(MANY):
        run.emit(n, n % 7, tup_id=n)
    assert run.spout.pending == MANY
    run.execute()
    assert sorted(acked) == [*range(MANY)]
    assert run.spout.pending == 0
    run.spout.check_invariants()


@settings(max_examples=10, deadline=None)
@given(st.sets(st.integers(0, MANY - 1), max_size=4), st.integers(1, 5))
def test_what_cannot_be_serialized_is_failed_and_all_else_arrives(bad: set[int], keys: int) -> None:
    run = Run()
    for n in range(MANY):
        run.emit(threading.Lock() if n in bad else n, n % keys, tup_id=n)
    arrived = [[n for n, _ in received] for received in run.received().values()]
    assert sorted(n for numbers in arrived for n in numbers) == [n for n in range(MANY) if n not in bad]
    assert all(numbers == sorted(numbers) for numbers in arrived)
    run.spout.settle()
    assert sorted(failed) == sorted(bad)
    assert run.spout.pending == MANY - len(bad)


class Emits:
    """A value that emits while it is serialized."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __reduce__(self) -> Any:
        for n in range(MANY):
            self.run.emit(("inner", n))
        return str, ("outer",)


def test_a_value_may_emit_while_it_is_serialized() -> None:
    run = Run(tasks=2)
    run.emit(Emits(run))
    for n in range(MANY):
        run.emit(("after", n))
    found = [value for _ in range(3) for received in run.received().values() for value, _ in received]
    assert found.count("outer") == 1
    for kind in ("inner", "after"):
        assert [n for value in found if value != "outer" for k, n in [value] if k == kind] == [*range(MANY)]


class Asks:
    """A value that asks, while it is serialized, whether the task may sleep, and how much waits."""

    def __init__(self, spout: SpoutTask) -> None:
        self.spout = spout

    def __reduce__(self) -> Any:
        asked.append((self.spout.doze(True), self.spout.pending > 0))
        self.spout.doze(False)
        self.spout.send_watermark(7)
        return str, ("asked",)


asked: list[tuple[bool, bool]] = []


def test_what_is_being_serialized_waits_as_before() -> None:
    run = Run()
    asked.clear()
    for n in range(MANY // 2):
        run.emit(Asks(run.spout) if n == 0 else n, tup_id=n)
    assert asked == [(False, True)], "once, early; a task that sleeps would send it with the next tuple, if ever"
    assert not [batch for batch in run.sent if batch.kind == DATA]
    run.sent.clear()
    ((first, *rest),) = [[value for value, _ in received] for received in run.received().values()]
    assert (first, rest) == ("asked", [*range(1, MANY // 2)])


@pytest.mark.parametrize("bytes_max", [10, 10_000])
def test_what_is_left_to_the_sender_is_not_tried_again_with_each_tuple_after_it(bytes_max: int) -> None:
    tried: list[int] = []

    def serialize(values: list[Any]) -> bytes:
        tried.append(len(values))
        return pickle.dumps(values)

    pair = Pair(2)
    pair.stream("default")
    put = pair.put_of("default")
    put(["a long text" if bytes_max == 10 else threading.Lock()])
    for n in range(5):
        pair.stage(serialize, bytes_max)
        put([n])
    assert tried == [1]
    assert len(pair.take().values) == 6
    put([7])
    pair.stage(serialize, 10_000)
    assert tried == [1, 1]
    assert [(count, pickle.loads(data)) for count, data in pair.take().parts] == [(1, [[7]])]


def test_the_order_of_every_thread_is_kept_while_others_emit_and_one_sends() -> None:
    run = Run()
    threads, count = 3, 3 * MANY

    def emits(thread: int) -> None:
        for n in range(count):
            run.emit((thread, n), n % 7)

    running = [threading.Thread(target=emits, args=(thread,)) for thread in range(threads)]
    for each in running:
        each.start()
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    more = True
    while more:
        more = any(each.is_alive() for each in running)  # before the look: what was emitted until now is in it
        for task, received in run.received().items():
            for (thread, n), _ in received:
                found[task, thread].append(n)
    assert sum(map(len, found.values())) == threads * count
    assert all(numbers == sorted(numbers) for numbers in found.values())


def test_parts_that_contradict_the_values_are_refused() -> None:
    parts = [pickle.dumps([[1]]), pickle.dumps([[2], [3]])]
    sizes = [*map(len, parts)]

    def decoded(part_sizes: list[int]) -> Tuples:
        batch = tuple_batch(
            src_task=1, dest_task=2, streams=["s"], count=3, values=b"".join(parts), part_sizes=part_sizes
        )
        return decode_tuples(batch.body)

    assert decoded(sizes).deserialized(pickle.loads) == [[1], [2], [3]]
    with pytest.raises(MalformedBatch, match="in parts of"):
        decoded([sizes[0], sizes[1] + 1])
