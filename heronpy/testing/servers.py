"""Real servers for tests: started on free ports, gone when the test process is gone.

    with ZookeeperServer(tmp_path) as zookeeper:
        sm = open_statemgr(StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron"))

`zookeeper_missing()` says why there is none on this machine, for a skip that tells its reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ZOOKEEPER_CLASSPATH_ENV = "HERON_TEST_ZOOKEEPER_CLASSPATH"
_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
_START_S = 30.0
_STOP_S = 10.0
_PORT_TRIES = 3
_PR_SET_PDEATHSIG = 1

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


def free_port() -> int:
    """A TCP port of 127.0.0.1 where nobody listens now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as s:
        s.settimeout(1.0)
        return s.connect_ex(("127.0.0.1", port)) == 0


class ServerProcess:
    """A child process with its output in a file. The kernel ends it when this process ends."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self.output = output
        # The child arms its death signal itself, before it becomes the server (see `_become`): preexec_fn is not
        # safe in a process with threads.
        with output.open("ab") as f:
            self._process = subprocess.Popen(
                [sys.executable, "-S", __file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, signum: int) -> None:
        """Send a signal, if the process still runs."""
        self._process.send_signal(signum)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._process.kill()
        self._process.wait(_STOP_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it in time."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, lines: int = 5) -> str:
        """The end of its output, for error messages."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])


class ZookeeperServer:
    """One real ZooKeeper server with its data in a directory. A context manager: runs for the time of the block."""

    def __init__(self, directory: Path, *, port: int = 0, server_id: int = 0, ensemble: Sequence[str] = ()) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            server_id: Its number in an ensemble, from 1.
            ensemble: The `server.N=…` lines of an ensemble.
        """
        self.directory = directory
        self.port = port
        self._fixed_port = port != 0
        self._server_id = server_id
        self._ensemble = ensemble
        self._process: ServerProcess | None = None

    @property
    def connection(self) -> str:
        """host:port, as a state manager's connection string has it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it serves. After a kill: again on the same port, with the same data.

        Raises:
            RuntimeError: it ended, or did not serve in time; with the end of its output.
        """
        for attempt in range(1 if self._fixed_port else _PORT_TRIES):
            self._launch()
            if not wait:
                return
            error = self._await_serving()
            if error is None:
                self._fixed_port = True
                return
            self.kill()
            if attempt + 1 == _PORT_TRIES or "BindException" not in error:
                break  # only a port taken between the check and the start is worth another try
        raise RuntimeError(error)

    def wait_serving(self) -> None:
        """Wait until it answers, alone or as a member with a quorum. Raises RuntimeError like `start`."""
        if error := self._await_serving():
            raise RuntimeError(error)

    def _launch(self) -> None:
        classpath = zookeeper_classpath()
        assert classpath is not None, zookeeper_missing()
        if not self._fixed_port:
            self.port = free_port()
        if listening(self.port):
            # A stale server would answer in place of ours and the test would prove nothing.
            raise RuntimeError(f"port {self.port} is taken")
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self._server_id:
            (data / "myid").write_text(str(self._server_id))
        config = self.directory / "zoo.cfg"
        config.write_text("\n".join([_CONFIG.format(data=data, port=self.port), *self._ensemble, ""]))
        self._process = ServerProcess(
            [
                "java",
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                classpath,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(config),
            ],
            self.directory / "output.log",
        )

    def _await_serving(self) -> str | None:
        """None when it serves, else what went wrong."""
        assert self._process is not None, "not started"
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if not self._process.running():
                return f"ZooKeeper ended while it started:\n{self._process.tail(20)}"
            if self.mode():
                return None
            time.sleep(0.05)
        return f"ZooKeeper did not serve within {_START_S:g} s:\n{self._process.tail()}"

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

    def kill(self) -> None:
        """End it with SIGKILL; its data stays for the next `start`."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Stop its clock (SIGSTOP): connections stay open, nothing answers."""
        assert self._process is not None, "not started"
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        assert self._process is not None, "not started"
        self._process.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()  # nothing in it is worth an orderly end


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
    # Imported here, because this file is also run alone (see `_become`). It is what batch runs themselves ask.
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


