"""What every state manager must do, as tests.

A state manager of your own passes the kit like this:

    class TestMine(StatemgrKit):
        @pytest.fixture
        def spec(self, tmp_path):
            return StatemgrSpec(type="file", root=str(tmp_path / "state"))

Each test gets a fresh, empty tree. Other processes are real ones (`python -m heronpy.testing.statemgr_kit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import IO

import pytest

from heronpy.errors import AlreadyExistsError, StateError, UnavailableError, UsageError
from heronpy.proto import state_pb2
from heronpy.runtime import PARENT_ENV, StatemgrSpec, die_with_parent
from heronpy.statemgr import TOMBSTONE_S, Kind, StateManager, container_node, follow, open_statemgr
from heronpy.testing import eventually, eventually_sync

SESSION_TIMEOUT_S = 8.0
"""Of the processes that the kit kills and stops; an ephemeral node of theirs is gone after about that long at most."""
OWN_SESSION_TIMEOUT_S = 40.0
"""Of its own sessions: they are not to expire because this process is late."""
WITHIN_S = 120.0
"""How long the kit waits for something that must happen."""

Open = Callable[[], StateManager]


class Seen:
    """A watch callback that keeps what it is given."""

    def __init__(self) -> None:
        self._values: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def __call__(self, value: bytes | None) -> None:
        self._values.put(value)

    def next(self, within_s: float = WITHIN_S) -> bytes | None:
        """The next value; raises AssertionError if there is none in time."""
        try:
            return self._values.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"the watch said nothing for {within_s:g} s") from None

    def until(self, value: bytes | None, within_s: float = WITHIN_S) -> list[bytes | None]:
        """All values up to `value`."""
        values = []
        deadline_s = time.monotonic() + within_s
        while True:
            values.append(self.next(max(0.01, deadline_s - time.monotonic())))
            if values[-1] == value:
                return values

    def nothing(self) -> bool:
        return self._values.empty()


class Owner:
    """Another process that made an ephemeral node and keeps it until it is ended."""

    def __init__(self, spec: StatemgrSpec, kind: Kind, topology: str, value: bytes, *, holds: str = "") -> None:
        order = {
            "spec": dataclasses.asdict(spec),
            "kind": kind.value,
            "topology": topology,
            "value": value.decode(),
            "holds": holds,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "heronpy.testing.statemgr_kit", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, PARENT_ENV: str(os.getpid())},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin: IO[bytes] = self.process.stdin
        self._stdout: IO[bytes] = self.process.stdout
        self._read = b""

    def said(self, within_s: float = WITHIN_S) -> str:
        """The next line of its output: `owned`, or the name of an error."""
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            part = os.read(self._stdout.fileno(), 4096) if ready else b""
            assert part, f"the owner said nothing more, but {self._read!r}"
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def tell(self, line: str) -> None:
        """One line to its input."""
        self._stdin.write(line.encode() + b"\n")

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def end(self) -> None:
        """Let it close its state manager and exit."""
        self._stdin.close()
        self.process.wait(WITHIN_S)

    def kill(self) -> None:
        """SIGKILL: nothing of it can tidy up."""
        self.process.kill()
        self.process.wait(WITHIN_S)
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()


async def _until(values: AsyncIterator[bytes | None], last: bytes) -> AsyncIterator[bytes]:
    """The values that are not None, up to `last`."""
    async for value in values:
        if value is not None:
            yield value
        if value == last:
            return


class StatemgrKit:
    """Tests for any state manager; a subclass has the fixture `spec`, an empty tree."""

    @pytest.fixture
    def open_(self, spec: StatemgrSpec) -> Iterator[Open]:
        """Opens further state managers on the tree; all are closed at the end."""
        with contextlib.ExitStack() as stack:

            def open_one() -> StateManager:
                sm = open_statemgr(spec, session_timeout_s=OWN_SESSION_TIMEOUT_S, call_timeout_s=WITHIN_S)
                stack.callback(sm.close)
                return sm

            yield open_one

    @pytest.fixture
    def sm(self, open_: Open) -> StateManager:
        return open_()

    @pytest.fixture
    def owner(self, spec: StatemgrSpec) -> Iterator[Callable[..., Owner]]:
        """Starts owners; all are killed at the end."""
        owners: list[Owner] = []

        def start(kind: Kind, topology: str, value: bytes, *, holds: str = "") -> Owner:
            owners.append(Owner(spec, kind, topology, value, holds=holds))
            return owners[-1]

        yield start
        for one in owners:
            one.kill()

    # Values

    @pytest.mark.parametrize("kind", list(Kind))
    def test_what_is_set_is_read_by_everybody(self, sm: StateManager, open_: Open, kind: Kind) -> None:
        assert sm.get(kind, "words") is None
        sm.set(kind, "words", b"\x00one\xff")
        assert open_().get(kind, "words") == b"\x00one\xff"
        sm.set(kind, "words", b"")
        assert sm.get(kind, "words") == b""
        assert sm.list(kind) == ["words"]

    def test_values_outlive_the_session(self, open_: Open) -> None:
        with open_() as first:
            first.set(Kind.TOPOLOGIES, "words", b"kept")
            first.create(Kind.PPLANS, "words", b"kept too")
        second = open_()
        assert second.get(Kind.TOPOLOGIES, "words") == b"kept"
        assert second.get(Kind.PPLANS, "words") == b"kept too"

    def test_large_values_are_whole(self, sm: StateManager) -> None:
        value = bytes(range(256)) * 3500
        sm.set(Kind.TOPOLOGIES, "large", value)
        assert sm.get(Kind.TOPOLOGIES, "large") == value

    def test_a_name_that_exists_cannot_be_created_again(self, sm: StateManager, open_: Open) -> None:
        sm.create(Kind.TOPOLOGIES, "words", b"first")
        with pytest.raises(AlreadyExistsError, match="words"):
            open_().create(Kind.TOPOLOGIES, "words", b"second")
        assert sm.get(Kind.TOPOLOGIES, "words") == b"first"

    # Conditional writes

    def test_compare_and_set_writes_only_what_replaces_the_expected_value(self, sm: StateManager, open_: Open) -> None:
        other = open_()
        assert sm.set_if(Kind.EPOCHS, "words", b"0", expected=b"something") is False
        assert sm.get(Kind.EPOCHS, "words") is None
        assert sm.set_if(Kind.EPOCHS, "words", b"1", expected=None) is True
        assert other.set_if(Kind.EPOCHS, "words", b"one", expected=None) is False
        assert other.set_if(Kind.EPOCHS, "words", b"2", expected=b"1") is True
        assert sm.set_if(Kind.EPOCHS, "words", b"two", expected=b"1") is False
        assert sm.get(Kind.EPOCHS, "words") == b"2"
        sm.delete(Kind.EPOCHS, "words")
        assert sm.set_if(Kind.EPOCHS, "words", b"3", expected=b"2") is False

    def test_of_many_who_raise_a_number_none_loses_a_step(self, open_: Open) -> None:
        managers = [open_() for _ in range(4)]
        managers[0].set(Kind.EPOCHS, "words", b"0")

        def raise_it(manager: StateManager) -> None:
            for _ in range(5):
                while True:
                    before = manager.get(Kind.EPOCHS, "words") or b""
                    if manager.set_if(Kind.EPOCHS, "words", b"%d" % (int(before) + 1), expected=before):
                        break

        with ThreadPoolExecutor(len(managers)) as pool:
            list(pool.map(raise_it, managers))
        assert managers[0].get(Kind.EPOCHS, "words") == b"20"

    def test_a_fenced_write_needs_the_fence_to_be_what_the_writer_knows(self, sm: StateManager, open_: Open) -> None:
        old, new = open_(), open_()
        old.set(Kind.EPOCHS, "words", b"old")
        assert old.set_if(Kind.PPLANS, "words", b"plan 1", expected=b"old", of=Kind.EPOCHS) is True
        assert old.set_if(Kind.PPLANS, "words", b"plan 2", expected=b"old", of=Kind.EPOCHS) is True
        assert new.set_if(Kind.EPOCHS, "words", b"new", expected=b"old") is True
        assert old.set_if(Kind.PPLANS, "words", b"plan 3", expected=b"old", of=Kind.EPOCHS) is False
        assert sm.get(Kind.PPLANS, "words") == b"plan 2"
        assert new.set_if(Kind.PPLANS, "words", b"plan 4", expected=b"new", of=Kind.EPOCHS) is True
        sm.delete(Kind.EPOCHS, "words")
        assert new.set_if(Kind.PPLANS, "words", b"plan 5", expected=b"new", of=Kind.EPOCHS) is False
        assert sm.get(Kind.PPLANS, "words") == b"plan 4"

    def test_a_fence_that_moves_while_two_write_lets_only_one_of_them_write_last(
        self, sm: StateManager, open_: Open
    ) -> None:
        writers = [open_() for _ in range(3)]
        sm.set(Kind.EPOCHS, "words", b"0")
        done = threading.Event()

        def write(n: int) -> None:
            while not done.is_set():
                writers[n].set_if(Kind.PPLANS, "words", b"%d" % n, expected=b"%d" % n, of=Kind.EPOCHS)

        with ThreadPoolExecutor(len(writers)) as pool:
            running = [pool.submit(write, n) for n in range(3)]
            try:
                for n in (1, 2, 0, 2):
                    sm.set(Kind.EPOCHS, "words", b"%d" % n)

                    def written(n: int = n) -> None:
                        assert sm.get(Kind.PPLANS, "words") == b"%d" % n

                    eventually_sync(written, within_s=WITHIN_S)
                    for _ in range(20):
                        assert sm.get(Kind.PPLANS, "words") == b"%d" % n, "a fenced writer has written"
            finally:
                done.set()
            for one in running:
                one.result()

    def test_a_condition_is_never_the_absence_of_another_node(self, sm: StateManager) -> None:
        with pytest.raises(UsageError):
            sm.set_if(Kind.PPLANS, "words", b"plan", expected=None, of=Kind.EPOCHS)

    def test_an_ephemeral_node_of_somebody_else_is_not_set_conditionally(self, sm: StateManager, open_: Open) -> None:
        owner = open_()
        owner.create(Kind.TMASTERS, "words", b"owner", ephemeral=True)
        with pytest.raises(AlreadyExistsError):
            sm.set_if(Kind.TMASTERS, "words", b"me", expected=b"owner")
        assert owner.set_if(Kind.TMASTERS, "words", b"moved", expected=b"owner") is True
        owner.close()
        assert sm.get(Kind.TMASTERS, "words") is None

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

    def test_delete_says_whether_there_was_something(self, sm: StateManager) -> None:
        sm.set(Kind.TOPOLOGIES, "words", b"x")
        assert sm.delete(Kind.TOPOLOGIES, "words") is True
        assert sm.delete(Kind.TOPOLOGIES, "words") is False
        assert sm.get(Kind.TOPOLOGIES, "words") is None
        sm.create(Kind.TOPOLOGIES, "words", b"y")

    def test_list_is_sorted_and_of_one_kind(self, sm: StateManager) -> None:
        for name in ("b", "a", "c d", "größe"):
            sm.set(Kind.TOPOLOGIES, name, b"x")
        sm.set(Kind.PPLANS, "z", b"x")
        assert sm.list(Kind.TOPOLOGIES) == ["a", "b", "c d", "größe"]
        assert sm.list(Kind.SCHEDULERS) == []

    def test_a_topology_is_removed_with_its_containers_and_nothing_else(self, sm: StateManager) -> None:
        for kind in Kind:
            sm.set(kind, "words", b"x")
        others = ["words_2__1", "words__1__2", "word__1"]
        for node in (container_node("words", 0), container_node("words", 12), *others):
            sm.set(Kind.CONTAINERS, node, b"x")
        sm.set(Kind.TOPOLOGIES, "words__1", b"x")
        sm.remove_topology("words")
        sm.remove_topology("words")
        assert sm.list(Kind.CONTAINERS) == sorted(["words", *others])
        assert sm.list(Kind.TOPOLOGIES) == ["words__1"]
        assert [kind for kind in Kind if sm.get(kind, "words") is not None] == [
            Kind.LOCKS,
            Kind.CONTAINERS,
            Kind.TOMBSTONES,
        ]

    def test_a_killed_topology_is_marked_for_a_week_and_no_longer(self, sm: StateManager, open_: Open) -> None:
        id = f"{'x' * 180}-{uuid.uuid4()}"
        sm.bury(id, lambda: 1000.0)
        assert open_().is_buried(id)
        assert not sm.is_buried("words-1")
        sm.bury("words-1", lambda: 1000.0 + TOMBSTONE_S)
        assert sm.is_buried(id)
        sm.bury("words-1", lambda: 1001.0 + TOMBSTONE_S)
        assert sm.list(Kind.TOMBSTONES) == ["words-1"]

    def test_a_mark_that_is_damaged_does_not_stay(self, sm: StateManager) -> None:
        sm.set(Kind.TOMBSTONES, "words-1", b"\xff")
        assert sm.is_buried("words-1"), "who wrote it meant something by it"
        sm.bury("words-2")
        assert sm.list(Kind.TOMBSTONES) == ["words-2"]

    def test_a_removal_says_so_before_anything_vanishes(
        self, sm: StateManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        execution = state_pb2.ExecutionState(topology="words", topology_id="words-1")
        sm.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
        sm.set(Kind.TOPOLOGIES, "words", b"x")
        delete, seen = sm.delete, []

        def watched(kind: Kind, topology: str) -> bool:
            seen.append(state_pb2.ExecutionState.FromString(sm.get(Kind.EXECUTIONSTATE, "words") or b""))
            return delete(kind, topology)

        monkeypatch.setattr(sm, "delete", watched)
        sm.remove_topology("words")
        execution.removed = True
        assert seen
        assert all(one == execution for one in seen)
        assert sm.get(Kind.EXECUTIONSTATE, "words") is None

    def test_a_container_of_a_topology_with_the_longest_name_has_a_node(self, sm: StateManager) -> None:
        node = container_node("x" * 180, 10**9)
        sm.set(Kind.CONTAINERS, node, b"x")
        assert sm.list(Kind.CONTAINERS) == [node]

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "../a", "a..b", ".a", "a\n", "a\0b", "x" * 300])
    def test_names_that_are_no_path_element_are_refused(self, sm: StateManager, name: str) -> None:
        for kind in (Kind.TOPOLOGIES, Kind.LOCKS):
            for call in (
                lambda kind=kind: sm.get(kind, name),
                lambda kind=kind: sm.set(kind, name, b"x"),
                lambda kind=kind: sm.create(kind, name, b"x"),
                lambda kind=kind: sm.delete(kind, name),
                lambda kind=kind: sm.watch(kind, name, print),
            ):
                with pytest.raises(UsageError):
                    call()
        with pytest.raises(UsageError), sm.lock(name, "update"):
            pass
        with pytest.raises(UsageError), sm.lock("words", name):
            pass

    def test_a_closed_state_manager_says_so(self, sm: StateManager) -> None:
        sm.close()
        sm.close()
        with pytest.raises(StateError, match="closed"):
            sm.get(Kind.TOPOLOGIES, "words")

    def test_a_reader_never_sees_half_a_value(self, sm: StateManager, open_: Open) -> None:
        values = [bytes([n]) * 50_000 for n in range(4)]
        sm.set(Kind.TOPOLOGIES, "words", values[0])
        done = threading.Event()
        reader = open_()
        read = []

        def keep_reading() -> None:
            while not done.is_set():
                read.append(reader.get(Kind.TOPOLOGIES, "words"))

        thread = threading.Thread(target=keep_reading)
        thread.start()
        try:
            for n in range(30):
                sm.set(Kind.TOPOLOGIES, "words", values[n % 4])
        finally:
            done.set()
            thread.join()
        assert set(read) <= set(values)

    # Ephemeral nodes

    def test_an_ephemeral_node_ends_with_its_session(self, sm: StateManager, open_: Open) -> None:
        owner = open_()
        owner.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
        assert sm.get(Kind.TMASTERS, "words") == b"here"
        assert sm.list(Kind.TMASTERS) == ["words"]
        with pytest.raises(AlreadyExistsError):
            sm.create(Kind.TMASTERS, "words", b"me", ephemeral=True)
        with pytest.raises(AlreadyExistsError):
            owner.create(Kind.TMASTERS, "words", b"me", ephemeral=True)
        owner.close()
        assert sm.get(Kind.TMASTERS, "words") is None
        assert sm.list(Kind.TMASTERS) == []
        assert sm.delete(Kind.TMASTERS, "words") is False
        sm.create(Kind.TMASTERS, "words", b"me", ephemeral=True)
        assert sm.get(Kind.TMASTERS, "words") == b"me"

    def test_only_the_owner_changes_an_ephemeral_node_and_it_stays_ephemeral(
        self, sm: StateManager, open_: Open
    ) -> None:
        owner = open_()
        owner.create(Kind.TMASTERS, "words", b"port 1", ephemeral=True)
        owner.set(Kind.TMASTERS, "words", b"port 2")
        assert sm.get(Kind.TMASTERS, "words") == b"port 2"
        with pytest.raises(AlreadyExistsError, match="another live process"):
            sm.set(Kind.TMASTERS, "words", b"mine")
        owner.close()
        assert sm.get(Kind.TMASTERS, "words") is None

    def test_an_ephemeral_node_can_be_removed_by_anybody(self, sm: StateManager, open_: Open) -> None:
        owner = open_()
        owner.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        assert sm.delete(Kind.TMASTERS, "words") is True
        assert owner.get(Kind.TMASTERS, "words") is None
        sm.create(Kind.TMASTERS, "words", b"y", ephemeral=True)
        owner.close()
        assert sm.get(Kind.TMASTERS, "words") == b"y"

    def test_of_many_creators_exactly_one_succeeds(self, open_: Open) -> None:
        managers = [open_() for _ in range(4)]
        for round_ in range(8):
            barrier = threading.Barrier(len(managers))

            def create(n: int, round_: int = round_, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                try:
                    managers[n].create(Kind.TMASTERS, f"t{round_}", str(n).encode(), ephemeral=True)
                except AlreadyExistsError:
                    return False
                return True

            with ThreadPoolExecutor(len(managers)) as pool:
                won = list(pool.map(create, range(len(managers))))
            assert won.count(True) == 1
            assert managers[0].get(Kind.TMASTERS, f"t{round_}") == str(won.index(True)).encode()

    def test_of_many_processes_exactly_one_succeeds_after_the_owner_was_killed(
        self, sm: StateManager, owner: Callable[..., Owner]
    ) -> None:
        first = owner(Kind.TMASTERS, "words", b"first")
        assert first.said() == "owned"
        others = [owner(Kind.TMASTERS, "words", f"other {n}".encode(), holds="wait") for n in range(3)]
        for other in others:
            assert other.said() == "ready"
        first.kill()
        for other in others:
            other.tell("go")
        said = [other.said() for other in others]
        assert sorted(said) == ["AlreadyExistsError", "AlreadyExistsError", "owned"]
        assert sm.get(Kind.TMASTERS, "words") == f"other {said.index('owned')}".encode()

    def test_kill_9_of_the_owner_ends_its_node(self, sm: StateManager, owner: Callable[..., Owner]) -> None:
        other = owner(Kind.TMASTERS, "words", b"other")
        assert other.said() == "owned"
        seen = Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        assert seen.next() == b"other"
        other.kill()
        assert seen.next() is None
        assert sm.get(Kind.TMASTERS, "words") is None
        sm.create(Kind.TMASTERS, "words", b"mine", ephemeral=True)
        assert seen.next() == b"mine"

    def test_a_child_process_does_not_keep_its_parents_node(
        self, sm: StateManager, owner: Callable[..., Owner]
    ) -> None:
        other = owner(Kind.TMASTERS, "words", b"other", holds="child")
        assert other.said() == "owned"
        children = [int(pid) for pid in other.said().split()]
        try:
            assert len(children) == 2
            other.kill()

            def gone() -> None:
                assert sm.get(Kind.TMASTERS, "words") is None

            eventually_sync(gone, within_s=WITHIN_S)
            for child in children:
                os.kill(child, 0)  # both still live: it was not their end that ended the node
        finally:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

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
        for round_ in range(5):
            name = f"t{round_}"
            seen = Seen()
            # Same length, written at once: nothing but the content tells the versions apart.
            writer = threading.Thread(
                target=lambda name=name: [other.set(Kind.PPLANS, name, b"%04d" % n) for n in range(40)]
            )
            writer.start()
            sm.watch(Kind.PPLANS, name, seen)
            writer.join()
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

    # Locks

    def test_a_lock_has_one_holder(self, sm: StateManager, open_: Open) -> None:
        other = open_()
        with sm.lock("words", "update"):
            began_s = time.monotonic()
            with pytest.raises(UnavailableError, match=f"'update'.*'words'.*pid {os.getpid()}"):  # noqa: SIM117
                with other.lock("words", "update", timeout_s=0.2):
                    pass
            assert 0.2 <= time.monotonic() - began_s < WITHIN_S
            with other.lock("words", "something else"), other.lock("other words", "update"):
                pass
        with other.lock("words", "update", timeout_s=WITHIN_S):
            pass
        assert sm.list(Kind.LOCKS) == []

    def test_locked_sections_never_overlap(self, sm: StateManager, open_: Open) -> None:
        sm.set(Kind.PPLANS, "counter", b"0")
        managers = [open_() for _ in range(3)]

        def count(n: int) -> None:
            for _ in range(5):
                with managers[n].lock("counter", "add", timeout_s=WITHIN_S):
                    value = int(managers[n].get(Kind.PPLANS, "counter") or b"")
                    managers[n].set(Kind.PPLANS, "counter", str(value + 1).encode())

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(count, range(3)))
        assert sm.get(Kind.PPLANS, "counter") == b"15"

    def test_a_lock_is_released_when_the_block_fails(self, sm: StateManager) -> None:
        with pytest.raises(ZeroDivisionError), sm.lock("words", "update"):
            raise ZeroDivisionError
        with sm.lock("words", "update", timeout_s=WITHIN_S):
            pass

    def test_a_lock_is_released_when_its_holder_is_killed(self, sm: StateManager, owner: Callable[..., Owner]) -> None:
        other = owner(Kind.LOCKS, "words", b"", holds="lock")
        assert other.said() == "owned"
        with pytest.raises(UnavailableError), sm.lock("words", "update", timeout_s=0.1):
            pass
        other.kill()
        with sm.lock("words", "update", timeout_s=WITHIN_S):
            pass

    def test_a_lock_that_was_lost_is_no_success(self, sm: StateManager, open_: Open) -> None:
        with pytest.raises(StateError, match="lost"), sm.lock("words", "update"):
            assert open_().delete(Kind.LOCKS, "words__update")


def main() -> None:
    """An owner process: does what its argument says, tells so, and keeps it until stdin ends."""
    die_with_parent()
    order = json.loads(sys.argv[1])
    kind, topology, holds = Kind(order["kind"]), order["topology"], order["holds"]
    with contextlib.ExitStack() as stack:
        sm = stack.enter_context(open_statemgr(StatemgrSpec(**order["spec"]), session_timeout_s=SESSION_TIMEOUT_S))
        if holds == "lock":
            stack.enter_context(sm.lock(topology, "update"))
        else:
            if holds == "wait":
                print("ready", flush=True)
                sys.stdin.readline()
            deadline_s = time.monotonic() + WITHIN_S
            while True:
                try:
                    sm.create(kind, topology, order["value"].encode(), ephemeral=True)
                    break
                except AlreadyExistsError as e:
                    # The killed owner's session may have a moment left; then its node still counts.
                    now = sm.get(kind, topology)
                    if (now is not None and now.startswith(b"other")) or time.monotonic() > deadline_s:
                        print(type(e).__name__, flush=True)
                        sys.stdin.read()
                        return
                    time.sleep(0.02)
        print("owned", flush=True)
        if holds == "child":
            print(*_children(), flush=True)
        sys.stdin.read()


def _children() -> list[int]:
    """Two children that outlive us: one by exec, one by fork alone."""
    executed = subprocess.Popen(["sleep", "120"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=False)
    forked = os.fork()
    if forked == 0:
        devnull = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(devnull, fd)
        time.sleep(120)
        os._exit(0)
    return [executed.pid, forked]


if __name__ == "__main__":
    main()
