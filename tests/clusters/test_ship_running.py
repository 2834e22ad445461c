"""`heron.package.python: ship` on real schedulers: their hosts have a Python of the same version, without heronpy."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import heron_scheduler
import pytest
from kubernetes_nodes import PYTHON_IMAGE, Nodes, pods_missing
from running_kit import Running, stores, with_real_containers
from scheduler_kit import Cluster
from test_kubernetes import Kubernetes, nodes  # noqa: F401  # a fixture
from test_slurm import Slurm
from test_yarn import Yarn

from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.submit import find
from heronpy.testing.kubernetes import ControlPlane
from heronpy.testing.servers import S3Server, ZookeeperServer, s3_missing
from heronpy.testing.slurm import SlurmCluster, slurm_missing
from heronpy.testing.yarn import YarnCluster, yarn_missing

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import keyed_count_topology

pytestmark = pytest.mark.timeout(3600)
KEY = "heron.scheduler."
RBAC = Path(__file__).parents[2] / "deploy/kubernetes/rbac.yaml"
PYTHON = f"{sys.base_prefix}/bin"
"""Of the hosts: it has none of what the engine needs."""
PROGRAM = """
from pathlib import Path
from keyed_count_topology import keyed_count_topology

Counted = keyed_count_topology(Path({shared!r}), rate=300)
"""


@pytest.fixture
def submitter(tmp_path: Path) -> Path:
    """The Python of an environment that has what the engine requires, and nothing else: it is shipped in seconds."""
    place = tmp_path / "submitter"
    subprocess.run([f"{PYTHON}/python3", "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    waiting, seen = ["heron-engine", "boto3"], set()
    while waiting:
        one = importlib.metadata.distribution(waiting.pop())
        seen.add(one.name)
        for path in () if one.name == "heron-engine" else one.files or ():
            there, here = Path(str(one.locate_file(path))), site / path
            if ".." not in path.parts and there.is_file():
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(there, here)
        for text in one.requires or ():
            name = re.split(r"[^A-Za-z0-9._-]", text)[0]
            if "extra ==" not in text and name not in seen and installed(name):
                waiting.append(name)
    return place / "bin/python"


def installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:  # of other platforms
        return False
    return True


@pytest.fixture
def slurm(zookeeper: ZookeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    if why := slurm_missing():
        pytest.skip(why)
    with SlurmCluster() as servers:
        for name, value in servers.env.items():
            monkeypatch.setenv(name, value)
        cluster = with_real_containers(Slurm(tmp_path, servers), zookeeper)
        cache = f"{tmp_path}/cache/$SLURMD_NODENAME"
        setup = f"unset PYTHONPATH VIRTUAL_ENV\nexport PATH={PYTHON}:$PATH HERON_PYTHON_CACHE={cache}"
        cluster.more = {**cluster.more, f"{KEY}slurm.setup": setup}
        yield cluster


@pytest.fixture
def yarn(zookeeper: ZookeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    if why := yarn_missing():
        pytest.skip(why)
    monkeypatch.setenv("PATH", f"{PYTHON}:{os.environ['PATH']}")
    with YarnCluster(memory_mb=16384, env={"HERON_PYTHON_CACHE": f"{tmp_path}/cache/all"}) as servers:
        cluster = with_real_containers(Yarn(tmp_path, servers), zookeeper)
        cluster.more = {**cluster.more, f"{KEY}yarn.python": ""}
        yield cluster


@pytest.fixture
def kubernetes(
    nodes: Nodes,  # noqa: F811
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Cluster]:
    """Pods of an image that has a Python alone, and share no directory with anybody: packages and state are in S3."""
    if why := pods_missing() or s3_missing():
        pytest.skip(why)
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    control_plane.kubectl("apply", "-n", namespace, "-f", str(RBAC))
    keys = [f"--from-literal={name}={value}" for name, value in S3Server.credentials.items()]
    control_plane.kubectl("create", "secret", "generic", "s3", "-n", namespace, *keys)
    root = Path(tempfile.mkdtemp(prefix="heron-kit-", dir="/var/tmp"))
    try:
        with S3Server(tmp_path / "s3") as server:
            cluster = Kubernetes(root, nodes, namespace)
            cluster.more = {
                **stores(cluster),
                "heron.uploader.url": server.url("packages"),
                "heron.statefulstorage.url": server.url("checkpoints"),
                "heron.executor.docker.image": PYTHON_IMAGE,
                "heron.kubernetes.scheduler.serviceAccount": "heron-topology",
                **{f"heron.kubernetes.pod.secretKeyRef.{name}": f"s3:{name}" for name in S3Server.credentials},
            }
            yield cluster
            print(nodes.logs())  # shown with a test that failed
            stored = (tmp_path / "s3/buckets" / name for name in ("packages", "checkpoints"))
            assert [path for bucket in stored for path in bucket.rglob("*") if path.is_file()] == []
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("name", ["slurm", "yarn", "kubernetes"])
def test_a_topology_is_exact_on_hosts_without_heronpy(
    name: str, submitter: Path, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(name)
    cluster.more = {**cluster.more, "heron.package.python": "ship"}
    shared = cluster.root / "shared"
    shared.mkdir()
    shared.chmod(0o777)  # pods are of another user
    began_s = time.monotonic()
    program = cluster.root / "program"
    program.mkdir()
    shutil.copy(keyed_count_topology.__file__, program)
    (program / "main.py").write_text(PROGRAM.format(shared=str(shared)))
    done = cluster.heron("a", "submit", f"{name}/me/default", str(program / "main.py"), "Counted", python=submitter)
    assert done.returncode == 0, done.stderr
    launch = find(cluster.machine("a"), name, "me", "default", "keyed-count", config_path=cluster.conf)
    running = Running(cluster, launch, shared)
    try:
        running.wait_ready()
        running.wait_for_progress()
        print(f"\n{name}: counts {time.monotonic() - began_s:.1f} s after the beginning of the submission")
        for pid in pids(running):
            python = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            assert Path(python).parents[1].name == launch.packages["python"]["sha256"], python
        running.recovers_from("executor of container 1 killed", killed(running, 1))
        running.check_exact()
        running.heron("kill")
        running.nothing_left()
    finally:
        heron_scheduler.kill(launch)


def pods(running: Running) -> dict[int, subprocess.Popen[bytes]]:
    """The executors of containers whose processes are another user's."""
    assert isinstance(running.cluster, Kubernetes)
    told = heron_scheduler.containers(running.launch)
    found = {one.container: running.cluster.nodes.pod(one.job) for one in told}
    return {n: pod.process for n, pod in found.items() if pod is not None and pod.process is not None}


def pids(running: Running) -> list[int]:
    if isinstance(running.cluster, Kubernetes):
        return [process.pid for process in pods(running).values()]
    return [process.pid for process, _ in find_by_environment({TOPOLOGY_ENV: running.launch.topology_id})]


def killed(running: Running, container: int) -> Callable[[], object]:
    if isinstance(running.cluster, Kubernetes):
        return lambda: os.killpg(pods(running)[container].pid, signal.SIGKILL)
    return lambda: running.executor(container).send(signal.SIGKILL)
