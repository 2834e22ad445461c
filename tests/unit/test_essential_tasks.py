"""Work that a process cannot be without: its end is an error, unless it was told to end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from heronpy.runtime import essential


async def returns() -> None:
    await asyncio.sleep(0)


async def is_cancelled_in_its_depths() -> None:
    raise asyncio.CancelledError  # as a call that was cancelled does


async def looks_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()  # as a TaskGroup before Python 3.13 may leave the task around it
    await asyncio.sleep(0)


async def fails() -> None:
    raise KeyError("a bug")


async def stays() -> None:
    await asyncio.Event().wait()


async def process(work: Coroutine[Any, Any, None]) -> None:
    """As a process: the work, and another one that stays."""
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        tasks.create_task(essential(work))
        tasks.create_task(essential(stays()))


@pytest.mark.parametrize("work", [returns, is_cancelled_in_its_depths, looks_cancelled])
async def test_work_that_ends_by_itself_ends_the_group_around_it(work: object) -> None:
    with pytest.raises(ExceptionGroup) as ended:
        await process(work())  # type: ignore[operator]  # a coroutine function
    (error,) = ended.value.exceptions
    assert str(error) == f"{work.__name__} has ended, and was not asked to"  # type: ignore[attr-defined]  # a function


async def test_what_the_work_fails_with_is_what_ends_the_group() -> None:
    with pytest.raises(ExceptionGroup) as ended:
        await process(fails())
    assert isinstance(ended.value.exceptions[0], KeyError)


async def test_work_that_is_told_to_end_ends_without_an_error() -> None:
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(essential(stays()))
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
