"""Key groups: keys keep their group, tasks own ranges of groups, and a change of tasks moves whole groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.errors import ConfigError, TopologyError
from heronpy.hashing import KEY_GROUPS, groups_of, index_of_group, key_group, key_groups
from heronpy.plan import LogicalPlan


def test_the_groups_of_some_keys_are_what_they_have_always_been() -> None:
    assert KEY_GROUPS == 1024
    assert [key_group(key) for key in ("the", "heron", 1, b"x", (1, "a"), None)] == [524, 792, 812, 858, 360, 469]


@given(st.lists(st.one_of(st.text(), st.integers(), st.binary(), st.none(), st.floats(), st.tuples(st.text()))))
def test_the_groups_of_many_keys_are_those_of_each(keys: list[object]) -> None:
    assert key_groups(keys) == [key_group(key) for key in keys]
    assert key_groups(["\udc80"]) == [key_group("\udc80")]


@given(st.sampled_from([1, 2, 8, 64, 1024]), st.data())
def test_every_task_owns_a_range_and_no_two_differ_by_more_than_a_group(groups: int, data: st.DataObject) -> None:
    tasks = data.draw(st.integers(1, groups))
    owners = [index_of_group(group, tasks, groups) for group in range(groups)]
    assert owners == sorted(owners)
    sizes = [owners.count(task) for task in range(tasks)]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert [list(groups_of(task, tasks, groups)) for task in range(tasks)] == [
        [group for group in range(groups) if owners[group] == task] for task in range(tasks)
    ]


class Source(Spout):
    outputs = ["word"]  # noqa: RUF012


class Sink(Bolt):
    pass


def plan(tasks: int, config: dict[str, object], own: dict[str, object] | None = None) -> LogicalPlan:
    builder = TopologyBuilder("groups")
    source = builder.add_spout("source", Source, 1)
    builder.add_bolt("sink", Sink, tasks, {source["default"]: Grouping.fields("word")}, own)
    builder.set_config(config)
    return LogicalPlan.from_proto(builder.build().protobuf_topology)


def test_more_tasks_than_groups_are_refused() -> None:
    assert plan(8, {"topology.state.key.groups": 8}).key_groups == 8
    assert plan(8, {}).key_groups == KEY_GROUPS
    with pytest.raises(TopologyError, match=r"bolt 'sink' has 9 tasks, and keys are divided into 8 groups"):
        plan(9, {"topology.state.key.groups": 8})


def test_only_a_topology_sets_the_number_of_groups_and_to_a_power_of_two() -> None:
    with pytest.raises(ConfigError, match="must be a power of two, not 12"):
        plan(1, {"topology.state.key.groups": 12})
    with pytest.raises(TopologyError, match="senders and receivers must agree"):
        plan(1, {}, {"topology.state.key.groups": 8})
