"""The Helm chart's containers: a Job that submits, the Tracker that shows what runs, and what releases lost pods."""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_nodes import IMAGE, Nodes, pods_missing
from test_helm_chart import HELM, rendered
from test_kubernetes import nodes  # noqa: F401  # a fixture

from heronpy.testing import eventually_sync
from heronpy.testing.kubernetes import ControlPlane

pytestmark = [
    pytest.mark.skipif(pods_missing() is not None, reason=pods_missing() or ""),
    pytest.mark.skipif(not HELM, reason="no helm: make helm-client, or put it on the PATH"),
    pytest.mark.timeout(1200),
]

TOKEN = "Swordfish-4321"
PODS_USER = 10001
WITHIN_S = 300.0


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that all pods have, as a volume would be: with the program, and for packages."""
    root = Path(tempfile.mkdtemp(prefix="heron-chart-", dir="/var/tmp"))
    root.chmod(0o755)
    shutil.copy(Path(__file__).with_name("kit_topology.py"), root)
    packages = root / "packages"
    packages.mkdir(mode=0o700)
    shutil.chown(packages, PODS_USER, PODS_USER)
    yield root
    shutil.rmtree(root)


def test_the_job_submits_and_the_tracker_shows_what_runs(
    control_plane: ControlPlane,
    nodes: Nodes,  # noqa: F811
    namespace: str,
    shared: Path,
) -> None:
    control_plane.kubectl("create", "secret", "generic", "token", "-n", namespace, f"--from-literal=token={TOKEN}")
    job(control_plane, nodes, namespace, shared, "submit", f"{shared}/kit_topology.py", "KitTopology")
    eventually_sync(lambda: runs(tracker_of(nodes)), within_s=WITHIN_S)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(tracker_of(nodes), "/topologies", token="wrong")
    (lost_pods,) = [pod for pod in all_pods(nodes) if "lost-pods" in pod.name]
    assert lost_pods.restarts == 0, nodes.logs()
    job(control_plane, nodes, namespace, shared, "kill", "KitTopology")  # in another pod, which has nothing of it
    assert control_plane.objects("apps/v1 statefulsets", namespace) == []
    assert not [path for path in (shared / "packages").rglob("*") if path.is_file()]


def job(
    control_plane: ControlPlane,
    nodes: Nodes,  # noqa: F811
    namespace: str,
    shared: Path,
    verb: str,
    *words: str,
) -> None:
    """Apply the chart with a Job for a command, and wait for its end."""
    control_plane.kubectl("delete", "job", "one-1", "-n", namespace, "--ignore-not-found")
    settings = (
        f'image="{IMAGE}"',
        'tracker.tokenSecret="token"',
        "job.enabled=true",
        f"job.args={json.dumps([verb, 'kubernetes/ada/default', *words])}",
        f'job.config={{"heron.uploader.url":"{shared}/packages","heron.package.python":"image"}}',
    )
    text = rendered(*settings, namespace=namespace)
    control_plane.kubectl("apply", "-n", namespace, "--validate=strict", "-f", "-", stdin=text)

    def ended() -> None:
        (found,) = control_plane.objects("batch/v1 jobs", namespace)
        assert (found.get("status") or {}).get("succeeded") == 1, (found.get("status"), nodes.logs())

    eventually_sync(ended, within_s=WITHIN_S)


def runs(tracker: str) -> None:
    """Fail unless the Tracker says that all of the topology runs."""
    told = get(tracker, "/topologies/health")
    assert [(one["name"], one["state"]) for one in told] == [("KitTopology", "healthy")], told


def all_pods(nodes: Nodes) -> list[Any]:  # noqa: F811
    return [pod for pods in nodes.pods.values() for pod in list(pods.values())]


def tracker_of(nodes: Nodes) -> str:  # noqa: F811
    """Where the Tracker's pod is reached."""
    found = [pod for pod in all_pods(nodes) if pod.name.startswith("one-tracker-")]
    assert found, nodes.logs()
    return f"http://{found[0].ip}:8888"


def get(tracker: str, path: str, token: str = TOKEN) -> Any:
    request = urllib.request.Request(f"{tracker}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as e:
        if e.code == 401:
            raise
        raise AssertionError(e.read()) from e
    except OSError as e:
        raise AssertionError(str(e)) from e
