"""A scheduler whose hosts are directories of this machine: each container is a process tree that shares nothing.

The tests do what a cluster does by itself: they start a container again, on another host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heron_scheduler import ContainerPhase, ContainerStatus, Scheduler

from heronpy.container import bootstrap_document
from heronpy.host import DIRECTORY_ENV, HostProcess, find_by_environment
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch

ROOT_KEY = "heron.scheduler.processes.directory"
HOST_ENV = "TEST_HOST"
END_S = 60.0


class Host:
    """A directory, with a container in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def container(self) -> int:
        return int(self.directory.name.partition("-")[0])

    def start(self, document: bytes) -> subprocess.Popen[bytes]:
        for name in ("tmp", "home", "work"):
            (self.directory / name).mkdir(parents=True, mode=0o700)
        bootstrap = self.directory / "bootstrap.json"
        bootstrap.touch(mode=0o600)
        bootstrap.write_bytes(document)
        environment = {
            **os.environ,
            HOST_ENV: str(self.directory),
            "TMPDIR": str(self.directory / "tmp"),
            "HOME": str(self.directory / "home"),
            "HERON_ADVERTISE_ADDRESS": "127.0.0.1",
        }
        command = [sys.executable, "-m", "heronpy.container", str(bootstrap), "--dir", str(self.directory / "work")]
        with (self.directory / "said").open("wb") as said:
            return subprocess.Popen(command, env=environment, cwd=self.directory, stdout=said, stderr=said)

    def said(self) -> str:
        return (self.directory / "said").read_text()

    def processes(self) -> list[HostProcess]:
        """All that run there, user code's included."""
        return [process for process, _ in find_by_environment({HOST_ENV: str(self.directory)})]

    def send(self, signum: int) -> None:
        for process in self.processes():
            process.send(signum)

    def lose(self) -> None:
        """The cluster gives the host up: it does not command it any more."""
        (self.directory / "bootstrap.json").unlink()

    def topology(self) -> Path:
        """The directory of its topology."""
        (found,) = (path.parent for path in self.directory.glob("work/*/*/launch.json"))
        return found

    def log(self, name: str = "executor.log") -> str:
        paths = self.directory.glob(f"work/*/*/container_*/log-files/{name}")
        return "".join(path.read_text() for path in paths)


class ProcessScheduler(Scheduler):
    config_keys = frozenset({ROOT_KEY})

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        super().check_config(values)

    @property
    def root(self) -> Path:
        return Path(self.launch.scheduler_config[ROOT_KEY])

    def on_schedule(self, plan: PackingPlan) -> None:
        present = {one.container for one in self.containers()}
        for container in sorted({0, *(c.id for c in plan.containers)} - present):
            start_on_a_new_host(self.launch, container, self.root)

    def on_kill(self) -> None:
        self._end(hosts(self.root))

    def on_restart(self, container: int | None) -> None:
        running = [host for host in hosts(self.root) if host.processes() and container in (None, host.container)]
        self._end(running)
        for host in running:
            start_on_a_new_host(self.launch, host.container, self.root)

    def _end(self, running: Sequence[Host]) -> None:
        """In order, so that nothing secret is left there; by force if that takes too long."""
        for host in running:
            executor(host, signal.SIGTERM)
        deadline_s = time.monotonic() + END_S
        while any(host.processes() for host in running):
            if time.monotonic() > deadline_s:
                for host in running:
                    host.send(signal.SIGKILL)
            time.sleep(0.1)

    def on_secrets(self) -> None:
        """Each start makes its bootstrap file anew."""

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        raise NotImplementedError

    def job_links(self) -> list[str]:
        return [self.root.as_uri()]

    def containers(self) -> list[ContainerStatus]:
        running = sorted({host.container for host in hosts(self.root) if host.processes()})
        return [ContainerStatus(container=n, phase=ContainerPhase.RUNNING, host="here") for n in running]


def hosts(root: Path) -> list[Host]:
    return [Host(path.parent) for path in sorted(root.glob("*/bootstrap.json"))]


def start_on_a_new_host(launch: Launch, container: int, root: Path) -> tuple[Host, subprocess.Popen[bytes]]:
    """What a cluster does with a container that it has lost: the same bootstrap file, on another host."""
    host = Host(root / f"{container}-{len(list(root.glob(f'{container}-*')))}")
    return host, host.start(bootstrap_document(launch, container))


def executor(host: Host, signum: int) -> None:
    """Signal the first process of a container, as a cluster does."""
    for process, environment in find_by_environment({HOST_ENV: str(host.directory)}):
        if DIRECTORY_ENV not in environment or environment.get("HERON_PROCESS") == "executor":
            process.send(signum)
