"""Packing into containers of a given size: what holds for every topology, and few moves against all possible plans."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.errors import ConfigError, TopologyError
from heronpy.packing import FirstFitDecreasingPacking, Packing, ResourceCompliantRRPacking, RoundRobinPacking
from heronpy.plan import MASTER, Component, LogicalPlan, PackingPlan, Resources
from heronpy.proto import topology_pb2
from heronpy.submit import packing_of

MIB = 1024**2
GIB = 1024**3
SIZED = [ResourceCompliantRRPacking, FirstFitDecreasingPacking]
NO_PADDING = {
    "topology.container.ram.padding": 0,
    "topology.container.cpu.padding": 0,
    "topology.container.max.cpu.hint": 1000,
    "topology.container.max.disk.hint": 1000 * GIB,
}


def topology(parallelism: dict[str, int], config: dict[str, Any]) -> LogicalPlan:
    """A topology whose first component is the spout."""
    components = {
        name: Component(name, n == 0, "m.C", tasks, {}, (), {}) for n, (name, tasks) in enumerate(parallelism.items())
    }
    return LogicalPlan("words-1", "words", components, config, topology_pb2.Topology())


def where(plan: PackingPlan) -> dict[int, int]:
    """The container of each task."""
    return {i.task_id: c.id for c in plan.containers for i in c.instances}


def moved(before: PackingPlan, after: PackingPlan) -> set[int]:
    was, now = where(before), where(after)
    return {task for task in was.keys() & now.keys() if was[task] != now[task]}


def shape(plan: PackingPlan) -> list[list[str]]:
    return [[i.component for i in c.instances] for c in plan.containers]


@st.composite
def topologies(draw: st.DrawFn, *, most: int = 12) -> LogicalPlan:
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True))
    parallelism = {name: draw(st.integers(1, most)) for name in names}
    config: dict[str, Any] = {"topology.stmgrs": draw(st.integers(1, sum(parallelism.values())))}
    for key, values in (
        ("topology.component.rammap", st.integers(64 * MIB, 4 * GIB)),
        ("topology.component.cpumap", st.floats(0, 8)),
        ("topology.component.diskmap", st.integers(0, 10 * GIB)),
    ):
        if chosen := draw(st.sets(st.sampled_from(names))):
            config[key] = {name: draw(values) for name in chosen}
    for key, values in (
        ("topology.container.max.ram.hint", st.integers(6 * GIB, 20 * GIB)),
        ("topology.container.ram", st.integers(6 * GIB, 20 * GIB)),
        ("topology.container.cpu", st.floats(16, 32)),
        ("topology.container.max.disk.hint", st.integers(20 * GIB, 40 * GIB)),
        ("topology.container.max.instances", st.integers(1, 6)),
        ("topology.container.padding.percentage", st.integers(0, 40)),
        ("topology.packing.ffd.sorting.strategy", st.sampled_from(["RAM_FIRST", "CPU_FIRST"])),
    ):
        if draw(st.booleans()):
            config[key] = draw(values)
    return topology(parallelism, config)


def check(plan: PackingPlan, logical: LogicalPlan, parallelism: dict[str, int]) -> None:
    """Every instance once, in a container that is not over its size and has no more than its instances and padding."""
    config = logical.config
    instances = [i for c in plan.containers for i in c.instances]
    assert Counter(i.component for i in instances) == Counter(parallelism)
    assert len({i.task_id for i in instances}) == len(instances)
    for component, tasks in parallelism.items():
        assert sorted(i.component_index for i in instances if i.component == component) == list(range(tasks))
    for container in plan.containers:
        total = sum((i.resources for i in container.instances), Resources(0, 0, 0))
        required = container.required
        assert required.ram_bytes >= total.ram_bytes
        assert required.disk_bytes >= total.disk_bytes
        assert required.cpu >= total.cpu * (1 - 1e-9)
        assert 0 < len(container.instances) <= config.get("topology.container.max.instances", 1000)
        for name, asked in (("ram", required.ram_bytes), ("cpu", required.cpu), ("disk", required.disk_bytes)):
            for key in (f"topology.container.max.{name}.hint", f"topology.container.{name}"):
                assert asked <= config.get(key, asked) * (1 + 1e-9), key
        for i in container.instances:
            assert i.ram_given == (i.component in config.get("topology.component.rammap", {}))
            assert i.cpu_given == (i.component in config.get("topology.component.cpumap", {}))


@pytest.mark.parametrize("algorithm", SIZED)
@given(logical=topologies())
def test_every_instance_is_packed_once_and_no_container_is_over_its_size(
    algorithm: type[Packing], logical: LogicalPlan
) -> None:
    plan = algorithm(logical).pack()
    check(plan, logical, {c.name: c.parallelism for c in logical.components.values()})
    assert sorted(where(plan)) == list(range(1, len(where(plan)) + 1))
    assert [c.id for c in plan.containers] == list(range(1, len(plan.containers) + 1))
    assert plan == algorithm(logical).pack(), "the same topology gives the same plan"
    assert PackingPlan.from_proto(plan.to_proto()) == plan
    if algorithm is ResourceCompliantRRPacking:
        assert len(plan.containers) >= logical.config["topology.stmgrs"]


@pytest.mark.parametrize("algorithm", SIZED)
@given(logical=topologies(), data=st.data())
def test_other_numbers_of_tasks_move_nothing(algorithm: type[Packing], logical: LogicalPlan, data: Any) -> None:
    packing = algorithm(logical)
    before = packing.pack()
    tasks = {c.name: c.parallelism for c in logical.components.values()}
    changes = {name: data.draw(st.integers(1 - n, 8)) for name, n in tasks.items() if data.draw(st.booleans())}
    after = packing.repack(before, changes)
    check(after, logical, {name: n + changes.get(name, 0) for name, n in tasks.items()})
    assert moved(before, after) == set()
    assert not (where(after).keys() - where(before).keys()) & set(range(1, before.highest_task_id + 1))
    assert after == packing.repack(before, changes)
    if not any(changes.values()):
        assert after == before


def fewest_moves(
    logical: LogicalPlan, before: PackingPlan, tasks: dict[int, str], containers: int | None
) -> int | None:
    """By trying every way to put these tasks into containers: the old ones, and as many others as there are tasks."""
    rams = logical.config["topology.component.rammap"]
    limit = logical.config["topology.container.max.ram.hint"]
    was = where(before)
    old = [c.id for c in before.containers]
    choices = [*old, *range(max(old) + 1, max(old) + 1 + len(tasks))]
    best = None
    for chosen in itertools.product(choices, repeat=len(tasks)):
        if containers is not None and len(set(chosen)) != containers:
            continue
        used: Counter[int] = Counter()
        for (_, component), container in zip(tasks.items(), chosen, strict=True):
            used[container] += rams[component]
        if max(used.values()) <= limit:
            moves = sum(task in was and was[task] != c for task, c in zip(tasks, chosen, strict=True))
            best = moves if best is None else min(best, moves)
    return best


@pytest.mark.parametrize("algorithm", SIZED)
@settings(max_examples=60)
@given(data=st.data())
def test_no_repacking_moves_fewer_instances(algorithm: type[Packing], data: Any) -> None:
    """With other tasks, another number of containers, and a plan whose containers are too large by now."""
    first: type[Packing] = data.draw(st.sampled_from([RoundRobinPacking, *SIZED]))
    size = st.integers(1, 6)
    rams = {name: data.draw(size) * 100 * MIB for name in data.draw(st.sampled_from(["a", "ab", "abc"]))}
    tasks = dict.fromkeys(rams, 1)
    for _ in range(data.draw(st.integers(0, 4 - len(tasks)))):
        tasks[data.draw(st.sampled_from(sorted(tasks)))] += 1
    config = {**NO_PADDING, "topology.component.rammap": rams, "topology.stmgrs": data.draw(st.integers(1, 2))}
    config["topology.stmgrs"] = min(config["topology.stmgrs"], sum(tasks.values()))
    before = first(topology(tasks, {**config, "topology.container.max.ram.hint": 100 * GIB})).pack()
    logical = topology(tasks, {**config, "topology.container.max.ram.hint": data.draw(st.integers(6, 12)) * 100 * MIB})
    changes = {name: data.draw(st.sampled_from([0, 0, 1, -1])) for name in tasks}
    changes = {name: change for name, change in changes.items() if tasks[name] + change > 0}
    if sum(tasks.values()) + sum(changes.values()) > 4:
        changes = {}
    containers = data.draw(st.none() | st.integers(1, sum(tasks.values()) + sum(changes.values())))
    parallelism = {name: n + changes.get(name, 0) for name, n in tasks.items()}

    refused = after = None
    try:
        after = algorithm(logical).repack(before, changes, containers=containers)
    except TopologyError as e:
        refused = str(e)
    staying = {
        i.task_id: i.component
        for c in before.containers
        for i in c.instances
        if i.component_index < parallelism[i.component]
    }
    added = [name for name, n in tasks.items() for _ in range(n, parallelism[name])]
    everything = staying | {1000 + n: name for n, name in enumerate(added)}
    fewest = fewest_moves(logical, before, everything, containers)
    if after is None:
        assert fewest is None, f"it could be done with {fewest} moves, but was refused: {refused}"
        assert refused is not None
        assert f"topology.stmgrs = {containers}: " in refused
    else:
        check(after, logical, parallelism)
        assert len(after.containers) == (containers or len(after.containers))
        assert len(moved(before, after)) == fewest


@pytest.mark.parametrize("algorithm", SIZED)
def test_a_large_topology_is_repacked_in_a_moment(algorithm: type[Packing]) -> None:
    config = {"topology.container.max.instances": 6, "topology.stmgrs": 10}
    packing = algorithm(topology({"words": 20, "count": 40}, config))
    before = packing.pack()
    more = packing.repack(before, {"count": 20}, containers=len(before.containers) + 4)
    assert moved(before, more) == set()
    fewer = packing.repack(more, {"count": -30}, containers=10)
    assert len(fewer.containers) == 10
    assert fewer == packing.repack(more, {"count": -30}, containers=10)
    check(fewer, packing.logical, {"words": 20, "count": 30})
    with pytest.raises(TopologyError, match=r"topology\.stmgrs = 5: 60 instances cannot be divided .* 6 instances"):
        packing.repack(before, {}, containers=5)


def test_round_robin_opens_containers_until_all_fit() -> None:
    config = {**NO_PADDING, "topology.component.rammap": "big:3GB,small:1GB", "topology.container.max.ram.hint": "4GB"}
    plan = ResourceCompliantRRPacking(topology({"big": 2, "small": 2}, config)).pack()
    assert shape(plan) == [["big", "small"], ["big", "small"]]
    assert [c.required.ram_bytes for c in plan.containers] == [4 * GIB, 4 * GIB]


def test_first_fit_decreasing_places_the_largest_first_and_containers_differ() -> None:
    config = {
        **NO_PADDING,
        "topology.component.rammap": "small:1GB,big:3GB",
        "topology.component.cpumap": "small:2",
        "topology.container.max.ram.hint": "4GB",
    }
    logical = topology({"small": 3, "big": 2}, config)
    plan = FirstFitDecreasingPacking(logical).pack()
    assert shape(plan) == [["big", "small"], ["big", "small"], ["small"]]
    assert [c.required.ram_bytes for c in plan.containers] == [4 * GIB, 4 * GIB, GIB]
    assert [c.required.cpu for c in plan.containers] == [3, 3, 2]
    by_cpu = topology({"small": 3, "big": 2}, {**config, "topology.packing.ffd.sorting.strategy": "CPU_FIRST"})
    assert shape(FirstFitDecreasingPacking(by_cpu).pack()) == [["small", "small", "small"], ["big"], ["big"]]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"topology.container.max.ram.hint": "1GB", "topology.component.rammap": "count:2GB"},
            "no container can take an instance of 'count': it needs 2 GB of RAM and 512 MB are padding, but a "
            "container may have 1 GB (topology.container.max.ram.hint)",
        ),
        ({"topology.container.cpu": 1}, "may have 1 cores (topology.container.cpu)"),
        ({"topology.container.max.instances": 0}, "topology.container.max.instances must be a number of instances"),
        ({"topology.container.max.instances": "x"}, "from 1, not 'x'"),
    ],
)
@pytest.mark.parametrize("algorithm", SIZED)
def test_what_fits_into_no_container_is_one_line_that_names_it(
    algorithm: type[Packing], config: dict[str, Any], said: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        algorithm(topology({"word": 1, "count": 2}, config)).pack()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"topology.container.max.ram.hint": "1GB"}, "topology.container.max.ram.hint = 1 GB is too small for"),
        ({"topology.container.max.instances": 2}, "topology.container.max.instances = 2 is too small for container 1"),
    ],
)
def test_plain_round_robin_names_the_bound_that_its_containers_exceed(config: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        RoundRobinPacking(topology({"word": 1, "count": 2}, config)).pack()
    assert said in str(caught.value)
    assert str(caught.value).endswith("set topology.stmgrs higher")


@pytest.mark.parametrize("algorithm", [RoundRobinPacking, *SIZED])
def test_container_0_has_its_own_size(algorithm: type[Packing]) -> None:
    assert algorithm(topology({"word": 1}, {})).pack().master == MASTER
    config = {"topology.tmanager.ram": "2GB", "topology.tmanager.cpu": "0.5"}
    packing = algorithm(topology({"word": 1}, config))
    plan = packing.pack()
    assert plan.master == Resources(0.5, 2 * GIB, MASTER.disk_bytes)
    assert packing.repack(plan, {"word": 1}).master == plan.master
    assert PackingPlan.from_proto(plan.to_proto()).master == plan.master
    assert plan.joined(plan).master == plan.master


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("RoundRobinPacking", RoundRobinPacking),
        ("ResourceCompliantRRPacking", ResourceCompliantRRPacking),
        ("FirstFitDecreasingPacking", FirstFitDecreasingPacking),
        ("org.apache.heron.packing.roundrobin.RoundRobinPacking", RoundRobinPacking),
        ("org.apache.heron.packing.roundrobin.ResourceCompliantRRPacking", ResourceCompliantRRPacking),
        ("org.apache.heron.packing.binpacking.FirstFitDecreasingPacking", FirstFitDecreasingPacking),
        ("com.twitter.heron.packing.binpacking.FirstFitDecreasingPacking", FirstFitDecreasingPacking),
        ("heronpy.packing.FirstFitDecreasingPacking", FirstFitDecreasingPacking),
    ],
)
def test_algorithms_have_herons_names(name: str, algorithm: type[Packing]) -> None:
    assert type(packing_of(topology({"word": 1}, {}), name)) is algorithm


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"'FirstFitDecreasing' is not a packing algorithm.*FirstFitDecreasingPacking"
    ):
        packing_of(topology({"word": 1}, {}), "FirstFitDecreasing")
