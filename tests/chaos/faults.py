"""What campaigns of faults do to a running topology: kills, stops for ever, lost sockets, links and ZooKeepers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heronpy import submit
from heronpy.errors import HeronError
from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.testing import LocalCluster, TopologyHandle
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

CONTAINERS = 3
SEED = int(os.environ.get("HERON_CHAOS_SEED", "1"))
PAIRED = 0.2
CUT_S = 2.0
START_S = 300.0
"""Until the topology runs at first: more than ten processes start at once, beside whatever else the machine does."""
PATIENCE = float(os.environ.get("HERON_CHAOS_PATIENCE", "1"))
"""On a machine that is busy with other things: how many times as long as otherwise whatever lives may be silent."""
WITHIN_S = 90.0 * PATIENCE
"""A fault that is not made good within this is a loss, or something is stuck."""
CONFIG = {
    "heron.metrics.export.interval.ms": 1000,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.executor.stable.ms": 500,
    "heron.executor.heartbeat.timeout.ms": int(6000 * PATIENCE),
    "heron.tmanager.stmgr.state.timeout.ms": int(4000 * PATIENCE),
}


@dataclass(frozen=True)
class Scene:
    """What faults are done to."""

    topology: TopologyHandle
    zookeeper: ZookeeperServer
    dice: random.Random
    seed: int
    ports: list[int] = field(default_factory=list)
    """Of the Stream Managers, when all was well: during a fault nobody may be there who could be asked."""

    def look(self) -> None:
        """Learn the ports."""
        self.ports[:] = [stmgr.location.port for stmgr in self.topology.status().stmgrs]

    def any_process(self, *prefixes: str) -> tuple[str, HostProcess] | None:
        """A process by chance, of those whose names begin so; the same one for the same dice."""
        chance = self.dice.random()
        running = self.topology.processes()
        names = sorted(name for name in running if name.startswith(prefixes or ("",)))
        if not names:
            return None
        name = names[int(chance * len(names))]
        process = HostProcess.of(running[name])
        return None if process is None else (name, process)


def kill(scene: Scene) -> str:
    found = scene.any_process()
    if found is not None:
        found[1].send(signal.SIGKILL)
    return f"kill -9 {found[0] if found else '(nothing runs)'}"


def stop_for_ever(scene: Scene) -> str:
    """SIGSTOP without SIGCONT: whoever supervises the process has to notice, and end it."""
    found = scene.any_process("container_", "stmgr", "tmaster", "metricsmgr")
    if found is not None:
        found[1].send(signal.SIGSTOP)
    return f"SIGSTOP {found[0] if found else '(nothing runs)'}"


def kill_scheduler(scene: Scene) -> str:
    id = scene.topology.launch.topology_id
    for process, _ in find_by_environment({TOPOLOGY_ENV: id, PROCESS_ENV: "scheduler"}):
        process.send(signal.SIGKILL)
    return "kill -9 the scheduler service"


def remove_sockets(scene: Scene) -> str:
    container = scene.dice.randrange(1, CONTAINERS + 1)
    shutil.rmtree(scene.topology.launch.socket_dir(container), ignore_errors=True)
    return f"remove the socket directory of container {container}"


def restart_zookeeper(scene: Scene) -> str:
    scene.zookeeper.kill()
    time.sleep(scene.dice.uniform(0, 3))  # the outage itself
    scene.zookeeper.start()
    return "kill -9 ZooKeeper, start it again"


def empty_zookeeper(scene: Scene) -> str:
    scene.zookeeper.kill()
    shutil.rmtree(scene.zookeeper.directory / "data")
    scene.zookeeper.start()
    return "kill -9 ZooKeeper, start it again without its data"


def cut_links(scene: Scene) -> str:
    """Reset every connection with the port of one Stream Manager for a while."""
    port = scene.dice.choice(scene.ports)
    until_s = time.monotonic() + CUT_S
    while time.monotonic() < until_s:
        command = ["ss", "--kill", "--tcp", "state", "established", f"( sport = :{port} or dport = :{port} )"]
        subprocess.run(command, check=True, capture_output=True)
        time.sleep(0.1)  # the cut lasts
    return f"cut the links of port {port} for {CUT_S:g} s"


def restart_container(scene: Scene) -> str:
    container = scene.dice.randint(0, 1)
    try:
        scene.topology.restart(container)
    except HeronError as e:
        return f"restart container {container}: {e}"
    return f"restart container {container}"


def pause(scene: Scene) -> str:
    """SIGSTOP, and SIGCONT before or after somebody has given the process up."""
    found = scene.any_process()
    for_s = scene.dice.uniform(0.5, 8)
    if found is not None:
        found[1].send(signal.SIGSTOP)
        time.sleep(for_s)  # the fault itself
        found[1].send(signal.SIGCONT)
    return f"SIGSTOP {found[0] if found else '(nothing runs)'} for {for_s:.1f} s"


def deactivate(scene: Scene) -> str:
    try:
        submit.deactivate(scene.topology.launch)
        said = "deactivated"
    except HeronError as e:
        said = f"deactivate: {e}"
    time.sleep(scene.dice.uniform(0, 2))  # the pause itself
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        try:
            submit.activate(scene.topology.launch)
            return f"{said}, activated"
        except HeronError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(0.5)


def rescaling(components: Sequence[str]) -> Callable[[Scene], str]:
    """The fault that gives one of the components another number of tasks, and the topology one of containers."""

    def rescale(scene: Scene) -> str:
        component, tasks = scene.dice.choice(components), scene.dice.randint(1, 4)
        containers = scene.dice.randint(1, 3)
        try:
            scene.topology.update(containers=containers, **{component: tasks})
        except HeronError as e:
            return f"update {component}:{tasks} on {containers} containers: {e}"
        return f"update {component}:{tasks} on {containers} containers: done"

    return rescale


FAULTS: Sequence[Callable[[Scene], str]] = (
    kill,
    kill,
    kill,
    stop_for_ever,
    stop_for_ever,
    kill_scheduler,
    remove_sockets,
    restart_zookeeper,
    empty_zookeeper,
    cut_links,
)
ZOOKEEPER_FAULTS = (restart_zookeeper, empty_zookeeper)
"""There is one of it, so it is one after the other."""


def skip_if_impossible() -> None:
    """Skip the test with the reason where a fault cannot be done."""
    if (why := zookeeper_missing()) is not None:
        pytest.skip(why)
    if shutil.which("ss") is None or os.geteuid() != 0:
        pytest.skip("no links can be cut: that takes root, and ss of Debian's package iproute2")


@contextmanager
def scene_of(topology: type[Any], directory: Path, config: Mapping[str, Any] | None = None) -> Iterator[Scene]:
    """The topology, running on a state manager of its own. In the end none of its processes is left."""
    print(f"\nHERON_CHAOS_SEED={SEED}", flush=True)
    with ZookeeperServer(directory / "zookeeper") as zookeeper:
        statemgr = {
            "heron.class.state.manager": "zookeeper",
            "heron.statemgr.connection.string": zookeeper.connection,
        }
        with LocalCluster({**CONFIG, **statemgr, **(config or {})}) as cluster:
            handle = cluster.submit(topology)
            try:
                yield Scene(handle.wait_running(START_S), zookeeper, random.Random(SEED), SEED)
            except BaseException:
                logs = Path(tempfile.mkdtemp(prefix="heron-chaos-logs-"))
                for folder in handle.launch.dir.glob("**/log-files"):
                    shutil.copytree(folder, logs / folder.parent.name)
                print(f"logs: {logs}", flush=True)
                raise
        left = [process.pid for process, _ in find_by_environment({TOPOLOGY_ENV: handle.launch.topology_id})]
        assert left == []


def chosen(scene: Scene) -> list[Callable[[Scene], str]]:
    """The next faults: one, or a pair."""
    count = 2 if scene.dice.random() < PAIRED else 1
    return [scene.dice.choice(FAULTS) for _ in range(count)]
