"""`heron.package.python: ship` on real schedulers: their hosts have a Python of the same version, without heronpy."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import heron_scheduler
import pytest
from running_kit import Running, with_real_containers
from scheduler_kit import Cluster
from test_slurm import Slurm
from test_yarn import Yarn

from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.submit import find
from heronpy.testing.servers import ZookeeperServer
from heronpy.testing.slurm import SlurmCluster, slurm_missing
from heronpy.testing.yarn import YarnCluster, yarn_missing

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import keyed_count_topology

pytestmark = pytest.mark.timeout(3600)
KEY = "heron.scheduler."
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
    waiting, seen = ["heron-engine"], set()
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


@pytest.mark.parametrize("name", ["slurm", "yarn"])
def test_a_topology_is_exact_on_hosts_without_heronpy(
    name: str, submitter: Path, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(name)
    cluster.more = {**cluster.more, "heron.package.python": "ship"}
    shared = cluster.root / "shared"
    shared.mkdir()
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
        made = {path.resolve() for path in (cluster.root / "cache").glob("*/*")}
        assert {path.name for path in made} == {launch.packages["python"]["sha256"]}
        for process, _ in find_by_environment({TOPOLOGY_ENV: launch.topology_id}):
            python = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            assert Path(python).parents[1] in made, python
        running.recovers_from("executor of container 1 killed", killed(running, 1))
        running.check_exact()
        running.heron("kill")
        running.nothing_left()
    finally:
        heron_scheduler.kill(launch)


def killed(running: Running, container: int) -> Callable[[], object]:
    return lambda: running.executor(container).send(signal.SIGKILL)
