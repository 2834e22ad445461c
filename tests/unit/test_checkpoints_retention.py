"""When objects are merged, which may be deleted, and what a manifest still needs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_kit import GROUPS, NAME, Component

from heronpy.checkpoints import (
    ComponentEntry,
    Manifest,
    ObjectRef,
    manifest_name,
    next_manifest,
    parts_for,
    references,
    removable_manifests,
    removable_objects,
    should_compact,
)
from heronpy.errors import CheckpointError


def ref(
    checkpoint_id: int, since: int = 0, groups: range = range(GROUPS), size: int = 100, index: int = 0
) -> ObjectRef:
    return ObjectRef(
        name=f"objects/count/{checkpoint_id:020d}-0-{index}of1.{'base' if since == 0 else 'delta'}",
        component=NAME,
        index=index,
        tasks=1,
        generation=0,
        checkpoint_id=checkpoint_id,
        since=since,
        first_group=groups.start,
        end_group=groups.stop,
        size=size,
        checksum=0,
    )


def manifest(checkpoint_id: int, *refs: ObjectRef) -> Manifest:
    return Manifest(
        topology_id="words-1",
        checkpoint_id=checkpoint_id,
        epoch=0,
        groups=GROUPS,
        components={NAME: ComponentEntry(1, 0)},
        objects=refs,
    )


def chain(deltas: int, size: int) -> Manifest:
    return manifest(deltas + 1, ref(1, size=1000), *(ref(n + 1, n, size=size) for n in range(1, deltas + 1)))


def test_more_than_ten_deltas_or_more_than_half_of_the_base_are_merged() -> None:
    assert not should_compact(chain(10, 10), NAME, 0)
    assert should_compact(chain(11, 10), NAME, 0)
    assert not should_compact(chain(5, 100), NAME, 0)
    assert should_compact(chain(5, 101), NAME, 0)
    assert not should_compact(chain(0, 0), NAME, 0)


def test_of_an_object_that_others_share_only_the_own_part_counts() -> None:
    # After 1 -> 2 tasks: the base is of both, a delta of its own task.
    own = ref(2, 1, range(8), size=300)
    shared = msgspec.structs.replace(manifest(2, ref(1, size=1000), own), components={NAME: ComponentEntry(2, 1)})
    assert should_compact(shared, NAME, 0), "300 of 500"
    assert not should_compact(shared, NAME, 1)


def test_a_missing_base_and_a_missing_delta_are_found() -> None:
    with pytest.raises(CheckpointError, match=r"there is no base of key group 8 \(8 in all\)"):
        parts_for([ref(1, groups=range(8)), ref(2, 1)], range(GROUPS), "m")
    with pytest.raises(CheckpointError, match="changes since checkpoint 2 are named, and nothing of that checkpoint"):
        parts_for([ref(1), ref(3, 2)], range(GROUPS), "m")
    assert [part.ref.checkpoint_id for part in parts_for([ref(3, 1), ref(1)], range(GROUPS), "m")] == [1, 3]


def test_a_merged_object_takes_the_place_of_those_that_it_was_made_of() -> None:
    component = Component(lambda states: states.keyed_state("values"), 2)
    for number in range(4):
        for key in range(12 if number else 40):
            component.of(key)[key] = number
        component.checkpoint()
    before = component.manifest
    assert before is not None
    assert len(before.objects) == 8
    merged = component.compact(0)
    assert (merged.since, merged.checkpoint_id) == (0, 4)
    component.of(1)[1] = 9
    after = component.checkpoint()
    assert [one.name for one in after.objects if one.index == 0 and one.checkpoint_id <= 4] == [merged.name]
    assert sum(1 for one in after.objects if one.index == 1) in (4, 5)
    component.retain(1)
    assert component.objects.keys() == {one.name for one in after.objects}


def test_a_merge_that_ends_after_later_checkpoints_is_taken_over() -> None:
    component = Component(lambda states: states.keyed_state("values"))
    state = component.declared[0]
    state.update(dict.fromkeys("defghij", 2))
    for number in range(3):
        state.update(dict.fromkeys("abc", number))
        component.checkpoint()
    merged = component.compact(0)
    component.compacted = []
    state["a"] = 8
    component.checkpoint()
    component.compacted = [merged]
    state["b"] = 9
    after = component.checkpoint()
    assert [(one.checkpoint_id, one.since) for one in after.objects] == [(3, 0), (4, 3), (5, 4)]
    component.restart(1)
    assert component.declared[0] == {"a": 8, "b": 9} | dict.fromkeys("cdefghij", 2)


def test_a_merge_forgets_deleted_keys() -> None:
    component = Component(lambda states: states.keyed_state("values"))
    component.declared[0].update(dict.fromkeys(range(2000), "x" * 100))
    component.checkpoint()
    for key in range(300):
        del component.declared[0][key]
    component.declared[0]["last"] = 1
    assert [ref.since for ref in component.checkpoint().objects] == [0, 1]
    assert component.compact(0).size < 1750 * 105
    component.checkpoint()
    component.restart(1)
    assert component.declared[0] == dict.fromkeys(range(300, 2000), "x" * 100) | {"last": 1}


def test_a_manifest_follows_an_older_one_of_the_same_topology() -> None:
    with pytest.raises(CheckpointError, match="not newer"):
        next_manifest(manifest(5, ref(5)), manifest(5, ref(5)))
    for changes in ({"topology_id": "other-1"}, {"groups": 8}):
        with pytest.raises(CheckpointError, match="another topology or number of key groups"):
            next_manifest(msgspec.structs.replace(manifest(1), **changes), manifest(2, ref(2)))
    assert next_manifest(None, manifest(1, ref(1))).objects == (ref(1),)


def test_a_component_that_is_gone_leaves_the_next_manifest() -> None:
    old = msgspec.structs.replace(manifest(1, ref(1)), components={NAME: ComponentEntry(1, 0)})
    new = msgspec.structs.replace(manifest(2), components={})
    assert next_manifest(old, new).objects == ()


def test_references_are_counted_and_only_what_none_needs_is_removed() -> None:
    kept = [manifest(3, ref(1), ref(3, 1)), manifest(4, ref(1), ref(3, 1), ref(4, 3))]
    assert references(kept) == {ref(1).name: 2, ref(3, 1).name: 2, ref(4, 3).name: 1}
    stored = [ref(n, n - 1).name for n in range(2, 7)] + [ref(1).name, manifest_name(3), "objects/other", "else"]
    stored += [ref(2).name, ref(4).name]
    assert set(removable_objects(stored, kept, 5, pinned=[ref(4).name])) == {ref(2, 1).name, ref(2).name}
    assert set(removable_objects(stored, [], 3)) == {ref(1).name, ref(2, 1).name, ref(2).name}
    assert removable_objects(stored, [], 1) == []


@given(st.sets(st.integers(1, 30), max_size=12), st.integers(-1, 6), st.sets(st.integers(1, 30), max_size=3))
def test_the_newest_manifests_and_the_savepoints_are_kept(ids: set[int], keep: int, savepoints: set[int]) -> None:
    stored = [manifest_name(n) for n in sorted(ids)] + ["manifests/other.json", ref(1).name]
    removed = removable_manifests(stored, keep=keep, savepoints=savepoints)
    kept = set(sorted(ids)[-max(1, keep) :]) | (savepoints & ids)
    assert removed == [manifest_name(n) for n in sorted(ids - kept)]
