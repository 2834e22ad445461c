"""The bolt around a sink, as a real task with snapshots, driven by hand."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import BaseWindowedBolt, Bolt, Count, Grouping, Spout, TopologyBuilder, Tuple, TupleWindow
from heronpy.connectors import JsonLinesSink, Sink, SinkBolt, SinkContext, SinkWriter
from heronpy.errors import ConfigError
from heronpy.instance.task import TaskFailed
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.testing import Simulator
from heronpy.wire import tuple_batch
from tests.unit.snapshot_kit import Hand, Stored

SPOUT, SINK = 1, 2


class Words(Spout):
    outputs = ["n", "word"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.acked: list[int] = []
        self._n = 0

    def next_tuple(self) -> None:
        if self._n < 5:
            self.emit([self._n, f"w{self._n}"], tup_id=self._n)
            self._n += 1

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)


def topology(sink: SinkBolt, mode: str) -> Any:
    builder = TopologyBuilder("words")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt("out", sink, 1, {words: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode})
    return builder.build()


def stored(sink: SinkBolt) -> Stored:
    proto = topology(sink, "EFFECTIVELY_ONCE").protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return Stored(PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), (), restore_epoch=1))


def words(numbers: Sequence[int]) -> stmgr_pb2.Batch:
    values = pickle.dumps([[number, f"w{number}"] for number in numbers])
    return tuple_batch(src_task=SPOUT, dest_task=SINK, streams=["default"], count=len(numbers), values=values)


def rows(path: Path) -> list[int]:
    lines = [line for file in path.glob("[!.]*") for line in file.read_text().splitlines()]
    return sorted(row["n"] for row in map(json.loads, lines))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def checkpoints(path: Path) -> Stored:
    return stored(SinkBolt(JsonLinesSink(path)))


def test_rows_are_visible_when_their_checkpoint_is_committed(checkpoints: Stored, path: Path) -> None:
    bolt = Hand(checkpoints, SINK)
    bolt.task.offer(words([1, 2]))
    bolt.checkpoint(1)
    bolt.task.offer(words([3]))
    assert rows(path) == []
    bolt.snapshots.commit(1)
    assert rows(path) == [1, 2]
    bolt.checkpoint(2)
    bolt.snapshots.commit(2)
    bolt.snapshots.commit(2)
    assert rows(path) == [1, 2, 3]


def test_a_failed_checkpoint_is_committed_with_the_next(checkpoints: Stored, path: Path) -> None:
    bolt = Hand(checkpoints, SINK)
    bolt.task.offer(words([1]))
    bolt.checkpoint(1)
    bolt.snapshots.abort(1)
    bolt.task.offer(words([2]))
    bolt.checkpoint(2)
    assert rows(path) == []
    bolt.snapshots.commit(2)
    assert rows(path) == [1, 2]


def test_a_task_that_died_before_its_commit_is_followed_by_one_that_commits(checkpoints: Stored, path: Path) -> None:
    died = Hand(checkpoints, SINK)
    died.task.offer(words([1]))
    died.checkpoint(1)
    checkpoints.commit(1)
    died.task.offer(words([2]))
    died.checkpoint(2)
    again = Hand(checkpoints, SINK, 1, epoch=2)
    assert rows(path) == [1]
    again.task.offer(words([2, 3]))
    again.checkpoint(3)
    again.snapshots.commit(3)
    assert rows(path) == [1, 2, 3]
    third = Hand(checkpoints, SINK, 1, epoch=3)
    assert rows(path) == [1, 2, 3]
    third.checkpoint(4)
    third.snapshots.commit(4)
    assert rows(path) == [1, 2, 3]


def test_a_task_that_lives_on_fenced_commits_nothing(checkpoints: Stored, path: Path) -> None:
    lives_on = Hand(checkpoints, SINK)
    lives_on.task.offer(words([1]))
    lives_on.checkpoint(1)
    again = Hand(checkpoints, SINK, epoch=2)
    with pytest.raises(TaskFailed):
        lives_on.snapshots.commit(1)
    again.task.offer(words([1]))
    again.checkpoint(2)
    again.snapshots.commit(2)
    assert rows(path) == [1]


def test_a_restore_in_place_aborts_what_came_after_its_checkpoint(checkpoints: Stored, path: Path) -> None:
    bolt = Hand(checkpoints, SINK)
    bolt.task.offer(words([1]))
    bolt.checkpoint(1)
    checkpoints.commit(1)
    bolt.task.offer(words([2]))
    bolt.checkpoint(2)
    bolt.user.pre_restore("1")
    bolt.user.cleanup()
    assert [file.name.split("-")[:3] for file in path.glob(".heron/*/*/*/part-*")] == [["part", "0", "1"]]
    Hand(checkpoints, SINK, 1, epoch=2)
    assert rows(path) == [1]


def test_one_field_is_the_element_if_it_is_named(path: Path) -> None:
    checkpoints = stored(SinkBolt(JsonLinesSink(path), field="word"))
    bolt = Hand(checkpoints, SINK)
    bolt.task.offer(words([1, 2]))
    bolt.checkpoint(1)
    bolt.snapshots.commit(1)
    (file,) = path.glob("part-*")
    assert file.read_text() == '"w1"\n"w2"\n'


def test_what_is_pending_is_divided_by_the_task_that_prepared_it(checkpoints: Stored) -> None:
    bolt = Hand(checkpoints, SINK)
    for number in (1, 2):
        bolt.task.offer(words([number]))
        bolt.checkpoint(number)
    state = bolt.user._output.pending
    assert b"heronpy" not in pickle.dumps(state.value), "what is in checkpoints must outlive a change of names"
    tasks = [tuple((number, task, prepared) for number, _, prepared in state.value) for task in range(3)]
    assert len(tasks[0]) == 2
    assert state.split(state.merge(tasks), 2) == [tasks[0] + tasks[2], tasks[1]]


class Memory(Sink):
    """Keeps what was flushed; at least once."""

    flushed: list[Any] = []  # noqa: RUF012  # of the process, as its writers come from pickled copies

    def open(self, context: SinkContext) -> SinkWriter:
        return MemoryWriter()


class MemoryWriter(SinkWriter):
    def __init__(self) -> None:
        self._rows: list[Any] = []

    def write(self, element: Any) -> None:
        self._rows.append(element)

    def flush(self) -> None:
        Memory.flushed += self._rows
        self._rows = []


@pytest.fixture
def flushed() -> list[Any]:
    Memory.flushed = []
    return Memory.flushed


def test_an_at_least_once_sink_is_flushed_at_a_checkpoint_and_says_what_it_is(
    flushed: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bolt = Hand(stored(SinkBolt(Memory(), field="n")), SINK)
    assert "at least once" in caplog.text
    bolt.task.offer(words([1, 2]))
    assert Memory.flushed == []
    bolt.checkpoint(1)
    assert Memory.flushed == [1, 2]


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_without_checkpoints_tuples_are_acked_when_they_are_flushed(mode: str, flushed: list[Any]) -> None:
    with Simulator(topology(SinkBolt(Memory(), field="n"), mode)) as simulator:
        (spout,), (bolt,) = simulator.component("words"), simulator.component("out")
        while simulator.step() and bolt._written < 5:
            pass
        assert spout.acked == [] or mode == "ATMOST_ONCE"
        assert Memory.flushed == []
        bolt.process_tick(None)
        simulator.drain()
        assert Memory.flushed == [0, 1, 2, 3, 4]
        assert sorted(spout.acked) == ([0, 1, 2, 3, 4] if mode == "ATLEAST_ONCE" else sorted(spout.acked))


def test_what_is_flushed_last_is_flushed_at_the_end(flushed: list[Any]) -> None:
    with Simulator(topology(SinkBolt(Memory(), field="n"), "ATMOST_ONCE")) as simulator:
        (bolt,) = simulator.component("out")
        while simulator.step() and bolt._written < 5:
            pass
    assert Memory.flushed == [0, 1, 2, 3, 4]


def test_a_sink_that_cannot_be_opened_fails_the_task(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((ConfigError, TaskFailed)):
        Hand(stored(SinkBolt(JsonLinesSink(tmp_path / "file"))), SINK)


class Once(Bolt):
    """Passes on what it has not seen; in windows of one, so that what it emits is anchored to nothing."""

    outputs = ["n"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.seen = context.task_state("seen", default=list)

    def process(self, tup: Tuple) -> None:
        if tup["n"] not in self.seen.value:
            self.seen.value.append(tup["n"])
            self.emit([tup["n"]], anchors=[tup])
        self.ack(tup)


class Windowed(BaseWindowedBolt):
    outputs = ["n"]  # noqa: RUF012

    def execute(self, window: TupleWindow) -> None:
        for tup in window.get():
            self.emit([tup["n"]])


WRITTEN: list[int] = []


class Buffering(Sink):
    """Shows what was flushed; what was not is gone with its object."""

    def open(self, context: SinkContext) -> SinkWriter:
        return Buffer()


class Buffer(SinkWriter):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def write(self, element: Any) -> None:
        self.rows.append(element)

    def flush(self) -> None:
        WRITTEN.extend(self.rows)
        self.rows = []


@pytest.mark.parametrize("bolt", [Once, Windowed.with_tumbling_window(Count(1))], ids=["remembered", "windows"])
def test_at_least_once_what_is_in_a_checkpoint_is_flushed(bolt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rollback brings it again: whoever emitted it remembers that."""
    WRITTEN.clear()
    builder = TopologyBuilder("remembering")
    words = builder.add_spout("words", Words, 1)
    once = builder.add_bolt("once", bolt, 1, {words: Grouping.SHUFFLE})
    slow = {"topology.tick.tuple.freq.ms": 3_600_000}
    builder.add_bolt("out", SinkBolt(Buffering()), 1, {once: Grouping.SHUFFLE}, slow)
    builder.set_config(
        {"topology.reliability.mode": "ATLEAST_ONCE", "topology.stateful.checkpoint.interval.seconds": 3600}
    )
    with Simulator(builder) as simulator:
        (out,) = simulator.component("out")
        simulator.run(until=lambda: out._written == 5, seconds=60)
        assert WRITTEN == []
        simulator.checkpoint()
        out._held.clear()  # its process dies, and flushes nothing any more
        simulator.restore()
        simulator.run(seconds=0.05)
        simulator.component("out")[0]._flush()
        assert sorted(set(WRITTEN)) == [0, 1, 2, 3, 4]
