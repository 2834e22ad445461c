"""The spout around a source, as a real task with snapshots, driven by hand; and positions in files that change."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from heronpy.api import Bolt, Grouping, TopologyBuilder, Tuple
from heronpy.checkpoints import NOTHING_SAVED
from heronpy.connectors import (
    JsonLines,
    ListSource,
    Record,
    Source,
    SourceContext,
    SourceReader,
    SourceSpout,
    SplitReader,
    StreamSplit,
    TextFile,
)
from heronpy.connectors.split_set import SplitSet
from heronpy.errors import ConfigError
from heronpy.instance.task import SpoutTask, TaskFailed
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.state import Place, TaskStates
from heronpy.testing import Simulator
from heronpy.testing.connectors_kit import DeadLetters
from heronpy.testing.positions_kit import opened, rest_of, same, split_context
from heronpy.wire import DATA, decode_tuples
from tests.unit.snapshot_kit import Hand, Stored


class Collect(Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.values: list[Any] = []
        self.failing = True

    def process(self, tup: Tuple) -> None:
        if self.failing and tup.values[0] in ("b", "c"):
            self.failing = tup.values[0] == "b"
            self.fail(tup)
            return
        self.values.append(tup.values[0])
        self.ack(tup)


def topology(spout: SourceSpout, mode: str, tasks: int = 1, **config: Any) -> Any:
    builder = TopologyBuilder("lines")
    lines = builder.add_spout("lines", spout, tasks)
    builder.add_bolt("dead", Collect, 1, {lines["dead_letters"]: Grouping.SHUFFLE})
    builder.add_bolt("out", Collect, 1, {lines: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode, **config})
    return builder.build()


def stored(spout: SourceSpout, tasks: int = 1) -> Stored:
    proto = topology(spout, "EFFECTIVELY_ONCE", tasks).protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    return Stored(PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), (), restore_epoch=1))


def emitted(spout: Hand) -> list[Any]:
    """The values that were sent to the default stream since the last call."""
    spout.task.flush()
    out = spout.stored.plan.component_tasks["out"]
    values = [
        value[0]
        for batch in spout.sent
        if batch.kind == DATA and batch.dest_task in out
        for value in decode_tuples(batch.body).deserialized(pickle.loads)
    ]
    spout.sent.clear()
    return values


def run(spout: Hand, count: int) -> list[Any]:
    """At least so many values, or what there is."""
    values: list[Any] = []
    for _ in range(1000):
        spout.task.poll()
        values += emitted(spout)
        if len(values) >= count:
            break
    return values


def spouts(checkpoints: Stored, checkpoint: int = 0, epoch: int = 1) -> list[Hand]:
    tasks = checkpoints.plan.component_tasks["lines"]
    return [Hand(checkpoints, task, checkpoint, epoch=epoch) for task in tasks]


def files(tmp_path: Path, count: int = 5, lines: int = 400) -> list[str]:
    for number in range(count):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}:{line}\n" for line in range(lines)))
    return [f"{number}:{line}" for number in range(count) for line in range(lines)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_after_a_rollback_every_line_counts_once(tmp_path: Path, tasks: int) -> None:
    lines = files(tmp_path)
    checkpoints = stored(SourceSpout(TextFile(tmp_path / "*.txt")), tasks)
    first = spouts(checkpoints)
    before = [value for spout in first for value in run(spout, 150)]
    for spout in first:
        spout.checkpoint(1)
    checkpoints.commit(1)
    lost = [value for spout in first for value in run(spout, 300)]
    assert lost
    after = [value for spout in spouts(checkpoints, 1, epoch=2) for value in run(spout, 10_000)]
    assert sorted(before + after) == sorted(lines)


def test_what_was_read_to_its_end_is_not_read_again_and_what_was_added_is(tmp_path: Path) -> None:
    lines = files(tmp_path, 2, 10)
    checkpoints = stored(SourceSpout(TextFile(tmp_path / "*.txt")))
    (spout,) = spouts(checkpoints)
    assert sorted(run(spout, 1000)) == sorted(lines)
    spout.checkpoint(1)
    checkpoints.commit(1)
    (again,) = spouts(checkpoints, 1, epoch=2)
    assert run(again, 1) == []
    with (tmp_path / "1.txt").open("a") as f:
        f.write("more\n")
    (tmp_path / "2.txt").write_text("new\n")
    (third,) = spouts(checkpoints, 1, epoch=3)
    assert sorted(run(third, 1000)) == ["more", "new"]


def test_malformed_lines_go_to_their_own_stream(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n{\n2\n")
    with Simulator(topology(SourceSpout(JsonLines(tmp_path / "a")), "ATMOST_ONCE")) as simulator:
        simulator.run(seconds=0.2)
        assert simulator.component("out")[0].values == [1, 2]
        assert simulator.component("dead")[0].values == [f"{tmp_path}/a:2"]


class Keyless:
    """Nothing to group by."""


def keys(mode: str, policy: str) -> TopologyBuilder:
    builder = TopologyBuilder("keys")
    lines = builder.add_spout("lines", SourceSpout(ListSource(["a", Keyless(), "d", "e"])), 1)
    builder.add_bolt("dead", Collect, 1, {lines["dead_letters"]: Grouping.SHUFFLE})
    builder.add_bolt("out", Collect, 2, {lines: Grouping.fields("value")})
    builder.set_config({"topology.reliability.mode": mode, "topology.exception.policy": policy})
    return builder


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_where_the_task_goes_on_a_record_that_cannot_be_grouped_is_a_dead_letter(mode: str) -> None:
    with Simulator(keys(mode, "fail")) as simulator:
        simulator.run(until=lambda: bool(simulator.component("dead")[0].values), seconds=20)
        for _ in range(50):
            simulator.step()
        assert sorted(value for out in simulator.component("out") for value in out.values) == ["a", "d", "e"]
        (where,) = simulator.component("dead")[0].values
        assert where.endswith(":1")
        assert simulator.component("lines")[0]._out == {}, "nothing is waited for"


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_else_it_fails_the_task_which_passes_over_nothing(mode: str) -> None:
    with Simulator(keys(mode, "restart")) as simulator, pytest.raises(TaskFailed, match="next_tuple"):
        simulator.run(seconds=20)


def test_at_least_once_what_fails_is_emitted_again_and_what_is_acked_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc\nd\n")
    spout = SourceSpout(TextFile(tmp_path / "a.txt"), directory=tmp_path / "state")
    with Simulator(topology(spout, "ATLEAST_ONCE")) as simulator:
        out = simulator.component("out")[0]
        simulator.run(until=lambda: len(out.values) == 4, seconds=300)
        assert sorted(out.values) == ["a", "b", "c", "d"]
        simulator.drain()
    with Simulator(topology(spout, "ATLEAST_ONCE")) as simulator:
        simulator.run(seconds=0.1)
        assert simulator.component("out")[0].values == []


def test_at_least_once_records_of_equal_ids_are_told_apart() -> None:
    """For example a line that was half-written when it was read first."""
    with Simulator(topology(SourceSpout(ListSource(["b", "c"], ids=["x", "x"])), "ATLEAST_ONCE")) as simulator:
        out = simulator.component("out")[0]
        simulator.run(until=lambda: len(out.values) == 2, seconds=5)
        assert sorted(out.values) == ["b", "c"], "each was failed once"


def test_at_least_once_an_ack_of_before_the_source_was_opened_anew_is_for_nothing() -> None:
    """An update has changed the number of tasks, and what was not acked is read again."""
    with Simulator(topology(SourceSpout(ListSource(["a"])), "ATLEAST_ONCE")) as simulator:
        (spout,), (out,) = simulator.component("lines"), simulator.component("out")
        emitted: list[Any] = []
        spout.emit = lambda tup, tup_id: emitted.append((tup[0], tup_id))
        simulator.run(until=lambda: bool(emitted), seconds=300)
        spout._source_context = dataclasses.replace(spout._source_context, num_tasks=2)  # before the update
        simulator.run(until=lambda: len(emitted) > 1, seconds=300)
        (_, before), (_, again) = emitted
        spout.ack(before)
        spout.fail(again)
        simulator.run(until=lambda: len(emitted) > 2, seconds=5)
        assert [value for value, _ in emitted] == ["a", "a", "a"]
        assert out.values == []


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_a_restarted_task_goes_on_with_a_directory_and_begins_anew_without(tmp_path: Path, mode: str) -> None:
    for directory, again in ((tmp_path / "state", []), (None, ["a", "d"])):
        spout = SourceSpout(ListSource(["a", "d"]), directory=directory)
        for expected in (["a", "d"], again):
            with Simulator(topology(spout, mode)) as simulator:
                simulator.run(until=lambda: len(out(simulator)) == 2, seconds=60 if expected else 0.1)
                settle(simulator)
                assert out(simulator) == expected


def settle(simulator: Simulator) -> None:
    """Until nothing moves, however long that takes."""
    while simulator.step():
        pass


def out(simulator: Simulator) -> list[Any]:
    values: list[Any] = simulator.component("out")[0].values
    return values


def test_at_least_once_what_fails_of_a_source_without_positions_is_emitted_again() -> None:
    with Simulator(topology(SourceSpout(ListSource(["a", "b", "c"], repeat=True)), "ATLEAST_ONCE")) as simulator:
        (spout,) = simulator.component("lines")
        emitted: list[str] = []
        emit, fail, failed = spout.emit, spout.fail, list[str]()
        spout.emit = lambda tup, tup_id: (emitted.append(tup[2]), emit(tup, tup_id=tup_id))
        spout.fail = lambda tup_id: (failed.append(spout._out[tup_id].id), fail(tup_id))
        simulator.run(until=lambda: len(failed) == 2 and all(emitted.count(id) > 1 for id in failed), seconds=60)
        assert [emitted.count(id) for id in failed] == [2, 2]


class FailsFirst(Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.values: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.values.append(tup.values[0])
        if len(self.values) == 1:
            self.fail(tup)
        else:
            self.ack(tup)


@pytest.mark.parametrize("interval", [{}, {"topology.stateful.checkpoint.interval.seconds": 3600}])
def test_at_least_once_a_dead_letter_that_fails_is_emitted_again(tmp_path: Path, interval: dict[str, Any]) -> None:
    (tmp_path / "a").write_text("1\n{\n2\n")
    builder = TopologyBuilder("letters")
    lines = builder.add_spout("lines", SourceSpout(JsonLines(tmp_path / "a")), 1)
    builder.add_bolt("dead", FailsFirst, 1, {lines["dead_letters"]: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", **interval})
    with Simulator(builder) as simulator:
        (dead,) = simulator.component("dead")
        simulator.run(until=lambda: len(dead.values) == 2, seconds=5)
        assert dead.values == [f"{tmp_path}/a:2"] * 2
        if interval:
            settle(simulator)
            simulator.checkpoint()
            settle(simulator)
            simulator.restore()
            settle(simulator)
            assert simulator.component("dead")[0].values == [], "the commit covers it"


def test_at_least_once_with_checkpoints_a_rollback_repeats_nothing_that_a_commit_covers() -> None:
    values = [str(n) for n in range(8)]
    interval = {"topology.stateful.checkpoint.interval.seconds": 3600}
    with Simulator(topology(SourceSpout(ListSource(values)), "ATLEAST_ONCE", **interval)) as simulator:
        (spout,), (out,) = simulator.component("lines"), simulator.component("out")
        (task,) = (task for task in simulator.tasks.values() if isinstance(task, SpoutTask))
        simulator.run(until=lambda: len(out.values) == 8 and task.pending == 0, seconds=300)
        assert out.values == values
        simulator.checkpoint()
        simulator.restore()
        simulator.run(seconds=0.1)
        assert simulator.component("lines") == [spout]
        assert simulator.component("out")[0].values == []


def test_at_least_once_what_failed_comes_before_what_is_newer_and_in_its_order() -> None:
    """Or windows that had lost it would take it for late."""
    with Simulator(topology(SourceSpout(ListSource(range(300))), "ATLEAST_ONCE")) as simulator:
        (spout,) = simulator.component("lines")
        emitted: list[Any] = []
        spout.emit = lambda tup, tup_id: emitted.append((tup[0], tup_id))
        while len(emitted) < 120:
            spout.next_tuple()
        for _, tup_id in emitted[50:120]:
            spout.fail(tup_id)
        for _ in range(100):
            spout.next_tuple()
        assert [value for value, _ in emitted[120:]] == [*range(50, 120), *range(120, 150)]


class Endless(Source):
    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError


def test_a_source_without_positions_is_refused_effectively_once() -> None:
    for source in (Endless(), ListSource([1], repeat=True)):
        with pytest.raises((ConfigError, TaskFailed)) as refused:
            spouts(stored(SourceSpout(source)))
        assert "positions" in str(refused.value.__cause__ or refused.value)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_split_without_records_is_idle_until_it_has_some(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    clock = Clock()
    source = TextFile(tmp_path / "*.txt")
    positions = TaskStates(Place("t", "lines"), NOTHING_SAVED).split_state("positions")
    splits = SplitSet(source, positions, split_context(), discover_every_s=5, idle_after_s=60, clock=clock)

    def step() -> list[Any]:
        name, records, position = splits.read(10)
        if name is not None:
            positions[name] = position
        return [record.value for record in records]

    assert step() == ["a"]
    assert step() == []
    clock.now_s = 61.0
    assert splits.idle() == [f"{tmp_path}/a.txt:0"]
    with (tmp_path / "a.txt").open("a") as f:
        f.write("b\n")
    (tmp_path / "b.txt").write_text("c\n")
    found = [value for _ in range(6) for value in step()]
    assert sorted(found) == ["b", "c"]
    assert splits.idle() == []
    splits.close()


class Counter(SplitReader):
    """Counts on from its position, which a committed checkpoint makes final."""

    final: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str, position: int | None) -> None:
        self._name, self._position = name, position or 0

    def read(self, limit: int) -> Sequence[Record]:
        self._position += 1
        return [Record(f"{self._name}{self._position}", 0, f"{self._name}{self._position}")]

    @property
    def position(self) -> Any:
        return self._position

    def committed(self, position: Any) -> None:
        self.final[self._name] = position


@dataclasses.dataclass
class Counting(Source):
    """Splits that always have more."""

    rewindable, interleaved = True, True
    names: tuple[str, ...] = ("a", "b", "c")

    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        return {name: CountingSplit(name) for name in self.names}


@dataclasses.dataclass
class CountingSplit:
    name: str

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        return Counter(self.name, position)


def test_splits_of_an_interleaved_source_are_read_in_turn() -> None:
    (spout,) = spouts(stored(SourceSpout(Counting())))
    assert sorted(run(spout, 9)[:9]) == [f"{name}{n}" for name in "abc" for n in (1, 2, 3)]


def test_a_source_is_told_the_positions_of_checkpoints_that_are_committed() -> None:
    checkpoints = stored(SourceSpout(Counting(("a",))))
    (spout,) = spouts(checkpoints)
    Counter.final.clear()
    read = []
    for number in (1, 2, 3):
        read += run(spout, 1)
        spout.checkpoint(number)
        if number == 2:
            saved = len(read)
    assert Counter.final == {}
    spout.snapshots.commit(2)
    assert Counter.final == {"a": saved}
    (again,) = spouts(checkpoints, 0, epoch=2)
    run(again, 1)
    again.snapshots.commit(3)  # it does not know what another object had saved
    assert Counter.final == {"a": saved}


def times(records: Sequence[Any]) -> list[tuple[str, int]]:
    return [(record.value, record.time_ms) for record in records]


def test_a_line_keeps_the_time_that_it_was_first_read_with(tmp_path: Path) -> None:
    path, source = tmp_path / "a", TextFile(tmp_path / "a")
    path.write_text("one\ntwo\n")
    os.utime(path, (100, 100))
    reader = opened(source, f"{path}:0")
    assert times(reader.read(1)) == [("one", 100_000)]
    assert b"heronpy" not in pickle.dumps(reader.position), "what is in checkpoints must outlive a change of names"
    with path.open("a") as f:
        f.write("three\n")
    os.utime(path, (200, 200))
    again = opened(source, f"{path}:0", reader.position)
    assert times(rest_of(again)) == [("two", 100_000), ("three", 200_000)]


def test_a_last_line_that_was_half_written_is_read_again_under_its_id(tmp_path: Path) -> None:
    path, source = tmp_path / "a", TextFile(tmp_path / "a")
    path.write_text("one\ntw")
    reader = opened(source, f"{path}:0")
    first = rest_of(reader)
    path.write_text("one\ntwo\nthree\n")
    rest = rest_of(opened(source, f"{path}:0", reader.position))
    assert [record.value for record in rest] == ["two", "three"]
    assert rest[0].id == first[1].id


def test_a_file_that_was_replaced_by_a_shorter_one_is_read_from_its_beginning(tmp_path: Path) -> None:
    path, source = tmp_path / "a", TextFile(tmp_path / "a")
    path.write_text("one\ntwo\n")
    reader = opened(source, f"{path}:0")
    first = rest_of(reader)
    path.write_text("new\n")
    rest = rest_of(opened(source, f"{path}:0", reader.position, DeadLetters()))
    assert [record.value for record in rest] == ["new"]
    assert not {id for _, _, id in same(first)} & {id for _, _, id in same(rest)}


class Ending(SplitReader):
    """Has one record, and notes down what it is told."""

    told: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, name: str, position: Any) -> None:
        self._name, self._position = name, position or 0

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        return Ending(self._name, position)

    def read(self, limit: int) -> Sequence[Record]:
        records = [Record(self._name, 0, self._name)] * (1 - self._position)
        self._position = 1
        return records

    @property
    def position(self) -> Any:
        return self._position

    @property
    def ended(self) -> bool:
        return bool(self._position == 1)

    def committed(self, position: Any) -> None:
        self.told.append((self._name, position))

    def close(self) -> None:
        self.told.append((self._name, "closed"))


class AllEnd(Source):
    interleaved = True

    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        return {name: Ending(name, 0) for name in "ab"}


def test_splits_that_have_ended_are_told_of_the_checkpoint_that_has_their_end() -> None:
    Ending.told.clear()
    positions = TaskStates(Place("t", "lines"), NOTHING_SAVED).split_state("positions")
    splits = SplitSet(AllEnd(), positions, split_context(), discover_every_s=None, idle_after_s=60)
    assert splits.read(10)[0] == "a"
    splits.prepare(1)
    assert splits.read(10)[0] == "b"
    assert splits.ended
    splits.prepare(2)
    splits.commit(1)
    assert Ending.told == [("a", 1), ("b", 0), ("a", "closed")]
    splits.commit(2)
    assert Ending.told[3:] == [("b", 1), ("b", "closed")]
    splits.close()
    assert len(Ending.told) == 5
