"""Other numbers of tasks where there are no checkpoints: those that stay take over what is theirs now."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.config import InstanceConfig
from heronpy.connectors import SourceSpout, TextFile
from heronpy.hashing import KEY_GROUPS, index_of_group, key_group
from heronpy.instance.task import Signal, TaskCore, apply_state, make_task
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2, topology_pb2
from heronpy.streamlet import Builder
from heronpy.wire import DATA, decode_tuples
from tests.unit.snapshot_kit import plan_of


class Drop(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


def of_spouts(files: str) -> topology_pb2.Topology:
    builder = TopologyBuilder("lines")
    lines = builder.add_spout("lines", SourceSpout(TextFile(files)), 3)
    builder.add_bolt("out", Drop, 1, {lines: Grouping.SHUFFLE})
    return builder.build().protobuf_topology


def of_streamlets(files: str) -> topology_pb2.Topology:
    builder = Builder()
    builder.new_source(TextFile(files)).set_name("lines").set_num_partitions(3).map(str).set_num_partitions(1).log()
    topology = TopologyBuilder("lines")
    builder.build(topology)
    return topology.build().protobuf_topology


def updated(before: PhysicalPlan, changes: Mapping[str, int]) -> PhysicalPlan:
    logical = before.logical
    packing = RoundRobinPacking(logical).repack(before.packing, changes)
    return PhysicalPlan(before.version + 1, logical.with_parallelism(packing.parallelism), packing, ())


@pytest.mark.parametrize("program", [of_spouts, of_streamlets])
def test_the_readers_that_are_left_read_what_was_read_by_the_others(program: Any, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}:{line}\n" for line in range(300)))
    proto = program(str(tmp_path / "*.txt"))
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    before = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
    after = updated(before, {"lines": -1})
    sent: list[stmgr_pb2.Batch] = []
    spouts = []
    for id in after.component_tasks["lines"]:
        spout: Any = make_task(
            TaskCore(plan=before, task_id=id, config=InstanceConfig(), send=sent.extend, signal=Signal())
        )
        spout.open()
        apply_state(spout, before)
        spout.poll()
        spout.replan(after)
        spouts.append(spout)
    for spout in itertools.chain(*itertools.repeat(spouts, 2000)):
        spout.poll()
    for spout in spouts:
        spout.flush()
    found = [
        row[0] for batch in sent if batch.kind == DATA for row in decode_tuples(batch.body).deserialized(pickle.loads)
    ]
    assert set(found) == {f"{number}:{line}" for number in range(6) for line in range(300)}


def test_a_task_that_stays_takes_the_keys_that_are_its_own_now() -> None:
    before = plan_of(counts=2, mode="ATMOST_ONCE")
    after = updated(before, {"count": 1})
    counts = []
    for id in after.component_tasks["count"]:
        plan = before if id in before.tasks else after
        task: Any = make_task(TaskCore(plan=plan, task_id=id, config=InstanceConfig(), send=list, signal=Signal()))
        task.open()
        task.replan(after)
        counts.append(task.user_object.counts)
    for key in range(300):
        counts[index_of_group(key_group(key, KEY_GROUPS, lasting=False), 3, KEY_GROUPS)][key] = 1
    assert sum(map(len, counts)) == 300
    assert all(counts)


class Numbers(Spout):
    outputs = ["number"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.numbers = itertools.count()

    def next_tuple(self) -> None:
        self.emit([next(self.numbers)])


def test_at_most_once_nothing_is_sent_twice_or_to_tasks_that_are_gone() -> None:
    builder = TopologyBuilder("numbers")
    numbers = builder.add_spout("numbers", Numbers, 1)
    builder.add_bolt("out", Drop, 3, {numbers: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATMOST_ONCE"})
    proto = builder.build().protobuf_topology
    proto.state = 1
    logical = LogicalPlan.from_proto(proto)
    before = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
    after = updated(before, {"out": -1})
    (gone,) = {*before.component_tasks["out"]} - {*after.component_tasks["out"]}
    sent: list[stmgr_pb2.Batch] = []
    (id,) = before.component_tasks["numbers"]
    spout: Any = make_task(
        TaskCore(plan=before, task_id=id, config=InstanceConfig(), send=sent.extend, signal=Signal())
    )
    spout.open()
    apply_state(spout, before)
    for _ in range(50):
        spout.poll()  # leaves some that are not sent
    spout.replan(after)
    in_flight = len([batch for batch in sent if batch.dest_task == gone])
    for _ in range(50):
        spout.poll()
    spout.flush()
    assert len([batch for batch in sent if batch.dest_task == gone]) == in_flight
    found = sorted(
        row[0] for batch in sent if batch.kind == DATA for row in decode_tuples(batch.body).deserialized(pickle.loads)
    )
    assert found == list(range(len(found)))
    assert len(found) > 50
