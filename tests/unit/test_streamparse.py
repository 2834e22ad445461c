"""Spouts, bolts and topologies as they are written for streamparse, with only their import changed."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest

from heronpy.errors import TopologyError
from heronpy.plan import LogicalPlan
from heronpy.streamparse import (
    BatchingBolt,
    Bolt,
    Grouping,
    ReliableSpout,
    Spout,
    TicklessBatchingBolt,
    Topology,
    Tuple,
)
from heronpy.testing import Simulator

WORDS = ("dog", "cat", "dog", "elephant")
seen: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()
    seen.update(counted=Counter(), acked=[], failed=[], batches=[], raised=Counter())


class WordSpout(Spout):
    outputs: ClassVar = ["word"]

    def initialize(self, stormconf: Any, context: Any) -> None:
        self.left = list(enumerate(WORDS))

    def next_tuple(self) -> None:
        if self.left:
            number, word = self.left.pop(0)
            self.emit([word], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        seen["acked"].append(tup_id)

    def fail(self, tup_id: Any) -> None:
        seen["failed"].append(tup_id)


class ReliableWordSpout(ReliableSpout):
    outputs: ClassVar = ["word"]

    def initialize(self, stormconf: Any, context: Any) -> None:
        self.left = list(enumerate(WORDS))

    def next_tuple(self) -> None:
        if self.left:
            number, word = self.left.pop(0)
            self.emit([word], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        super().ack(tup_id)
        seen["acked"].append(tup_id)
        seen["kept"] = dict(self.unacked_tuples)


class WordCountBolt(Bolt):
    outputs: ClassVar = ["word", "count"]

    def initialize(self, conf: Any, ctx: Any) -> None:
        self.counts: Counter[str] = Counter()
        seen["self"] = (self.topology_name, self.component_name, self.task_id, self.debug)
        self.report_metric("started", 1)
        self.report_metric("started", 2)

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.counts[word] += 1
        self.emit([word, self.counts[word]])
        self.log(f"{word} {self.counts[word]}")
        seen["counted"][word] += 1


class PickyBolt(Bolt):
    """Raises on an elephant, as often as it is told to."""

    def process(self, tup: Tuple) -> None:
        if tup["word"] == "elephant" and seen["raised"]["elephant"] < seen["times"]:
            seen["raised"]["elephant"] += 1
            raise ValueError("too large")
        seen["counted"][tup["word"]] += 1


class Batches(BatchingBolt):
    outputs: ClassVar = ["word", "count"]

    def group_key(self, tup: Tuple) -> Any:
        return tup.values[0]

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        if key == seen.get("bad"):
            raise ValueError(key)
        self.emit([key, len(tups)])
        seen["batches"].append((key, len(tups)))


class OwnAcks(Batches):
    auto_ack = False


class Quick(TicklessBatchingBolt):
    secs_between_batches = 0.25

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        seen["batches"].append((key, len(tups)))


class FailingBolt(Bolt):
    auto_ack = False

    def process(self, tup: Tuple) -> None:
        self.fail(tup)


class WordCount(Topology):
    word_spout = WordSpout.spec()
    count_bolt = WordCountBolt.spec(inputs={word_spout: Grouping.fields("word")}, par=2)


class Time:
    """A clock that a test sets."""

    ns = 10**12

    def __call__(self) -> int:
        return self.ns


def run(topology: Any, *, seconds: int = 0) -> None:
    clock = Time()
    with Simulator(topology, clock=clock) as simulator:
        for _ in range(seconds * 4 + 1):
            for _ in range(50):
                simulator.step()
                clock.ns += 5_000_000


def mode_of(topology: Any) -> str:
    return str(LogicalPlan.from_proto(topology.protobuf_topology).config["topology.reliability.mode"])


def test_bolts_ack_and_anchor_by_themselves() -> None:
    run(WordCount)
    assert seen["counted"] == Counter(WORDS)
    assert sorted(seen["acked"]) == [0, 1, 2, 3]
    assert seen["self"][:2] == ("WordCount", "count_bolt")
    assert seen["self"][3] is False


def test_topologies_are_at_least_once_unless_they_have_no_ackers() -> None:
    spout = WordSpout.spec()

    class NoAckers(Topology):
        config: ClassVar = {"topology.acker.executors": 0}
        words = WordSpout.spec()
        counts = WordCountBolt.spec(inputs=[words])

    class Told(Topology):
        config: ClassVar = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.ackers": 0}
        words = spout
        counts = WordCountBolt.spec(inputs=[words])

    assert mode_of(WordCount) == "ATLEAST_ONCE"
    assert mode_of(NoAckers) == "ATMOST_ONCE"
    assert mode_of(Told) == "EFFECTIVELY_ONCE"


def test_the_base_is_no_topology() -> None:
    assert not hasattr(Topology, "protobuf_topology")
    with pytest.raises(TopologyError, match="write a subclass"):
        Topology.write()


@pytest.mark.parametrize(("times", "counted"), [(0, 1), (1, 1), (3, 1), (4, 0)])
def test_a_reliable_spout_emits_again_what_fails_so_many_times(times: int, counted: int) -> None:
    class Reliable(Topology):
        config: ClassVar = {"topology.exception.policy": "fail"}
        words = ReliableWordSpout.spec()
        picky = PickyBolt.spec(inputs=[words])

    seen["times"] = times
    run(Reliable, seconds=2)
    assert seen["raised"]["elephant"] == times
    assert seen["counted"]["elephant"] == counted
    assert sorted(seen["acked"]) == [0, 1, 2, 3]
    assert seen["kept"] == {}


def test_a_reliable_spout_wants_an_id() -> None:
    with pytest.raises(ValueError, match="tup_id"):
        ReliableSpout.emit(object.__new__(ReliableSpout), ["a"])


def batching(bolt: type[BatchingBolt], end: type[Bolt] = WordCountBolt) -> Any:
    class Batching(Topology):
        config: ClassVar = {"topology.tick.tuple.freq.secs": 1, "topology.exception.policy": "fail"}
        words = WordSpout.spec()
        batches = bolt.spec(inputs=[words])
        ends = end.spec(inputs=[batches])

    return Batching


def test_batches_are_acked_when_they_are_processed() -> None:
    run(batching(Batches))
    assert seen["acked"] == []
    run(batching(Batches), seconds=2)
    assert sorted(seen["batches"]) == [("cat", 1), ("dog", 2), ("elephant", 1)]
    assert seen["counted"] == Counter({"dog": 1, "cat": 1, "elephant": 1})
    assert sorted(seen["acked"]) == [0, 1, 2, 3]


def test_a_batch_may_be_acked_by_the_user() -> None:
    run(batching(OwnAcks), seconds=2)
    assert len(seen["batches"]) == 3
    assert seen["acked"] == []


def test_what_a_batch_emits_is_anchored_to_its_tuples() -> None:
    run(batching(Batches, FailingBolt), seconds=2)
    assert seen["acked"] == []
    assert sorted(seen["failed"]) == [0, 1, 2, 3]


def test_a_batch_that_raises_fails_with_those_after_it() -> None:
    seen["bad"] = "cat"
    run(batching(Batches), seconds=2)
    assert seen["batches"] == [("dog", 2)]
    assert sorted(seen["acked"]) == [0, 2]
    assert sorted(seen["failed"]) == [1, 3]


def test_batches_by_time_need_no_ticks_in_the_configuration() -> None:
    class ByTime(Topology):
        words = WordSpout.spec()
        quick = Quick.spec(inputs=[words])

    run(ByTime, seconds=1)
    assert seen["batches"] == [(None, 4)]
    assert sorted(seen["acked"]) == [0, 1, 2, 3]
