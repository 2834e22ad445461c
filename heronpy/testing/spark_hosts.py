"""A Spark standalone cluster whose workers are on test hosts: addresses, files and processes of their own.

The master, the driver and an S3 server are on this machine, beside the hosts. Nothing is shared but what is installed,
and the Python that executors run has no heronpy.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_process import ServerProcess, free_port
from heronpy.testing.hosts import Host, Hosts
from heronpy.testing.servers import S3Server

_NEEDED = ("cloudpickle", "google", "msgspec", "numpy", "psutil", "pyarrow", "_datasketches", "datasketches")
_FOR_S3 = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3")
PACKAGES = frozenset((*_NEEDED, *_FOR_S3))
"""What tasks import, by the names of files and directories."""
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""By which a JVM takes less CPU to start."""
_KILL_EXECUTORS = """\
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    except OSError:  # it has ended
        continue
    if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
        os.kill(int(pid), signal.SIGKILL)
        print(pid)
"""


@dataclass
class _Beside:
    """This machine, as the hosts see it: where servers run that they reach."""

    address: str

    def command(self, command: Sequence[str]) -> Sequence[str]:
        return command

    def inner_pid(self, stand_in: int) -> int | None:
        return None


def make_python(host: Host, name: str, *, packages: bool) -> str:
    """Make a Python of this version on a host, in its own /tmp, where others have theirs. Returns its path there.

    Args:
        host: whose.
        name: of its directory.
        packages: whether it has what tasks import; it has no heronpy, and nothing else.
    """
    host.run([sys.executable, "-m", "venv", "--without-pip", f"/tmp/{name}"], check=True)
    if packages:
        link_packages(host.tmp / name)
    return f"/tmp/{name}/bin/python"


def link_packages(environment: Path) -> None:
    """Let a virtual environment have what tasks import, of what is installed here."""
    import numpy

    (site,) = (environment / "lib").glob("python*/site-packages")
    for entry in Path(numpy.__file__).parents[1].iterdir():
        if entry.name.partition(".")[0] in PACKAGES:
            (site / entry.name).symlink_to(entry)


class SparkHosts:
    """The cluster, for the duration of a `with` block."""

    def __init__(self, *names: str, directory: Path, cores: int = 1, memory: str = "1g") -> None:
        self.hosts = Hosts(*names)
        self.directory = directory
        self._cores, self._memory = cores, memory
        self._port, self._web_port = free_port(), free_port()
        self._stack = ExitStack()
        self._daemons: list[ServerProcess] = []

    @property
    def master(self) -> str:
        """The master's URL."""
        return f"spark://{self.hosts.own_address}:{self._port}"

    def state(self) -> dict[str, Any]:
        """What the master says of workers and applications."""
        with urllib.request.urlopen(f"http://{self.hosts.own_address}:{self._web_port}/json/", timeout=10) as reply:
            found: dict[str, Any] = json.loads(reply.read())
        return found

    def conf(self, python: str, **more: str) -> list[str]:
        """Options of a `heron pipeline` command that runs there."""
        settings = {
            "spark.driver.host": self.hosts.own_address,
            "spark.driver.bindAddress": self.hosts.own_address,
            "spark.pyspark.python": python,
            "spark.heron.startTimeout": "600",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": OPTIONS,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        return ["--master", self.master, *options]

    def kill_executor(self, host: Host) -> None:
        """End Spark's executor on a host with SIGKILL; its Python workers go with it."""
        killed = host.run([sys.executable, "-S", "-c", _KILL_EXECUTORS], capture_output=True, text=True, check=True)
        assert killed.stdout.split(), f"there is no executor on {host.name}"

    def __enter__(self) -> Self:
        self._stack.enter_context(self.hosts)
        try:
            self.s3 = self._stack.enter_context(S3Server(self.directory / "s3", place=_Beside(self.hosts.own_address)))
            self._start_all()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *args: object) -> None:
        self._stack.close()

    def _start_all(self) -> None:
        address = self.hosts.own_address
        where = ["--host", address, "--port", str(self._port), "--webui-port", str(self._web_port)]
        self._start(None, "master.Master", *where)
        for host in self.hosts:
            size = ["-c", str(self._cores), "-m", self._memory, "-d", str(host.directory / "work")]
            self._start(host, "worker.Worker", "--host", host.address, *size, self.master)

        def up() -> None:
            for daemon in self._daemons:
                if not daemon.running():
                    raise RuntimeError(f"a daemon of Spark ended while it started:\n{daemon.tail(20)}")
            try:
                assert self.state()["aliveworkers"] == len(self.hosts.known())
            except (OSError, ValueError) as error:
                raise AssertionError(f"the master does not answer: {error}") from error

        eventually_sync(up, within_s=240)

    def _start(self, host: Host | None, cls: str, *args: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        values = {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
            "SPARK_LOCAL_IP": self.hosts.own_address if host is None else host.address,
            **S3Server.credentials,
        }
        command = ["env", *(f"{name}={value}" for name, value in values.items()), str(home / "bin/spark-class")]
        output = self.directory / f"{host.name if host else 'master'}.out"
        daemon = ServerProcess([*command, f"org.apache.spark.deploy.{cls}", *args], output, host)
        self._daemons.append(daemon)
        self._stack.callback(daemon.kill)
