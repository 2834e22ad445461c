"""A real Kubernetes control plane for tests: etcd, API server with RBAC, scheduler and controller manager.

    with ControlPlane(tmp_path) as cluster:
        cluster.kubectl("create", "namespace", "words")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig("admin")))

It has no nodes of its own, and so runs no pods: tests that need some make Node objects and run what is bound to them.
`kubernetes_missing()` says why there is none on this machine. One binary has all servers, and kubectl, by its first
argument: `make k8s-server` builds it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from heronpy.kubernetes import Api, load_access
from heronpy.testing._server_process import ServerProcess, free_port

VERSION = "1.35.4"
"""The one that `make k8s-server` builds."""
BINARY_ENV = "HERON_TEST_KUBERNETES"
START_S = 240.0
_USERS = {
    # name in the kubeconfig: user, group
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controller-manager": ("system:kube-controller-manager", ""),
    "stranger": ("stranger", ""),
}


def kubernetes_binary() -> Path:
    """Where the binary is, or would be."""
    if given := os.environ.get(BINARY_ENV):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "heronpy" / f"kubernetes-{VERSION}" / "hyper"


def kubernetes_missing() -> str | None:
    """Why no control plane can be started here, or None if one can."""
    if not kubernetes_binary().exists():
        return f"no Kubernetes: build it with `make k8s-server`, or set {BINARY_ENV}"
    return None if shutil.which("etcd") else "no Kubernetes: its etcd is missing, install Debian's package etcd-server"


class ControlPlane:
    """All servers, on free ports of one address. A context manager: they run for the duration of the block."""

    def __init__(self, directory: Path, *, host: str = "127.0.0.1", controllers: bool = True) -> None:
        """Describe it; `start` starts it.

        Args:
            directory: For its data, certificates and output; made if missing.
            host: The address to listen on.
            controllers: Start the scheduler and the controller manager too.
        """
        self.directory = directory
        self._host = host
        self._controllers = controllers
        self._ports = [free_port() for _ in range(5)]
        self._servers: dict[str, ServerProcess] = {}

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self._ports[0]}"

    @property
    def ca(self) -> Path:
        """The certificate that the API server proves itself with."""
        return self.directory / "certificates" / "apiserver.crt"

    def token(self, user: str) -> str:
        return f"token-of-{user}"

    def kubeconfig(self, user: str, namespace: str = "default", *, token: str = "") -> Path:
        """A kubeconfig for a user: `admin`, `stranger` (who may nothing), or any with a token of its own."""
        path = self.directory / f"kubeconfig-{user}-{namespace}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": {"token": token or self.token(user)}}],
            "contexts": [{"name": user, "context": {"cluster": "test", "user": user, "namespace": namespace}}],
            "current-context": user,
        }
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as the administrator; its output."""
        done = subprocess.run(
            [kubernetes_binary(), "kubectl", "--kubeconfig", self.kubeconfig("admin"), *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=START_S,
            env={**os.environ, "HOME": str(self.directory)},
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def api(self) -> Api:
        """A client that may do everything. For what a test asks again and again: each kubectl costs half a second."""
        return Api(load_access(kubeconfig=self.kubeconfig("admin")))

    def objects(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """The objects of a kind (`configmaps`, `apps/v1 statefulsets`) in a namespace."""
        group, _, plural = kind.rpartition(" ")
        path = f"/{f'apis/{group}' if group else 'api/v1'}/namespaces/{namespace}/{plural}"
        items: list[dict[str, Any]] = self.api().get(path, query={"labelSelector": selector}).body["items"]
        return items

    def start(self) -> None:
        """Start what does not run. After a kill: on the same ports, with the same data.

        Raises:
            RuntimeError: a server ended, or did not serve in time; with the end of its output.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "certificates").mkdir(exist_ok=True)
        self._write_credentials()
        self._start("etcd", self._etcd())
        self._start("kube-apiserver", self._apiserver())
        self.wait_ready()
        if self._controllers:
            self._start("kube-scheduler", self._scheduler())
            self._start("kube-controller-manager", self._controller_manager())
            self._wait("kube-controller-manager", self._controlled)

    def kill(self, name: str) -> None:
        """SIGKILL one server: `etcd`, `kube-apiserver`, `kube-scheduler` or `kube-controller-manager`."""
        self._servers.pop(name).kill()

    def freeze(self, name: str) -> None:
        """Stop one server's clock; on return none of its threads runs. Its connections stay open."""
        self._servers[name].signal(signal.SIGSTOP)
        status = Path(f"/proc/{self._servers[name].pid}/status")
        while "State:\tT" not in status.read_text():
            time.sleep(0.01)

    def thaw(self, name: str) -> None:
        """Let it go on."""
        self._servers[name].signal(signal.SIGCONT)

    def wait_ready(self) -> None:
        """Return when the API server answers; one that was frozen for minutes takes a while on a busy machine."""
        self._wait("kube-apiserver", self._ready)

    def stop(self) -> None:
        """End everything at once; nothing in it is worth an orderly end."""
        while self._servers:
            _, server = self._servers.popitem()
            server.kill()

    def _start(self, name: str, command: list[str]) -> None:
        if name not in self._servers:
            self._servers[name] = ServerProcess(command, self.directory / f"{name}.log")

    def _write_credentials(self) -> None:
        key = self.directory / "service-accounts.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        lines = [f'{self.token(name)},{user},{name},"{group}"' for name, (user, group) in _USERS.items()]
        (self.directory / "tokens.csv").write_text("\n".join(lines) + "\n")

    def _etcd(self) -> list[str]:
        client, peer = (f"http://{self._host}:{port}" for port in self._ports[1:3])
        return [
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync=true",  # it need not outlive the machine
        ]

    def _apiserver(self) -> list[str]:
        key = self.directory / "service-accounts.key"
        return [
            str(kubernetes_binary()),
            "kube-apiserver",
            f"--etcd-servers=http://{self._host}:{self._ports[1]}",
            f"--bind-address={self._host}",
            f"--advertise-address={self._host}",
            f"--secure-port={self._ports[0]}",
            f"--cert-dir={self.directory / 'certificates'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.99.0.0/24",
            "--service-account-issuer=https://heron.test",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--endpoint-reconciler-type=none",
            # Debian's etcd reports no progress of watches: those from no version, as Spark's, would fail.
            "--feature-gates=WatchList=false",
            # Nodes of tests come back and vanish within seconds.
            "--default-not-ready-toleration-seconds=5",
            "--default-unreachable-toleration-seconds=5",
        ]

    def _scheduler(self) -> list[str]:
        config = self.kubeconfig("scheduler")
        return [
            str(kubernetes_binary()),
            "kube-scheduler",
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--leader-elect=false",
            f"--bind-address={self._host}",
            f"--secure-port={self._ports[3]}",
            f"--cert-dir={self.directory / 'certificates'}",
        ]

    def _controller_manager(self) -> list[str]:
        config = self.kubeconfig("controller-manager")
        return [
            str(kubernetes_binary()),
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--bind-address={self._host}",
            f"--secure-port={self._ports[4]}",
            f"--cert-dir={self.directory / 'certificates'}",
            f"--service-account-private-key-file={self.directory / 'service-accounts.key'}",
            f"--root-ca-file={self.ca}",
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=6s",
        ]

    def _ready(self) -> bool:
        if not self.ca.exists():
            return False
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token('admin')}"}
        )
        with contextlib.suppress(OSError, ssl.SSLError, urllib.error.URLError):
            tls = ssl.create_default_context(cafile=str(self.ca))
            with urllib.request.urlopen(request, timeout=5, context=tls) as answer:
                return bool(answer.read() == b"ok")
        return False

    def _controlled(self) -> bool:
        """Whether namespaces get their service account."""
        return self.admits_pods("default")

    def admits_pods(self, namespace: str) -> bool:
        """Whether a namespace has the service account without which it takes no pod."""
        return any(one["metadata"]["name"] == "default" for one in self.objects("serviceaccounts", namespace))

    def _wait(self, name: str, ready: Any) -> None:
        deadline_s = time.monotonic() + START_S
        while not ready():
            server = next((s for s in self._servers.values() if not s.running()), None)
            if server is not None:
                raise RuntimeError(f"{server.output.name} ended while it started:\n{server.tail(20)}")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} does not serve after {START_S:g} s:\n{self._servers[name].tail(20)}")
            time.sleep(0.1)

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
