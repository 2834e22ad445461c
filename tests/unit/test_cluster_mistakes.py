"""What a submission says of a cluster that is not there, not configured, or refuses; and that nothing of it is left."""

from __future__ import annotations

import datetime
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from heronpy.api import Spout, TopologyBuilder
from heronpy.errors import HeronError, UnavailableError
from heronpy.loader import Definition
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import status, submit

AWAY = """#!/bin/sh
echo "$(basename $0): error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host" >&2
echo "$(basename $0): fatal: Could not establish a configuration source" >&2
exit 1
"""
REFUSES = """#!/bin/sh
case "$0" in
  */squeue) exit 0 ;;
  */sbatch) echo "sbatch: error: invalid partition specified: stream" >&2; exit 1 ;;
esac
"""
SPARK = {"heron.class.scheduler": "spark", "heron.scheduler.spark.master": "spark://127.0.0.1:1"}
YARN = {"heron.class.scheduler": "yarn", "heron.scheduler.yarn.resourcemanager": "http://127.0.0.1:1"}
SLURM = {"heron.class.scheduler": "slurm"}
KUBERNETES = {
    "heron.class.scheduler": "kubernetes",
    "heron.class.state.manager": "file",
    "heron.executor.docker.image": "heron:latest",
    "heron.kubernetes.scheduler.namespace": "default",
}
EFFECTIVELY_ONCE = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": "true"}


class Words(Spout):
    outputs = ("word",)


Try = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Submits with a configuration that cannot work; what is said."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    home, conf = tmp_path / "home", tmp_path / "conf"

    def refused(slurm: str = AWAY, **keys: Any) -> str:
        for program in ("squeue", "sbatch", "scancel", "scontrol"):
            (tmp_path / "bin" / program).write_text(slurm)
            (tmp_path / "bin" / program).chmod(0o755)
        state = {"heron.statemgr.root.path": str(tmp_path / "state"), "heron.package.python": f"venv:{sys.prefix}"}
        (conf / "farm").mkdir(parents=True, exist_ok=True)
        (conf / "farm/cluster.yaml").write_text(yaml.safe_dump({**state, **keys}))
        builder = TopologyBuilder("words")
        builder.add_spout("words", Words, 1)
        with pytest.raises(HeronError) as error:
            submit(Definition.of(builder.build()), cluster="farm", role="me", home=home, config_path=conf)
        assert "\n" not in str(error.value)
        assert list(home.glob("topologies/*/*/*/*")) == [], "it left a directory"
        if (tmp_path / "state").is_dir():
            with open_statemgr(StatemgrSpec(root=str(tmp_path / "state"))) as sm:
                assert {kind: names for kind in Kind if (names := sm.list(kind)) and kind is not Kind.TOMBSTONES} == {}
        assert [path for path in tmp_path.glob("store/**/*") if path.is_file()] == [], "it left a package"
        return f"{type(error.value).__name__}: {error.value}"

    return refused


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (SLURM, "UnavailableError: Slurm's controller does not answer squeue: resolve_ctls.*SLURM_CONF"),
        (
            SPARK,
            r"UnavailableError: no Spark master answers at spark://127\.0\.0\.1:1.*heron\.scheduler\.spark\.master",
        ),
        (
            YARN,
            "UnavailableError: no ResourceManager of YARN: http://127.0.0.1:1 .*heron.scheduler.yarn.resourcemanager",
        ),
        (KUBERNETES, "ConfigError: .*(no-kubeconfig|KUBECONFIG|state manager in files)"),
        ({"heron.class.scheduler": "slrum"}, "slrum.*did you mean 'slurm'"),
    ],
    ids=["slurm", "spark", "yarn", "kubernetes", "unknown scheduler"],
)
def test_a_cluster_that_does_not_answer(refused: Try, keys: dict[str, str], said: str) -> None:
    assert re.search(said, refused(**keys))


def test_slurms_commands_that_are_not_installed(refused: Try, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "squeue is not installed on this machine: run heron where Slurm's commands are" in refused(**SLURM)


def test_a_partition_that_there_is_not(refused: Try) -> None:
    assert "ConfigError: Slurm refuses: invalid partition specified: stream" in refused(REFUSES, **SLURM)


@pytest.mark.parametrize("below", ["", "/deeper/still"])
def test_a_store_of_packages_that_is_a_file(refused: Try, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    said = refused(REFUSES, **SLURM, **{"heron.uploader.url": f"{tmp_path}/file{below}"})
    assert f"StateError: the package cannot be stored where heron.uploader.url says: {tmp_path}/file is not" in said


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"heron.uploader.url": "gopher://x/y"}, "ConfigError: no uploader has URLs of gopher://"),
        ({"heron.package.python": "conda"}, "heron.package.python must be image, venv:/path or ship, not 'conda'"),
        ({"heron.package.requirements": "/nowhere/r.txt"}, "/nowhere/r.txt cannot be read: No such file or directory"),
        ({"heron.class.state.manager": "zookeper"}, "did you mean 'zookeeper'"),
        (
            {"heron.class.state.manager": "zookeeper"},
            "heron.statemgr.connection.string must name the ZooKeeper servers",
        ),
        ({"heron.statemgr.root.path": "/dev/null"}, "the state root /dev/null is not a directory"),
        ({**EFFECTIVELY_ONCE, "heron.statefulstorage.url": "gopher://x"}, "no storage has URLs of gopher://"),
        ({"heron.scheduler.slurm.partitoin": "p"}, "did you mean 'heron.scheduler.slurm.partition'"),
        ({"topology.stmgrs": "many"}, "topology.stmgrs"),
    ],
)
def test_a_value_that_cannot_be_meant(refused: Try, keys: dict[str, str], said: str) -> None:
    assert said in refused(REFUSES, **{**SLURM, **keys})


@pytest.mark.parametrize(
    ("days", "said"), [(-3, "expired at .*: `heron tls words --renew` renews it"), (3, "set the clock of this machine")]
)
def test_a_certificate_that_is_not_valid_now_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, said: str
) -> None:
    real = datetime.datetime

    class Shifted(real):
        """The clock of the machine on which it is made."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real.now(tz) + datetime.timedelta(days=days - 1 if days < 0 else days)

    spec = StatemgrSpec(root=str(tmp_path / "state"))
    place = {"cluster": "local", "role": "me", "environ": "test"}
    launch = Launch(topology="words", topology_id="words-1", **place, statemgr=spec, dir=tmp_path / "words")
    launch.save()
    authority.create(launch.tls_dir, launch.topology_id, [0], days=1)
    with monkeypatch.context() as patched:
        patched.setattr(datetime, "datetime", Shifted)
        (launch.tls_dir / "cli.pem").unlink()
        authority.issue(launch.tls_dir, launch.topology_id, "cli", days=1)
    with open_statemgr(spec) as sm:
        location = state_pb2.TmasterLocation(topology="words", host="127.0.0.1", port=1)
        sm.set(Kind.TMASTERS, "words", location.SerializeToString())
    with pytest.raises(UnavailableError, match=said) as error:
        status(launch)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cluster", [SPARK, YARN], ids=["spark", "yarn"])
def test_a_state_root_that_no_submission_has_made_yet(refused: Try, tmp_path: Path, cluster: dict[str, str]) -> None:
    said = refused(**cluster, **{"heron.statemgr.root.path": str(tmp_path / "not" / "yet")})
    assert re.search("no Spark master answers|no ResourceManager of YARN", said)
    assert (tmp_path / "not" / "yet").is_dir()
