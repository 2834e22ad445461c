"""Bytes that make no sense in the state manager: one line that names the node, and nobody ends by them."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import heron_scheduler
import pytest
from tmaster_world import LOCATION, Store, World, hello, packing_plan, topology

from heronpy import submit
from heronpy.cli.parts import remote_containers
from heronpy.config import EngineConfig
from heronpy.container.codes import packing_plan as plan_of_container
from heronpy.errors import DamagedStateError
from heronpy.proto import loglevels_pb2, plan_pb2, state_pb2, topology_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, StateManager, container_node, container_record, open_statemgr, records

ROOT = Path(__file__).parents[2]
GARBAGE = b"\xff\xfe not a record"
PACKING = packing_plan(1).to_proto()
WHERE = {"topology": "words", "cluster": "local", "role": "me", "environ": "test"}
EXECUTION = state_pb2.ExecutionState(topology_id="words-1", **WHERE)
PHYSICAL = plan_pb2.PhysicalPlan(version=3, topology=topology_pb2.Topology.FromString(topology()), packing=PACKING)
SOUND: dict[Kind, bytes] = {
    Kind.TOPOLOGIES: topology(),
    Kind.PACKINGPLANS: PACKING.SerializeToString(),
    Kind.NEXTPACKINGPLANS: PACKING.SerializeToString(),
    Kind.PPLANS: PHYSICAL.SerializeToString(),
    Kind.EXECUTIONSTATE: EXECUTION.SerializeToString(),
    Kind.SCHEDULERS: state_pb2.SchedulerLocation(topology="words", endpoint="[::1]:1").SerializeToString(),
    Kind.TMASTERS: state_pb2.TmasterLocation(topology="words", host="::1", port=1).SerializeToString(),
    Kind.STATEFULCHECKPOINTS: state_pb2.Checkpoints(topology_id="words-1", committed=[7]).SerializeToString(),
    Kind.LOGLEVELS: loglevels_pb2.LogLevels(levels=[loglevels_pb2.LogLevel(target="word")]).SerializeToString(),
    Kind.EPOCHS: state_pb2.Epoch(term=1, leader=LOCATION).SerializeToString(),
}
PARSERS: dict[Kind, Callable[[str, bytes], object]] = {
    Kind.TOPOLOGIES: records.definition,
    Kind.PACKINGPLANS: records.packing_plan,
    Kind.NEXTPACKINGPLANS: records.next_packing_plan,
    Kind.PPLANS: records.physical_plan,
    Kind.EXECUTIONSTATE: records.execution_state,
    Kind.SCHEDULERS: records.scheduler_location,
    Kind.TMASTERS: records.tmaster_location,
    Kind.STATEFULCHECKPOINTS: records.checkpoints,
    Kind.LOGLEVELS: records.log_levels,
    Kind.EPOCHS: records.epoch,
}
PARSED_ELSEWHERE = {
    Kind.CONTAINERS: "container_record: a damaged one is as good as lost",
    Kind.LAUNCHES: "Launch.decode: JSON",
    Kind.DRIVERORDERS: "heron_scheduler.driven: JSON",
    Kind.DRIVERS: "heron_scheduler.driven: JSON",
    Kind.LOCKS: "text that is only shown",
    Kind.PIPELINES: "heronpy.pipeline: JSON",
    Kind.TOMBSTONES: "a number: any value is a mark",
}
BYTES = {"garbage": GARBAGE, "torn": b"", "zeros": bytes(40)}


def test_every_kind_of_node_has_a_parser() -> None:
    assert PARSERS.keys() | PARSED_ELSEWHERE.keys() == set(Kind)


@pytest.mark.parametrize("kind", PARSERS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("how", BYTES)
def test_a_damaged_node_is_one_line_that_names_it(kind: Kind, how: str) -> None:
    value = BYTES[how] or SOUND[kind][:-1]
    with pytest.raises(DamagedStateError) as error:
        PARSERS[kind]("words", value)
    assert str(error.value).startswith(f"node {kind.value}/words of the state manager is damaged: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", PARSERS, ids=lambda kind: kind.value)
def test_what_was_there_before_stands(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    before = object()
    assert records.readable(PARSERS[kind], "words", GARBAGE, before=before) is before
    assert f"{kind.value}/words" in caplog.text
    assert records.readable(PARSERS[kind], "words", SOUND[kind], before=before) is not before


def test_a_damaged_record_of_a_container_is_as_good_as_lost() -> None:
    assert container_record(GARBAGE) == state_pb2.ContainerRecord()


def test_nobody_parses_nodes_elsewhere() -> None:
    parses = re.compile(r"(?:state|plan|loglevels)_pb2\.\w+\.(?:FromString|ParseFromString)")
    allowed = {
        "heronpy/statemgr/records.py",
        "heronpy/statemgr/_base.py",  # container_record
        "heronpy/tmaster/_leadership.py",  # what it has written itself
        "heronpy/tmaster/checkpoints/_record.py",  # `record_of` says what a damaged one means
        "tracker/heron_tracker/_topology.py",  # a Tracker bounds what it reads first, and lists what is wrong
    }
    found = {
        str(path.relative_to(ROOT))
        for source in ("heronpy", "scheduler", "tracker")
        for path in (ROOT / source).rglob("*.py")
        if "testing" not in path.parts and parses.search(path.read_text())
    }
    assert found == allowed


# The Topology Master


@pytest.fixture
def world() -> World:
    world = World(Store({kind: SOUND[kind] for kind in (Kind.TOPOLOGIES, Kind.PACKINGPLANS, Kind.EXECUTIONSTATE)}))
    world.store.set(Kind.SCHEDULERS, SOUND[Kind.SCHEDULERS])
    world.store.set(Kind.LOGLEVELS, SOUND[Kind.LOGLEVELS])
    world.settle()
    world.feed(hello(1, 1))
    world.settle()
    return world


DURABLE = [
    Kind.TOPOLOGIES,
    Kind.PACKINGPLANS,
    Kind.NEXTPACKINGPLANS,
    Kind.EXECUTIONSTATE,
    Kind.SCHEDULERS,
    Kind.LOGLEVELS,
    Kind.PPLANS,
    Kind.EPOCHS,
]


@pytest.mark.parametrize("kind", DURABLE, ids=lambda kind: kind.value)
def test_a_topology_master_writes_its_good_copy_over_a_damaged_node(world: World, kind: Kind) -> None:
    before, copy = world.store.nodes.get(kind, b""), dict(world.copy)
    world.store.set(kind, GARBAGE)
    world.settle()
    assert world.finished is None
    assert world.store.nodes[kind] == before
    assert world.copy == copy


@pytest.mark.parametrize("kind", DURABLE, ids=lambda kind: kind.value)
def test_one_that_starts_beside_a_damaged_node_uses_its_copy(world: World, kind: Kind) -> None:
    before = world.store.nodes.get(kind, b"")
    world.store.nodes[kind] = GARBAGE
    world.store.nodes.pop(Kind.TMASTERS)
    second = World(world.store, location=b"second", copy=world.copy)
    second.settle()
    assert second.finished is None
    assert second.core.active
    second.feed(hello(2, 1))
    second.settle()
    now = second.store.nodes[kind]
    assert now == before if kind not in (Kind.PPLANS, Kind.EPOCHS) else GARBAGE not in now


@pytest.mark.parametrize("kind", [Kind.TOPOLOGIES, Kind.PACKINGPLANS], ids=lambda kind: kind.value)
def test_one_without_a_copy_says_which_node_is_damaged(world: World, kind: Kind) -> None:
    world.store.nodes[kind] = GARBAGE
    world.store.nodes.pop(Kind.TMASTERS)
    second = World(world.store, location=b"second", copy={})
    second.settle()
    assert isinstance(second.finished, Exception)
    assert f"node {kind.value}/words" in str(second.finished)
    assert "submit it again" in str(second.finished)


def test_a_damaged_copy_is_no_copy(world: World) -> None:
    world.store.nodes.pop(Kind.TMASTERS)
    second = World(world.store, location=b"second", copy={**world.copy, Kind.PACKINGPLANS: GARBAGE})
    second.settle()
    assert second.finished is None
    assert second.copy[Kind.PACKINGPLANS] == SOUND[Kind.PACKINGPLANS]


def test_a_packing_plan_of_something_else_is_not_used_and_not_kept(world: World) -> None:
    copy = dict(world.copy)
    world.store.set(Kind.PACKINGPLANS, packing_plan(1, component="other").to_proto().SerializeToString())
    world.settle()
    assert world.finished is None
    assert world.copy == copy


# Commands, containers and schedulers


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    directory = tmp_path / "home" / "topologies" / "local" / "me" / "test" / "words"
    launch = Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="me",
        environ="test",
        statemgr=StatemgrSpec(type="file", root=str(tmp_path / "home" / "state" / "local")),
        dir=directory,
        config=EngineConfig.from_keys({"heron.shell.enabled": True}),
    )
    launch.save()
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        for kind, value in SOUND.items():
            if kind is Kind.EXECUTIONSTATE:
                execution = state_pb2.ExecutionState(topology_id="words-1", topology_dir=str(directory), **WHERE)
                value = execution.SerializeToString()
            sm.set(kind, "words", value)
        sm.set(Kind.LAUNCHES, "words", launch.encode())
    return launch


@pytest.fixture
def sm(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        yield sm


READERS: dict[str, tuple[Kind, Callable[[Launch, StateManager], object]]] = {
    "container.codes": (Kind.PACKINGPLANS, lambda launch, sm: plan_of_container(sm, launch)),
    "plans": (Kind.PACKINGPLANS, lambda launch, sm: submit.plans(launch)),
    "plans, definition": (Kind.TOPOLOGIES, lambda launch, sm: submit.plans(launch)),
    "metrics": (Kind.TMASTERS, lambda launch, sm: submit.status(launch)),
}


@pytest.mark.parametrize("reader", READERS)
def test_who_needs_a_damaged_node_says_which(launch: Launch, sm: StateManager, reader: str) -> None:
    kind, read = READERS[reader]
    sm.set(kind, "words", GARBAGE)
    with pytest.raises(DamagedStateError, match=f"node {kind.value}/words of the state manager is damaged"):
        read(launch, sm)


def test_one_damaged_record_hides_no_other_container(launch: Launch, sm: StateManager) -> None:
    for container in (1, 2, 3):
        record = state_pb2.ContainerRecord(topology_id="words-1", container=container, host="b", shell_endpoint="b:1")
        value = record.SerializeToString()
        sm.set(Kind.CONTAINERS, container_node("words", container), value if container != 2 else GARBAGE)
    assert [one.number for one in remote_containers(launch)] == [1, 3]


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.value)
def test_a_topology_with_a_damaged_node_is_listed_and_killed(launch: Launch, sm: StateManager, kind: Kind) -> None:
    sm.delete(Kind.SCHEDULERS, "words")  # nobody answers there, and a kill would ask for a while
    sm.set(kind, "words", GARBAGE)
    home = launch.dir.parents[4]
    for cluster in (None, "local"):
        assert [(one.launch.topology_id, one.trouble) for one in submit.listed(home, cluster)] == [("words-1", "")]
    assert submit.find(home, "local", "me", "test", "words").topology_id == "words-1"
    submit.kill(launch)
    assert [one for one in Kind if sm.get(one, "words") is not None] == []
    assert not launch.dir.exists()


def test_a_topology_of_another_home_is_not_taken_for_one_of_this_home(
    launch: Launch, sm: StateManager, tmp_path: Path
) -> None:
    sm.set(Kind.EXECUTIONSTATE, "words", GARBAGE)
    shared = {"heron.statemgr.root.path": launch.statemgr.root}
    assert submit.listed(tmp_path / "other", properties=shared) == []
    [one] = submit.listed(tmp_path / "other", "local", properties=shared)
    assert one.launch.topology_id == "words-1"
    assert one.trouble == "its execution state is damaged, and its directory is not known"
    assert [one.trouble for one in submit.listed(launch.dir.parents[4], properties=shared)] == [""]


def test_the_definition_says_whose_a_name_is_if_the_execution_state_does_not(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.EXECUTIONSTATE, "words", GARBAGE)
    assert records.submission(sm, "words") == "words-1"
    sm.set(Kind.TOPOLOGIES, "words", topology("words-2"))
    heron_scheduler.remove_engine_state(launch)
    assert sm.get(Kind.TOPOLOGIES, "words") == topology("words-2"), "another submission was removed"


def test_launch_values_say_it_if_nothing_else_does(launch: Launch, sm: StateManager) -> None:
    for kind in (Kind.EXECUTIONSTATE, Kind.TOPOLOGIES):
        sm.set(kind, "words", GARBAGE)
    assert records.submission(sm, "words") == "words-1"
    sm.set(Kind.LAUNCHES, "words", dataclasses.replace(launch, topology_id="words-2").encode())
    heron_scheduler.remove_engine_state(launch)
    assert sm.get(Kind.TOPOLOGIES, "words") == GARBAGE, "another submission was removed"
    sm.set(Kind.LAUNCHES, "words", GARBAGE)
    with pytest.raises(DamagedStateError, match="node executionstate/words"):
        records.submission(sm, "words")
