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
from typing import TYPE_CHECKING, Any

from heronpy.address import join_address
from heronpy.security import METRICS_DNS_NAME
from heronpy.testing._server_process import LOOPBACK, Place, Server, ServerProcess, free_port, listening

if TYPE_CHECKING:
    from heronpy.testing.hosts import Host

ZOOKEEPER_CLASSPATH_ENV = "HERON_TEST_ZOOKEEPER_CLASSPATH"
VERSITYGW_ENV = "HERON_TEST_VERSITYGW"
_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")

# Small ticks: a session timeout may be as short as two of them, and tests wait for sessions to end.
_CONFIG = """\
tickTime=200
initLimit=50
syncLimit=25
dataDir={data}
clientPort={port}
clientPortAddress={bind}
admin.enableServer=false
4lw.commands.whitelist=*
minSessionTimeout=400
maxSessionTimeout={session_ms}
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
    """One real ZooKeeper server with its data in a directory. A context manager: runs for the duration of the block."""

    name = "ZooKeeper"
    port_taken = "BindException"

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        server_id: int = 0,
        ensemble: Sequence[str] = (),
        session_timeout_max_ms: int = 40_000,
        place: Place | None = None,
    ) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            server_id: Its number in an ensemble, from 1.
            ensemble: The `server.N=…` lines of an ensemble.
            session_timeout_max_ms: Clients that ask for a longer session timeout get this one.
            place: Where it runs, if not on this host.
        """
        super().__init__(directory, port, place)
        self._session_timeout_max_ms = session_timeout_max_ms
        self._server_id = server_id
        self._ensemble = ensemble

    def empty(self) -> None:
        """Remove its data. Only while it does not run."""
        shutil.rmtree(self.directory / "data")

    @property
    def connection(self) -> str:
        """host:port, as a state manager's connection string has it."""
        return join_address(self.bind, self.port)

    def _command(self) -> Sequence[str]:
        classpath = zookeeper_classpath()
        assert classpath is not None, zookeeper_missing()
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        if self._server_id:
            (data / "myid").write_text(str(self._server_id))
        config = self.directory / "zoo.cfg"
        settings = _CONFIG.format(data=data, bind=self.bind, port=self.port, session_ms=self._session_timeout_max_ms)
        config.write_text("\n".join([settings, *self._ensemble, ""]))
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        return ["java", *options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]

    def _serving(self) -> bool:
        return bool(self.mode())

    def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve."""
        with contextlib.suppress(OSError), socket.create_connection((self.bind, self.port), timeout=2.0) as s:
            s.sendall(b"srvr")
            answer = b""
            while part := s.recv(4096):
                answer += part
            for line in answer.decode(errors="replace").splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ").strip()
        return ""


@contextlib.contextmanager
def zookeeper_ensemble(
    directory: Path, members: int = 3, places: Sequence[Host] = ()
) -> Iterator[list[ZookeeperServer]]:
    """Several ZooKeeper servers that elect a leader, for the duration of the block. All serve when it begins.

    Args:
        directory: For their configuration, data and output, if they run on this host.
        members: How many.
        places: The hosts that they run on instead, in turn; with their data there.
    """
    where: list[Host | None] = [places[i % len(places)] if places else None for i in range(members)]
    binds = [LOOPBACK if host is None else host.address for host in where]
    ports: set[int] = set()
    while len(ports) < 3 * members:
        ports.add(free_port())
    numbers = list(ports)
    lines = [f"server.{i + 1}={binds[i]}:{numbers[3 * i + 1]}:{numbers[3 * i + 2]}" for i in range(members)]
    servers = [
        ZookeeperServer(
            (directory if host is None else host.directory / "zookeeper") / str(i + 1),
            port=numbers[3 * i],
            server_id=i + 1,
            ensemble=lines,
            place=host,
        )
        for i, host in enumerate(where)
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
    from heronpy.pipeline.session import check_java, check_packages

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
        return "no Redis: pip install 'heron-engine[redis]'"
    return None


class RedisServer(Server):
    """One real Redis server with its data in a directory. A context manager: runs for the duration of the block.

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


