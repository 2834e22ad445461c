"""Real etcd servers for tests: one, or several that elect a leader.

    with EtcdServer(tmp_path) as etcd:
        sm = open_statemgr(StatemgrSpec(type="etcd", connection=etcd.connection, root="/heron"))

`etcd_missing()` says why there is none on this machine, for a skip that states its reason.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heronpy.testing._server_process import ANSWER_S, Server, free_port


def etcd_missing() -> str | None:
    """Why no etcd can be started here, or None if one can."""
    return None if shutil.which("etcd") else "no etcd: install Debian's package etcd-server"


class EtcdServer(Server):
    """One real etcd server with its data in a directory. A context manager: runs for the duration of the block."""

    name = "etcd"
    port_taken = "address already in use"

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        peer_port: int = 0,
        member: str = "default",
        cluster: str = "",
        tls: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its data and output; made if missing.
            port: For clients; 0: a free one.
            peer_port: For other members; 0: a free one.
            member: Its name in a cluster.
            cluster: All members: `name=http://host:peer port,…`; empty: it is alone.
            tls: A directory as `make_certificates` writes it: clients need a certificate of that CA.
            options: Further arguments.
        """
        super().__init__(directory, port)
        self._peer_port = peer_port or free_port()
        self._member, self._cluster = member, cluster
        self._tls = tls
        self._options = options

    @property
    def connection(self) -> str:
        """[https://]host:port, as a state manager's connection string has it."""
        return f"{'https://' if self._tls else ''}127.0.0.1:{self.port}"

    def empty(self) -> None:
        """Remove its data. Only while it does not run."""
        shutil.rmtree(self.directory / "data")

    def call(self, method: str, **body: Any) -> Mapping[str, Any]:
        """The answer of its JSON API; raises OSError or HTTPException like `http.client`."""
        connection: http.client.HTTPConnection
        if self._tls:
            context = ssl.create_default_context(cafile=str(self._tls / "ca.pem"))
            context.load_cert_chain(self._tls / "client.pem")
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=ANSWER_S, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        with contextlib.closing(connection):
            connection.request("POST", f"/v3/{method}", json.dumps(body), {"Content-Type": "application/json"})
            answer = json.load(connection.getresponse())
        assert isinstance(answer, dict)
        return answer

    def is_leader(self) -> bool:
        """Whether it leads a quorum now; False while it does not serve."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            status = self.call("maintenance/status")
            return "leader" in status and status["leader"] == status["header"]["member_id"]
        return False

    def _command(self) -> Sequence[str]:
        assert etcd_missing() is None, etcd_missing()
        peer = f"http://127.0.0.1:{self._peer_port}"
        client = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        command = ["etcd", "--name", self._member, "--data-dir", str(self.directory / "data")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", self._cluster or f"{self._member}={peer}", "--logger", "zap"]
        command += ["--log-level", "error"]
        if self._tls:
            command += ["--client-cert-auth", "--trusted-ca-file", str(self._tls / "ca.pem")]
            command += ["--cert-file", str(self._tls / "server.pem"), "--key-file", str(self._tls / "server.pem")]
        return [*command, *self._options]

    def _serving(self) -> bool:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            return "leader" in self.call("maintenance/status")
        return False


@contextlib.contextmanager
def etcd_ensemble(directory: Path, members: int = 3) -> Iterator[list[EtcdServer]]:
    """Several etcd servers that elect a leader, for the duration of the block. All serve when it begins."""
    ports: set[int] = set()
    while len(ports) < 2 * members:
        ports.add(free_port())
    numbers = list(ports)
    names = [f"member-{n}" for n in range(members)]
    cluster = ",".join(f"{name}=http://127.0.0.1:{numbers[2 * n + 1]}" for n, name in enumerate(names))
    servers = [
        EtcdServer(directory / name, port=numbers[2 * n], peer_port=numbers[2 * n + 1], member=name, cluster=cluster)
        for n, name in enumerate(names)
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
