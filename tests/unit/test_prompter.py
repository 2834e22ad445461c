"""A task that has work is prompted every drain interval, however late its thread wakes up, unless it comes round."""

from __future__ import annotations

import asyncio

import pytest

from heronpy.config import InstanceConfig
from heronpy.instance.task import ProgressMeter, Prompter, Signal, ThreadChannel
from heronpy.proto import stmgr_pb2
from heronpy.testing import eventually

CONFIG = InstanceConfig(drain_interval_ms=1)
BATCH = stmgr_pb2.Batch(dest_task=1, count=1, body=b"x")
MANY_INTERVALS_S = 0.05


class Thread:
    """What a prompter sees of a task's thread."""

    def __init__(self) -> None:
        self.comes_round = False
        self.writing = False
        self._rounds = 1

    @property
    def rounds(self) -> int:
        self._rounds += self.comes_round
        return self._rounds


class Gateway:
    """What an instance's gateway has for its task."""

    def __init__(self) -> None:
        self.thread = Thread()
        self.channel = ThreadChannel(CONFIG)
        self.signal = Signal()
        self.progress = ProgressMeter(CONFIG)
        self.prompter = Prompter(CONFIG, self.channel, self.signal, self.progress, lambda: self.thread)

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


async def until_it_looks(gateway: Gateway, times: int) -> None:
    wanted = gateway.prompter.looks + times

    def looked() -> None:
        assert gateway.prompter.looks >= wanted

    await eventually(looked)


async def test_a_task_that_comes_round_by_itself_is_looked_at_ever_more_rarely_and_not_prompted() -> None:
    gateway = Gateway()
    gateway.channel.busy = gateway.prompter.always = gateway.thread.comes_round = True
    gateway.prompter.arm()
    await until_it_looks(gateway, times=5)
    assert not gateway.signal.due
    assert gateway.prompter.next_s == pytest.approx(8 * CONFIG.drain_interval_ms / 1e3)
    gateway.thread.comes_round = False  # its calls have become slow
    await gateway.is_prompted()
    await gateway.is_prompted()
    assert gateway.prompter.next_s == pytest.approx(CONFIG.drain_interval_ms / 1e3)


async def test_a_task_that_writes_a_snapshot_is_prompted_although_it_comes_round() -> None:
    gateway = Gateway()
    gateway.channel.busy = gateway.prompter.always = True
    gateway.thread.comes_round = gateway.thread.writing = True
    gateway.prompter.arm()
    await gateway.is_prompted()
    await gateway.is_prompted()
    assert gateway.prompter.next_s == pytest.approx(CONFIG.drain_interval_ms / 1e3)
