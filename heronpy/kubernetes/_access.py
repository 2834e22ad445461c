"""Where the API server is and who we are there: a kubeconfig's, or those of the pod that this process runs in."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from heronpy.address import join_address
from heronpy.child import run
from heronpy.errors import ConfigError, nearest

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_FILE_S = 60.0
"""How long a token from a file is used before the file is read again: the kubelet replaces it."""
_PLUGIN_TIMEOUT_S = 30.0
_PLUGIN_MARGIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API server."""

    server: str
    """Its URL."""
    namespace: str = "default"
    """The namespace that the context, or the service account, names."""
    tls: ssl.SSLContext | None = None
    """None: plain HTTP, as from `kubectl proxy`."""
    tls_name: str = ""
    """The name that the server's certificate must have, if it is not the URL's."""
    token: Callable[[], str] = field(default=lambda: "", repr=False)
    """The bearer token for the next request; empty: none."""


def load_access(context: str = "", *, kubeconfig: Path | None = None) -> Access:
    """Find the API server as kubectl does: $KUBECONFIG, ~/.kube/config, else the pod's service account.

    Args:
        context: The context of the kubeconfig to use; empty: its current one.
        kubeconfig: This file and no other.

    Raises:
        ConfigError: there is none, or it cannot be used; the file and the entry are named.
    """
    named = [kubeconfig] if kubeconfig else _kubeconfigs()
    found = [path for path in named if path.exists()]
    if not found:
        if (SERVICE_ACCOUNT / "token").exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
            return _of_service_account()
        raise ConfigError(
            f"no kubeconfig at {', '.join(map(str, named))}, and this is not a pod: set KUBECONFIG, "
            "or ask the cluster's administrator for one"
        )
    return _Kubeconfig(found).access(context)


def _kubeconfigs() -> list[Path]:
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(os.path.expanduser("~/.kube/config"))]


def _of_service_account() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = SERVICE_ACCOUNT / "namespace"
    try:
        return Access(
            server=f"https://{join_address(host, port)}",
            namespace=namespace.read_text().strip() if namespace.exists() else "default",
            tls=ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
            token=_FileToken(SERVICE_ACCOUNT / "token"),
        )
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"the service account in {SERVICE_ACCOUNT} cannot be used: {e}") from e


class _Kubeconfig:
    """One or more kubeconfig files; in the first that has an entry, it counts."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._where = ", ".join(map(str, paths))
        self._entries: dict[str, dict[str, Mapping[str, Any]]] = {"clusters": {}, "users": {}, "contexts": {}}
        self._current = ""
        for path in paths:
            values = _read(path)
            self._current = self._current or str(values.get("current-context") or "")
            for kind, entries in self._entries.items():
                for entry in values.get(kind) or []:
                    entries.setdefault(str(entry.get("name")), {**(entry.get(kind[:-1]) or {}), "_dir": path.parent})

    def access(self, context: str) -> Access:
        name = context or self._current
        if not name:
            raise ConfigError(f"{self._where} has no current context: choose one with `kubectl config use-context`")
        chosen = self._entry("contexts", name)
        cluster = self._entry("clusters", str(chosen.get("cluster")))
        user = self._entry("users", str(chosen["user"])) if chosen.get("user") else {}
        server = str(cluster.get("server") or "")
        if urllib.parse.urlsplit(server).scheme not in ("http", "https"):
            raise ConfigError(f"{self._where}: cluster {chosen.get('cluster')!r} has no server that is an http(s) URL")
        if cluster.get("proxy-url"):
            raise ConfigError(f"{self._where}: proxy-url of cluster {chosen.get('cluster')!r} is not supported")
        plugin = _Plugin(user["exec"], user["_dir"]) if user.get("exec") else None
        try:
            tls = self._tls(cluster, user, plugin) if server.startswith("https:") else None
        except (OSError, ssl.SSLError, binascii.Error, ValueError) as e:
            raise ConfigError(f"{self._where}: the certificates of context {name!r} cannot be used: {e}") from e
        return Access(
            server=server.rstrip("/"),
            namespace=str(chosen.get("namespace") or "default"),
            tls=tls,
            tls_name=str(cluster.get("tls-server-name") or ""),
            token=self._token(user, plugin, name),
        )

    def _entry(self, kind: str, name: str) -> Mapping[str, Any]:
        entries = self._entries[kind]
        if name not in entries:
            raise ConfigError(f"{self._where} has no {kind[:-1]} {name!r}{nearest(name, entries)}")
        return entries[name]

    @staticmethod
    def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], plugin: _Plugin | None) -> ssl.SSLContext:
        tls = ssl.create_default_context()
        if ca := _material(cluster, "certificate-authority"):
            tls = ssl.create_default_context(cadata=ca.decode("ascii"))
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        pair = _material(user, "client-certificate"), _material(user, "client-key")
        if plugin is not None and plugin.certificate() is not None:
            pair = plugin.certificate() or pair
        if pair[0] and pair[1]:
            with _private_file(pair[0] + b"\n" + pair[1]) as path:
                tls.load_cert_chain(path)
        return tls

    def _token(self, user: Mapping[str, Any], plugin: _Plugin | None, context: str) -> Callable[[], str]:
        if plugin is not None:
            return plugin.token
        if user.get("tokenFile"):
            return _FileToken(user["_dir"] / str(user["tokenFile"]))
        if user.get("auth-provider"):
            raise ConfigError(f"{self._where}: context {context!r} uses auth-provider, which is obsolete: use exec")
        token = str(user.get("token") or "")
        return lambda: token


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as e:
        raise ConfigError(f"the kubeconfig {path} cannot be read: {e.strerror}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"the kubeconfig {path} is not valid YAML") from e
    if not isinstance(values, dict):
        raise ConfigError(f"the kubeconfig {path} is empty")
    return values


def _material(entry: Mapping[str, Any], key: str) -> bytes:
    """PEM from `key-data`, or from the file that `key` names, relative to the kubeconfig."""
    if data := entry.get(f"{key}-data"):
        return base64.b64decode(str(data), validate=True)
    return (entry["_dir"] / str(entry[key])).read_bytes() if entry.get(key) else b""


@contextlib.contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """A file for the one function of `ssl` that takes nothing else; gone after the block."""
    fd, path = tempfile.mkstemp(prefix="heron-")  # 0600
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        yield path
    finally:
        os.unlink(path)


class _FileToken:
    """A token in a file that somebody else renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_s = -_TOKEN_FILE_S

    def __call__(self) -> str:
        if time.monotonic() - self._read_s >= _TOKEN_FILE_S:
            try:
                self._token = self._path.read_text().strip()
            except OSError as e:
                if not self._token:  # else the old one may do until the file is back
                    raise ConfigError(f"the token {self._path} cannot be read: {e.strerror}") from e
            self._read_s = time.monotonic()
        return self._token


