"""A cluster's configuration files and what overrides them."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import pytest

from heronpy.config import KEYS, MIB, check_name
from heronpy.config.cluster import CLUSTER_KEYS, clusters, load_cluster
from heronpy.errors import ConfigError

HIGH = "heron.streammgr.network.backpressure.highwatermark.mb"
LOW = "heron.streammgr.network.backpressure.lowwatermark.mb"


def write(directory: Path, **files: str) -> Path:
    """A `--config-path` with the cluster `c`."""
    cluster = directory / "c"
    cluster.mkdir()
    (cluster / "statemgr.yaml").write_text("heron.statemgr.root.path: /state\n")
    for name, text in files.items():
        (cluster / f"{name}.yaml").write_text(text)
    return directory


def load(path: Path, properties: dict[str, Any] | None = None) -> Any:
    return load_cluster("c", home=Path("/home/heron"), config_path=path, properties=properties)


def test_the_shipped_clusters_keep_their_state_in_files_zookeeper_and_etcd(tmp_path: Path) -> None:
    local = load_cluster("local", home=tmp_path)
    assert (local.statemgr_type, local.statemgr_root) == ("file", f"{tmp_path}/state/local")
    zk = load_cluster("localzk", home=tmp_path)
    assert (zk.statemgr_type, zk.statemgr_connection) == ("zookeeper", "localhost:2181")
    etcd = load_cluster("localetcd", home=tmp_path)
    assert (etcd.statemgr_type, etcd.statemgr_connection) == ("etcd", "localhost:2379")
    assert {"local", "localetcd", "localzk"} <= set(clusters())


def test_loading_makes_no_file(tmp_path: Path) -> None:
    load_cluster("local", home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_later_layer_wins_over_an_earlier_one(tmp_path: Path) -> None:
    path = write(tmp_path, heron_internals=f"{HIGH}: 80\n{LOW}: 20\n", override=f"{LOW}: 30\n")
    from_files = load(path).engine_config()
    assert (from_files.stmgr.outbox_bytes_high, from_files.stmgr.outbox_bytes_low) == (80 * MIB, 30 * MIB)
    assert from_files.stmgr.frame_bytes == 1 * MIB  # the default
    config = load(path, {LOW: 40})
    assert config.engine_config().stmgr.outbox_bytes_low == 40 * MIB
    assert config.engine_config({LOW: 50, "my.own": 1}).stmgr.outbox_bytes_low == 50 * MIB


def test_topology_keys_of_a_cluster_are_kept_as_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, cluster="topology.max.spout.pending: 7\n")
    assert load(path).topology == {"topology.max.spout.pending": 7}


def test_variables_are_substituted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        statemgr="heron.statemgr.root.path: ${HERON_HOME}/${CLUSTER}/${ROLE}/${ENVIRON}/${TOPOLOGY}\n",
    )
    config = load_cluster("c", home=Path("/h"), role="ada", environ="prod", topology="words", config_path=path)
    assert config.statemgr_root == "/h/c/ada/prod/words"
    assert load(path, {"heron.statemgr.root.path": "${HOME}/x"}).statemgr_root == f"{Path.home()}/x"


def test_a_user_without_a_home_directory_needs_one_only_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, statemgr="heron.statemgr.root.path: ${HERON_HOME}/state\n")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 1 << 30)  # has no name, as in many containers
    assert load(path).statemgr_root == "/home/heron/state"
    with pytest.raises(ConfigError, match="set HOME"):
        load(path, {"heron.statemgr.root.path": "${HOME}/x"})


def test_state_manager_classes_of_heron_are_understood(tmp_path: Path) -> None:
    zookeeper = {
        "heron.class.state.manager": "org.apache.heron.statemgr.zookeeper.curator.CuratorStateManager",
        "heron.statemgr.connection.string": "zk:2181",
    }
    assert load(write(tmp_path), zookeeper).statemgr_type == "zookeeper"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "heron.statemgr.root.pat: /x\n",
            "statemgr.yaml: unknown configuration key 'heron.statemgr.root.pat'; did you",
        ),
        ("heron.statemgr.root.path: state\n", "must be an absolute path, not 'state'"),
        ("heron.statemgr.root.path: /${HOM}\n", "unknown variable ${HOM}; did you mean 'HOME'?"),
        (
            "heron.class.state.manager: zookeper\n",
            "must be one of etcd, file, kubernetes, zookeeper, not 'zookeper'; did you mean 'zookeeper'?",
        ),
        ("heron.class.state.manager: zookeeper\n", "must name the ZooKeeper servers"),
        ("heron.config.is.role.required: maybe\n", "must be true or false, not 'maybe'"),
        (f"{HIGH}: much\n", f"{HIGH} must be a number, not 'much'"),
        (f"{HIGH}: 10\n", f"{LOW} must be below"),
        ("- a\n- b\n", "must be a map of keys and values"),
        ("a: b: c\n", "statemgr.yaml:1 is not valid YAML"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path)
    (path / "c" / "statemgr.yaml").write_text("heron.statemgr.root.path: /state\n" * ("root.pat" not in text) + text)
    if text.startswith(("- ", "a:")):
        (path / "c" / "statemgr.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_cluster_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown cluster 'locl'; did you mean 'local'"):
        load_cluster("locl", home=tmp_path)
    with pytest.raises(ConfigError, match=r"unknown cluster '\.\./x'"):
        load_cluster("../x", home=tmp_path)


def test_an_unknown_file_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"statmgr\.yaml is not a file .*'statemgr\.yaml'"):
        load(write(tmp_path, statmgr="{}"))


def test_a_missing_config_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a directory"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a b", "-a", "a\n", "ä", "x" * 129])
def test_names_that_are_no_path_elements_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no role"):
        check_name("role", name)


def test_usual_names_are_accepted() -> None:
    for name in ("word-count", "a", "Ada_1.2", "ada@example.org", getpass.getuser()):
        assert check_name("role", name) == name


def test_no_key_is_known_twice() -> None:
    assert not set(KEYS) & set(CLUSTER_KEYS)


def test_heron_s_local_storage_of_checkpoints_is_a_url(tmp_path: Path) -> None:
    stateful = """
heron.statefulstorage.classname: org.apache.heron.statefulstorage.localfs.LocalFileSystemStorage
heron.statefulstorage.config:
  heron.statefulstorage.classpath: ""
  heron.statefulstorage.localfs.root.path: ~/.herondata/checkpoints
  heron.statefulstorage.localfs.max.checkpoints: 10
heron.ckptmgr.network.write.batch.size.bytes: 32768
"""
    path = write(tmp_path, stateful=stateful)
    checkpoints = load(path).engine_config().checkpoints
    assert (checkpoints.url, checkpoints.retained) == (str(Path.home() / ".herondata/checkpoints"), 10)
    overridden = load(path, {"heron.statefulstorage.url": "s3://bucket/${CLUSTER}"}).engine_config().checkpoints
    assert overridden.url == "s3://bucket/c"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heron.statefulstorage.classname: org.apache.heron.statefulstorage.hdfs.HDFSStorage\n", "set heron.stateful"),
        ("heron.statefulstorage.config: 5\n", "must be a map"),
        ("heron.statefulstorage.config:\n  heron.statefulstorage.hdfs.root: /x\n", "unknown configuration key"),
        ("heron.statefulstorage.max.checkpoints: 0\n", "at least 1"),
    ],
)
def test_another_storage_of_heron_s_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, stateful=text))
