"""The kit of schedulers on Kubernetes: a real control plane, with stand-ins for nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes_nodes import IMAGE, Nodes, pods_missing
from scheduler_kit import Cluster, SchedulerKit

from heronpy.runtime import Launch
from heronpy.statemgr import Kind
from heronpy.testing.kubernetes import ControlPlane
from heronpy.testing.servers import ServerProcess

pytestmark = pytest.mark.skipif(pods_missing() is not None, reason=pods_missing() or "")

TOMBSTONES = Kind.TOMBSTONES.value
KINDS = ("apps/v1 statefulsets", "pods", "services", "secrets", "configmaps", "coordination.k8s.io/v1 leases")


class Kubernetes(Cluster):
    name = "kubernetes"
    others = stat.S_IRWXO  # a kubelet has files readable by the group of their pod

    def __init__(self, root: Path, nodes: Nodes, namespace: str) -> None:
        super().__init__(root)
        self.nodes, self.namespace = nodes, namespace
        # Pods are of another user, and have their own /tmp.
        for path in (root, root / "standin", root / "standin/bin"):
            path.chmod(0o755)
        self.reports.chmod(0o777)

    @property
    def config(self) -> Mapping[str, Any]:
        return {
            "heron.executor.docker.image": IMAGE,
            "heron.kubernetes.scheduler.namespace": self.namespace,
            "heron.class.state.manager": "kubernetes",
            "heron.statemgr.connection.string": self.namespace,
            "heron.statemgr.root.path": "/heron",
            "heron.network.bind.address": "0.0.0.0",
        }

    @property
    def refused(self) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        key = "heron.kubernetes."
        return [
            ("an unknown namespace", {f"{key}scheduler.namespace": "nowhere"}, "no namespace 'nowhere'"),
            (
                "an image that is missing",
                {"heron.executor.docker.image": "registry.test/no:1"},
                "ErrImagePull.*; set heron.executor.docker",
            ),
            (
                "an unknown service account",
                {f"{key}scheduler.serviceAccount": "robot"},
                '"robot" not found.*; create it, or set .*serviceAccount',
            ),
            ("an unknown template", {f"{key}executor.pod.template": "pods.gpu"}, "ConfigMap pods .* does not exist"),
            (
                "a misspelt key",
                {f"{key}scheduler.namspace": "x"},
                "did you mean 'heron.kubernetes.scheduler.namespace'",
            ),
            ("an unknown context", {f"{key}scheduler.context": "elsewhere"}, "no context 'elsewhere'.*; see .*context"),
        ]

    @property
    def directory(self) -> Path:
        return self.nodes.directory

    def shown(self) -> str:
        kinds = [kind for kind in (*KINDS, "events") if kind != "secrets"]
        return json.dumps([self.nodes.cluster.objects(kind, self.namespace) for kind in kinds])

    def secrets(self, file: Path) -> dict[str, str]:
        command = ("create", "secret", "generic", "db", "-n", self.namespace, f"--from-file=password={file}")
        self.nodes.cluster.kubectl(*command)
        return {**super().secrets(file), "key": "kubernetes:db/password"}

    def left(self, launch: Launch) -> list[str]:
        label = "app.kubernetes.io/managed-by=heron"
        found = [one for kind in KINDS for one in self.nodes.cluster.objects(kind, self.namespace, label)]
        return [one["metadata"]["name"] for one in found if f"heron/has-{TOMBSTONES}" not in one["metadata"]["labels"]]

    def lose_host(self, host: str) -> None:
        self.nodes.vanish(host)

    def heal_host(self, host: str) -> None:
        self.nodes.join(host)

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        self.nodes.cluster.freeze("kube-apiserver")
        try:
            yield
        finally:
            self.nodes.cluster.thaw("kube-apiserver")
        self.nodes.cluster.wait_ready()

    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": os.environ["KUBECONFIG"]}


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if os.getuid() != 0:
        pytest.skip("the nodes' stand-in needs root, for namespaces")
    with Nodes(control_plane, tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@contextlib.contextmanager
def lost_pods_released(namespace: str, directory: Path) -> Iterator[None]:
    """Pods of lost nodes are removed, as the chart has it."""
    command = [sys.executable, "-m", "heron_scheduler.kubernetes.lost_pods", "--namespace", namespace]
    lost_pods = ServerProcess(command, directory / "lost-pods.log")
    try:
        yield
    finally:
        lost_pods.stop()


@pytest.fixture
def cluster(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Kubernetes]:
    root = Path(tempfile.mkdtemp(prefix="heron-kit-", dir="/var/tmp"))
    try:
        with lost_pods_released(namespace, tmp_path):
            yield Kubernetes(root, nodes, namespace)
            print(nodes.logs())  # shown with a test that failed
    finally:
        shutil.rmtree(root)


class TestKubernetes(SchedulerKit):
    """The kit."""