class RedisServer:
    """One real Redis server with its data in a directory. A context manager: runs for the time of the block.

    What it has answered is on disk: it survives a kill.
    """

    def __init__(self, directory: Path, *, port: int = 0, password: str = "") -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            password: Of the default user; empty: none is needed.
        """
        self.directory = directory
        self.port = port
        self._fixed_port = port != 0
        self._password = password
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """redis://…, as a Redis client takes it; with the password, if there is one."""
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it serves. After a kill: again on the same port, with the same data.

        Raises:
            RuntimeError: it ended, or did not serve in time; with the end of its output.
        """
        for attempt in range(1 if self._fixed_port else _PORT_TRIES):
            self._launch()
            error = self._await_serving()
            if error is None:
                self._fixed_port = True
                return
            self.kill()
            if attempt + 1 == _PORT_TRIES or "Address already in use" not in error:
                break  # only a port taken between the check and the start is worth another try
        raise RuntimeError(error)

    def _launch(self) -> None:
        assert shutil.which("redis-server") is not None, redis_missing()
        if not self._fixed_port:
            self.port = free_port()
        if listening(self.port):
            raise RuntimeError(f"port {self.port} is taken")
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "redis.conf"
        config.touch(mode=0o600)  # before the password is in it
        config.write_text(_REDIS_CONFIG.format(port=self.port, data=self.directory, password=self._password))
        self._process = ServerProcess(["redis-server", str(config)], self.directory / "output.log")

    def _await_serving(self) -> str | None:
        """None when it serves, else what went wrong."""
        assert self._process is not None, "not started"
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if not self._process.running():
                return f"Redis ended while it started:\n{self._process.tail(20)}"
            if self._serving():
                return None
            time.sleep(0.02)
        return f"Redis did not serve within {_START_S:g} s:\n{self._process.tail()}"

    def _serving(self) -> bool:
        """Whether it answers, and has loaded its data."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as s:
            s.sendall(b"PING\r\n")
            return s.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False

    def kill(self) -> None:
        """End it with SIGKILL; its data stays for the next `start`."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Stop its clock (SIGSTOP): connections stay open, nothing answers."""
        assert self._process is not None, "not started"
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        assert self._process is not None, "not started"
        self._process.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


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


class PrometheusServer:
    """One real Prometheus with its data in a directory. A context manager: runs for the time of the block.

    It scrapes, every second, what `targets_file` lists, and evaluates the rules it was given.
    """

    def __init__(self, directory: Path, *, port: int = 0, rules: Sequence[Path] = ()) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            rules: Files of recording and alert rules.
        """
        self.directory = directory
        self.port = port
        self.targets_file = directory / "targets.json"
        """What it scrapes, in the form of `file_sd`; may be written at any time."""
        self._fixed_port = port != 0
        self._rules = rules
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """http://host:port of its API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

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

    def start(self) -> None:
        """Start it, and wait until it serves. After a kill: again on the same port, with the same data.

        Raises:
            RuntimeError: it ended, or did not serve in time; with the end of its output.
        """
        for attempt in range(1 if self._fixed_port else _PORT_TRIES):
            self._launch()
            error = self._await_serving()
            if error is None:
                self._fixed_port = True
                return
            self.kill()
            if attempt + 1 == _PORT_TRIES or "address already in use" not in error:
                break  # only a port taken between the check and the start is worth another try
        raise RuntimeError(error)

    def _launch(self) -> None:
        assert prometheus_missing() is None, prometheus_missing()
        if not self._fixed_port:
            self.port = free_port()
        if listening(self.port):
            raise RuntimeError(f"port {self.port} is taken")
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.targets_file.exists():
            self.targets_file.write_text("[]")
        rules = ", ".join(f'"{path}"' for path in self._rules)
        config = self.directory / "prometheus.yml"
        config.write_text(_PROMETHEUS_CONFIG.format(rules=rules, targets=self.targets_file))
        self._process = ServerProcess(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={self.directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            self.directory / "output.log",
        )

    def _await_serving(self) -> str | None:
        """None when it serves, else what went wrong."""
        assert self._process is not None, "not started"
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if not self._process.running():
                return f"Prometheus ended while it started:\n{self._process.tail(20)}"
            if self._serving():
                return None
            time.sleep(0.05)
        return f"Prometheus did not serve within {_START_S:g} s:\n{self._process.tail()}"

    def _serving(self) -> bool:
        """Whether it is ready, which it is when it has read its data."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
            with contextlib.closing(connection):
                connection.request("GET", "/-/ready")
                return connection.getresponse().status == 200
        return False

    def kill(self) -> None:
        """End it with SIGKILL; its data stays for the next `start`."""
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


def _become(parent: int, command: Sequence[str]) -> None:
    """In the child: end with the parent, then become the server."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
