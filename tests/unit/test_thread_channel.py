"""The queue from a task to its gateway stays bounded, whatever one call of user code emits."""

from __future__ import annotations

import asyncio

from heronpy.config import InstanceConfig
from heronpy.instance.task import OUT_HARD, ThreadChannel
from heronpy.proto import stmgr_pb2
from heronpy.testing import eventually

CONFIG = InstanceConfig(out_queue_bytes=100_000, frame_bytes=10_000)
BATCH = stmgr_pb2.Batch(dest_task=1, count=1, body=b"x" * 10_000)


async def test_a_call_that_emits_without_end_waits_for_room_and_loses_nothing() -> None:
    channel = ThreadChannel(CONFIG)

    def emit_much() -> None:
        for _ in range(100):
            channel.send([BATCH])

    emitting = asyncio.create_task(asyncio.to_thread(emit_much))

    def is_held() -> None:
        assert channel.out_bytes > OUT_HARD * CONFIG.out_queue_bytes

    await eventually(is_held)
    most = frames = 0
    while frames < 100:
        most = max(most, channel.out_bytes)
        async with asyncio.timeout(120):
            frame = await channel.next_frame()
        frames += 1
        channel.sent(frame)
        await asyncio.sleep(0)
    assert most <= OUT_HARD * CONFIG.out_queue_bytes + 2 * len(BATCH.body)
    await emitting
    assert channel.out_bytes == 0


async def test_a_task_that_is_to_stop_is_not_held() -> None:
    channel = ThreadChannel(CONFIG)
    emitting = asyncio.create_task(asyncio.to_thread(channel.send, [BATCH] * 100))

    def is_held() -> None:
        assert channel.out_bytes > 50 * len(BATCH.body)

    await eventually(is_held)
    assert not emitting.done()
    channel.stopping = True
    async with asyncio.timeout(120):
        await emitting
