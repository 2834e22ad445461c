"""A word count on three hosts with a ZooKeeper on each, and what campaigns of faults do to it."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts_cluster import NAME, HostsCluster, install_scheduler, wait_gone
from word_topology import Words, word_count

from heronpy import loader, submit
from heronpy.api import TopologyBuilder
from heronpy.errors import HeronError
from heronpy.examples.demo import make_input
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Host, Hosts
from heronpy.testing.servers import ZookeeperServer, zookeeper_ensemble

CONTAINERS = 3
INPUT_BYTES = 200_000
START_S = 300.0
WITHIN_S = 150.0
"""A fault that is not made good within this is a loss, or something is stuck."""
QUICK = {
    "heron.metrics.export.interval.ms": 1000,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.executor.stable.ms": 500,
    "heron.tmanager.stmgr.state.timeout.ms": 4000,
}
"""Losses are noticed, and made good, sooner than by default."""


@dataclass
class Scene:
    """What faults are done to."""

    launch: Launch
    hosts: Hosts
    cluster: HostsCluster
    zookeepers: list[ZookeeperServer]
    dice: random.Random
    repairs: list[Callable[[], None]] = field(default_factory=list)
    """What the faults need to be over for good."""

    def status(self) -> tmaster_pb2.StatusReply:
        return submit.status(self.launch)

    def wait_running(self, within_s: float = WITHIN_S) -> None:
        """Wait until every Stream Manager is registered from where its container runs, and every instance attached."""

        def check() -> None:
            try:
                status = self.status()
            except HeronError as e:
                raise AssertionError(str(e)) from None
            missing = [s.location.id for s in status.stmgrs if not s.registered]
            missing += [i.id for i in status.instances if not i.attached]
            assert not missing, f"{', '.join(missing)} are missing"
            assert status.ready
            for stmgr in status.stmgrs:
                host = self.cluster.host_of(self.launch.topology_id, stmgr.location.container)
                assert host is not None
                assert stmgr.location.host == self.cluster.address_of(host), (
                    f"{stmgr.location.id} is taken to be elsewhere"
                )

        eventually_sync(check, within_s=within_s)

    def any_host(self) -> Host:
        return self.dice.choice(list(self.hosts))

    def zookeeper_on(self, host: Host) -> ZookeeperServer:
        return next(server for server in self.zookeepers if server.bind == host.address)

    def repair(self) -> None:
        """All hosts, links and servers are well again."""
        while self.repairs:
            self.repairs.pop()()
        for server in self.zookeepers:
            server.wait_serving()


@dataclass(kw_only=True)
class WordScene(Scene):
    """With the word count."""

    words: Words


Fault = Callable[[Scene], tuple[str, float]]
"""Does its worst, and ends it unless it lasts; returns what it was, and since when recovery is due (monotonic)."""


def vanish(scene: Scene) -> tuple[str, float]:
    """The host is gone with all on it; the cluster is told a second later, and starts its containers elsewhere."""
    host = scene.any_host()
    since_s = time.monotonic()
    host.vanish()
    time.sleep(1.0)  # a real cluster takes longer to find out
    scene.cluster.declare_lost(host)

    def back() -> None:
        host.come_back()
        scene.zookeeper_on(host).start(wait=False)
        scene.cluster.declare_well(host)

    scene.repairs.append(back)
    return f"{host.name} vanishes", since_s


def replace_cut_off(scene: Scene) -> tuple[str, float]:
    """A host is cut off, taken for dead and replaced; then its link heals: what still runs there has to end."""
    host = scene.any_host()
    since_s = time.monotonic()
    host.cut()
    time.sleep(1.0)
    scene.cluster.declare_lost(host)
    time.sleep(scene.dice.uniform(5, 20))  # the old containers go on meanwhile
    host.heal()

    def well() -> None:
        wait_gone(scene.cluster)
        scene.cluster.declare_well(host)

    scene.repairs.append(well)
    return f"{host.name} is cut off and replaced, then its link heals", since_s


def cut(scene: Scene) -> tuple[str, float]:
    return _for_a_while(scene, "is cut off", Host.cut)


def one_way(scene: Scene) -> tuple[str, float]:
    if scene.dice.random() < 0.5:
        return _for_a_while(scene, "sends nothing", Host.mute)
    return _for_a_while(scene, "receives nothing", Host.deafen)


def lossy(scene: Scene) -> tuple[str, float]:
    percent = scene.dice.choice([5, 15, 30])
    return _for_a_while(scene, f"loses {percent} %", lambda host: host.lose(percent))


def slow(scene: Scene) -> tuple[str, float]:
    bytes_per_s = scene.dice.choice([50_000, 200_000])
    return _for_a_while(scene, f"has a link of {bytes_per_s // 1000} kB/s", lambda host: host.throttle(bytes_per_s))


def delayed(scene: Scene) -> tuple[str, float]:
    delay_s = scene.dice.choice([0.05, 0.2])
    return _for_a_while(scene, f"is {delay_s * 1000:g} ms away", lambda host: host.delay(delay_s))


def kill_zookeeper_leader(scene: Scene) -> tuple[str, float]:
    leader = next((server for server in scene.zookeepers if server.mode() == "leader"), scene.zookeepers[0])
    since_s = time.monotonic()
    leader.kill()
    scene.repairs.append(lambda: leader.start(wait=False))
    return "kill -9 the leader of ZooKeeper", since_s


def kill_container(scene: Scene) -> tuple[str, float]:
    container = scene.dice.randrange(CONTAINERS + 1)
    since_s = time.monotonic()
    host = scene.cluster.kill_container(scene.launch.topology_id, container)
    return f"kill -9 container {container} on {host.name if host else 'no host'}", since_s


FAULTS: Sequence[Fault] = (
    vanish,
    replace_cut_off,
    cut,
    one_way,
    lossy,
    slow,
    delayed,
    kill_zookeeper_leader,
    kill_container,
)


def _for_a_while(scene: Scene, what: str, fault: Callable[[Host], None]) -> tuple[str, float]:
    host, seconds = scene.any_host(), scene.dice.choice([2.0, 6.0, 15.0])
    fault(host)
    time.sleep(seconds)  # the fault itself
    host.heal()
    return f"{host.name} {what} for {seconds:g} s", time.monotonic()


@contextmanager
def scene_on(
    hosts: Hosts,
    directory: Path,
    *,
    seed: int = 1,
    workers: int = 3,
    ipv6: bool = False,
    config: Mapping[str, Any] = QUICK,
) -> Iterator[WordScene]:
    """The word count, running on the first so many hosts. In the end nothing of it is left."""
    records = hosts.shared / "words"
    records.mkdir()
    make_input(directory / "input.txt", INPUT_BYTES)
    words = Words(records, (directory / "input.txt").read_bytes())
    topology = word_count("words", records, par=2, containers=CONTAINERS)
    with running(topology, hosts, directory, workers=workers, ipv6=ipv6, config=config) as (
        launch,
        cluster,
        zookeepers,
    ):
        scene = WordScene(launch, hosts, cluster, zookeepers, random.Random(seed), words=words)
        scene.wait_running(START_S)
        yield scene


@contextmanager
def running(
    topology: TopologyBuilder,
    hosts: Hosts,
    directory: Path,
    *,
    workers: int,
    ipv6: bool = False,
    config: Mapping[str, Any] = QUICK,
) -> Iterator[tuple[Launch, HostsCluster, list[ZookeeperServer]]]:
    """A topology that was submitted to the first so many hosts, with a ZooKeeper on the first three."""
    usable = list(hosts)[:workers]
    with ExitStack() as stack:
        zookeepers = stack.enter_context(zookeeper_ensemble(directory, places=usable[:3]))
        cluster = stack.enter_context(HostsCluster(usable, ipv6=ipv6).managing())
        installed = directory / "installed"
        installed.mkdir()
        install_scheduler(installed)
        stack.callback(sys.path.remove, str(installed))
        servers = ",".join(server.connection for server in zookeepers)
        properties: dict[str, Any] = {
            "heron.uploader.url": str(hosts.shared / "packages"),
            **config,
            "heron.class.scheduler": NAME,
            "heron.class.state.manager": "zookeeper",
            "heron.statemgr.connection.string": servers,
            "heron.network.bind.address": "::" if ipv6 else "0.0.0.0",
        }
        stack.push(lambda kind, *_: keep_logs(hosts) if kind else None)
        launch = submit.submit(loader.Definition.of(topology), home=directory / "home", properties=properties)
        stack.callback(submit.kill, launch)
        yield launch, cluster, zookeepers
    assert not cluster.running


def keep_logs(hosts: Hosts) -> None:
    """Where a failed run can be looked into."""
    logs = Path(tempfile.mkdtemp(prefix="heron-hosts-logs-"))
    for host in hosts:
        for path in (*host.directory.rglob("*.log"), *host.directory.rglob("*.out")):
            target = logs / host.name / path.relative_to(host.directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    print(f"logs: {logs}", flush=True)
