"""Under which address others reach a host: what the scheduler says, the configuration, the way to the state manager."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
import yaml

from heronpy.api import Spout, TopologyBuilder
from heronpy.config import EngineConfig
from heronpy.errors import ConfigError, UsageError
from heronpy.host import HostProcess, PidFiles, read_pids
from heronpy.loader import Definition
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.submit import Submission, prepare

ADVERTISE_ENV = "HERON_ADVERTISE_ADDRESS"


def launch(connection: str = "", **network: str) -> Launch:
    return Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="ada",
        environ="test",
        statemgr=StatemgrSpec(type="zookeeper" if connection else "file", connection=connection, root="/heron"),
        dir=Path("/nowhere"),
        config=EngineConfig.from_keys({f"heron.network.{key}.address": value for key, value in network.items()}),
    )


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADVERTISE_ENV, raising=False)


def test_the_scheduler_is_asked_first_then_the_configuration_then_what_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert launch(bind="127.0.0.2").advertised_host() == "127.0.0.2"
    assert launch(bind="127.0.0.2", advertise="node.example").advertised_host() == "node.example"
    monkeypatch.setenv(ADVERTISE_ENV, "10.0.0.7")
    assert launch(bind="127.0.0.2", advertise="node.example").advertised_host() == "10.0.0.7"


@pytest.mark.parametrize(
    ("bind", "server", "refused"),
    [
        ("127.0.0.1", "zk.example:2181", True),
        ("[::1]", "10.0.0.9:2181", True),
        ("localhost", "10.0.0.9:2181", True),
        ("0.0.0.0", "zk.example:2181", False),
        ("10.0.0.7", "zk.example:2181", False),
        ("127.0.0.1", "127.0.0.1:2181", False),  # all on one machine
    ],
)
@pytest.mark.parametrize("scheduler", ["slurm", "spark", "yarn"])
def test_servers_that_other_hosts_do_not_reach_are_refused_before_anything_is_submitted(
    tmp_path: Path, scheduler: str, bind: str, server: str, refused: bool
) -> None:
    builder = TopologyBuilder("words")
    builder.add_spout("words", Words, 1)
    (tmp_path / "conf/farm").mkdir(parents=True)
    values = {
        "heron.class.scheduler": scheduler,
        "heron.class.state.manager": "zookeeper",
        "heron.statemgr.connection.string": server,
        "heron.statemgr.root.path": "/heron",
        "heron.network.bind.address": bind,
        **({"heron.scheduler.spark.master": "spark://s:7077"} if scheduler == "spark" else {}),
        **({"heron.scheduler.yarn.resourcemanager": "http://y:8088"} if scheduler == "yarn" else {}),
    }
    (tmp_path / "conf/farm/cluster.yaml").write_text(yaml.safe_dump(values))

    def planned() -> Submission:
        definition = Definition.of(builder.build())
        return prepare(definition, cluster="farm", home=tmp_path / "home", config_path=tmp_path / "conf")

    if refused:
        with pytest.raises(ConfigError, match=r"heron\.network\.bind\.address is .* set it to 0\.0\.0\.0"):
            planned()
    else:
        assert planned().launch.config.network.bind == bind


class Words(Spout):
    outputs = ("word",)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "[::]"])
@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("127.0.0.1:2181", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:2181,[::2]:2181/heron", "::1"),
        ("https://127.0.0.1:2379,https://127.0.0.2:2379", "127.0.0.1"),
    ],
)
def test_a_wildcard_is_reached_where_the_route_to_the_state_manager_begins(
    bind: str, connection: str, address: str
) -> None:
    assert launch(connection, bind=bind).advertised_host() == address


def test_a_wildcard_without_a_server_to_route_to_is_refused_by_key() -> None:
    with pytest.raises(ConfigError, match=r"heron.network.advertise.address, or HERON_ADVERTISE_ADDRESS"):
        launch(bind="0.0.0.0").advertised_host()
    with pytest.raises(UsageError, match="is not an address"):
        launch("host:port:port", bind="0.0.0.0").advertised_host()


@pytest.mark.parametrize(("host", "bound"), [("::1", "[::1]:0"), ("[::]", "[::]:0"), ("10.0.0.1", "10.0.0.1:0")])
def test_servers_bind_the_configured_address(host: str, bound: str) -> None:
    assert launch(bind=host).bind_address == bound


def test_a_pid_of_another_host_says_nothing_about_the_processes_of_this_one(tmp_path: Path) -> None:
    me = HostProcess.of(os.getpid())
    assert me is not None
    here = PidFiles(tmp_path).started("stmgr-1", me)
    assert read_pids(tmp_path)["stmgr-1"] == here
    assert (here.visible, here.alive, here.ended) == (True, True, False)
    elsewhere = dataclasses.replace(here, host="elsewhere", pid_space="another boot pid:[1]")
    assert (elsewhere.visible, elsewhere.alive, elsewhere.ended) == (False, False, False)
    before_reboot = dataclasses.replace(here, pid_space="another boot pid:[1]")
    assert (before_reboot.alive, before_reboot.ended) == (False, True)
    assert dataclasses.replace(here, pid_space="").alive, "a record of an older version"