def s3_missing() -> str | None:
    """Why no S3 server can be started here, or None if one can."""
    if importlib.util.find_spec("boto3") is None:
        return "no boto3: pip install 'heron-engine[s3]'"
    if _versitygw() is None:
        return f"no S3 server: put versitygw on the PATH, or its path into {VERSITYGW_ENV} (make s3-server)"
    return None


def _versitygw() -> str | None:
    return os.environ.get(VERSITYGW_ENV) or shutil.which("versitygw")


class S3Server(Server):
    """One real S3 server (versitygw) with its buckets in a directory. A context manager: runs for the block."""

    name = "S3"
    port_taken = "address already in use"
    access_key = "heron"
    secret_key = "not-a-secret"

    def url(self, bucket: str) -> str:
        """s3://…, as a storage takes it; the bucket is made if it is not there."""
        (self.directory / "buckets" / bucket).mkdir(parents=True, exist_ok=True)
        return f"s3://{bucket}?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"

    def _command(self) -> Sequence[str]:
        versitygw = _versitygw()
        assert versitygw is not None, s3_missing()
        for name in ("buckets", "attributes"):
            (self.directory / name).mkdir(exist_ok=True)
        command = [versitygw, "--port", f"127.0.0.1:{self.port}", "--health", "/health", "--quiet"]
        command += ["--access", self.access_key, "--secret", self.secret_key]
        # Not every file system has extended attributes.
        return [*command, "posix", "--sidecar", str(self.directory / "attributes"), str(self.directory / "buckets")]

    def _serving(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
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
    tls_config: {tls}
"""


def prometheus_missing() -> str | None:
    """Why no Prometheus can be started here, or None if one can."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        return "no Prometheus: install Debian's package prometheus"
    return None


class PrometheusServer(Server):
    """One real Prometheus with its data in a directory. A context manager: runs for the duration of the block.

    It scrapes, every second, what `targets_file` lists, and evaluates the rules it was given.
    """

    name = "Prometheus"
    port_taken = "address already in use"

    def __init__(
        self, directory: Path, *, port: int = 0, rules: Sequence[Path] = (), scraper: Path | None = None
    ) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            rules: Files of recording and alert rules.
            scraper: The key and certificate that it shows; whom it trusts is in `targets.ca.pem` beside the targets.
        """
        super().__init__(directory, port)
        self.targets_file = directory / "targets.json"
        """What it scrapes, in the form of `file_sd`; may be written at any time."""
        self._rules = rules
        self._scraper = scraper

    @property
    def url(self) -> str:
        """http://host:port of its API."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API, e.g. of `query`.

        Raises:
            RuntimeError: it refuses; with its reason.
        """
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
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
        config.write_text(_PROMETHEUS_CONFIG.format(rules=rules, targets=self.targets_file, tls=self._tls()))
        return [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _tls(self) -> str:
        if self._scraper is None:
            return "{}"
        trusted = self.targets_file.with_suffix(".ca.pem")
        if not trusted.exists():
            trusted.write_bytes(self._scraper.read_bytes())  # Prometheus does not start without a certificate in it
        names = {
            "ca_file": str(trusted),
            "cert_file": str(self._scraper),
            "key_file": str(self._scraper),
            "server_name": METRICS_DNS_NAME,
        }
        return json.dumps(names)

    def _serving(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
            with contextlib.closing(connection):
                connection.request("GET", "/-/ready")
                return connection.getresponse().status == 200
        return False


__all__ = [
    "VERSITYGW_ENV",
    "ZOOKEEPER_CLASSPATH_ENV",
    "PrometheusServer",
    "RedisServer",
    "S3Server",
    "Server",
    "ServerProcess",
    "ZookeeperServer",
    "free_port",
    "listening",
    "prometheus_missing",
    "redis_missing",
    "s3_missing",
    "spark_missing",
    "zookeeper_classpath",
    "zookeeper_ensemble",
    "zookeeper_missing",
]
