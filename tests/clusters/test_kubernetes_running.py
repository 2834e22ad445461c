"""Real topologies on Kubernetes: real containers, and commands from two machines."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import heron_scheduler
import pytest
import yaml
from heron_scheduler import ContainerPhase
from kubernetes_nodes import Nodes, pods_missing
from running_kit import RunningKit, stores
from test_kubernetes import Kubernetes, lost_pods_released, nodes  # noqa: F401  # a fixture

from heronpy.testing import eventually_sync
from heronpy.testing.kubernetes import ControlPlane

pytestmark = pytest.mark.skipif(pods_missing() is not None, reason=pods_missing() or "")

RBAC = Path(__file__).parents[2] / "deploy/kubernetes/rbac.yaml"
WITHIN_S = 300.0
NAME = "KitTopology"
WHERE = "kubernetes/me/default"


class Real(Kubernetes):
    """With real containers, whose packages come over a directory that all nodes share."""

    @property
    def config(self) -> Mapping[str, Any]:
        packages = self.root / "packages"
        return {
            **super().config,
            "heron.package.python": "image",
            "heron.uploader.url": str(packages),
            "heron.kubernetes.scheduler.serviceAccount": "heron-topology",
        }


AS_ROOT = {"spec": {"securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}}
"""Pods of the user of these tests: of a shared directory, what one user stores is that user's alone."""


class TestKubernetesRunning(RunningKit):
    """The kit, with state in Kubernetes."""

    @pytest.fixture
    def cluster(
        self,
        nodes: Nodes,  # noqa: F811
        control_plane: ControlPlane,
        namespace: str,
        tmp_path: Path,
    ) -> Iterator[Kubernetes]:
        control_plane.kubectl("apply", "-n", namespace, "-f", str(RBAC))
        template = yaml.safe_dump(AS_ROOT)
        control_plane.kubectl("create", "configmap", "pods", "-n", namespace, f"--from-literal=root={template}")
        root = Path(tempfile.mkdtemp(prefix="heron-kit-", dir="/var/tmp"))
        cluster = Kubernetes(root, nodes, namespace)
        cluster.more = {
            **stores(cluster),
            "heron.package.python": "image",
            "heron.kubernetes.scheduler.serviceAccount": "heron-topology",
            **{f"heron.kubernetes.{role}.pod.template": "pods.root" for role in ("executor", "manager")},
        }
        try:
            with lost_pods_released(namespace, tmp_path):
                yield cluster
                print(nodes.logs())  # shown with a test that failed
        finally:
            shutil.rmtree(root)


@pytest.fixture
def cluster(nodes: Nodes, control_plane: ControlPlane, namespace: str) -> Iterator[Real]:  # noqa: F811
    control_plane.kubectl("apply", "-n", namespace, "-f", str(RBAC))
    root = Path(tempfile.mkdtemp(prefix="heron-kit-", dir="/var/tmp"))
    try:
        yield Real(root, nodes, namespace)
        print(nodes.logs())  # shown with a test that failed
    finally:
        shutil.rmtree(root)


def test_a_topology_runs_survives_and_is_commanded_from_another_machine(cluster: Real, nodes: Nodes) -> None:  # noqa: F811
    began_s = time.monotonic()
    launch = cluster.submit("a")
    print(f"submitted in {time.monotonic() - began_s:.1f} s")
    # A directory keeps packages for the user who stored them; pods are of another one, as on a share that maps users.
    for path in (cluster.root / "packages", *(cluster.root / "packages").iterdir()):
        path.chmod(0o755)

    def healthy(containers: int) -> None:
        told = {c.container: c.phase for c in heron_scheduler.containers(launch)}
        assert told == dict.fromkeys(range(containers), ContainerPhase.RUNNING), nodes.logs()
        done = cluster.heron("b", "status", WHERE, NAME)
        assert "not ready" not in done.stdout, done.stdout
        assert done.returncode == 0, done.stderr + done.stdout + nodes.logs()

    def runs(containers: int = 3) -> float:
        start_s = time.monotonic()
        eventually_sync(lambda: healthy(containers), within_s=WITHIN_S)
        return time.monotonic() - start_s

    try:
        print(f"running after {runs():.1f} s")
        told = {c.container: c for c in heron_scheduler.containers(launch)}
        print(cluster.heron("b", "status", WHERE, NAME).stdout)
        done = cluster.heron("b", "logs", WHERE, NAME, "stmgr-1")
        assert done.returncode == 0, done.stderr
        pod = nodes.pod(told[1].job)
        assert pod is not None
        assert pod.process is not None
        os.killpg(pod.process.pid, signal.SIGKILL)
        eventually_sync(lambda: restarted(pod), within_s=WITHIN_S)
        print(f"running again {runs():.1f} s after a kill -9 of a container")
        done = cluster.heron("b", "update", WHERE, NAME, "--component-parallelism", "counts:3")
        assert done.returncode == 0, done.stderr
        print(f"updated; running after {runs(4):.1f} s")
    finally:
        began_s = time.monotonic()
        done = cluster.heron("b", "kill", WHERE, NAME)
    assert done.returncode == 0, done.stderr
    print(f"killed in {time.monotonic() - began_s:.1f} s")
    assert cluster.left(launch) == []


def restarted(pod: Any) -> None:
    assert pod.restarts == 1
