"""Restore epochs in an instance: nothing that was sent before a restore is executed after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from heronpy.api import Spout, TopologyBuilder
from heronpy.config import InstanceConfig
from heronpy.instance.task import Intake, Signal, ThreadChannel, make_runner
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2


class Source(Spout):
    outputs = ("number",)


def first_plan() -> PhysicalPlan:
    builder = TopologyBuilder("epochs")
    builder.add_spout("source", Source, 1)
    logical = LogicalPlan.from_proto(builder.build().protobuf_topology)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


PLAN = first_plan()


def plan(version: int, epoch: int) -> PhysicalPlan:
    return dataclasses.replace(PLAN, version=version, restore_epoch=epoch)


def frame(epoch: int) -> stmgr_pb2.Frame:
    return stmgr_pb2.Frame(batches=[batch(epoch)], epoch=epoch)


def batch(number: int) -> stmgr_pb2.Batch:
    return stmgr_pb2.Batch(dest_task=1, count=number, body=b"x" * 10)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_batch_of_another_epoch_is_refused(epoch: int) -> None:
    intake = Intake()
    intake.planned(plan(1, 1))
    assert list(intake.received(frame(epoch))) == []
    assert list(intake.received(frame(1))) == [batch(1)]


def test_a_plan_of_a_later_epoch_counts_whatever_its_version() -> None:
    intake = Intake()
    assert intake.planned(plan(7, 1))
    assert intake.planned(plan(6, 2))
    assert not intake.planned(plan(9, 1))
    assert (intake.epoch, intake.plan) == (2, plan(6, 2))


async def test_what_waits_for_a_task_is_passed_over_at_a_restore_and_commands_are_not() -> None:
    channel = ThreadChannel(InstanceConfig())
    executed: list[Any] = []

    class Task:
        """Records what it is offered."""

        def offer(self, given: stmgr_pb2.Batch) -> None:
            executed.append(given.count)
            if given.count == 1:
                # The gateway enters an epoch while the task is at work.
                assert channel.enter_epoch() == 3
                channel.command(lambda _: executed.append("plan"))
                channel.put(batch(4))

    for number in (1, 2, 3):
        channel.put(batch(number))
    task: Any = Task()
    runner = make_runner(task, channel, Signal())
    while (message := channel.take(0)) is not None:
        runner.take(message)
    assert executed == [1, "plan", 4]
    assert channel.in_bytes == 0
