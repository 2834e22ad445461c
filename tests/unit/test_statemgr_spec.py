"""What launch.json says of the state manager: where its secrets are, and never what they are."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from heronpy.config.cluster import load_cluster
from heronpy.errors import ConfigError, StateError
from heronpy.runtime import SECRETS_DIR, Launch, StatemgrSpec


def with_files(directory: Path) -> StatemgrSpec:
    directory.mkdir()
    for name in ("credentials", "ca.pem", "own.pem"):
        (directory / name).write_text(f"swordfish of {name}")
    return StatemgrSpec(
        type="etcd",
        connection="https://a:2379",
        root="/heron",
        credentials_file=str(directory / "credentials"),
        ca_file=str(directory / "ca.pem"),
        certificate_file=str(directory / "own.pem"),
    )


def launch_in(directory: Path, spec: StatemgrSpec) -> Launch:
    return Launch(
        topology="words",
        topology_id="words-1",
        cluster="c",
        role="me",
        environ="default",
        statemgr=spec.in_directory(directory),
        dir=directory,
    )


def test_a_topologys_directory_can_be_copied_with_the_secrets_in_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(mode=0o700)
    launch_in(here, with_files(tmp_path / "etc")).save()
    secrets = here / SECRETS_DIR
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in secrets.iterdir()} == {0o600}
    assert "swordfish" not in (here / "launch.json").read_text()
    assert str(here) not in (here / "launch.json").read_text()
    here.rename(there)
    spec = Launch.load(there).statemgr
    for path, name in ((spec.credentials_file, "credentials"), (spec.ca_file, "ca.pem")):
        assert Path(path).parent == there / SECRETS_DIR
        assert Path(path).read_text() == f"swordfish of {name}"
    assert Path(spec.certificate_file).exists()


def test_without_files_there_is_no_directory_for_secrets(tmp_path: Path) -> None:
    spec = StatemgrSpec(type="etcd", connection="a:2379", root="/heron")
    launch = launch_in(tmp_path, spec)
    launch.save()
    assert not (tmp_path / SECRETS_DIR).exists()
    assert Launch.load(tmp_path).statemgr == spec


def test_a_file_outside_of_the_directory_keeps_its_name(tmp_path: Path) -> None:
    spec = StatemgrSpec(type="etcd", connection="a:2379", root="/heron", ca_file="/etc/ca.pem")
    assert StatemgrSpec.of_values(spec.to_values(tmp_path), tmp_path) == spec


def test_a_secret_that_cannot_be_read_is_named_at_submit(tmp_path: Path) -> None:
    spec = StatemgrSpec(type="etcd", connection="a:2379", root="/heron", credentials_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="none cannot be read"):
        launch_in(tmp_path, spec)


@pytest.mark.parametrize("value", [1, ["a"], None])
def test_a_damaged_file_name_is_refused(tmp_path: Path, value: object) -> None:
    launch = launch_in(tmp_path, StatemgrSpec())
    text = launch.encode().decode().replace('"root": ""', f'"root": "", "ca_file": {value or "null"}'.replace("'", '"'))
    with pytest.raises(StateError, match="damaged"):
        Launch.decode(text.encode(), tmp_path)


def test_a_clusters_keys_name_the_files(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "statemgr.yaml").write_text(
        "heron.class.state.manager: etcd\n"
        "heron.statemgr.connection.string: https://a:2379,https://b:2379\n"
        "heron.statemgr.root.path: /heron\n"
        "heron.statemgr.credentials.file: ${HERON_HOME}/etcd\n"
        "heron.statemgr.tls.ca.file: /etc/ca.pem\n"
        "heron.statemgr.tls.certificate.file: /etc/own.pem\n"
        "heron.statemgr.session.timeout.ms: 20000\n"
    )
    assert StatemgrSpec.of(load_cluster("c", home=Path("/h"), config_path=tmp_path)) == StatemgrSpec(
        type="etcd",
        connection="https://a:2379,https://b:2379",
        root="/heron",
        credentials_file="/h/etcd",
        ca_file="/etc/ca.pem",
        certificate_file="/etc/own.pem",
        session_timeout_ms=20_000,
    )


def load(directory: Path, text: str) -> StatemgrSpec:
    (directory / "c").mkdir()
    (directory / "c" / "statemgr.yaml").write_text(text)
    return StatemgrSpec.of(load_cluster("c", home=Path("/h"), config_path=directory))


HERONS = """\
heron.class.state.manager: org.apache.heron.statemgr.zookeeper.curator.CuratorStateManager
heron.statemgr.connection.string: "zk:2181/chroot"
heron.statemgr.root.path: "/heron"
heron.statemgr.zookeeper.is.initialize.tree: True
heron.statemgr.zookeeper.session.timeout.ms: 30000
heron.statemgr.zookeeper.connection.timeout.ms: 30000
heron.statemgr.zookeeper.retry.count: 10
heron.statemgr.zookeeper.retry.interval.ms: 10000
"""


def test_herons_statemgr_yaml_says_the_same_here(tmp_path: Path) -> None:
    spec = load(tmp_path, HERONS)
    assert spec == StatemgrSpec(type="zookeeper", connection="zk:2181/chroot", root="/heron", session_timeout_ms=30_000)
    assert StatemgrSpec.of_values(spec.to_values(tmp_path), tmp_path) == spec


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HERONS.replace("True", "false"), "is.initialize.tree can only be true"),
        (HERONS.replace("session.timeout.ms: 30000", "session.timeout.ms: 30"), "milliseconds from 1000 on, not 30"),
        (HERONS.replace("session.timeout.ms: 30000", "session.timeout.ms: long"), "milliseconds"),
        (HERONS.replace("retry.count", "retry.cnt"), "unknown configuration key"),
    ],
)
def test_what_herons_keys_cannot_say_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path, text)
