"""Manifests, merges and retention together: whatever happens in between, each kept checkpoint restores what it had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_storage import MemoryStorage

from heronpy.checkpoints import (
    LoggedBatch,
    LogHeader,
    Manifest,
    check_intact,
    encode_log,
    encode_ref,
    find_intact,
    manifest_name,
    newest_intact,
    object_checkpoint_id,
    open_object,
    read_log,
    read_manifest,
    read_saved,
)
from heronpy.ckptmgr.parts import Catalog, Merge, Wanted
from heronpy.errors import CheckpointError, NotFoundError, StateError
from heronpy.hashing import index_of_group, key_group
from heronpy.state import KeyedState, Place, TaskStates

GROUPS = 8
COMPONENT = "count"
TOPOLOGY = "words-1"


@dataclass
class World:
    """A topology of one component, its Topology Master's record, and the Checkpoint Manager's catalog."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    catalog: Catalog = field(default_factory=lambda: Catalog(TOPOLOGY))
    committed: dict[int, dict[int, int]] = field(default_factory=dict)
    """What each kept checkpoint must restore."""
    checkpoint: int = 0
    epoch: int = 0
    tasks: int = 0
    due: list[Merge] = field(default_factory=list)
    states: list[TaskStates] = field(default_factory=list)
    counts: list[KeyedState] = field(default_factory=list)

    @property
    def newest(self) -> int:
        return max(self.committed, default=0)

    def restore(self, tasks: int) -> None:
        """Everything begins again with the last commit, and so many tasks."""
        self.epoch += 1
        self.tasks = tasks
        self.states, self.counts = self.restored(self.newest)

    def restored(self, checkpoint: int) -> tuple[list[TaskStates], list[KeyedState]]:
        places = [Place(TOPOLOGY, COMPONENT, index, self.tasks, GROUPS) for index in range(self.tasks)]
        if checkpoint == 0:
            states = [TaskStates(place) for place in places]
        else:
            manifest = read_manifest(self.storage, manifest_name(checkpoint))
            saved = [
                read_saved(manifest, COMPONENT, n, self.tasks, lambda ref: open_object(self.storage, ref))
                for n in range(self.tasks)
            ]
            states = [TaskStates(place, one) for place, one in zip(places, saved, strict=True)]
        return states, [one.keyed_state("counts", default=0) for one in states]

    def count(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.counts[index_of_group(key_group(key, GROUPS), self.tasks, GROUPS)][key] += 1

    def forget(self, key: int) -> None:
        self.counts[index_of_group(key_group(key, GROUPS), self.tasks, GROUPS)].pop(key, None)

    def snapshot(self) -> list[bytes]:
        """All tasks store their snapshots of the next checkpoint."""
        self.checkpoint += 1
        reported = []
        for states in self.states:
            if states.begin(self.checkpoint, self.epoch):
                chunks, ref = states.write(float("inf"))
                assert ref is not None
                self.storage.put(ref.name, chunks)
                reported.append(encode_ref(ref))
        return reported

    def write(self, reported: Sequence[bytes], *, whole: bool = False) -> Manifest:
        tasks = {COMPONENT: self.tasks, "words": 2}
        wanted = Wanted(self.checkpoint, self.epoch, 0 if whole else self.newest, reported, tasks)
        manifest, due = self.catalog.write(self.storage, wanted)
        self.due += due
        assert self.catalog.write(self.storage, wanted)[0] == manifest, "a repeated call changes nothing"
        return manifest

    def commit(self) -> None:
        for states in self.states:
            states.commit(self.checkpoint)
        self.committed[self.checkpoint] = {key: count for counts in self.counts for key, count in counts.items()}

    def abort(self) -> None:
        for states in self.states:
            states.abort(self.checkpoint)

    def merge(self) -> None:
        due, self.due = self.due, []
        for one in due:
            try:
                self.catalog.merge(self.storage, one)
            except CheckpointError:  # by now parts of it are not needed any more, and deleted
                assert one.manifest.checkpoint_id not in self.committed

    def discard(self, keep: int, before: int = 0) -> None:
        if not self.committed:
            return
        kept = sorted(self.committed)[-keep:]
        self.catalog.discard(self.storage, kept, before or self.newest)
        self.committed = {id: self.committed[id] for id in kept}

    def lose(self, which: int) -> None:
        """Something that the newest checkpoint needs is gone: that is noticed, and the next one does not need it."""
        if not self.committed:
            return
        kept = [self.newest]
        manifest = read_manifest(self.storage, manifest_name(self.newest))
        assert self.catalog.discard(self.storage, kept, self.newest)[1] == ""
        needed = [manifest.name, *(ref.name for ref in manifest.objects)]
        gone = needed[which % len(needed)]
        del self.storage.stored[gone]
        assert gone in self.catalog.discard(self.storage, kept, self.newest)[1]
        for states in self.states:
            states.abort(self.checkpoint)
            states.write_whole()
        self.committed, self.due = {}, []
        reported = self.snapshot()
        assert all(states.whole for states in self.states)
        self.write(reported, whole=True)
        self.commit()

    def check(self) -> None:
        for checkpoint, counted in self.committed.items():
            manifest = read_manifest(self.storage, manifest_name(checkpoint))
            check_intact(self.storage, manifest)
            _, counts = self.restored(checkpoint)
            assert {key: count for one in counts for key, count in one.items()} == counted


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.lists(st.integers(0, 20), min_size=1, max_size=5)),
        st.tuples(st.just("forget"), st.integers(0, 20)),
        st.tuples(st.sampled_from(["commit", "commit and merge", "abort", "abort after the manifest"]), st.none()),
        st.tuples(st.sampled_from(["merge", "restart"]), st.none()),
        st.tuples(st.sampled_from(["discard", "discard what was aborted"]), st.integers(1, 3)),
        st.tuples(st.just("lose"), st.integers(0, 9)),
        st.tuples(st.just("restore"), st.integers(1, 4)),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_each_kept_checkpoint_restores_what_it_had(operations: list[tuple[str, object]]) -> None:
    world = World()
    world.restore(2)
    for operation, argument in operations:
        match operation, argument:
            case "count", list():
                world.count(argument)
            case "forget", int():
                world.forget(argument)
            case (("commit" | "commit and merge"), _):
                world.write(world.snapshot())
                world.commit()
                if operation == "commit and merge":
                    world.merge()
            case "abort", _:
                world.snapshot()
                world.abort()
            case "abort after the manifest", _:
                world.write(world.snapshot())
                world.abort()
            case "merge", _:
                world.merge()
            case "restart", _:
                world.catalog, world.due = Catalog(TOPOLOGY), []
            case "discard", int():
                world.discard(argument)
            case "discard what was aborted", int():
                world.discard(argument, before=world.checkpoint + 1)
            case "lose", int():
                world.lose(argument)
            case "restore", int():
                world.restore(argument)
        world.check()


