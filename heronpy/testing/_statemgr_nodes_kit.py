"""What every state manager must do with values: tests of `StatemgrKit`."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from heronpy.errors import AlreadyExistsError, StateError, UsageError
from heronpy.proto import state_pb2
from heronpy.statemgr import TOMBSTONE_S, Kind, StateManager, container_node
from heronpy.testing import eventually_sync
from heronpy.testing._statemgr_seen import WITHIN_S, Open


class NodesKit:
    """Values, conditions, names."""

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

    # Names, and what goes with them

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
        sm.expire_tombstones(lambda: 1001.0 + 2 * TOMBSTONE_S)
        assert sm.is_buried("words-1")
        sm.expire_tombstones(lambda: 1002.0 + 2 * TOMBSTONE_S)
        assert sm.list(Kind.TOMBSTONES) == []

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
