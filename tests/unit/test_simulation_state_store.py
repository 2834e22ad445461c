"""The state manager of the simulator behaves as the real ones do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from heronpy.errors import StateError
from heronpy.statemgr import Kind, StateManager
from heronpy.testing.simulation import MemoryStateManager, MemoryStore
from heronpy.testing.statemgr_kit import Open, StatemgrKit


class TestMemoryStateManager(StatemgrKit):
    """The kit, but for what is about processes and threads: there is one, which calls back at once."""

    @pytest.fixture
    def open_(self) -> Iterator[Open]:  # type: ignore[override]  # there is no specification
        store = MemoryStore()
        with contextlib.ExitStack() as stack:

            def open_one() -> StateManager:
                made = MemoryStateManager(store)
                stack.callback(made.close)
                return made

            yield open_one

    test_of_many_processes_exactly_one_succeeds_after_the_owner_was_killed = None  # type: ignore[assignment]
    test_kill_9_of_the_owner_ends_its_node = None  # type: ignore[assignment]
    test_a_child_process_does_not_keep_its_parents_node = None  # type: ignore[assignment]
    test_a_failing_callback_and_one_that_cancels_itself_harm_nobody = None  # type: ignore[assignment]
    test_a_lock_is_released_when_its_holder_is_killed = None  # type: ignore[assignment]


def test_an_expired_session_loses_its_node_and_gets_it_back_unless_somebody_else_was_quicker() -> None:
    store = MemoryStore()
    first, second = MemoryStateManager(store), MemoryStateManager(store)
    first.create(Kind.TMASTERS, "words", b"first", ephemeral=True)
    first.expire()
    assert second.get(Kind.TMASTERS, "words") is None
    first.renew()
    assert second.get(Kind.TMASTERS, "words") == b"first"
    first.expire()
    second.create(Kind.TMASTERS, "words", b"second", ephemeral=True)
    first.renew()
    assert first.get(Kind.TMASTERS, "words") == b"second"


def test_nothing_is_reported_while_it_is_out_of_reach_and_the_change_when_it_is_back() -> None:
    store = MemoryStore()
    state, seen = MemoryStateManager(store), []
    state.watch(Kind.PPLANS, "words", seen.append)
    state.set(Kind.PPLANS, "words", b"one")
    store.set_away(True)
    with pytest.raises(StateError, match="out of reach"):
        state.get(Kind.PPLANS, "words")
    store.empty()
    assert seen == [None, b"one"]
    store.set_away(False)
    assert seen == [None, b"one", None]
