"""A cluster manager over test hosts, and the scheduler that speaks to it: as small as either can be.

The cluster runs containers on the hosts that have the fewest, starts again what ends and asks for it, and starts what
ran on a host elsewhere when it is told that the host is lost, as real ones do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
from heron_scheduler import ContainerPhase, ContainerStatus, Scheduler

from heronpy.errors import NotFoundError
from heronpy.host import python_module
from heronpy.plan import PackingPlan
from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Host

NAME = "hosts"
TRY_AGAIN = 75
BACKOFF_S = 0.5
STOP_S = 30.0
_LOOK_S = 0.1
_DISTRIBUTION = "[heron.schedulers]\nhosts = hosts_cluster:HostsScheduler\n"


@dataclass
class Running:
    """One start of a container."""

    host: Host
    process: subprocess.Popen[Any]


class HostsCluster:
    """Keeps containers of topologies running on hosts. All methods may be called by any thread."""

    current: ClassVar[HostsCluster]
    """The one that schedulers speak to."""

    def __init__(self, hosts: Sequence[Host], *, ipv6: bool = False) -> None:
        """Make a cluster of these hosts.

        Args:
            hosts: Where containers run.
            ipv6: What it says of the hosts' addresses is IPv6.
        """
        self.hosts = hosts
        self._ipv6 = ipv6
        self.wanted: dict[tuple[str, int], bytes] = {}
        """Bootstrap files of the containers that are to run, by topology id and number."""
        self.running: dict[tuple[str, int], Running] = {}
        self.abandoned: list[Running] = []
        """What ran on hosts that were declared lost, and may run still."""
        self.lost: set[str] = set()
        self._starts = 0
        self._not_before: dict[tuple[str, int], float] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._reconcile, name="cluster")

    @contextmanager
    def managing(self) -> Iterator[HostsCluster]:
        """Look after the containers for the duration of the block. All have ended after it."""
        HostsCluster.current = self
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            for one in (*self.running.values(), *self.abandoned):
                one.process.kill()
                one.process.wait()

    def want(self, topology: str, container: int, bootstrap: bytes) -> None:
        with self._lock:
            self.wanted.setdefault((topology, container), bootstrap)

    def unwant(self, topology: str, container: int) -> None:
        """End a container in order, by SIGTERM; killed if it takes too long."""
        with self._lock:
            self.wanted.pop((topology, container), None)
            one = self.running.pop((topology, container), None)
        if one is not None:
            one.process.terminate()
            try:
                one.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()

    def restart(self, topology: str, container: int) -> None:
        with self._lock:
            bootstrap = self.wanted.get((topology, container))
        if bootstrap is None:
            raise NotFoundError(f"no container {container}")
        self.unwant(topology, container)
        self.want(topology, container, bootstrap)

    def address_of(self, host: Host) -> str:
        """Where it says that a host is reached."""
        return host.address6 if self._ipv6 else host.address

    def declare_lost(self, host: Host) -> None:
        """Start elsewhere what runs on a host, which may be dead or only cut off."""
        with self._lock:
            self.lost.add(host.name)
            for key, one in list(self.running.items()):
                if one.host is host:
                    self.abandoned.append(self.running.pop(key))

    def declare_well(self, host: Host) -> None:
        """Let the host have containers again."""
        with self._lock:
            self.lost.discard(host.name)

    def kill_container(self, topology: str, container: int) -> Host | None:
        """kill -9 of the container's first process, and so of all."""
        with self._lock:
            one = self.running.get((topology, container))
        if one is None:
            return None
        if (pid := one.host.inner_pid(one.process.pid)) is not None:
            os.kill(pid, signal.SIGKILL)
        return one.host

    def host_of(self, topology: str, container: int) -> Host | None:
        with self._lock:
            one = self.running.get((topology, container))
        return None if one is None else one.host

    def process_of(self, topology: str, container: int) -> psutil.Process | None:
        """What stands for the container's first process on this machine; the container's processes are below it."""
        with self._lock:
            one = self.running.get((topology, container))
        return None if one is None else psutil.Process(one.process.pid)

    def _reconcile(self) -> None:
        while not self._stop.wait(_LOOK_S):
            with self._lock:
                for key, one in list(self.running.items()):
                    if (code := one.process.poll()) is not None:
                        del self.running[key]
                        print(f"container {key[1]} on {one.host.name} ended: {code}", flush=True)
                        self._not_before[key] = time.monotonic() + BACKOFF_S
                for key in self.wanted.keys() - self.running.keys():
                    if time.monotonic() >= self._not_before.get(key, 0):
                        self._start(*key)

    def _start(self, topology: str, container: int) -> None:
        usable = [host for host in self.hosts if host.lives and host.name not in self.lost]
        if not usable:
            return
        used = [one.host for one in self.running.values()]
        host = min(usable, key=lambda host: (used.count(host), host.number))
        self._starts += 1
        place = host.directory / f"container-{container}-{self._starts}"
        place.mkdir(mode=0o700)
        bootstrap = place / "bootstrap.json"
        bootstrap.touch(mode=0o600)
        bootstrap.write_bytes(self.wanted[topology, container])
        with (place / "output.log").open("wb") as output:
            process = host.popen(
                python_module("heronpy.container", str(bootstrap), "--dir", str(place / "work")),
                cwd=place,
                env={**os.environ, "HERON_ADVERTISE_ADDRESS": self.address_of(host)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running[topology, container] = Running(host, process)


class HostsScheduler(Scheduler):
    """The containers of one topology on `HostsCluster.current`."""

    def on_schedule(self, plan: PackingPlan) -> None:
        from heronpy.container import bootstrap_document

        for container in (0, *(c.id for c in plan.containers)):
            HostsCluster.current.want(self.launch.topology_id, container, bootstrap_document(self.launch, container))

    def on_kill(self) -> None:
        for container in self._numbers():
            HostsCluster.current.unwant(self.launch.topology_id, container)

    def on_restart(self, container: int | None) -> None:
        for number in self._numbers() if container is None else [container]:
            HostsCluster.current.restart(self.launch.topology_id, number)

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        self.on_schedule(new)
        for number in set(self._numbers()) - {0, *(c.id for c in new.containers)}:
            HostsCluster.current.unwant(self.launch.topology_id, number)

    def job_links(self) -> Sequence[str]:
        return ["hosts://cluster"]

    def containers(self) -> Sequence[ContainerStatus]:
        found = []
        for number in sorted(self._numbers()):
            host = HostsCluster.current.host_of(self.launch.topology_id, number)
            phase = ContainerPhase.PENDING if host is None else ContainerPhase.RUNNING
            found.append(ContainerStatus(container=number, phase=phase, host=host.name if host else ""))
        return found

    def _numbers(self) -> list[int]:
        return [number for topology, number in list(HostsCluster.current.wanted) if topology == self.launch.topology_id]


def install_scheduler(directory: Path) -> None:
    """Make `heron.class.scheduler: hosts` known in this process, as an installed distribution does."""
    info = directory / "hosts_cluster-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hosts-cluster\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_DISTRIBUTION)
    sys.path.insert(0, str(directory))


def wait_gone(cluster: HostsCluster) -> None:
    """Wait until what was abandoned has ended by itself."""

    def check() -> None:
        left = [one for one in cluster.abandoned if one.host.lives and one.process.poll() is None]
        assert not left, f"{len(left)} replaced containers still run"

    eventually_sync(check, within_s=120)
