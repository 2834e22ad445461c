"""A task that has work is prompted every drain interval, however late its thread wakes up."""

from __future__ import annotations

import asyncio

from heronpy.config import InstanceConfig
from heronpy.instance.task import ProgressMeter, Prompter, Signal, ThreadChannel
from heronpy.proto import stmgr_pb2
from heronpy.testing import eventually

CONFIG = InstanceConfig(drain_interval_ms=1)
BATCH = stmgr_pb2.Batch(dest_task=1, count=1, body=b"x")
MANY_INTERVALS_S = 0.05


class Gateway:
    """What an instance's gateway has for its task."""

    def __init__(self) -> None:
        self.channel = ThreadChannel(CONFIG)
        self.signal = Signal()
        self.progress = ProgressMeter(CONFIG)
        self.prompter = Prompter(CONFIG, self.channel, self.signal, self.progress)

    def mark(self) -> object:
        return self.progress.progress(rounds=1, busy=True, waits=0).mark

    async def is_prompted(self) -> None:
        """The task comes to the end of a tuple, and is prompted again."""
        self.signal.due = False

        def due() -> None:
            assert self.signal.due

        await eventually(due)


async def test_a_task_whose_thread_wakes_up_late_is_prompted_throughout_its_batch() -> None:
    gateway = Gateway()
    gateway.channel.put(BATCH)
    gateway.prompter.arm()
    await asyncio.sleep(MANY_INTERVALS_S)  # no CPU for the task's thread until here
    assert gateway.channel.take(0) is BATCH
    for _ in range(3):
        before = gateway.mark()
        await gateway.is_prompted()
        await gateway.is_prompted()
        assert gateway.mark() != before, "a task that gets on is taken for one that stands still"


async def test_a_task_without_work_is_left_alone_unless_it_is_a_spouts() -> None:
    gateway = Gateway()
    gateway.channel.put(BATCH)
    gateway.prompter.arm()
    message = gateway.channel.take(0)
    assert message is BATCH
    gateway.channel.done(BATCH)
    gateway.channel.busy = False
    await asyncio.sleep(MANY_INTERVALS_S)
    gateway.signal.due = False
    gateway.channel.busy = True
    await asyncio.sleep(MANY_INTERVALS_S)
    assert not gateway.signal.due, "nobody is there to prompt a bolt's task that nothing was handed to"

    gateway.channel.busy, gateway.prompter.always = False, True
    gateway.prompter.arm()
    await asyncio.sleep(MANY_INTERVALS_S)
    assert not gateway.signal.due
    gateway.channel.busy = True
    await gateway.is_prompted()
