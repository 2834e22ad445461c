"""Where each value of a topology's configuration was set: the files, the command line, the topology, a component."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Spout, TopologyBuilder
from heronpy.loader import Definition
from heronpy.plan import LogicalPlan
from heronpy.runtime import Launch
from heronpy.submit import Setting, effective_config, prepare


class Words(Spout):
    outputs = ("word",)


class Counts(Bolt):
    pass


def counted() -> Definition:
    builder = TopologyBuilder("counted")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt("counts", Counts, 1, [words], {"app.depth": 4})
    builder.set_config({"topology.max.spout.pending": 7, "heron.instance.nice": 3, "app.password": "swordfish"})
    return Definition.of(builder.build())


@pytest.fixture
def configured(tmp_path: Path) -> tuple[LogicalPlan, Launch]:
    """A submission to a cluster of its own, with something set at each place."""
    cluster = tmp_path / "conf" / "mine"
    cluster.mkdir(parents=True)
    (cluster / "statemgr.yaml").write_text(f"heron.statemgr.root.path: {tmp_path}/state\n")
    (cluster / "heron_internals.yaml").write_text(
        "heron.instance.nice: 9\nheron.logging.level: DEBUG\ntopology.max.spout.pending: 5\n"
        "topology.message.timeout.secs: 40\nheron.executor.stable.ms: 1\n"
    )
    submission = prepare(
        counted(),
        cluster="mine",
        home=tmp_path / "home",
        properties={"heron.executor.stable.ms": 2, "topology.stmgrs": 2},
        config_path=tmp_path / "conf",
    )
    submission.launch.save()
    return submission.logical, Launch.load(submission.launch.dir)


def by_key(settings: list[Setting]) -> dict[tuple[str, str], tuple[Any, str]]:
    found = {(one.of, one.key): (one.value, one.origin) for one in settings}
    assert len(found) == len(settings), "each value once"
    return found


def test_every_value_has_its_origin(configured: tuple[LogicalPlan, Launch]) -> None:
    found = by_key(effective_config(*configured))
    internals = "cluster file mine/heron_internals.yaml"
    assert found["engine", "heron.logging.level"] == ("DEBUG", internals)
    assert found["engine", "heron.executor.stable.ms"] == (2, "command line")
    assert found["engine", "heron.instance.nice"] == (3, "topology")
    assert found["engine", "heron.executor.stop.timeout.ms"] == (5000, "default")
    assert found["engine", "heron.logging.maximum.size.mb"] == (100, "default")
    assert found["engine", "heron.statemgr.root.path"][1] == "cluster file mine/statemgr.yaml"
    assert found["engine", "heron.class.scheduler"] == ("local", "default")
    assert found["topology", "topology.max.spout.pending"] == ("7", "topology")
    assert found["topology", "topology.message.timeout.secs"] == ("40", internals)
    assert found["topology", "topology.stmgrs"] == ("2", "command line")
    assert found["topology", "topology.reliability.mode"] == ("ATMOST_ONCE", "default")
    assert found["topology", "app.password"] == ("swordfish", "topology")
    assert found["counts", "app.depth"] == ("4", "component")


def test_without_the_directory_the_origins_are_unknown_but_the_defaults(
    configured: tuple[LogicalPlan, Launch],
) -> None:
    found = by_key(effective_config(configured[0], None))
    assert found["topology", "topology.stmgrs"] == ("2", "unknown")
    assert found["topology", "topology.reliability.mode"] == ("ATMOST_ONCE", "default")
    assert found["counts", "app.depth"] == ("4", "component")
    assert "engine" not in {of for of, _ in found}


def test_a_directory_of_an_earlier_version_has_no_origins(configured: tuple[LogicalPlan, Launch]) -> None:
    directory = configured[1].dir
    values = json.loads((directory / "launch.json").read_text())
    assert values.pop("origins")
    (directory / "launch.json").write_text(json.dumps(values))
    assert Launch.load(directory).origins == {}