def running(tasks: int = 2) -> World:
    world = World()
    world.restore(tasks)
    world.count(range(20))
    world.write(world.snapshot())
    world.commit()
    return world


def test_many_deltas_are_merged_and_old_objects_deleted() -> None:
    world = running()
    for _ in range(40):
        world.count([1, 2])
        world.write(world.snapshot())
        world.commit()
        world.merge()
        world.discard(2)
        world.check()
    stored = [name for name in world.storage.names() if object_checkpoint_id(name) is not None]
    assert len(stored) < 40, "what is merged replaces what it was made of"
    assert world.due == []


def test_a_merge_asks_before_its_parts_whether_to_go_on() -> None:
    world = running()
    while not world.due:
        world.count([1, 2])
        world.write(world.snapshot())
        world.commit()
    before = len(world.storage.names())
    asked: list[int] = []
    merged = world.catalog.merge(world.storage, world.due[0], lambda: asked.append(len(world.storage.names())))
    assert merged is not None
    assert asked[0] == before, "nothing was written yet"
    world.check()


def test_what_was_merged_but_is_named_nowhere_is_deleted_after_a_restart() -> None:
    world = running()
    while not world.due:
        world.count([1])
        world.write(world.snapshot())
        world.commit()
    before = set(world.storage.names())
    world.merge()
    (merged,) = set(world.storage.names()) - before
    world.discard(1)
    assert merged in world.storage.stored, "it is pinned"
    world.catalog = Catalog(TOPOLOGY)
    for _ in range(2):
        world.count([1])
        world.write(world.snapshot())
        world.commit()
    world.discard(1)
    assert merged not in world.storage.stored
    world.check()


