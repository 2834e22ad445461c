"""Where the Metrics Managers are, and what topologies may use, as files for Prometheus."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from heronpy.config import EngineConfig
from heronpy.errors import NotFoundError, StateError
from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.viz import Discovery, limits, targets


def launch(
    directory: Path, topology: str = "wordcount", addresses: dict[int, str] | None = None, **keys: Any
) -> Launch:
    made = Launch(
        topology=topology,
        topology_id=f"{topology}-1",
        cluster="local",
        role="ada",
        environ="test",
        statemgr=StatemgrSpec(),
        dir=directory / topology,
        config=EngineConfig.from_keys(keys),
    )
    for container, address in (addresses or {}).items():
        made.container_dir(container).mkdir(parents=True)
        (made.container_dir(container) / "prometheus.address").write_text(address)
    return made


def packing(*rams: int) -> PackingPlan:
    instances = tuple(
        InstancePacking("count", task, task - 1, Resources(1, ram, 0)) for task, ram in enumerate(rams, start=1)
    )
    return PackingPlan("p", (ContainerPacking(1, instances, Resources(1, sum(rams), 0)),))


def test_a_target_for_every_metrics_manager_in_the_order_of_containers(tmp_path: Path) -> None:
    found = targets(
        [launch(tmp_path, addresses={2: "[2001:db8::2]:9002\n", 10: "127.0.0.1:9010\n", 0: "127.0.0.1:9000\n"})]
    )
    assert [target["targets"] for target in found] == [["127.0.0.1:9000"], ["[2001:db8::2]:9002"], ["127.0.0.1:9010"]]
    assert found[1]["labels"] == {
        "cluster": "local",
        "role": "ada",
        "environ": "test",
        "topology": "wordcount",
        "container": "2",
        "instance": "metricsmgr-2",
        "__scheme__": "https",
    }


def test_of_containers_on_other_hosts_the_topology_master_knows_the_addresses(tmp_path: Path) -> None:
    here, elsewhere = launch(tmp_path, "here", {1: "127.0.0.1:9001"}), launch(tmp_path, "elsewhere")
    asked = []

    def reported(launch: Launch) -> dict[int, str]:
        asked.append(launch.topology)
        return {10: "10.0.0.2:9010", 2: "[fd00::1]:9002"}

    found = targets([here, elsewhere], reported)
    assert asked == ["elsewhere"]
    assert [(t["labels"]["container"], t["targets"]) for t in found] == [
        ("1", ["127.0.0.1:9001"]),
        ("2", ["[fd00::1]:9002"]),
        ("10", ["10.0.0.2:9010"]),
    ]


@pytest.mark.parametrize("content", ["", "nonsense", "9001"])
def test_an_address_file_that_says_nothing_is_passed_over(tmp_path: Path, content: str) -> None:
    assert targets([launch(tmp_path, addresses={1: content})]) == []


def test_an_address_file_that_cannot_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(path: Path) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    running = launch(tmp_path, addresses={1: "127.0.0.1:9001"})
    monkeypatch.setattr(Path, "read_text", failing)
    assert targets([running]) == []
    assert "no target of topology wordcount" in caplog.text
    assert "prometheus.address cannot be read: Input/output error" in caplog.text


def test_another_path_of_the_endpoint_is_scraped(tmp_path: Path) -> None:
    sinks = {"sinks": ["p"], "p": {"class": "PrometheusSink", "path": "/heron"}}
    (target,) = targets(
        [launch(tmp_path, addresses={1: "127.0.0.1:9001"}, **{"heron.metricsmgr.sinks": json.dumps(sinks)})]
    )
    assert target["labels"]["__metrics_path__"] == "/heron"


def test_limits_are_the_least_of_each_component_and_the_mark_of_the_outboxes(tmp_path: Path) -> None:
    running = launch(tmp_path, **{"heron.streammgr.network.backpressure.highwatermark.mb": 80})
    (group,) = yaml.safe_load(limits([(running, packing(300, 200))]))["groups"]
    place = {"cluster": "local", "role": "ada", "environ": "test", "topology": "wordcount"}
    assert group["rules"] == [
        {"record": "heron:outbox_high_bytes", "expr": f"vector({80 << 20})", "labels": place},
        {"record": "heron:memory_limit_bytes", "expr": "vector(200)", "labels": {**place, "component": "count"}},
    ]


def test_no_topology_means_a_file_without_rules() -> None:
    assert yaml.safe_load(limits([])) == {"groups": []}


class World:
    """What runs, as a test wants it."""

    def __init__(self, directory: Path) -> None:
        self.launches: list[Launch] = []
        self.plan_of: Callable[[Launch], PackingPlan] = lambda _: packing(100)
        self.targets_file, self.limits_file = directory / "sd" / "heron.json", directory / "limits" / "heron.yml"
        self.discovery = Discovery(
            self.find, lambda x: self.plan_of(x), targets_file=self.targets_file, limits_file=self.limits_file
        )
        self.error: StateError | None = None

    def find(self) -> list[Launch]:
        if self.error is not None:
            raise self.error
        return self.launches

    def written(self) -> tuple[int, int]:
        """How many targets, and how many rules."""
        groups = yaml.safe_load(self.limits_file.read_text())["groups"]
        return len(json.loads(self.targets_file.read_text())), sum(len(group["rules"]) for group in groups)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_files_follow_what_comes_and_goes(world: World, tmp_path: Path) -> None:
    world.discovery.refresh()
    assert world.written() == (0, 0)
    world.launches = [launch(tmp_path, addresses={0: "127.0.0.1:1", 1: "127.0.0.1:2"})]
    world.discovery.refresh()
    assert world.written() == (2, 2)
    world.launches = []
    world.discovery.refresh()
    assert world.written() == (0, 0)
    assert sorted(path.name for path in world.targets_file.parent.iterdir()) == ["heron.ca.pem", "heron.json"]


def test_a_file_is_written_only_when_it_changes_or_is_gone(world: World, tmp_path: Path) -> None:
    world.launches = [launch(tmp_path, addresses={1: "127.0.0.1:2"})]
    world.discovery.refresh()
    before = world.targets_file.stat().st_ino
    world.discovery.refresh()
    assert world.targets_file.stat().st_ino == before
    world.targets_file.unlink()
    world.discovery.refresh()
    assert world.written() == (1, 2)


def test_files_stay_as_they_were_while_nobody_knows_what_runs(world: World, tmp_path: Path) -> None:
    world.launches = [launch(tmp_path, addresses={1: "127.0.0.1:2"})]
    world.discovery.refresh()
    world.error = StateError("away")
    with pytest.raises(StateError, match="away"):
        world.discovery.refresh()
    assert world.written() == (1, 2)


def test_limits_of_a_topology_that_was_not_ready_come_with_the_next_look(world: World, tmp_path: Path) -> None:
    def not_yet(_: Launch) -> PackingPlan:
        raise NotFoundError("no packing plan")

    world.launches = [launch(tmp_path, addresses={1: "127.0.0.1:2"})]
    world.plan_of = not_yet
    world.discovery.refresh()
    assert world.written() == (1, 0)
    world.plan_of = lambda _: packing(100)
    world.discovery.refresh()
    assert world.written() == (1, 2)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    discovery = Discovery(list, lambda _: packing(), targets_file=tmp_path / "file" / "heron.json")
    with pytest.raises(StateError, match=r"file/heron\.ca\.pem cannot be written"):
        discovery.refresh()
