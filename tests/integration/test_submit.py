"""Submitting from Python: what is planned, what is found again, and what a failure leaves."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyBuilder
from heronpy.config import MIB
from heronpy.connectors import ListSource, SourceSpout
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
from heronpy.loader import Definition
from heronpy.plan import read_config
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.streamlet import Builder, Config
from heronpy.submit import find, find_by_name, kill, plans, prepare, restart, running, submit
from heronpy.testing.servers import S3Server, free_port

HIGH = "heron.streammgr.network.backpressure.highwatermark.mb"


class Words(Spout):
    outputs = ["word"]  # noqa: RUF012  # as users write it

    def initialize(self, config: Any, context: Any) -> None: ...

    def next_tuple(self) -> None: ...


class Count(Bolt):
    def initialize(self, config: Any, context: Any) -> None: ...

    def process(self, tup: Any) -> None: ...


def definition(name: str = "words", **config: Any) -> Definition:
    words = Words.spec(name="words", par=2)
    counts = Count.spec(name="counts", par=2, inputs={words: Grouping.fields("word")})
    built = type(Topology)(name, (Topology,), {"words": words, "counts": counts, "config": config.get("config", {})})
    return Definition.of(built)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for launch in running(tmp_path):
        kill(launch)


def stored(proto: Any) -> dict[str, Any]:
    return read_config(proto.topology_config)


def test_configuration_that_does_nothing_here_is_warned_of_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    moved = definition(config={"topology.workers": 3, "topology.max.task.parallelism": 8})
    prepare(moved, home=home, properties={"topology.worker.childopts": "-Xmx1g"})
    assert [record.getMessage() for record in caplog.records] == [
        "topology words: configuration has no effect here: topology.max.task.parallelism, "
        "topology.worker.childopts, topology.workers (use topology.stmgrs)"
    ]


def test_a_plan_touches_nothing(home: Path) -> None:
    prepare(definition(), home=home)
    assert list(home.iterdir()) == []


def test_a_property_wins_over_the_cluster_and_the_topology_over_a_property(home: Path) -> None:
    own = definition(config={HIGH: 90})
    assert prepare(own, home=home, properties={HIGH: 80}).launch.config.stmgr.outbox_bytes_high == 90 * MIB
    assert prepare(definition(), home=home, properties={HIGH: 80}).launch.config.stmgr.outbox_bytes_high == 80 * MIB
    pending = {"topology.max.spout.pending": 5}
    assert (
        stored(prepare(definition(), home=home, properties=pending).logical.proto)["topology.max.spout.pending"] == "5"
    )
    mine = definition(config={"topology.max.spout.pending": 7})
    assert stored(prepare(mine, home=home, properties=pending).logical.proto)["topology.max.spout.pending"] == "7"


def test_a_property_may_change_what_a_topology_left_at_its_default(home: Path) -> None:
    planned = prepare(definition(), home=home, properties={"topology.stmgrs": 2})
    assert stored(planned.logical.proto)["topology.stmgrs"] == "2"
    assert len(planned.packing.containers) == 2


def test_a_cluster_may_require_role_and_environment(home: Path) -> None:
    strict = {"heron.config.is.role.required": True, "heron.config.is.env.required": True}
    with pytest.raises(ConfigError, match="local/ROLE/ENV"):
        prepare(definition(), home=home, properties=strict)
    with pytest.raises(ConfigError, match="local/ROLE/ENV"):
        prepare(definition(), home=home, role="ada", environ=None, properties=strict)
    assert prepare(definition(), home=home, role="ada", environ="prod", properties=strict).launch.role == "ada"


def test_effectively_once_has_a_place_for_checkpoints_below_the_topology_and_its_id(home: Path) -> None:
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": True}
    planned = prepare(definition(), home=home, properties=mode)
    url = planned.launch.checkpoints
    assert url.endswith(f"/{planned.logical.name}/{planned.logical.id}"), url
    assert not prepare(definition(), home=home).launch.checkpoints


@pytest.mark.parametrize(
    "url", ["s3://bucket/x?endpoint=http://127.0.0.1:{port}&region=r", "redis://127.0.0.1:{port}/0"]
)
def test_a_place_for_checkpoints_that_does_not_answer_is_refused_and_nothing_is_left(
    home: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    place = url.format(port=free_port())
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": True}
    began_s = time.monotonic()
    with pytest.raises(
        HeronError, match=r"cannot be kept where heron\.statefulstorage\.url says: .*127.0.0.1"
    ) as error:
        submit(definition(), home=home, properties={**mode, "heron.statefulstorage.url": place})
    assert "\n" not in str(error.value)
    assert time.monotonic() - began_s < 60
    assert running(home) == []
    assert [*home.rglob("launch.json")] == []


def test_a_place_for_logs_that_does_not_answer_is_warned_of(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    place = f"s3://bucket/x?endpoint=http://127.0.0.1:{free_port()}&region=r"
    submit(definition(), home=home, properties={"heron.logs.upload.uri": place})
    (warned,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned.startswith("logs of words cannot be kept where heron.logs.upload.uri says: s3://bucket/x")
    assert "\n" not in warned


def test_what_cannot_be_effectively_once_is_refused_though_the_mode_comes_with_the_command(home: Path) -> None:
    functional, plain = TopologyBuilder("Functional"), TopologyBuilder("Plain")
    builder = Builder()
    builder.new_source(ListSource(["a"], repeat=True)).set_name("letters").log()
    builder.build(functional, Config())
    plain.add_spout("letters", SourceSpout(ListSource(["a"], repeat=True)), 1)
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
    for refused in (functional, plain):
        assert prepare(Definition.of(refused), home=home).launch.checkpoints == ""
        with pytest.raises(
            ConfigError, match=r"component 'letters' cannot be effectively once: ListSource\(1 items\) has no positions"
        ):
            prepare(Definition.of(refused), home=home, properties=mode)
        allowed = {**mode, "topology.state.allow.lossy.spouts": "true"}
        assert prepare(Definition.of(refused), home=home, properties=allowed).launch.checkpoints


def test_a_port_that_does_not_exist_is_no_taken_one(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"prometheus.port: there is no port 99999"):
        submit(definition(), home=home, properties={"heron.metricsmgr.prometheus.port": 99999})


def test_every_submission_has_an_id_of_its_own(home: Path) -> None:
    same = definition()
    assert prepare(same, home=home).launch.topology_id != prepare(same, home=home).launch.topology_id


def test_a_submitted_topology_is_found_by_its_place_and_by_its_name(home: Path) -> None:
    launch = submit(definition(), home=home, role="ada", environ="prod")
    assert find(home, "local", "ada", "prod", "words") == launch
    assert find_by_name(home, "words") == launch
    assert Launch.load(launch.dir) == launch
    logical, packing = plans(launch)
    assert logical.id == launch.topology_id
    assert [c.id for c in packing.containers] == [1]
    with pytest.raises(NotFoundError, match=r"no topology 'words' runs as local/bob/default; .*local/ada/prod words"):
        find(home, "local", "bob", "default", "words")
    with pytest.raises(NotFoundError, match="no topology 'wrods' runs; did you mean 'words'"):
        find_by_name(home, "wrods")
    with pytest.raises(NotFoundError, match="has no container 5: it has 0 to 1"):
        restart(launch, 5)
    kill(launch)
    assert running(home) == []


def test_a_topology_from_another_home_is_found_through_the_state_manager(home: Path) -> None:
    state = {"heron.statemgr.root.path": str(home / "shared")}
    launch = submit(definition(), home=home / "one", properties=state)
    try:
        assert running(home / "two", "local", properties=state) == [launch]
        assert find(home / "two", "local", None, "default", "words", properties=state) == launch
        assert running(home / "two") == []
    finally:
        kill(launch)


def test_a_name_in_two_clusters_must_be_said_with_its_cluster(home: Path, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    for cluster in ("east", "west"):
        (conf / cluster).mkdir(parents=True)
        (conf / cluster / "statemgr.yaml").write_text("heron.statemgr.root.path: ${HERON_HOME}/state/${CLUSTER}\n")
        submit(definition(), cluster=cluster, home=home, config_path=conf)
    with pytest.raises(ConfigError, match="name the cluster"):
        find_by_name(home, "words")
    assert find(home, "west", None, "default", "words", config_path=conf).cluster == "west"


def test_a_scheduler_that_does_not_start_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = definition()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="ended with exit code 1"):
        submit(planned, home=home)
    monkeypatch.undo()
    assert not list(home.glob("topologies/*/*/*/*"))
    spec = prepare(planned, home=home).launch.statemgr
    with contextlib.closing(open_statemgr(spec)) as state:
        assert [kind for kind in Kind if state.list(kind)] == []
    launch = submit(planned, home=home)
    assert running(home) == [launch]
