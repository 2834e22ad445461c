"""What a task of the tests receives, and what it has sent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from heronpy.proto import stmgr_pb2
from heronpy.wire import DATA, control_batch, decode_control, decode_tuples
from tests.unit.checkpointed_kit import ByHand
from tests.unit.snapshot_kit import Stored, numbers, plan_of

COUNT = 3
"""The counting task of a plan with two spouts, 1 and 2."""
SINK = 4


@pytest.fixture
def count() -> ByHand:
    plan = plan_of(spouts=2)
    hand = ByHand(plan, COUNT, Stored(plan))
    hand.start()
    hand.settle()
    hand.reports.clear()
    return hand


def batch(values: list[Any], source: int = 1) -> stmgr_pb2.Batch:
    return numbers(values, COUNT, source=source)


def marker(checkpoint: int, source: int) -> stmgr_pb2.Batch:
    return control_batch(source, COUNT, marker=checkpoint)


def ended(source: int) -> stmgr_pb2.Batch:
    return control_batch(source, COUNT, ended=True)


def sent(hand: ByHand, dest: int, epoch: int = 1) -> list[Any]:
    """What was sent to a task in an epoch: numbers, and markers as ("marker", checkpoint)."""
    assert hand.thread.runner is not None
    hand.thread.runner.task.flush()
    found: list[Any] = []
    for sent_in, each in hand.queues.sent:
        if (sent_in, each.dest_task) != (epoch, dest):
            continue
        if each.kind == DATA:
            found += [value for (value,) in decode_tuples(each.body).deserialized(pickle.loads)]
        else:
            found.append(("marker", decode_control(each.body).marker))
    return found


def again(hand: ByHand, checkpoint: int) -> ByHand:
    """Another process, that is restored."""
    other = ByHand(hand.plan, hand.task_id, hand.stored)
    other.logs = hand.logs
    other.start(checkpoint, epoch=2)
    other.settle()
    return other
