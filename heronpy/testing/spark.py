"""A real Spark standalone cluster on one machine: a master, and a worker for each host.

    with SparkCluster() as spark:
        SparkConf().setMaster(spark.master)

Hosts have addresses of their own (127.0.0.2, …) and a directory each (`host_dir`); nothing is shared between them but
this machine. `spark_missing()` says why there is none on this machine, for a skip that states its reason.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

from heronpy.address import bare_host, join_address
from heronpy.host import find_by_environment
from heronpy.testing._server_cluster import ServerCluster
from heronpy.testing._server_process import free_port

HOST_ENV = "HERON_TEST_SPARK_HOST"
"""Which host a process belongs to."""
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""By which a JVM takes less CPU to start."""
_IPV6 = " -Djava.net.preferIPv6Addresses=true"


def spark_missing() -> str | None:
    """Why no Spark can be started here, or None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "no Spark: pyspark is not installed"
    return None if shutil.which("java") else "no Spark: there is no java"


class SparkCluster(ServerCluster):
    """Master and workers."""

    up = ("ALIVE",)

    def __init__(self, hosts: int = 2, *, cores: int = 4, memory: str = "1g", address: str = "") -> None:
        """Describe it; `address`, maybe IPv6, is that of the master and of a single worker, instead of loopback's."""
        super().__init__("hsp-", [address] if address else [f"127.0.0.{n + 2}" for n in range(hosts)])
        self._cores, self._memory, self._address = cores, memory, address or "127.0.0.1"
        self._port, self._web_port = free_port(), free_port()

    @property
    def master(self) -> str:
        """The master's URL."""
        return f"spark://{join_address(self._address, self._port)}"

    @property
    def webui(self) -> str:
        """The URL of its web UI."""
        return f"http://{join_address(self._address, self._web_port)}"

    def host_dir(self, host: str) -> Path:
        """Where the containers of a host keep their files."""
        return self.directory / host / "tmp"

    def state(self) -> dict[str, Any]:
        """What the master says of workers and applications.

        Raises:
            OSError, ValueError: it does not answer; its web server answers before its pages are there.
        """
        with urllib.request.urlopen(f"{self.webui}/json/", timeout=10) as reply:
            found: dict[str, Any] = json.loads(reply.read())
        return found

    def states(self) -> dict[str, str]:
        workers = sorted(self.state()["workers"], key=lambda worker: str(worker["state"]) == "ALIVE")
        return {
            bare_host(str(worker["host"])): str(worker["state"]) for worker in workers
        }  # those that were lost are reported, too

    def start(self) -> None:
        where = [
            "--host",
            self._bracketed(self._address),
            "--port",
            str(self._port),
            "--webui-port",
            str(self._web_port),
        ]
        self._start("master", {"SPARK_LOCAL_IP": self._address}, "master.Master", *where)
        for host in self.hosts:
            self.start_host(host)
        self.wait_up(*self.hosts)

    def start_host(self, host: str) -> None:
        self.host_dir(host).mkdir(parents=True, exist_ok=True)
        ours = {"SPARK_LOCAL_IP": host, "HERON_ADVERTISE_ADDRESS": host, HOST_ENV: f"{self.directory}/{host}"}
        size = ["-c", str(self._cores), "-m", self._memory, "-d", str(self.directory / host / "work")]
        ports = ["--host", self._bracketed(host), "--webui-port", str(free_port())]
        self._start(host, ours, "worker.Worker", *ports, *size, self.master)

    def processes(self, host: str) -> list[int]:
        return [process.pid for process, _ in find_by_environment({HOST_ENV: f"{self.directory}/{host}"})]

    def daemons(self) -> list[int]:
        """The workers' processes, of which executors are children."""
        return [self._daemons[host].pid for host in self.hosts]

    @staticmethod
    def _bracketed(host: str) -> str:
        """As Spark wants it."""
        return f"[{host}]" if ":" in host else host

    def _start(self, name: str, ours: dict[str, str], cls: str, *args: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        values = {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_OPTIONS}{_IPV6 if ':' in self._address else ''}",
            "PYSPARK_PYTHON": sys.executable,
            **ours,
        }
        command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{cls}", *args]
        self._daemon(name, values, command, self.directory / f"{name}.out")
