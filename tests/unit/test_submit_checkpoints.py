"""Where a submission stores its checkpoints: decided once, and kept in launch.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Spout, StatefulComponent, TopologyBuilder, TopologyContext
from heronpy.errors import ConfigError, TopologyError
from heronpy.loader import Definition
from heronpy.runtime import Launch
from heronpy.streamlet import Builder, Config
from heronpy.submit import prepare


class Words(Spout, StatefulComponent):
    outputs = ("word",)


class Lossy(Spout):
    """Uses nothing of its context."""

    outputs = ("word",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.words = ["a"]


class Helped(Spout):
    """Has something else declare its state."""

    outputs = ("word",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.helper = Helper(context)


class Helper:
    def __init__(self, context: TopologyContext) -> None:
        self.state = context.task_state("state")


@pytest.fixture
def launch_with(tmp_path: Path) -> Any:
    """A launch file, as it is read, of a topology with these keys."""

    def launch(mode: str = "EFFECTIVELY_ONCE", spout: type[Spout] = Words, par: int = 1, **properties: Any) -> Launch:
        builder = TopologyBuilder("counted")
        builder.add_spout("words", spout, par)
        keys = {"topology.reliability.mode": mode, **properties}
        made = prepare(Definition.of(builder.build()), home=tmp_path, role="me", properties=keys).launch
        made.save()
        return Launch.load(made.dir)

    return launch


def test_checkpoints_are_beside_the_topologies_by_name_and_id(launch_with: Any, tmp_path: Path) -> None:
    launch = launch_with()
    assert launch.checkpoints == f"{tmp_path}/checkpoints/local/me/default/{launch.topology}/{launch.topology_id}"
    assert not (tmp_path / "checkpoints").exists(), "to prepare is to touch nothing"


def test_the_cluster_s_storage_has_a_place_for_each_topology(launch_with: Any) -> None:
    launch = launch_with(**{"heron.statefulstorage.url": "file:///data"})
    assert launch.checkpoints == f"file:///data/{launch.topology}/{launch.topology_id}"


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_other_modes_store_nothing(launch_with: Any, mode: str) -> None:
    assert launch_with(mode, **{"heron.statefulstorage.url": "ftp://nowhere"}).checkpoints == ""


def test_a_storage_that_cannot_be_is_refused_at_submit(launch_with: Any) -> None:
    with pytest.raises(ConfigError, match="no storage has URLs of ftp"):
        launch_with(**{"heron.statefulstorage.url": "ftp://nowhere"})
    with pytest.raises(ConfigError, match="must be absolute"):
        launch_with(**{"heron.statefulstorage.url": "data"})


def test_the_package_for_state_beyond_memory_is_asked_for_at_submit(
    launch_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    budget = {"topology.state.memory.mb": 64}
    with pytest.raises(ConfigError, match=r"needs the package lmdb: pip install 'heron-engine\[state\]'"):
        launch_with(**budget)
    assert launch_with().checkpoints, "nobody else needs it"
    assert launch_with("ATLEAST_ONCE", **budget).checkpoints == "", "without checkpoints it has no effect"


def test_a_spout_that_surely_keeps_no_position_is_refused_unless_that_is_allowed(launch_with: Any) -> None:
    with pytest.raises(ConfigError, match="spout 'words' keeps no position in a state"):
        launch_with(spout=Lossy)
    assert launch_with(spout=Lossy, **{"topology.state.allow.lossy.spouts": "true"}).checkpoints
    assert launch_with(spout=Helped).checkpoints
    assert not launch_with("ATLEAST_ONCE", spout=Lossy).checkpoints


def test_at_least_once_an_interval_asks_for_checkpoints_and_spouts_replay(launch_with: Any) -> None:
    interval = {"topology.stateful.checkpoint.interval.seconds": 10}
    assert launch_with("ATLEAST_ONCE", spout=Lossy, **interval).checkpoints
    assert not launch_with("ATMOST_ONCE", spout=Lossy, **interval).checkpoints


def test_streamlets_take_checkpoints_at_least_once(tmp_path: Path) -> None:
    program, builder = Builder(), TopologyBuilder("numbers")
    program.new_source(int).log()
    program.build(builder, Config())
    topology = builder.build()
    keys = {"topology.reliability.mode": "ATLEAST_ONCE", "topology.stateful.checkpoint.interval.seconds": 10}
    assert prepare(Definition.of(topology), home=tmp_path, role="me", properties=keys).launch.checkpoints


def test_more_tasks_than_state_can_be_divided_among_are_refused_by_name(launch_with: Any) -> None:
    with pytest.raises(TopologyError, match="'words' cannot have 9 tasks"):
        launch_with(**{"topology.state.key.groups": 8}, par=9)
