"""heron_tracker.yaml: what it says, and how a mistake in it is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from heron_tracker import ExtraLink, TrackerConfig, load_config, local_state

from heronpy.errors import ConfigError
from heronpy.runtime import StatemgrSpec

SHIPPED = Path(__file__).parents[2] / "deploy" / "conf" / "heron_tracker.yaml"


def load(tmp_path: Path, text: str) -> TrackerConfig:
    path = tmp_path / "heron_tracker.yaml"
    path.write_text(text)
    return load_config(path, home=tmp_path / "home")


def test_the_file_that_is_shipped_says_what_no_file_says(tmp_path: Path) -> None:
    assert load_config(SHIPPED, home=tmp_path) == TrackerConfig(statemgrs=(local_state(tmp_path),))


def test_herons_file_says_the_same_here(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        statemgrs:
          - type: file
            name: local
            rootpath: "${HERON_HOME}/state"
            tunnelhost:
          - type: zookeeper
            name: farm
            hostport: "a:2181,b:2181"
            rootpath: "/heron"
          - type: etcd
            name: kube
            hostport: "https://a:2379,https://b:2379"
            rootpath: "/heron"
            credentials.file: "${HERON_HOME}/etcd"
            tls.ca.file: "/etc/ca.pem"
        extra.links:
          - name: "Board"
            formatter: "http://board/${CLUSTER}/${TOPOLOGY}"
        """,
    )
    assert [(s.name, s.spec) for s in config.statemgrs] == [
        ("local", StatemgrSpec(type="file", root=f"{tmp_path}/home/state")),
        ("farm", StatemgrSpec(type="zookeeper", connection="a:2181,b:2181", root="/heron")),
        (
            "kube",
            StatemgrSpec(
                type="etcd",
                connection="https://a:2379,https://b:2379",
                root="/heron",
                credentials_file=f"{tmp_path}/home/etcd",
                ca_file="/etc/ca.pem",
            ),
        ),
    ]
    assert config.extra_links == (ExtraLink("Board", "http://board/${CLUSTER}/${TOPOLOGY}"),)
    assert config.extra_links[0].url({"CLUSTER": "farm", "TOPOLOGY": "words"}) == "http://board/farm/words"
    assert (config.host, config.port, config.token) == ("127.0.0.1", 8888, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("statemgr: []", "unknown key 'statemgr'; did you mean 'statemgrs'?"),
        ("- a", "must be a map"),
        ("a: [", "is not valid YAML"),
        ("statemgrs: file", "'file' must be a list"),
        ("statemgrs: [{type: file, rootpath: /x}]", "needs a name"),
        (
            "statemgrs: [{type: mysql, name: a, rootpath: /x}]",
            "type must be file, zookeeper, etcd or kubernetes, not 'mysql'",
        ),
        ("statemgrs: [{type: zookeeper, name: a, rootpath: /x}]", "hostport must name the ZooKeeper servers"),
        ("statemgrs: [{type: file, name: a, rootpath: x}]", "rootpath must be an absolute path, not 'x'"),
        ("statemgrs: [{type: file, name: a, rootpath: /x, tunnelhost: h}]", "tunnelhost is not supported"),
        (
            "statemgrs: [{type: file, name: a, rootpath: /x}, {type: file, name: a, rootpath: /y}]",
            "two state managers are named 'a'",
        ),
        ("extra.links: [{name: a, formatter: '${TOPOLGY}'}]", "unknown variable ${TOPOLGY}; did you mean 'TOPOLOGY'?"),
        ("tracker.port: many", "tracker.port must be a number"),
        ("tracker.port: 70000", "tracker.port must be between 0 and 65535"),
        ("tracker.token.file: /nowhere/token", "/nowhere/token cannot be read"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert reason in str(refused.value)


def test_a_token_that_others_can_read_is_none(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("swordfish\n")
    token.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load(tmp_path, f"tracker.token.file: {token}")
    token.chmod(0o600)
    assert load(tmp_path, f"tracker.token.file: {token}").token == "swordfish"
    token.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        load(tmp_path, f"tracker.token.file: {token}")