class _Plugin:
    """A credential plugin (`exec` of a kubeconfig, client.authentication.k8s.io): what managed clusters use."""

    def __init__(self, spec: Mapping[str, Any], directory: Path) -> None:
        self._spec = spec
        self._directory = directory
        self._lock = threading.Lock()
        self._status: Mapping[str, Any] | None = None
        self._expires_s = float("inf")

    def token(self) -> str:
        return str(self._credential().get("token") or "")

    def certificate(self) -> tuple[bytes, bytes] | None:
        status = self._credential()
        if not status.get("clientCertificateData"):
            return None
        return str(status["clientCertificateData"]).encode(), str(status.get("clientKeyData") or "").encode()

    def _credential(self) -> Mapping[str, Any]:
        with self._lock:
            if self._status is None or time.time() > self._expires_s - _PLUGIN_MARGIN_S:
                self._status = self._run()
                expires = self._status.get("expirationTimestamp")
                self._expires_s = datetime.fromisoformat(str(expires)).timestamp() if expires else float("inf")
            return self._status

    def _run(self) -> Mapping[str, Any]:
        command = str(self._spec.get("command") or "")
        if "/" in command:
            command = str(self._directory / command)
        request = {
            "apiVersion": self._spec.get("apiVersion"),
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        env = {e["name"]: e["value"] for e in self._spec.get("env") or []}
        try:
            done = run(
                [command, *map(str, self._spec.get("args") or [])],
                timeout_s=_PLUGIN_TIMEOUT_S,
                env={**os.environ, **env, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            )
            done.check_returncode()
            status = json.loads(done.stdout)["status"]
        except FileNotFoundError:
            hint = str(self._spec.get("installHint") or "install it").strip().partition("\n")[0]
            raise ConfigError(f"the credential plugin {command!r} of the kubeconfig is not installed: {hint}") from None
        except subprocess.CalledProcessError as e:
            why = e.stderr.strip().rpartition("\n")[2]
            raise ConfigError(f"the credential plugin {command!r} failed: {why or f'exit code {e.returncode}'}") from e
        except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired) as e:
            raise ConfigError(f"the credential plugin {command!r} gave no credential: {type(e).__name__}") from e
        if not isinstance(status, dict):
            raise ConfigError(f"the credential plugin {command!r} gave no credential")
        return status
