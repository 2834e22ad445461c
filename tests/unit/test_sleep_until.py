"""What sleeps until a time finds that it has come."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
import uvloop

from heronpy.runtime import sleep_until


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_sleep_until_a_time_never_ends_before_it(loop_factory: object) -> None:
    """A bare sleep does in uvloop: about one in five ends up to a millisecond early."""

    async def sleeps() -> None:
        at_s = [time.monotonic() + random.Random(n).uniform(0.001, 0.3) for n in range(100)]
        await asyncio.gather(*(checked(one) for one in at_s))

    async def checked(at_s: float) -> None:
        await sleep_until(at_s)
        assert time.monotonic() >= at_s

    with asyncio.Runner(loop_factory=loop_factory) as runner:  # type: ignore[arg-type]
        runner.run(sleeps())


async def test_a_time_that_is_over_is_not_waited_for() -> None:
    began_s = time.monotonic()
    async with asyncio.timeout(120):
        await sleep_until(began_s - 3600)
