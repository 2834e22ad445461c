"""Real servers for tests: started on free ports, gone when the test process is gone.

    with ZookeeperServer(tmp_path) as zookeeper:
        sm = open_statemgr(StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron"))

`zookeeper_missing()` says why there is none on this machine, for a skip that tells its reason.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import json
import os
import shutil
import socket
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heronpy.testing._server_process import Server, ServerProcess, free_port, listening

ZOOKEEPER_CLASSPATH_ENV = "HERON_TEST_ZOOKEEPER_CLASSPATH"
_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")

# Small ticks: a session timeout may be as short as two of them, and tests wait for sessions to end.
_CONFIG = """\
tickTime=200
initLimit=50
syncLimit=25
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=*
minSessionTimeout=400
maxSessionTimeout=40000
"""

_REDIS_CONFIG = """\
port {port}
bind 127.0.0.1
dir "{data}"
save ""
appendonly yes
appendfsync always
requirepass "{password}"
"""


@functools.cache
def zookeeper_classpath() -> str | None:
    """Where ZooKeeper's classes are: the environment's word, Debian's package, or the jars that come with PySpark."""
    if given := os.environ.get(ZOOKEEPER_CLASSPATH_ENV):
        return given
    if _DEBIAN_JAR.exists():
        return str(_DEBIAN_JAR)
    spark = importlib.util.find_spec("pyspark")
    if spark is not None and spark.origin and list((Path(spark.origin).parent / "jars").glob("zookeeper-[0-9]*.jar")):
        return str(Path(spark.origin).parent / "jars" / "*")
    return None


def zookeeper_missing() -> str | None:
    """Why no ZooKeeper can be started here, or None if one can."""
    if shutil.which("java") is None:
        return "no ZooKeeper: java is not installed"
    if zookeeper_classpath() is None:
        return f"no ZooKeeper: install Debian's package zookeeper, or set {ZOOKEEPER_CLASSPATH_ENV}"
    return None


class ZookeeperServer(Server):
    """One real ZooKeeper server with its data in a directory. A context manager: runs for the time of the block."""

    name = "ZooKeeper"
    port_taken = "BindException"

    def __init__(self, directory: Path, *, port: int = 0, server_id: int = 0, ensemble: Sequence[str] = ()) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            server_id: Its number in an ensemble, from 1.
            ensemble: The `server.N=…` lines of an ensemble.
        """
        super().__init__(directory, port)
        self._server_id = server_id
        self._ensemble = ensemble

    @property
    def connection(self) -> str:
        """host:port, as a state manager's connection string has it."""
        return f"127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        classpath = zookeeper_classpath()
        assert classpath is not None, zookeeper_missing()
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        if self._server_id:
            (data / "myid").write_text(str(self._server_id))
        config = self.directory / "zoo.cfg"
        config.write_text("\n".join([_CONFIG.format(data=data, port=self.port), *self._ensemble, ""]))
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        return ["java", *options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]

    def _serving(self) -> bool:
        return bool(self.mode())

    def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as s:
            s.sendall(b"srvr")
            answer = b""
            while part := s.recv(4096):
                answer += part
            for line in answer.decode(errors="replace").splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ").strip()
        return ""


@contextlib.contextmanager
def zookeeper_ensemble(directory: Path, members: int = 3) -> Iterator[list[ZookeeperServer]]:
    """Several ZooKeeper servers that elect a leader, for the time of the block. All serve when it begins."""
    ports: set[int] = set()
    while len(ports) < 3 * members:
        ports.add(free_port())
    numbers = list(ports)
    lines = [f"server.{i + 1}=127.0.0.1:{numbers[3 * i + 1]}:{numbers[3 * i + 2]}" for i in range(members)]
    servers = [
        ZookeeperServer(directory / str(i + 1), port=numbers[3 * i], server_id=i + 1, ensemble=lines)
        for i in range(members)
    ]
    try:
        for server in servers:
            server.start(wait=False)  # none serves before it has found the others
        for server in servers:
            server.wait_serving()
        yield servers
    finally:
        for server in servers:
            server.kill()


