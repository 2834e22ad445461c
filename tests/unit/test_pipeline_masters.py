"""Masters of Spark: what is refused before anything starts."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from heronpy.errors import ConfigError, HeronError, UnavailableError, UsageError
from heronpy.filesystem import location
from heronpy.pipeline.masters import (
    SHARED_DISK_KEY,
    SHIP_PACKAGES_KEY,
    START_TIMEOUT_KEY,
    check_master,
    check_request,
    check_shared,
    cluster_defaults,
    is_local,
    python_of_executors,
    start_timeout_s,
)
from heronpy.pipeline.memory import LIMIT_KEY
from heronpy.testing.servers import free_port

OWN = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://127.0.0.1.example.org:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("yarn", False),
        ("k8s://https://127.0.0.1:6443", False),
    ],
)
def test_executors_of_a_master_are_here_or_elsewhere(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("spark:/host:7077", "is not a master of Spark: use local"),
        ("http://host:8080", "is not a master of Spark"),
        ("sc://host:15002", "is not a master of Spark"),
        ("", "is not a master of Spark"),
        ("localhost", "is not a master of Spark"),
        ("local[0]", "is not a master of Spark"),
        ("local[2", "is not a master of Spark"),
        ("local[two]", "is not a master of Spark"),
        ("spark://host", "names no host and port"),
        ("spark://host:port", "names no host and port"),
        ("spark://:7077", "names no host and port"),
        ("k8s://", "names no host and port"),
    ],
)
def test_what_is_not_a_master_is_refused(master: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_master(master)
    with pytest.raises(UsageError, match=words):  # whatever else is wrong with it, as executors that are elsewhere
        check_request(master, {}, {"the directory of Words": Path("/nowhere")})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (LIMIT_KEY, "abc", "spark.python.worker.memory must be a size, as 512m or 1g, not 'abc'"),
        (LIMIT_KEY, "0", "must be a size"),
        ("spark.master", "local", "name the master with --master"),
        (SHARED_DISK_KEY, "yes", "must be true or false, not 'yes'"),
        (SHIP_PACKAGES_KEY, "yes", "must be true or false, not 'yes'"),
        (START_TIMEOUT_KEY, "soon", "must be a number of seconds"),
    ],
)
def test_settings_are_refused_before_anything_starts(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_request("local[1]", {key: value}, {})


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for master in (f"spark://{nobody}", f"k8s://https://{nobody}"):
        with pytest.raises(UnavailableError, match=f"no master of Spark answers at {master}: Connection refused"):
            check_master(master)


def test_of_several_masters_one_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}")
        for local in ("local", "local[*]", "local[2]", "local[*,3]", "local[2, 3]", "local-cluster[1,1,1024]"):
            check_master(local)


def test_yarn_is_found_by_hadoops_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UnavailableError, match="set HADOOP_CONF_DIR"):
        check_master("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"there is none in .*"):
        check_master("yarn")
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    check_master("yarn")


def test_directories_of_this_machine_are_refused_unless_they_are_shared(tmp_path: Path) -> None:
    places = {"the archive events": location("it", "s3://bucket/a?region=r"), "the directory of Words": tmp_path}
    with pytest.raises(UsageError, match=f"the directory of Words is in {tmp_path}, .* of yarn .*--shared-disk"):
        check_shared("yarn", {}, places)
    check_shared("yarn", {SHARED_DISK_KEY: "true"}, places)
    check_shared("local[2]", {}, places)
    del places["the directory of Words"]
    check_shared("spark://10.0.0.1:7077", {}, places)


def test_executors_run_this_python_or_one_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert python_of_executors("local[2]", {}) == sys.executable
    assert python_of_executors("yarn", {}) == OWN
    assert python_of_executors("yarn", {SHARED_DISK_KEY: "true"}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert python_of_executors("yarn", {}) == "/opt/python"
    assert python_of_executors("yarn", {"spark.pyspark.python": "/opt/other"}) == "/opt/other"
    assert python_of_executors("local[2]", {}) == sys.executable


def test_executors_that_are_pods_go_to_the_drivers_host_and_are_waited_for_within_the_timeout() -> None:
    where, wait = "spark.kubernetes.executor.useDriverPodIP", "spark.scheduler.maxRegisteredResourcesWaitingTime"
    assert cluster_defaults("k8s://https://10.0.0.1:6443", {}) == {where: "false", wait: "30000ms"}
    assert cluster_defaults("k8s://https://10.0.0.1:6443", {START_TIMEOUT_KEY: "10"})[wait] == "2500ms"
    assert cluster_defaults("spark://10.0.0.1:7077", {}) == {}


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_timeout_is_a_number_of_seconds(text: str) -> None:
    assert start_timeout_s({START_TIMEOUT_KEY: "2.5"}) == 2.5
    with pytest.raises(ConfigError, match=START_TIMEOUT_KEY):
        start_timeout_s({START_TIMEOUT_KEY: text})


def test_a_flag_is_true_or_false() -> None:
    with pytest.raises(HeronError, match="must be true or false, not 'yes'"):
        check_shared("yarn", {SHARED_DISK_KEY: "yes"}, {})
