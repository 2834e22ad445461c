"""Batch runs whose executors are pods: a real Kubernetes control plane, stand-ins for nodes and for Spark's image."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_job import BATCHES, PER_BATCH, Place, ended
from kubernetes_nodes import Nodes, pods_missing
from spark_pods import DRIVER_ROLE, SparkPods
from test_kubernetes import nodes  # noqa: F401  # a fixture

from heronpy.testing import eventually_sync
from heronpy.testing.servers import S3Server, s3_missing, spark_missing

MISSING = spark_missing() or s3_missing() or pods_missing()
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(1800)]

WITHIN_S = 600.0
SOON = {"spark__heron__startTimeout": "60"}
NO_PODS = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no image": ({"spark__kubernetes__container__image": ""}, "need an image with Spark: --conf spark.kubernetes.con"),
    "an image that is missing": (
        {"spark__kubernetes__container__image": "registry.test/no:1"},
        "2 of 2 executor pods are waiting: ErrImagePull: registry.test/no:1: not found",
    ),
    "an unknown namespace": ({"spark__kubernetes__namespace": "nowhere"}, 'namespaces "nowhere" not found'),
    "an unknown service account": (
        {"spark__kubernetes__authenticate__executor__serviceAccountName": "robot"},
        'serviceaccount "robot" not found',
    ),
    "a quota": ({}, "exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0"),
    "too much memory": ({"spark__executor__memory": "900g"}, "Unschedulable: 0/2 nodes are available: 2 Insufficient"),
    "a driver that executors do not find": (
        {"spark__driver__host": "driver.invalid", "spark__driver__bindAddress": "127.0.0.1"},
        "(spark.driver.host)",
    ),
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def pods(nodes: Nodes, namespace: str, s3: S3Server) -> Iterator[SparkPods]:  # noqa: F811
    root = Path(tempfile.mkdtemp(prefix="heron-spark-pods-", dir="/var/tmp"))
    try:
        yield SparkPods(nodes, namespace, root, s3)
        print(nodes.logs())  # shown with a test that failed
    finally:
        shutil.rmtree(root)


@pytest.fixture
def place(pods: SparkPods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    return Place(pods, tmp_path)


def running(process: subprocess.Popen[str], check: Any) -> None:
    """Wait for something that a run does."""

    def checked() -> None:
        if process.poll() is not None:
            pytest.fail(f"it ended: {process.communicate()}")
        check()

    eventually_sync(checked, within_s=WITHIN_S)


def test_counts_are_those_of_a_local_run_though_an_executor_is_killed(pods: SparkPods, place: Place) -> None:
    expected = place.fill()
    process = place.start(pods.python)

    def two() -> None:
        assert len([pod for pod in pods.executors() if pod.log()]) == 2

    running(process, two)
    one, other = pods.executors()
    hold, held = (one.directory / "tmp" / name for name in ("hold", "held"))
    try:
        hold.touch()

        def holds() -> None:
            assert held.exists()

        running(process, holds)
        one.kill()
    finally:
        hold.unlink()
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["elements"], report["duplicates"]) == (BATCHES * PER_BATCH, BATCHES * PER_BATCH // 10)
    for pod in (one, other):
        assert list(pod.directory.glob("work/heron-code-*/heronpy/pipeline/execute.py")), pod.name
    on_pods = place.counts()
    assert pods.left() == []
    code, out, err = place.recompute_here()
    assert (code, err) == (0, ""), out
    assert on_pods == place.counts() == expected


def test_a_driver_with_its_role_alone_sends_packages(
    pods: SparkPods, place: Place, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = place.fill()
    for words in DRIVER_ROLE:
        pods.cluster.kubectl(*(word.format(namespace=namespace) for word in words), "-n", namespace)
    token = pods.cluster.kubectl("create", "token", "driver", "-n", namespace).strip()
    monkeypatch.setenv("KUBECONFIG", str(pods.cluster.kubeconfig("driver", namespace, token=token)))
    code, out, err = place.run(pods.bare_python, "--ship-packages")
    assert (code, err) == (0, ""), out
    assert place.counts() == expected
    assert pods.left() == []


@pytest.mark.parametrize("case", REFUSED)
def test_what_keeps_executors_away_is_one_line(case: str, pods: SparkPods, place: Place) -> None:
    conf, words = REFUSED[case]
    if case == "a quota":
        pods.cluster.kubectl("apply", "-n", pods.namespace, "-f", "-", stdin=json.dumps(NO_PODS))
    place.fill()
    began_s = time.monotonic()
    code, out, err = place.run(pods.python, **SOON, **conf)
    print(f"{case}: {time.monotonic() - began_s:.0f} s: {err}")
    assert out == ""
    assert err.startswith("heron: ")
    assert err.count("\n") == 1, err
    assert words in err
    assert code == (2 if case == "no image" else 7)
    assert pods.left() == []


def test_a_kubeconfig_that_may_nothing_is_one_line(
    pods: SparkPods, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.fill()
    monkeypatch.setenv("KUBECONFIG", str(pods.cluster.kubeconfig("stranger", pods.namespace)))
    code, _, err = place.run(pods.python, **SOON)
    assert code == 7
    assert err.count("\n") == 1, err
    assert 'User "stranger" cannot create resource' in err


def test_interrupted_while_executors_start_it_leaves_none(pods: SparkPods, place: Place) -> None:
    place.fill()
    process = place.start(pods.python, spark__kubernetes__container__image="registry.test/no:1")

    def made() -> None:
        assert any(name.startswith("pods/") for name in pods.left())

    running(process, made)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err
    assert pods.left() == []