@functools.cache
def spark_missing() -> str | None:
    """Why no Spark can be started here, or None if one can."""
    # Imported here: it takes a while, and is what batch runs themselves ask.
    from heronpy.errors import UnavailableError
    from heronpy.pipeline._session import check_java, check_packages

    try:
        check_packages()
        check_java()
    except UnavailableError as e:
        return f"no Spark: {e}"
    return None


def redis_missing() -> str | None:
    """Why no Redis can be started here, or None if one can."""
    if shutil.which("redis-server") is None:
        return "no Redis: install Debian's package redis-server"
    if importlib.util.find_spec("redis") is None:
        return "no Redis: pip install 'heronpy[redis]'"
    return None


class RedisServer(Server):
    """One real Redis server with its data in a directory. A context manager: runs for the time of the block.

    What it has answered is on disk: it survives a kill.
    """

    name = "Redis"
    port_taken = "Address already in use"

    def __init__(self, directory: Path, *, port: int = 0, password: str = "") -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            password: Of the default user; empty: none is needed.
        """
        super().__init__(directory, port)
        self._password = password

    @property
    def url(self) -> str:
        """redis://…, as a Redis client takes it; with the password, if there is one."""
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        assert shutil.which("redis-server") is not None, redis_missing()
        config = self.directory / "redis.conf"
        config.touch(mode=0o600)  # before the password is in it
        config.write_text(_REDIS_CONFIG.format(port=self.port, data=self.directory, password=self._password))
        return ["redis-server", str(config)]

    def _serving(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as s:
            s.sendall(b"PING\r\n")
            return s.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False


_PROMETHEUS_CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
  - job_name: heron
    honor_labels: true
    file_sd_configs:
      - files: ["{targets}"]
        refresh_interval: 1s
"""


def prometheus_missing() -> str | None:
    """Why no Prometheus can be started here, or None if one can."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        return "no Prometheus: install Debian's package prometheus"
    return None


class PrometheusServer(Server):
    """One real Prometheus with its data in a directory. A context manager: runs for the time of the block.

    It scrapes, every second, what `targets_file` lists, and evaluates the rules it was given.
    """

    name = "Prometheus"
    port_taken = "address already in use"

    def __init__(self, directory: Path, *, port: int = 0, rules: Sequence[Path] = ()) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            rules: Files of recording and alert rules.
        """
        super().__init__(directory, port)
        self.targets_file = directory / "targets.json"
        """What it scrapes, in the form of `file_sd`; may be written at any time."""
        self._rules = rules

    @property
    def url(self) -> str:
        """http://host:port of its API."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API, e.g. of `query`.

        Raises:
            RuntimeError: it refuses; with its reason.
        """
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
            answer = json.load(connection.getresponse())
        if answer["status"] != "success":
            raise RuntimeError(f"{path} {parameters}: {answer['error']}")
        return answer["data"]

    def _command(self) -> Sequence[str]:
        assert prometheus_missing() is None, prometheus_missing()
        if not self.targets_file.exists():
            self.targets_file.write_text("[]")
        rules = ", ".join(f'"{path}"' for path in self._rules)
        config = self.directory / "prometheus.yml"
        config.write_text(_PROMETHEUS_CONFIG.format(rules=rules, targets=self.targets_file))
        return [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _serving(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
            with contextlib.closing(connection):
                connection.request("GET", "/-/ready")
                return connection.getresponse().status == 200
        return False


__all__ = [
    "ZOOKEEPER_CLASSPATH_ENV",
    "PrometheusServer",
    "RedisServer",
    "Server",
    "ServerProcess",
    "ZookeeperServer",
    "free_port",
    "listening",
    "prometheus_missing",
    "redis_missing",
    "spark_missing",
    "zookeeper_classpath",
    "zookeeper_ensemble",
    "zookeeper_missing",
]
