"""A real Spark standalone cluster on one machine: a master, and a worker for each host.

    with SparkCluster() as spark:
        SparkConf().setMaster(spark.master)

Hosts have addresses of their own (127.0.0.2, …) and a directory each (`host_dir`); nothing is shared between them but
this machine. `spark_missing()` says why there is none on this machine, for a skip that tells its reason.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from heronpy.host import find_by_environment
from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_process import ServerProcess, free_port

HOST_ENV = "HERON_TEST_SPARK_HOST"
"""Which host a process belongs to."""
_START_S = 300.0
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""By which a JVM takes less CPU to start."""


def spark_missing() -> str | None:
    """Why no Spark can be started here, or None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "no Spark: pyspark is not installed"
    return None if shutil.which("java") else "no Spark: there is no java"


class SparkCluster:
    """Master and workers. A context manager: runs for the duration of the block; nothing of it is left then."""

    def __init__(self, hosts: int = 2, *, cores: int = 4, memory: str = "1g") -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hsp-"))
        self.hosts = [f"127.0.0.{n + 2}" for n in range(hosts)]
        self._cores, self._memory = cores, memory
        self._port, self._web_port = free_port(), free_port()
        self._daemons: dict[str, ServerProcess] = {}

    @property
    def master(self) -> str:
        """The master's URL."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def webui(self) -> str:
        """The URL of its web UI."""
        return f"http://127.0.0.1:{self._web_port}"

    def host_dir(self, host: str) -> Path:
        """Where the containers of a host keep their files."""
        return self.directory / host / "tmp"

    def state(self) -> dict[str, Any]:
        """What the master says of workers and applications."""
        with urllib.request.urlopen(f"{self.webui}/json/", timeout=10) as reply:
            found: dict[str, Any] = json.loads(reply.read())
        return found

    def start(self) -> None:
        """Returns when all workers are registered.

        Raises:
            RuntimeError: they do not come up; with the end of their output.
        """
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web_port)]
        self._daemon("master", {"SPARK_LOCAL_IP": "127.0.0.1"}, "master.Master", *where)
        for host in self.hosts:
            self.start_host(host)
        self.wait_up(*self.hosts)

    def start_host(self, host: str) -> None:
        """Start a host's worker."""
        self.host_dir(host).mkdir(parents=True, exist_ok=True)
        ours = {"SPARK_LOCAL_IP": host, "HERON_ADVERTISE_ADDRESS": host, HOST_ENV: f"{self.directory}/{host}"}
        size = ["-c", str(self._cores), "-m", self._memory, "-d", str(self.directory / host / "work")]
        ports = ["--host", host, "--webui-port", str(free_port())]
        self._daemon(host, ours, "worker.Worker", *ports, *size, self.master)

    def wait_up(self, *hosts: str) -> None:
        """Return when the hosts take tasks."""

        def check() -> None:
            for name, daemon in self._daemons.items():
                if not daemon.running():
                    raise RuntimeError(f"{name} ended while it started:\n{daemon.tail(20)}")
            try:
                alive = {worker["host"] for worker in self.state()["workers"] if worker["state"] == "ALIVE"}
            except OSError as e:
                raise AssertionError(f"the master does not answer: {e}") from None
            assert alive >= {*hosts}

        eventually_sync(check, within_s=_START_S)

    def vanish(self, host: str) -> None:
        """End all processes of a host at once, as when its machine loses power."""
        deadline_s = time.monotonic() + _START_S
        while (left := self.processes(host)) and time.monotonic() < deadline_s:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if host in self._daemons:
            self._daemons.pop(host).kill()
        shutil.rmtree(self.directory / host, ignore_errors=True)

    def processes(self, host: str) -> list[int]:
        """All processes of a host."""
        return [process.pid for process, _ in find_by_environment({HOST_ENV: f"{self.directory}/{host}"})]

    def stop(self) -> None:
        """End all daemons, and what runs on the hosts, and remove the directory."""
        for host in self.hosts:
            self.vanish(host)
        if "master" in self._daemons:
            self._daemons.pop("master").kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _daemon(self, name: str, ours: dict[str, str], cls: str, *args: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        values = {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
            **ours,
        }
        self._daemons[name] = ServerProcess(
            [
                "env",
                *(f"{key}={value}" for key, value in values.items()),
                str(home / "bin/spark-class"),
                f"org.apache.spark.deploy.{cls}",
                *args,
            ],
            self.directory / f"{name}.out",
        )
