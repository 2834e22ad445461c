"""Which state manager, and where; and the files that its servers want to be shown something of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.address import split_address
from heronpy.errors import ConfigError
from heronpy.files import create_file

if TYPE_CHECKING:
    from heronpy.config.cluster import ClusterConfig

SECRETS_DIR = "secrets"
"""Below a topology's directory."""
SESSION_TIMEOUT_MS = 10_000
_ROUTE_PORT = 9
"""Of a server that is named without its port: routes do not depend on it."""
_FILES = {
    "credentials_file": "statemgr-credentials",
    "ca_file": "statemgr-ca.pem",
    "certificate_file": "statemgr-certificate.pem",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatemgrSpec:
    """Which state manager, and where. Nothing in it is secret: secrets are in files that it names."""

    type: str = "file"
    """`file`, `zookeeper`, `etcd` or `kubernetes`."""
    connection: str = ""
    """[https://]host:port[,host:port…] of the servers; `[CONTEXT/]NAMESPACE` for Kubernetes; empty for files."""
    root: str = ""
    """The root path: a directory, a znode, a prefix of keys, or what distinguishes trees in one namespace."""
    credentials_file: str = ""
    """A file of one line, `user:password`, that only its owner can read; empty: no user."""
    ca_file: str = ""
    """A PEM file of the CAs that servers' certificates come from; empty: those of the system."""
    certificate_file: str = ""
    """A PEM file with a certificate and its private key to show to servers; empty: none."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    """Not for files: how long a silent process keeps its ephemeral nodes."""

    @classmethod
    def of(cls, config: ClusterConfig) -> StatemgrSpec:
        """That of a cluster."""
        return cls(
            type=config.statemgr_type,
            connection=config.statemgr_connection,
            root=config.statemgr_root,
            credentials_file=config.statemgr_credentials_file,
            ca_file=config.statemgr_ca_file,
            certificate_file=config.statemgr_certificate_file,
            session_timeout_ms=config.statemgr_session_timeout_ms,
        )

    def to_values(self, directory: Path) -> dict[str, Any]:
        """For launch.json: files below the topology's directory are named relative to it, so that it can be copied."""
        values: dict[str, Any] = {"type": self.type, "connection": self.connection, "root": self.root}
        if self.session_timeout_ms != SESSION_TIMEOUT_MS:
            values["session_timeout_ms"] = self.session_timeout_ms
        for name in _FILES:
            if path := getattr(self, name):
                inside = Path(path).is_relative_to(directory)
                values[name] = str(Path(path).relative_to(directory)) if inside else path
        return values

    @classmethod
    def of_values(cls, values: Mapping[str, Any], directory: Path) -> StatemgrSpec:
        """What `to_values` has made. Raises LookupError, TypeError and ValueError for values that it never makes."""
        text = {name: values[name] for name in ("type", "connection", "root")}
        files = {name: values.get(name, "") for name in _FILES}
        if not all(isinstance(value, str) for value in (*text.values(), *files.values())):
            raise TypeError("a name is not text")
        timeout_ms = int(values.get("session_timeout_ms", SESSION_TIMEOUT_MS))
        named = {name: str(directory / path) if path else "" for name, path in files.items()}
        return cls(**text, **named, session_timeout_ms=timeout_ms)

    def in_directory(self, directory: Path) -> StatemgrSpec:
        """The same with copies of its files below a topology's directory, `secrets/`, for its owner alone.

        Raises:
            ConfigError: one of them cannot be read.
            OSError: they cannot be written.
        """
        copies: dict[str, Any] = {}
        for name, copy in _FILES.items():
            if path := getattr(self, name):
                try:
                    content = Path(path).read_bytes()
                except OSError as e:
                    raise ConfigError(f"{path} cannot be read: {e.strerror}") from e
                (directory / SECRETS_DIR).mkdir(mode=0o700, exist_ok=True)
                create_file(directory / SECRETS_DIR / copy, content, mode=0o600)
                copies[name] = str(directory / SECRETS_DIR / copy)
        return replace(self, **copies)

    def first_server(self) -> tuple[str, int] | None:
        """Host and port of the first server of `connection`; None if there is none, or none is named.

        Raises:
            UsageError: the connection is not a list of addresses.
        """
        if self.type == "kubernetes":
            return None
        first = self.connection.partition("://")[2] or self.connection
        first = first.partition(",")[0].partition("/")[0]
        return split_address(first, _ROUTE_PORT) if first else None
