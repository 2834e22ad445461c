"""What every state manager must do, as tests.

A state manager of your own passes the kit like this:

    class TestMine(StatemgrKit):
        @pytest.fixture
        def spec(self, tmp_path):
            return StatemgrSpec(type="file", root=str(tmp_path / "state"))

Each test gets a fresh, empty tree. Other processes are real ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from heronpy.errors import AlreadyExistsError, StateError, UnavailableError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager
from heronpy.testing import eventually_sync
from heronpy.testing._statemgr_nodes_kit import NodesKit
from heronpy.testing._statemgr_owner import Owner
from heronpy.testing._statemgr_seen import (
    OWN_SESSION_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    WITHIN_S,
    Open,
    Seen,
    opened,
    take_over,
)
from heronpy.testing._statemgr_watches_kit import WatchesKit

__all__ = [
    "OWN_SESSION_TIMEOUT_S",
    "SESSION_TIMEOUT_S",
    "WITHIN_S",
    "Open",
    "Owner",
    "Seen",
    "StatemgrKit",
    "opened",
    "take_over",
]


class StatemgrKit(NodesKit, WatchesKit):
    """Tests for any state manager; a subclass has the fixture `spec`, an empty tree."""

    @pytest.fixture
    def open_(self, spec: StatemgrSpec) -> Iterator[Open]:
        """Opens further state managers on the tree; all are closed at the end."""
        with contextlib.ExitStack() as stack:

            def open_one() -> StateManager:
                sm = opened(spec)
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
