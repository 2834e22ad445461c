"""What uses a stream: the first end ends all, and whoever waited can go on, or be cancelled, as before."""

from __future__ import annotations

import asyncio

import pytest

from heronpy.runtime import StreamLost, until_one_ends


async def ends() -> None:
    await asyncio.sleep(0)


async def loses() -> None:
    raise StreamLost("gone")


async def breaks() -> None:
    raise KeyError("a bug")


async def stays(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("stays")


async def loses_when_ended() -> None:
    """As a write does whose call ends in the same moment."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        raise StreamLost("gone while it was ended") from None


def is_cancelled() -> bool:
    task = asyncio.current_task()
    assert task is not None
    return bool(task.cancelling())


async def test_the_first_end_ends_the_others() -> None:
    ended: list[str] = []
    await until_one_ends(ends(), stays(ended))
    assert ended == ["stays"]


async def test_an_error_ends_the_others_and_is_raised() -> None:
    ended: list[str] = []
    with pytest.raises(StreamLost, match="gone"):
        await until_one_ends(stays(ended), loses())
    assert ended == ["stays"]


async def test_a_bug_is_told_before_a_lost_stream() -> None:
    with pytest.raises(KeyError):
        await until_one_ends(loses(), breaks())
    with pytest.raises(KeyError):
        await until_one_ends(breaks(), loses())


@pytest.mark.parametrize("first", [ends, loses])
async def test_a_stream_that_is_lost_while_it_is_left_does_not_look_like_a_cancellation(first: object) -> None:
    with pytest.raises(StreamLost):
        await until_one_ends(first(), loses_when_ended())  # type: ignore[operator]  # a coroutine function
    assert not is_cancelled()
    await asyncio.sleep(0)  # would raise


@pytest.mark.parametrize("work", [loses_when_ended, loses, ends])
async def test_a_cancellation_is_never_lost(work: object) -> None:
    ended: list[str] = []
    task = asyncio.create_task(until_one_ends(stays(ended), work()))  # type: ignore[operator]  # a coroutine function
    await asyncio.sleep(0)  # the works begin in the next round, and `loses` and `ends` end in it, or in the one after
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["stays"]
