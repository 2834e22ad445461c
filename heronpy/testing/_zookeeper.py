"""Real ZooKeeper servers for tests: one, or several that elect a leader. See `heronpy.testing.servers`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.address import join_address
from heronpy.testing._server_process import LOOPBACK, Place, Server, free_port

if TYPE_CHECKING:
    from heronpy.testing.hosts import Host

ZOOKEEPER_CLASSPATH_ENV = "HERON_TEST_ZOOKEEPER_CLASSPATH"
_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
_DEBIAN_TLS_JARS = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"
"""Needed for TLS; they are there, but not in the class path that Debian's jar names."""

# Small ticks: a session timeout may be as short as two of them, and tests wait for sessions to end.
_CONFIG = """\
tickTime=200
initLimit=50
syncLimit=25
dataDir={data}
admin.enableServer=false
4lw.commands.whitelist=*
minSessionTimeout=400
maxSessionTimeout={session_ms}
"""

_TLS_CONFIG = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={directory}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={directory}/ca.pem
ssl.trustStore.type=PEM
ssl.clientAuth=need
ssl.hostnameVerification=false
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
        tls: Path | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            server_id: Its number in an ensemble, from 1.
            ensemble: The `server.N=…` lines of an ensemble.
            session_timeout_max_ms: Clients that ask for a longer session timeout get this one.
            place: Where it runs, if not on this host.
            tls: A directory as `make_certificates` writes it: clients need a certificate of that CA.
            settings: Further lines of its configuration.
        """
        super().__init__(directory, port, place)
        self._session_timeout_max_ms = session_timeout_max_ms
        self._server_id = server_id
        self._ensemble = ensemble
        self._tls = tls
        self._settings = settings

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
        if self._tls is not None and classpath == str(_DEBIAN_JAR):
            classpath = f"{classpath}:{_DEBIAN_TLS_JARS}"
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        if self._server_id:
            (data / "myid").write_text(str(self._server_id))
        config = self.directory / "zoo.cfg"
        settings = _CONFIG.format(data=data, session_ms=self._session_timeout_max_ms)
        client = "clientPort" if self._tls is None else "secureClientPort"
        address = [f"{client}={self.port}", f"{client}Address={self.bind}"]
        tls = [] if self._tls is None else [_TLS_CONFIG.format(directory=self._tls)]
        config.write_text("\n".join([settings, *address, *tls, *self._settings, *self._ensemble, ""]))
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        return ["java", *options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]

    def _serving(self) -> bool:
        return bool(self.mode(within_s=self._answer_s))

    def mode(self, *, within_s: float = 2.0) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve, or cannot be reached in time."""
        with contextlib.suppress(OSError), self._connected(within_s) as s:
            s.sendall(b"srvr")
            answer = b""
            while part := s.recv(4096):
                answer += part
            for line in answer.decode(errors="replace").splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ").strip()
        return ""

    def _connected(self, within_s: float) -> socket.socket:
        plain = socket.create_connection((self.bind, self.port), timeout=within_s)
        if self._tls is None:
            return plain
        context = ssl.create_default_context(cafile=str(self._tls / "ca.pem"))
        context.load_cert_chain(self._tls / "client.pem")
        return context.wrap_socket(plain, server_hostname=self.bind)


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
