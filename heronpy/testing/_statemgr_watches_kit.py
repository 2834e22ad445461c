"""How every state manager must be followed: tests of `StatemgrKit`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from heronpy.errors import StateError
from heronpy.statemgr import Kind, StateManager, follow
from heronpy.testing import eventually, eventually_sync
from heronpy.testing._statemgr_seen import WITHIN_S, Open, Seen


async def _until(values: AsyncIterator[bytes | None], last: bytes) -> AsyncIterator[bytes]:
    """The values that are not None, up to `last`."""
    async for value in values:
        if value is not None:
            yield value
        if value == last:
            return


class WatchesKit:
    """Watches, and what follows a node by them."""

    # Following

    async def test_following_a_node_yields_its_value_now_and_the_newest_later(
        self, sm: StateManager, open_: Open
    ) -> None:
        other = open_()
        async with contextlib.aclosing(follow(sm, Kind.PPLANS, "words")) as values:
            assert await anext(values) is None
            for n in range(50):
                await asyncio.to_thread(other.set, Kind.PPLANS, "words", b"%02d" % n)
            async with asyncio.timeout(WITHIN_S):
                seen = [value async for value in _until(values, b"49")]
        assert seen == sorted(set(seen)), "it went back in time or repeated itself"

    async def test_following_ends_with_its_task_and_leaves_no_watch(self, sm: StateManager) -> None:
        seen: list[bytes | None] = []

        async def keep_following() -> None:
            async for value in follow(sm, Kind.PPLANS, "words"):
                seen.append(value)

        task = asyncio.create_task(keep_following())

        def followed() -> None:
            assert seen == [None]

        await eventually(followed, within_s=WITHIN_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        told = Seen()
        sm.watch(Kind.PPLANS, "words", told)
        await asyncio.to_thread(sm.set, Kind.PPLANS, "words", b"x")
        await asyncio.to_thread(told.until, b"x")
        assert seen == [None]

    # Watches

    def test_a_watch_tells_the_value_now_and_every_later_one(self, sm: StateManager, open_: Open) -> None:
        other = open_()
        other.set(Kind.PPLANS, "words", b"0")
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        assert seen.next() == b"0"
        for n in range(1, 4):
            other.set(Kind.PPLANS, "words", str(n).encode())
            assert seen.next() == str(n).encode()
        other.delete(Kind.PPLANS, "words")
        assert seen.next() is None
        other.create(Kind.PPLANS, "words", b"back")
        assert seen.next() == b"back"

    def test_a_watch_on_nothing_tells_none_first(self, sm: StateManager, open_: Open) -> None:
        seen = Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        assert seen.next() is None
        open_().create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        assert seen.next() == b"x"

    def test_a_watch_never_misses_the_last_of_many_changes(self, sm: StateManager, open_: Open) -> None:
        other = open_()

        def write(name: str) -> None:
            # Same length, written at once: nothing but the content distinguishes the versions.
            for n in range(40):
                other.set(Kind.PPLANS, name, b"%04d" % n)

        with ThreadPoolExecutor(1) as pool:
            for round_ in range(5):
                name = f"t{round_}"
                seen = Seen()
                writing = pool.submit(write, name)
                sm.watch(Kind.PPLANS, name, seen)
                writing.result()
                values = [v for v in seen.until(b"0039") if v is not None]
                assert values == sorted(set(values)), "a watch went back in time or repeated itself"

    def test_a_cancelled_watch_is_silent_and_the_others_go_on(self, sm: StateManager) -> None:
        first, second = Seen(), Seen()
        watch = sm.watch(Kind.PPLANS, "words", first)
        sm.watch(Kind.PPLANS, "words", second)
        assert first.next() is None
        assert second.next() is None
        watch.cancel()
        watch.cancel()
        sm.set(Kind.PPLANS, "words", b"x")
        assert second.next() == b"x"
        assert first.nothing()

    def test_it_can_be_closed_while_a_watch_begins(self, sm: StateManager, monkeypatch: pytest.MonkeyPatch) -> None:
        start = threading.Thread.start
        closing: list[Future[None]] = []

        def start_late(thread: threading.Thread) -> None:
            if thread.name.startswith("statemgr-") and not closing:
                closing.append(pool.submit(sm.close))
                wait(closing, timeout=0.2)  # it waits for this thread, or is quicker
            start(thread)

        with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start_late)
            with contextlib.suppress(StateError):
                sm.watch(Kind.PPLANS, "words", Seen())
            for one in closing:
                one.result()
        sm.close()
        with pytest.raises(StateError, match="closed"):
            sm.watch(Kind.PPLANS, "words", Seen())

    def test_a_failing_callback_and_one_that_cancels_itself_harm_nobody(self, sm: StateManager) -> None:
        def fail(_value: bytes | None) -> None:
            raise ValueError("callback with a bug")

        sm.watch(Kind.PPLANS, "words", fail)
        calls = []
        started = threading.Event()

        def once(value: bytes | None) -> None:
            started.wait(WITHIN_S)
            calls.append(value)
            watch.cancel()

        watch = sm.watch(Kind.PPLANS, "words", once)
        started.set()
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        sm.set(Kind.PPLANS, "words", b"x")
        assert seen.next() == b"x"
        assert calls == [None]

    def test_close_ends_the_watches_and_every_thread(self, open_: Open) -> None:
        before = set(threading.enumerate())
        sm = open_()
        sm.set(Kind.PPLANS, "words", b"x")
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        assert seen.next() == b"x"
        sm.close()

        def all_ended() -> None:
            assert set(threading.enumerate()) <= before

        eventually_sync(all_ended, within_s=WITHIN_S)
        assert seen.nothing()