def test_a_merge_of_what_is_not_committed_never_enters_a_checkpoint() -> None:
    """Only the checkpoint before the next manifest is merged: that one is committed."""
    world = running(1)
    for _ in range(30):
        world.count([1, 2, 3])
        world.write(world.snapshot())
        world.abort()
        assert all(due.manifest.checkpoint_id == world.newest for due in world.due)
    world.merge()
    world.write(world.snapshot())
    world.commit()
    world.check()


def test_a_merge_that_fails_leaves_nothing_behind_and_is_done_again() -> None:
    world = running(1)
    while not world.due:
        world.count([1])
        world.write(world.snapshot())
        world.commit()
    (due,) = world.due
    victim = due.manifest.objects[-1].name
    data = world.storage.stored.pop(victim)
    with pytest.raises(CheckpointError, match="missing"):
        world.catalog.merge(world.storage, due)
    world.storage.stored[victim] = data
    assert world.catalog.merge(world.storage, due) is not None
    assert world.catalog.merge(world.storage, due) is None, "once is enough"


def test_a_checkpoint_with_a_damaged_manifest_that_stays_keeps_all_objects() -> None:
    world = running()
    world.count([1])
    world.write(world.snapshot())
    world.commit()
    name = manifest_name(world.newest)
    whole = world.storage.stored[name]
    world.storage.stored[name] = whole[:-3]
    before = set(world.storage.names())
    with pytest.raises(CheckpointError, match="torn"):
        world.discard(1)
    assert set(world.storage.names()) == before
    world.storage.stored[name] = whole
    world.check()


def test_nothing_of_the_oldest_wanted_checkpoint_or_of_a_newer_one_is_deleted() -> None:
    world = running()
    world.count([1])
    late = world.snapshot()
    world.abort()
    world.count([2])
    world.write(world.snapshot())
    world.abort()
    world.discard(1)
    assert len(late) > 0
    assert len([name for name in world.storage.names() if object_checkpoint_id(name) == 2]) == len(late)


def test_what_was_aborted_is_deleted_when_a_newer_one_is_under_way() -> None:
    world = running()
    for _ in range(3):
        world.count([1, 2, 3])
        world.snapshot()
        world.abort()
    world.count([4])
    world.write(world.snapshot())
    world.abort()
    under_way = world.snapshot()
    world.catalog.discard(world.storage, [1], world.checkpoint)
    found = {of for name in world.storage.names() if (of := object_checkpoint_id(name)) is not None}
    assert found == {1, world.checkpoint}
    assert world.storage.names("manifests/") == [manifest_name(1)]
    world.write(under_way)
    world.commit()
    world.check()


def test_a_merge_of_a_newer_checkpoint_than_the_one_before_is_not_used() -> None:
    """A record that was lost may lead back to an older checkpoint: what came after it must not come back."""
    world = running(1)
    while not world.due:
        world.count([world.newest])
        world.write(world.snapshot())
        world.commit()
    world.merge()
    older = world.newest - 2
    world.committed = {id: counted for id, counted in world.committed.items() if id <= older}
    world.restore(1)
    world.count([1])
    world.write(world.snapshot())
    world.commit()
    world.check()


def test_a_merge_that_ends_after_an_older_checkpoint_was_restored_is_not_used() -> None:
    world = running(1)
    while not world.due:
        world.count([world.newest])
        world.write(world.snapshot())
        world.commit()
    (slow,), world.due = world.due, []
    put = world.storage.put

    def falls_back(name: str, pieces: Iterable[bytes]) -> None:
        put(name, pieces)
        world.storage.put = put  # type: ignore[method-assign]
        older = world.newest - 2
        world.committed = {id: counted for id, counted in world.committed.items() if id <= older}
        world.restore(1)
        world.count([19])
        world.write(world.snapshot())
        world.commit()

    world.storage.put = falls_back  # type: ignore[method-assign]
    world.catalog.merge(world.storage, slow)
    world.count([19])
    world.write(world.snapshot())
    world.commit()
    world.check()


