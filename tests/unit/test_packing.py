"""Round robin packing: what holds for every topology, and what users are told when theirs does not fit."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import TopologyError
from heronpy.packing import (
    INSTANCE_CPU,
    INSTANCE_DISK_BYTES,
    INSTANCE_RAM_BYTES,
    INSTANCE_RAM_BYTES_MIN,
    RoundRobinPacking,
)
from heronpy.plan import Component, LogicalPlan, PackingPlan, Resources
from heronpy.proto import plan_pb2, topology_pb2

MIB = 1024**2
GIB = 1024**3


def topology(parallelism: dict[str, int], config: dict[str, Any] | None = None) -> LogicalPlan:
    """A topology whose first component is the spout."""
    components = {
        name: Component(name, n == 0, "m.C", tasks, {}, (), {}) for n, (name, tasks) in enumerate(parallelism.items())
    }
    return LogicalPlan("words-1", "words", components, config or {}, topology_pb2.Topology())


def pack(parallelism: dict[str, int], **config: Any) -> PackingPlan:
    return RoundRobinPacking(topology(parallelism, {k.replace("_", "."): v for k, v in config.items()})).pack()


def ram_of(plan: PackingPlan) -> dict[str, int]:
    return {i.component: i.resources.ram_bytes for c in plan.containers for i in c.instances}


@st.composite
def topologies(draw: st.DrawFn) -> LogicalPlan:
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True))
    parallelism = {name: draw(st.integers(1, 12)) for name in names}
    config: dict[str, Any] = {}
    config["topology.stmgrs"] = draw(st.integers(1, sum(parallelism.values())))
    some = st.sets(st.sampled_from(names))
    if chosen := draw(some):
        config["topology.component.rammap"] = {n: draw(st.integers(INSTANCE_RAM_BYTES_MIN, 4 * GIB)) for n in chosen}
    if chosen := draw(some):
        config["topology.component.cpumap"] = {n: draw(st.floats(0, 16)) for n in chosen}
    if chosen := draw(some):
        config["topology.component.diskmap"] = {n: draw(st.integers(0, 100 * GIB)) for n in chosen}
    for key, values in (
        ("topology.container.ram", st.integers(GIB, 600 * GIB)),
        ("topology.container.cpu", st.floats(1, 2000)),
        ("topology.container.disk", st.integers(GIB, 10_000 * GIB)),
        ("topology.container.ram.padding", st.integers(0, 2 * GIB)),
        ("topology.container.cpu.padding", st.floats(0, 3)),
        ("topology.container.padding.percentage", st.integers(0, 50)),
    ):
        if draw(st.booleans()):
            config[key] = draw(values)
    return topology(parallelism, config)


def check_invariants(plan: PackingPlan, logical: LogicalPlan, parallelism: dict[str, int]) -> None:
    instances = [i for c in plan.containers for i in c.instances]
    assert Counter(i.component for i in instances) == Counter(parallelism)
    assert len({i.task_id for i in instances}) == len(instances)
    for component, tasks in parallelism.items():
        assert sorted(i.component_index for i in instances if i.component == component) == list(range(tasks))
    for container in plan.containers:
        assert container.instances
        total = sum((i.resources for i in container.instances), Resources(0, 0, 0))
        assert container.required.ram_bytes >= total.ram_bytes
        assert container.required.disk_bytes >= total.disk_bytes
        assert container.required.cpu >= total.cpu - 1e-9 * max(1.0, total.cpu)
        for key, asked in (
            ("topology.container.ram", container.required.ram_bytes),
            ("topology.container.disk", container.required.disk_bytes),
        ):
            assert asked == logical.config.get(key, asked)
        for instance in container.instances:
            assert instance.resources.ram_bytes >= INSTANCE_RAM_BYTES_MIN
            for key, got in (
                ("topology.component.rammap", instance.resources.ram_bytes),
                ("topology.component.cpumap", instance.resources.cpu),
                ("topology.component.diskmap", instance.resources.disk_bytes),
            ):
                assert got == logical.config.get(key, {}).get(instance.component, got)


@given(topologies())
def test_every_instance_is_packed_once_evenly_and_fits_or_the_numbers_are_named(logical: LogicalPlan) -> None:
    refused = ""
    try:
        plan = RoundRobinPacking(logical).pack()
    except TopologyError as e:
        refused = str(e)
    if refused:
        key = re.match(r"topology\.container\.(ram|cpu|disk) = [\d.]+ .*is too small for container \d+: ", refused)
        assert key is not None
        assert f"topology.container.{key[1]}" in logical.config
        return
    check_invariants(plan, logical, {c.name: c.parallelism for c in logical.components.values()})
    assert [c.id for c in plan.containers] == list(range(1, logical.config["topology.stmgrs"] + 1))
    tasks = [i.task_id for c in plan.containers for i in c.instances]
    assert sorted(tasks) == list(range(1, len(tasks) + 1))
    sizes = [len(c.instances) for c in plan.containers]
    assert max(sizes) - min(sizes) <= 1
    for component in logical.components:
        of_one = [sum(i.component == component for i in c.instances) for c in plan.containers]
        assert max(of_one) - min(of_one) <= 1
    assert plan == RoundRobinPacking(logical).pack(), "the same topology gives the same plan"
    assert PackingPlan.from_proto(plan.to_proto()) == plan


@given(topologies(), st.data())
def test_repacking_moves_nothing_that_stays(logical: LogicalPlan, data: st.DataObject) -> None:
    for key in ("topology.container.ram", "topology.container.cpu", "topology.container.disk"):
        logical.config.pop(key, None)  # type: ignore[attr-defined]
    packing = RoundRobinPacking(logical)
    before = packing.pack()
    parallelism = {c.name: c.parallelism for c in logical.components.values()}
    changes = {
        name: data.draw(st.integers(1 - tasks, 8))
        for name, tasks in parallelism.items()
        if data.draw(st.booleans(), label=f"change {name}")
    }
    after = packing.repack(before, changes)
    check_invariants(after, logical, {n: t + changes.get(n, 0) for n, t in parallelism.items()})
    was = {(i.component, i.component_index): (c.id, i.task_id) for c in before.containers for i in c.instances}
    now = {(i.component, i.component_index): (c.id, i.task_id) for c in after.containers for i in c.instances}
    assert all(now[key] == was[key] for key in was.keys() & now.keys())
    new_tasks = {now[key][1] for key in now.keys() - was.keys()}
    assert not new_tasks & {task for _, task in was.values()}
    assert max(len(c.instances) for c in after.containers) <= max(len(c.instances) for c in before.containers)
    if not any(changes.values()):
        assert after == before


@given(st.lists(st.tuples(st.sampled_from(["word", "count"]), st.integers(1, 6)), max_size=12))
def test_no_task_id_is_used_again_in_the_life_of_a_topology(steps: list[tuple[str, int]]) -> None:
    packing = RoundRobinPacking(topology({"word": 2, "count": 3}, {"topology.stmgrs": 2}))
    plan = packing.pack()
    owner = {i.task_id: (i.component, i.component_index) for c in plan.containers for i in c.instances}
    for component, parallelism in steps:
        before = {i.task_id for c in plan.containers for i in c.instances}
        now = sum(i.component == component for c in plan.containers for i in c.instances)
        saved = plan_pb2.PackingPlan.FromString(plan.to_proto().SerializeToString())  # all that survives
        plan = packing.repack(PackingPlan.from_proto(saved), {component: parallelism - now})
        tasks = {i.task_id: (i.component, i.component_index) for c in plan.containers for i in c.instances}
        assert not (tasks.keys() - before) & owner.keys()
        assert all(owner[task] == tasks[task] for task in tasks.keys() & before)
        owner |= tasks


def test_a_plan_that_does_not_say_which_ids_there_were_has_those_of_its_tasks() -> None:
    plan = RoundRobinPacking(topology({"word": 2, "count": 3})).pack()
    proto = plan.to_proto()
    proto.highest_task_id = 0  # as an earlier version wrote it
    assert PackingPlan.from_proto(proto) == plan
    assert plan.highest_task_id == 5


def test_instances_are_dealt_like_cards_spouts_first() -> None:
    components = {
        "count": Component("count", False, "m.C", 3, {}, (), {}),
        "word": Component("word", True, "m.C", 2, {}, (), {}),
    }
    logical = LogicalPlan("id", "t", components, {"topology.stmgrs": "2"}, topology_pb2.Topology())
    plan = RoundRobinPacking(logical).pack()
    assert [[i.instance_id(c.id) for i in c.instances] for c in plan.containers] == [
        ["container_1_word_1", "container_1_count_3", "container_1_count_5"],
        ["container_2_word_2", "container_2_count_4"],
    ]
    assert plan.id == "id"


def test_defaults_are_modest_and_one_container() -> None:
    plan = pack({"word": 1, "count": 2})
    assert len(plan.containers) == 1
    default = Resources(INSTANCE_CPU, INSTANCE_RAM_BYTES, INSTANCE_DISK_BYTES)
    assert {i.resources for i in plan.containers[0].instances} == {default}
    assert plan.containers[0].required == Resources(3 * 1.0 + 1.0, 4 * 512 * MIB, 3 * 512 * MIB + GIB)


@pytest.mark.parametrize(
    "rammap",
    [
        {"word": 512 * MIB, "count": "1.5GB"},
        {"word": "512MB", "count": str(1536 * MIB)},
        "word:536870912,count:1610612736",
        " word:512 MB , count : 1.5gb ",
        "word:524288K,count:1536MiB",
    ],
)
def test_ram_is_given_as_a_dict_or_as_text_with_or_without_units(rammap: Any) -> None:
    assert ram_of(pack({"word": 1, "count": 1}, topology_component_rammap=rammap)) == {
        "word": 512 * MIB,
        "count": 1536 * MIB,
    }


def test_cpu_and_disk_maps_are_honoured() -> None:
    plan = pack(
        {"word": 1, "count": 1},
        topology_component_cpumap="word:0.5",
        topology_component_diskmap={"count": "3GB"},
        topology_container_cpu_padding=0.25,
    )
    word, count = plan.containers[0].instances
    assert (word.resources.cpu, count.resources.cpu) == (0.5, INSTANCE_CPU)
    assert (word.resources.disk_bytes, count.resources.disk_bytes) == (INSTANCE_DISK_BYTES, 3 * GIB)
    assert plan.containers[0].required.cpu == 0.5 + INSTANCE_CPU + 0.25


def test_a_containers_size_is_divided_among_the_instances_without_an_entry() -> None:
    plan = pack(
        {"word": 1, "count": 3},
        topology_container_ram="4GB",
        topology_container_ram_padding="1GB",
        topology_component_rammap={"word": "1.5GB"},
    )
    assert ram_of(plan) == {"word": 1536 * MIB, "count": 512 * MIB}
    assert plan.containers[0].required.ram_bytes == 4 * GIB


def test_padding_is_absolute_a_share_or_the_larger_of_both() -> None:
    def padding(**config: Any) -> int:
        plan = pack({"word": 2}, topology_component_rammap={"word": GIB}, **config)
        return plan.containers[0].required.ram_bytes - 2 * GIB

    assert padding() == 512 * MIB
    assert padding(topology_container_padding_percentage=50) == GIB
    assert padding(topology_container_padding_percentage=50, topology_container_ram_padding=100) == GIB
    assert padding(topology_container_padding_percentage=5, topology_container_ram_padding="512MB") == 512 * MIB
    assert padding(topology_stmgr_ram="1GB", topology_metricsmgr_ram="256MB") == GIB + 256 * MIB
    assert padding(topology_container_ram_padding=0) == 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"topology.stmgrs": 4}, "topology.stmgrs = 4: more containers than the 3 instances"),
        ({"topology.stmgrs": 0}, "topology.stmgrs must be a number of containers from 1, not 0"),
        ({"topology.stmgrs": "two"}, "not 'two'"),
        ({"topology.stmgrs": 1.5}, "not 1.5"),
        ({"topology.stmgrs": True}, "not True"),
        ({"topology.component.rammap": {"wrod": GIB}}, "unknown component 'wrod'; did you mean 'word'?"),
        ({"topology.component.cpumap": "coutn:1"}, "unknown component 'coutn'; did you mean 'count'?"),
        ({"topology.component.rammap": "word"}, "'word' should be component:value"),
        ({"topology.component.rammap": "word:1GB,word:2GB"}, "names the component 'word' twice"),
        (
            {"topology.component.rammap": {"word": "lots"}},
            "topology.component.rammap of 'word': 'lots' is not a number",
        ),
        ({"topology.component.rammap": {"word": -1}}, "-1 is not a number of bytes"),
        ({"topology.component.rammap": {"word": 10**30}}, "is more bytes than any machine has"),
        ({"topology.component.rammap": "word:" + "9" * 400}, "9999 is more bytes than any machine has"),
        ({"topology.container.ram": "1e400"}, "'1e400' is not a number of bytes"),
        ({"topology.component.cpumap": {"word": 10**400}}, "is not a number of cores"),
        ({"topology.component.rammap": {"word": 512}}, "512 bytes, less than the 64 MB"),
        ({"topology.component.rammap": 7}, "must be a dict or text"),
        ({"topology.component.cpumap": {"word": "nan"}}, "'nan' is not a number of cores"),
        ({"topology.container.cpu": "many"}, "topology.container.cpu: 'many' is not a number of cores"),
        ({"topology.container.padding.percentage": 100}, "100 is not a percentage"),
        (
            {"topology.container.ram": "1GB", "topology.component.rammap": {"count": "1GB"}},
            "topology.container.ram = 1 GB is too small for container 1: its 3 instances need 2 GB by themselves "
            "without the 1 whose RAM is not given, and 512 MB are padding",
        ),
        (
            {"topology.container.ram": "600MB"},
            "topology.container.ram = 600 MB is too small for container 1: it leaves 29.33 MB to each",
        ),
        ({"topology.container.cpu": 1}, "topology.container.cpu = 1 cores is too small for container 1"),
        (
            {"topology.container.disk": "1GB", "topology.component.diskmap": "word:1GB,count:0"},
            "topology.container.disk = 1 GB is too small for container 1",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line_that_names_it(config: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        RoundRobinPacking(topology({"word": 1, "count": 2}, config)).pack()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_repacking_opens_a_container_only_when_the_others_are_full() -> None:
    logical = topology({"word": 1, "count": 3}, {"topology.stmgrs": 2})
    packing = RoundRobinPacking(logical)
    smaller = packing.repack(packing.pack(), {"count": -1})
    assert [len(c.instances) for c in smaller.containers] == [2, 1]
    larger = packing.repack(smaller, {"count": 4})
    assert [(c.id, len(c.instances)) for c in larger.containers] == [(1, 2), (2, 2), (3, 2), (4, 1)]
    assert [c.id for c in packing.repack(larger, {"count": -5}).containers] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"coutn": 1}, "unknown component 'coutn'; did you mean 'count'?"),
        ({"count": -3}, "'count' has 3 instances: it cannot lose 3, one must stay"),
    ],
)
def test_a_repacking_that_makes_no_sense_is_refused(changes: dict[str, int], said: str) -> None:
    packing = RoundRobinPacking(topology({"word": 1, "count": 3}))
    with pytest.raises(TopologyError, match="count") as caught:
        packing.repack(packing.pack(), changes)
    assert said in str(caught.value)


@given(topologies(), st.data())
def test_another_number_of_containers_moves_no_more_than_it_must(logical: LogicalPlan, data: st.DataObject) -> None:
    # What fits into the containers of one plan may not fit into fewer: that is another test's.
    logical = topology({c.name: c.parallelism for c in logical.components.values()}, {"topology.stmgrs": 1})
    algorithm = RoundRobinPacking(logical)
    instances = sum(c.parallelism for c in logical.components.values())
    before = algorithm.repack(algorithm.pack(), {}, containers=data.draw(st.integers(1, instances)))
    wanted = data.draw(st.integers(1, instances))
    after = algorithm.repack(before, {}, containers=wanted)
    sizes = [len(c.instances) for c in after.containers]
    assert len(sizes) == wanted
    assert max(sizes) - min(sizes) <= 1
    assert sorted(i.task_id for c in after.containers for i in c.instances) == list(range(1, instances + 1))
    was = {i.task_id: c.id for c in before.containers for i in c.instances}
    moved = [i.task_id for c in after.containers for i in c.instances if was[i.task_id] != c.id]
    room = {c.id: len(c.instances) for c in after.containers}
    must = sum(max(0, len(c.instances) - room.get(c.id, 0)) for c in before.containers)
    assert len(moved) == must


def test_containers_are_added_and_removed_together_with_tasks() -> None:
    algorithm = RoundRobinPacking(topology({"spout": 2, "count": 2}, {"topology.stmgrs": 1}))
    before = algorithm.pack()
    more = algorithm.repack(before, {"count": 6}, containers=2)
    assert [len(c.instances) for c in more.containers] == [5, 5]
    one = algorithm.repack(more, {"count": -7}, containers=1)
    assert [sorted(i.task_id for i in c.instances) for c in one.containers] == [[1, 2, 3]]
    with pytest.raises(TopologyError, match="more containers than the 4 instances"):
        algorithm.repack(before, {}, containers=5)
    with pytest.raises(TopologyError, match="a number of containers from 1"):
        algorithm.repack(before, {}, containers=0)
