"""A topology that begins with the checkpoint of another: what it restores, and what is refused at submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.checkpoints import LogRef, open_storage, read_saved
from heronpy.errors import CheckpointError, ConfigError, NotFoundError
from heronpy.plan import LogicalPlan
from heronpy.state import Place, TaskStates
from heronpy.submit import starting_checkpoint
from heronpy.testing.checkpoints_kit import GROUPS as KIT_GROUPS
from heronpy.testing.checkpoints_kit import small_checkpoint, store
from tests.unit.state_kit import GROUPS, NAME, Component

# State


def declare(states: TaskStates) -> Any:
    total = states.task_state("total", default=0, split=lambda n, tasks: [n] + [0] * (tasks - 1), merge=sum)
    return states.keyed_state("counts"), states.split_state("offsets"), total


class Successor(Component):
    """A component that begins with what another has saved."""

    def __init__(self, first: Component, tasks: int) -> None:
        self.first = first
        super().__init__(declare, tasks)

    def restored(self, index: int, tasks: int) -> TaskStates:
        if self.manifest is not None:
            return super().restored(index, tasks)
        assert self.first.manifest is not None
        saved = read_saved(self.first.manifest, NAME, index, tasks, self.first.opened).elsewhere()
        return TaskStates(Place("words-1", NAME, index, tasks, GROUPS), saved)


def contents(component: Component) -> tuple[dict[Any, Any], dict[Any, Any], int]:
    counts: dict[Any, Any] = {}
    offsets: dict[Any, Any] = {}
    for keyed, splits, _ in component.declared:
        counts |= dict(keyed)
        offsets |= dict(splits)
    return counts, offsets, sum(total.value for _, _, total in component.declared)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_topology_begins_with_all_state_of_another_and_its_first_checkpoint_has_all_of_it(tasks: int) -> None:
    first = Component(declare, 2)
    for key in range(50):
        first.of(key)[0][key] = key
    for task in first.declared:
        task[2].value = 10
    for split in ("a", "b", "c"):
        next(splits for _, splits, _ in first.declared if splits.owns(split))[split] = 1
    first.checkpoint()
    expected = contents(first)
    assert expected == ({key: key for key in range(50)}, {"a": 1, "b": 1, "c": 1}, 20)
    second = Successor(first, tasks)
    assert contents(second) == expected
    second.checkpoint()
    assert second.manifest is not None
    assert {(ref.since, ref.generation) for ref in second.manifest.objects} == {(0, 0)}
    second.restart(tasks + 1)
    assert contents(second) == expected


# Submit


class Words(Spout):
    outputs = ("word",)


class Count(Bolt):
    pass


def beginning(tmp_path: Path, *, bolt: str = "count", **properties: Any) -> int:
    """The checkpoint that a topology with these keys would begin with."""
    builder = TopologyBuilder("other")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt(bolt, Count, 3, {words: Grouping.fields("word")})
    keys = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.key.groups": KIT_GROUPS, **properties}
    builder.set_config(keys)
    logical = LogicalPlan.from_proto(builder.build().protobuf_topology)
    return starting_checkpoint(logical, str(tmp_path / "saved"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with open_storage(str(tmp_path / "saved")) as storage:
        for checkpoint in (1, 2):
            store(storage, *small_checkpoint(checkpoint, {"a": b"1"}))
    return tmp_path


def test_the_newest_intact_checkpoint_is_what_it_begins_with(saved: Path) -> None:
    assert beginning(saved) == 2
    newest = max((saved / "saved" / "manifests").iterdir())
    newest.write_bytes(b"torn")
    assert beginning(saved) == 1


def test_an_unknown_component_is_refused_with_its_state_unless_that_may_be_dropped(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"component 'count' has state 'counts', and other no such component"):
        beginning(saved, bolt="sum")
    assert beginning(saved, bolt="sum", **{"topology.state.allow.dropped": "true"}) == 2


def test_other_key_groups_modes_and_a_clean_start_are_refused(saved: Path) -> None:
    with pytest.raises(ConfigError, match=f"it has {KIT_GROUPS} key groups, and other {KIT_GROUPS * 2}"):
        beginning(saved, **{"topology.state.key.groups": KIT_GROUPS * 2})
    with pytest.raises(ConfigError, match="keeps no state in checkpoints"):
        beginning(saved, **{"topology.reliability.mode": "ATLEAST_ONCE"})
    with pytest.raises(ConfigError, match=r"start\.clean says without state"):
        beginning(saved, **{"topology.stateful.start.clean": "true"})


def test_tuples_in_flight_are_refused_and_so_are_places_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        beginning(tmp_path)
    manifest, chunks = small_checkpoint(1, {"a": b"1"})
    log = LogRef(
        name="logs/x", component="count", index=0, tasks=1, checkpoint_id=1, epoch=0, batches=1, size=1, checksum=0
    )
    with open_storage(str(tmp_path / "saved")) as storage:
        storage.put(log.name, [b"x"])
        store(storage, msgspec.structs.replace(manifest, logs=(log,)), chunks)
    with pytest.raises(ConfigError, match="it has tuples in flight"):
        beginning(tmp_path)
    for path in (tmp_path / "saved" / "manifests").iterdir():
        path.write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        beginning(tmp_path)