def test_what_could_not_be_restored_gets_no_manifest() -> None:
    world = World()
    world.restore(2)
    world.count(range(20))
    reported = world.snapshot()
    with pytest.raises(CheckpointError, match="no base of key group"):
        world.write(reported[:1])
    header = LogHeader(topology_id=TOPOLOGY, component="x", index=0, tasks=1, checkpoint_id=1, epoch=world.epoch)
    _, ref = encode_log(header, [LoggedBatch(1, b"x")])
    with pytest.raises(CheckpointError, match="missing"):
        world.write([*reported, encode_ref(ref)])
    with pytest.raises(CheckpointError, match="not the one that was reported"):
        world.catalog.write(world.storage, Wanted(1, world.epoch + 1, 0, reported, {COMPONENT: 2}))
    with pytest.raises(CheckpointError, match="not the one that was reported"):
        world.catalog.write(world.storage, Wanted(1, world.epoch, 0, reported, {COMPONENT: 3}))
    with pytest.raises(CheckpointError, match="not the one that was reported"):
        Catalog("words-2").write(world.storage, Wanted(1, world.epoch, 0, reported, {COMPONENT: 2}))
    world.write(reported)


def test_a_log_belongs_to_one_checkpoint_and_is_deleted_with_it() -> None:
    world = running()
    reported = world.snapshot()
    header = LogHeader(
        topology_id=TOPOLOGY,
        component="stateless",
        index=0,
        tasks=1,
        checkpoint_id=world.checkpoint,
        epoch=world.epoch,
    )
    pieces, ref = encode_log(header, [LoggedBatch(1, b"x")])
    world.storage.put(ref.name, pieces)
    manifest = world.write([*reported, encode_ref(ref)])
    assert read_log(manifest.logs, "stateless", 0, 1, TOPOLOGY, lambda log: world.storage.read(log.name)) == (
        LoggedBatch(1, b"x"),
    )
    found, refused = find_intact(world.storage, committed=[2], tasks={"stateless": 1})
    assert (found, refused) == (manifest, [])
    found, refused = find_intact(world.storage, committed=[2], tasks={"stateless": 2})
    assert found is None
    assert [(one.why, one.logged_tasks) for one in refused] == [
        ("it has batches in flight for 1 tasks of 'stateless', not for 2", {"stateless": 1})
    ]
    assert find_intact(world.storage, committed=[2], tasks={})[0] is None, "for tasks that are not known yet"
    assert find_intact(world.storage)[0] == manifest
    assert find_intact(world.storage, tasks={})[0] is not None, "the one before it has no log"
    world.commit()
    assert world.write(world.snapshot()).logs == ()
    world.commit()
    world.discard(1)
    with pytest.raises(NotFoundError):
        world.storage.size(ref.name)


def test_tasks_that_declare_different_states_are_found_at_the_first_checkpoint() -> None:
    world = World()
    world.restore(2)
    world.states[1] = TaskStates(Place(TOPOLOGY, COMPONENT, 1, 2, GROUPS))
    world.states[1].task_state("counts")
    with pytest.raises(StateError, match=r"component 'count', state 'counts': task 0 declares this keyed state") as e:
        world.write(world.snapshot())
    assert not isinstance(e.value, CheckpointError), "nothing is damaged"


def test_a_topology_without_state_has_checkpoints_too() -> None:
    storage, catalog = MemoryStorage(), Catalog(TOPOLOGY)
    catalog.write(storage, Wanted(1, 1, 0, (), {"words": 2}))
    manifest, due = catalog.write(storage, Wanted(2, 1, 1, (), {"words": 2}))
    assert (manifest.components, manifest.size, due) == ({}, 0, [])
    assert newest_intact(storage)[0].checkpoint_id == 2
    assert catalog.discard(storage, [2], 2)[0] == [manifest_name(1)]
