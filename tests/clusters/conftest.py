"""A Kubernetes control plane and an HDFS, which tests share, and a ZooKeeper for each file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from heronpy.testing import eventually_sync
from heronpy.testing.hdfs import HdfsCluster, hdfs_missing
from heronpy.testing.kubernetes import ControlPlane, kubernetes_missing
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if (missing := kubernetes_missing()) is not None:
        pytest.skip(missing)
    with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    if (missing := zookeeper_missing()) is not None:
        pytest.skip(missing)
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """One for all, as a process loads libhdfs once; what processes need that are to reach it is in the environment."""
    if (missing := hdfs_missing()) is not None:
        pytest.skip(missing)
    with HdfsCluster(tmp_path_factory.mktemp("hdfs")) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.env.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture
def namespace(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A namespace of the test's own; the kubeconfig that this process uses is its administrator's."""
    name, api = f"test-{uuid.uuid4().hex[:8]}", control_plane.api()
    api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def ready() -> None:
        assert control_plane.admits_pods(name)

    eventually_sync(ready, within_s=120.0)
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("admin", name)))
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")
