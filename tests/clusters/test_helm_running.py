"""The chart's Tracker, in a pod of its own, and a topology that was submitted from another machine.

The chart is rendered by helm and applied to a real control plane; its Tracker, and the topology, run on stand-ins for
nodes (`kubernetes_nodes`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import heron_scheduler
import httpx
import pytest
from heron_scheduler import ContainerPhase
from kubernetes_nodes import IMAGE, Nodes, pods_missing
from test_helm_chart import HELM, rendered
from test_kubernetes import nodes  # noqa: F401  # a fixture
from test_kubernetes_running import Real

from heronpy.testing import eventually_sync
from heronpy.testing.kubernetes import ControlPlane

pytestmark = [
    pytest.mark.skipif(not HELM, reason="no helm: make helm-client, or put it on the PATH"),
    pytest.mark.skipif(pods_missing() is not None, reason=pods_missing() or ""),
    pytest.mark.timeout(1800),
]

WITHIN_S = 300.0
PLACE = {"cluster": "kubernetes", "environ": "default", "topology": "KitTopology"}


class Chart:
    """The chart's Tracker in one namespace. All nodes share this machine's network, and so its ports."""

    def __init__(self, control_plane: ControlPlane, nodes: Nodes, namespace: str) -> None:  # noqa: F811
        self.control_plane, self.nodes, self.namespace = control_plane, nodes, namespace
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=60, headers={"authorization": "Bearer swordfish"}
        )
        self.kubectl("create", "secret", "generic", "heron-token", "--from-literal=token=swordfish")

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> str:
        return self.control_plane.kubectl(*words, "-n", self.namespace, stdin=stdin, check=check)

    def install(self, *settings: str) -> None:
        """Apply it with other settings. Of a Deployment two pods would run at a time, on one port."""
        self.kubectl("delete", "deployment", "one-tracker", "--ignore-not-found")
        label = "heron/part=tracker"
        eventually_sync(lambda: none(self.control_plane.objects("pods", self.namespace, label)), within_s=WITHIN_S)
        given = ('tracker.tokenSecret="heron-token"', f'image="{IMAGE}"', "lostPods.enabled=false", *settings)
        text = rendered(*given, namespace=self.namespace)
        self.kubectl("apply", "-f", "-", stdin=text.replace("8888", str(self.port)))
        eventually_sync(self.answers, within_s=WITHIN_S)

    def answers(self) -> None:
        try:
            found = self.http.get("/topologies/all").json()
        except httpx.TransportError as e:
            raise AssertionError(f"{e}: {self.nodes.logs()}") from e
        assert [one["name"] for one in found] == ["KitTopology"], found

    def get(self, what: str, **params: Any) -> httpx.Response:
        return self.http.get(f"/topologies/{what}", params={**PLACE, **params})

    def health(self) -> dict[str, Any]:
        (found,) = self.get("health").json()
        return dict(found)

    def log(self) -> str:
        """What the Tracker's pod has printed."""
        return "".join(
            pod.log()
            for pods in self.nodes.pods.values()
            for pod in list(pods.values())
            if pod.name.startswith("one-tracker")
        )


def none(found: list[Any]) -> None:
    assert found == []


@pytest.fixture
def chart(control_plane: ControlPlane, nodes: Nodes, namespace: str) -> Iterator[Chart]:  # noqa: F811
    chart = Chart(control_plane, nodes, namespace)
    yield chart
    chart.http.close()
    print(nodes.logs())  # shown with a test that failed
    chart.kubectl("delete", "deployment", "one-tracker", "--ignore-not-found", check=False)


@pytest.fixture
def cluster(chart: Chart, nodes: Nodes, namespace: str) -> Iterator[Real]:  # noqa: F811
    root = Path(tempfile.mkdtemp(prefix="heron-helm-", dir="/var/tmp"))
    try:
        yield Real(root, nodes, namespace)
    finally:
        shutil.rmtree(root)


def test_the_charts_tracker_shows_health_metrics_and_a_log_if_it_may_and_says_so_if_not(
    chart: Chart, cluster: Real
) -> None:
    text = rendered('tracker.tokenSecret="heron-token"', "tracker.enabled=false", namespace=chart.namespace)
    chart.kubectl("apply", "-f", "-", stdin=text)  # the service accounts of topologies
    launch = cluster.submit("a")
    with contextlib.ExitStack() as stack:
        stack.callback(heron_scheduler.kill, launch)
        for path in (cluster.root / "packages", *(cluster.root / "packages").iterdir()):
            path.chmod(0o755)  # pods are of another user than who stored them

        def runs() -> None:
            phases = {one.container: one.phase for one in heron_scheduler.containers(launch)}
            assert phases == dict.fromkeys(range(3), ContainerPhase.RUNNING), chart.nodes.logs()

        eventually_sync(runs, within_s=WITHIN_S)

        chart.install()

        def not_adopted() -> None:
            text = json.dumps(chart.health()["reasons"])
            assert "this Tracker adopts no topologies of cluster 'kubernetes'" in text, text

        eventually_sync(not_adopted, within_s=WITHIN_S)
        assert chart.log().count("tracker.adopt.clusters") == 1
        may = ("auth", "can-i", "get", "secrets", f"--as=system:serviceaccount:{chart.namespace}:heron-tracker")
        assert chart.kubectl(*may, check=False).strip() == "no"

        chart.install("tracker.adopt=true")
        assert chart.kubectl(*may).strip() == "yes"
        began_s = time.monotonic()
        eventually_sync(lambda: healthy(chart), within_s=WITHIN_S)
        print(f"healthy {time.monotonic() - began_s:.1f} s after the Tracker had started")
        eventually_sync(lambda: counted(chart), within_s=WITHIN_S)
        listed = chart.get("container/filestats", container=1)
        assert listed.status_code == 200, listed.text
        part = chart.get("container/filedata", container=1, path="stmgr-1.log").json()
        assert "INFO" in part["data"]
        assert launch.token() not in chart.log()

        chart.kubectl("delete", "rolebinding", "heron-tracker-adopt")
        chart.kubectl("delete", "pods", "-l", "heron/part=tracker")

        def refused() -> None:
            try:
                text = json.dumps(chart.health()["reasons"])
            except httpx.TransportError as e:
                raise AssertionError(str(e)) from e
            assert "cluster kubernetes does not hand over its credentials: cannot read the secrets of" in text
            assert "cannot get resource" in text

        eventually_sync(refused, within_s=WITHIN_S)


def healthy(chart: Chart) -> None:
    health = chart.health()
    assert health["state"] == "healthy", health["reasons"]
    assert chart.get("runtimestate").json()["tmaster"] == "ok"


def counted(chart: Chart) -> None:
    answer = chart.get("metrics", component="numbers", metricname="__emit-count/default")
    assert answer.status_code == 200, answer.text
    assert sum(int(number) for number in answer.json()["metrics"]["__emit-count/default"].values()) > 0
