"""At least once with checkpoints: trees are tracked, and a spout is told of what a commit covers."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.config import takes_checkpoints
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from heronpy.testing import Simulator
from heronpy.wire import ACK, DATA, decode_tuples, root_batch, tuple_batch
from tests.unit.checkpointed_kit import ByHand
from tests.unit.snapshot_kit import Stored

NUMBERS = 40
KEYS = 7


class Queue:
    """A source outside of the topology: it gives again what nobody has acknowledged."""

    def __init__(self, count: int) -> None:
        self.unacked = list(range(count))
        self.acked: set[int] = set()


class Reader(Spout):
    """Reads a queue; knows in memory only what it has to emit again."""

    outputs = ["number", "key"]  # noqa: RUF012  # Heron's way to declare
    queue: Queue
    limit = NUMBERS

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.waiting = [n for n in self.queue.unacked if n not in self.queue.acked]
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.waiting and self.waiting[0] < self.limit:
            number = self.waiting.pop(0)
            self.emit([number, number % KEYS], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        self.queue.acked.add(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.failed.append(tup_id)
        self.waiting.insert(0, tup_id)


class Sets(Bolt):
    """Has in its state how often each number came, by key."""

    outputs = ["number", "key"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seen = context.keyed_state("seen", default=())
        self.held: list[Tuple] = []
        self.holds = False

    def process(self, tup: Tuple) -> None:
        self.seen[tup["key"]] = (*self.seen[tup["key"]], tup["number"])
        self.emit([tup["number"], tup["key"]], anchors=[tup])
        if self.holds:
            self.held.append(tup)
        else:
            self.ack(tup)


def topology(queue: Queue, sets: int = 1, **config: Any) -> TopologyBuilder:
    reader = type("OneReader", (Reader,), {"queue": queue, "__module__": __name__})
    globals()["OneReader"] = reader
    builder = TopologyBuilder("reading")
    source = builder.add_spout("reader", reader, 1)
    first = builder.add_bolt("first", Sets, sets, {source: Grouping.fields("key")})
    builder.add_bolt("second", Sets, sets, {first: Grouping.fields("key")})
    interval = {"topology.stateful.checkpoint.interval.seconds": 3600, "topology.exception.policy": "fail"}
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", **interval, **config})
    return builder


def seen(simulator: Simulator, component: str = "second") -> Counter[int]:
    bolts = simulator.component(component)
    return Counter(number for bolt in bolts for numbers in dict(bolt.seen).values() for number in numbers)


def settled(simulator: Simulator) -> None:
    for _ in range(200):
        simulator.step()


@pytest.mark.parametrize(
    ("config", "takes"),
    [
        ({"topology.reliability.mode": "ATMOST_ONCE", "topology.stateful.checkpoint.interval.seconds": 1}, False),
        ({"topology.reliability.mode": "ATLEAST_ONCE"}, False),
        ({"topology.reliability.mode": "ATLEAST_ONCE", "topology.stateful.checkpoint.interval.seconds": 1}, True),
        ({"topology.reliability.mode": "EFFECTIVELY_ONCE"}, True),
    ],
)
def test_at_least_once_an_interval_asks_for_checkpoints(config: dict[str, Any], takes: bool) -> None:
    assert takes_checkpoints(config) is takes


def test_a_tuple_is_acked_with_the_commit_that_covers_it() -> None:
    queue = Queue(NUMBERS)
    with Simulator(topology(queue)) as simulator:
        (reader,) = simulator.component("reader")
        reader.limit = 10
        settled(simulator)
        assert simulator.tasks[1].pending == 0, "complete trees are not pending"
        assert queue.acked == set()
        simulator.checkpoint(commit=False)
        assert queue.acked == set()
        reader.limit = 20
        settled(simulator)
        simulator.checkpoint()
        assert queue.acked == set(range(20))
        assert simulator.total("__ack-count/default") == 20


def test_a_complete_tree_does_not_time_out_while_it_waits_for_its_commit() -> None:
    now = [1_000_000_000]
    queue = Queue(5)
    with Simulator(topology(queue, **{"topology.message.timeout.secs": 10}), clock=lambda: now[0]) as simulator:
        for _ in range(50):
            simulator.step()
            now[0] += 10_000_000
        now[0] += 3_000_000_000_000
        settled(simulator)
        assert simulator.component("reader")[0].failed == []
        simulator.checkpoint()
        assert queue.acked == set(range(5))


def test_a_restore_fails_what_no_commit_covers_and_keeps_the_spout() -> None:
    queue = Queue(NUMBERS)
    with Simulator(topology(queue)) as simulator:
        (reader,) = simulator.component("reader")
        reader.limit = 10
        settled(simulator)
        simulator.checkpoint()
        reader.limit = 15
        settled(simulator)
        simulator.restore()
        assert simulator.component("reader") == [reader]
        assert sorted(reader.failed) == [10, 11, 12, 13, 14]
        assert set(seen(simulator)) == set(range(10)), "state is that of the commit"
        settled(simulator)
        simulator.checkpoint()
        assert queue.acked == set(range(15))
        assert set(seen(simulator)) == set(range(15))


def test_a_restore_acks_what_is_covered_by_a_commit_that_the_spout_was_not_told_of() -> None:
    queue = Queue(5)
    with Simulator(topology(queue)) as simulator:
        settled(simulator)
        simulator.checkpoint(tell=False)
        assert queue.acked == set()
        simulator.restore()
        assert queue.acked == set(range(5))
        assert simulator.component("reader")[0].failed == []


def test_tuples_that_a_bolt_holds_keep_no_checkpoint_waiting_and_are_not_acked() -> None:
    queue = Queue(5)
    with Simulator(topology(queue)) as simulator:
        (second,) = simulator.component("second")
        second.holds = True
        settled(simulator)
        simulator.checkpoint()
        assert queue.acked == set()
        for tup in second.held:
            second.ack(tup)
        settled(simulator)
        simulator.checkpoint()
        assert queue.acked == set(range(5))


def test_fail_is_for_the_spout_and_no_rollback() -> None:
    queue = Queue(5)
    with Simulator(topology(queue)) as simulator:
        (first,) = simulator.component("first")
        (second,) = simulator.component("second")
        second.holds = True
        settled(simulator)
        second.holds = False
        second.fail(second.held[2])
        settled(simulator)
        assert simulator.component("first") == [first]
        assert simulator.component("reader")[0].failed == [2]
        assert seen(simulator)[2] == 2


def test_a_spout_waits_while_too_many_trees_wait_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(NUMBERS)
    with Simulator(topology(queue)) as simulator:
        monkeypatch.setattr(simulator.tasks[1].outcomes.ledger, "_roots_max", 10)
        settled(simulator)
        (reader,) = simulator.component("reader")
        emitted = NUMBERS - len(reader.waiting)
        assert emitted >= 10
        for _ in range(10):
            simulator.checkpoint()
            settled(simulator)
        simulator.checkpoint()
        assert queue.acked == set(range(NUMBERS))


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_acked_is_in_what_a_restore_brings_back(seed: int) -> None:
    rng = random.Random(seed)
    queue = Queue(NUMBERS)
    with Simulator(topology(queue, sets=rng.randint(1, 3))) as simulator:
        for _ in range(60):
            action = rng.random()
            if action < 0.6:
                for _ in range(rng.randint(1, 4)):
                    simulator.step()
            elif action < 0.8:
                simulator.checkpoint(commit=rng.random() < 0.7, tell=rng.random() < 0.7)
            else:
                simulator.restore(kill=rng.random() < 0.4)
                for component in ("first", "second"):
                    assert queue.acked <= seen(simulator, component).keys()
        settled(simulator)
        simulator.checkpoint()
        assert queue.acked == set(range(NUMBERS))
        for component in ("first", "second"):
            assert set(seen(simulator, component)) == set(range(NUMBERS))


def test_without_an_interval_acks_wait_for_nothing() -> None:
    queue = Queue(5)
    builder = topology(queue)
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
    with Simulator(builder) as simulator:
        settled(simulator)
        assert queue.acked == set(range(5))


# In an instance


READER, FIRST = 1, 2


def by_hand(task: int, queue: Queue, **config: Any) -> ByHand:
    """One instance of the topology, which runs; a spout of it emits two numbers at first."""
    proto = topology(queue, **config).build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), (), restore_epoch=1)
    hand = ByHand(plan, task, Stored(plan))
    hand.start()
    globals()["OneReader"].limit = 2
    hand.settle()
    hand.reports.clear()
    return hand


def numbers_sent(hand: ByHand, epoch: int) -> list[int]:
    """What a task has sent to the first bolt in an epoch."""
    hand.thread.runner.task.flush()  # type: ignore[union-attr]  # it was restored
    bodies = [decode_tuples(batch.body) for at, batch in hand.queues.sent if (at, batch.kind) == (epoch, DATA)]
    return [number for body in bodies for number, _ in pickle.loads(body.values)]


def acked(hand: ByHand, epoch: int = 1) -> list[stmgr_pb2.Batch]:
    """Acks of all that a spout has sent in an epoch."""
    bodies = [decode_tuples(batch.body) for at, batch in hand.queues.sent if (at, batch.kind) == (epoch, DATA)]
    return [root_batch(ACK, READER, body.roots, body.ids) for body in bodies]


def checkpoint(hand: ByHand, number: int, epoch: int = 1) -> None:
    hand.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=number, epoch=epoch))
    hand.settle()


def test_a_spout_without_state_goes_on_through_a_restore() -> None:
    queue = Queue(6)
    hand = by_hand(READER, queue)
    reader = hand.user
    assert numbers_sent(hand, 1) == [0, 1]
    hand.received(acked(hand), number=1)
    reader.limit = 4
    hand.settle()
    checkpoint(hand, 1)
    hand.stored.commit(1)
    hand.start(1, epoch=2)
    hand.settle()
    assert hand.user is reader
    assert queue.acked == {0, 1}, "what the checkpoint covers is acked by the restore"
    assert sorted(reader.failed) == [2, 3]
    reader.limit = 6
    hand.settle()
    assert sorted(numbers_sent(hand, 2)) == [2, 3, 4, 5]
    assert [core.context.restore_epoch for core in hand.cores] == [2]
    checkpoint(hand, 2, epoch=2)
    assert [stored.checkpoint for stored in hand.said("stored")][-1] == 2


def test_a_spout_that_has_failed_is_replaced() -> None:
    queue = Queue(6)
    hand = by_hand(READER, queue, **{"topology.exception.policy": "restart"})
    reader = hand.user

    def broken() -> None:
        raise RuntimeError("its connection is lost")

    reader.next_tuple = broken
    hand.settle()
    assert hand.said("rollback")
    hand.start(epoch=2)
    hand.settle()
    assert hand.user is not reader
    assert sorted(reader.failed) == [0, 1]
    assert sorted(numbers_sent(hand, 2)) == [0, 1]


def test_a_spout_whose_tasks_become_more_is_opened_anew() -> None:
    queue = Queue(6)
    hand = by_hand(READER, queue)
    reader = hand.user
    proto = topology(queue).build().protobuf_topology
    logical = LogicalPlan.from_proto(proto).with_parallelism({"reader": 2})
    packing = RoundRobinPacking(logical).pack()
    hand.plan = PhysicalPlan(2, logical, packing, (), restore_epoch=2)
    hand.gateway.planned(hand.plan)
    hand.start(epoch=2)
    hand.settle()
    assert hand.user is not reader
    assert sorted(reader.failed) == [0, 1], "its source can give them again"


def test_a_tuple_that_user_code_raises_on_is_named_so_that_it_can_be_set_aside() -> None:
    hand = by_hand(FIRST, Queue(0), **{"topology.exception.policy": "restart"})
    values = pickle.dumps([["not a number", []]])  # a list is no key
    bad = tuple_batch(src_task=READER, dest_task=FIRST, streams=["default"], count=1, values=values)
    hand.received([bad], number=1)
    hand.settle()
    (rollback, *_) = hand.said("rollback")
    assert rollback.tuple
    hand.set_aside = {rollback.tuple: "it fails"}
    letters = [checkpoint_pb2.SetAside(tuple=rollback.tuple, reason="it fails")]
    hand.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[FIRST], set_aside=letters))
    hand.settle()
    hand.start(epoch=2)
    hand.received([bad], epoch=2, number=1)
    hand.settle()
    assert not hand.said("rollback")
