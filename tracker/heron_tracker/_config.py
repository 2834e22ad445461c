"""The configuration of a Tracker: state managers, address, access. Read from `heron_tracker.yaml`."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heron_scheduler
import yaml

from heronpy.config import KIB
from heronpy.config.cluster import load_cluster
from heronpy.errors import ConfigError, HeronError, nearest
from heronpy.files import read_owned_file, user_path
from heronpy.runtime import StatemgrSpec

PORT = 8888
TOKEN_FILE = "tracker.token"
"""Where the token is, below HERON_HOME, if no other file is configured."""
ADOPTED_DIR = "tracker-credentials"
"""Where credentials of adopted topologies are, below HERON_HOME."""
_TOKEN_BYTES_MAX = 4 * KIB
_KEYS = (
    "statemgrs",
    "extra.links",
    "tracker.host",
    "tracker.port",
    "tracker.hosts",
    "tracker.token.file",
    "tracker.token.required",
    "tracker.cors.origins",
    "tracker.actions",
    "tracker.adopt.clusters",
    "tracker.adopt.config.path",
    "tracker.profiling.get",
)
_SERVERS = {"zookeeper": "ZooKeeper", "etcd": "etcd"}
_STATEMGR_FILES = {
    "credentials.file": "credentials_file",
    "tls.ca.file": "ca_file",
    "tls.certificate.file": "certificate_file",
}
_STATEMGR_KEYS = ("type", "name", "hostport", "rootpath", "tunnelhost", *_STATEMGR_FILES)
_LINK_VARIABLES = ("CLUSTER", "ENVIRON", "TOPOLOGY", "ROLE", "USER")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class StateManagerConfig:
    """One state manager that the Tracker follows."""

    name: str
    """What `/clusters` calls it."""
    spec: StatemgrSpec


@dataclass(frozen=True, slots=True)
class AdoptedCluster:
    """A cluster that is asked for the credentials of its topologies, as the Tracker's operator has configured it."""

    name: str
    statemgr: StatemgrSpec
    """Topologies of another state manager are not adopted, whatever cluster they name."""
    scheduler: str
    scheduler_config: Mapping[str, Any]
    """Which namespace, directory or user is asked. Never those that a state manager names."""


@dataclass(frozen=True, slots=True)
class ExtraLink:
    """A link that every topology gets, e.g. to a dashboard."""

    name: str
    formatter: str
    """The address, with ${CLUSTER}, ${ENVIRON}, ${TOPOLOGY}, ${ROLE} and ${USER} in it."""

    def url(self, variables: Mapping[str, str]) -> str:
        """The address for one topology."""
        return _VARIABLE.sub(lambda match: variables[match[1]], self.formatter)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerConfig:
    """The configuration of one Tracker."""

    statemgrs: tuple[StateManagerConfig, ...]
    """Which state managers it follows, all at once."""
    extra_links: tuple[ExtraLink, ...] = ()
    """Links that every topology gets."""
    host: str = "127.0.0.1"
    """Where it listens."""
    port: int = PORT
    """0: a free one."""
    token: str | None = None
    """What callers must send as `Authorization: Bearer <token>`; None: nothing."""
    token_required: bool = True
    """Whether `heron tracker` makes a token (0600, below HERON_HOME) where no token file is configured."""
    hosts: tuple[str, ...] = ()
    """Names that it may be addressed by, besides its own address, other IP addresses and localhost."""
    actions: bool = False
    """Whether clients that may ask may also activate, deactivate, restart and kill topologies."""
    adopt: tuple[AdoptedCluster, ...] = ()
    """The clusters that are asked for the credentials of topologies that were submitted elsewhere; none by default."""
    adopt_directory: Path | None = None
    """Where such credentials are kept, each Tracker's in a directory of its own, for as long as it runs."""
    profiling_get: bool = False
    """Whether instances can be profiled by GET, as in Heron, and not only by POST."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may read from it; none by default."""
    token_file: Path | None = None
    """Where the token was read from."""

    def __post_init__(self) -> None:
        if not self.statemgrs:
            raise ConfigError("the Tracker follows no state manager: name one under statemgrs")
        names = [statemgr.name for statemgr in self.statemgrs]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two state managers are named {name!r}: give one another name")
        if self.adopt and self.adopt_directory is None:
            raise ConfigError("the Tracker adopts topologies, and has no directory for their credentials")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"tracker.port must be between 0 and 65535, not {self.port}")


def adopted_clusters(
    names: Iterable[str], *, home: Path, config_path: str | Path | None = None
) -> tuple[AdoptedCluster, ...]:
    """The clusters of these names, from the configuration that commands have of them.

    Args:
        names: Of the clusters.
        home: What ${HERON_HOME} stands for.
        config_path: The directory with the clusters' directories; None: that which was installed.

    Raises:
        ConfigError, NotFoundError: there is no such cluster, its configuration is not valid, or its scheduler does not
            hand over credentials.
    """
    found = []
    for name in dict.fromkeys(names):
        cluster = load_cluster(name, home=home, config_path=config_path)
        if not heron_scheduler.hands_over(cluster.scheduler):
            raise ConfigError(
                f"tracker.adopt.clusters: scheduler {cluster.scheduler} of cluster {name} hands over no credentials"
            )
        heron_scheduler.scheduler_of(cluster.scheduler).check_config(cluster.scheduler_config)
        found.append(AdoptedCluster(name, StatemgrSpec.of(cluster), cluster.scheduler, cluster.scheduler_config))
    return tuple(found)


def local_state(home: Path) -> StateManagerConfig:
    """The state of this user's local cluster: what a Tracker without a configuration follows."""
    cluster = load_cluster("local", home=home)
    return StateManagerConfig(cluster.cluster, StatemgrSpec.of(cluster))


def load_config(path: Path, *, home: Path) -> TrackerConfig:
    """Read a `heron_tracker.yaml`.

    Args:
        home: What ${HERON_HOME} stands for in paths.

    Raises:
        ConfigError: it cannot be read, or has a wrong or unknown key; the key is named.
    """
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not valid YAML: {str(e).splitlines()[0]}") from e
    values = _map({} if values is None else values, str(path), _KEYS)
    token_file = values.get("tracker.token.file")
    found = values.get("statemgrs")
    config_path = values.get("tracker.adopt.config.path")
    adopted = [str(name) for name in _list(values.get("tracker.adopt.clusters"), path)]
    return TrackerConfig(
        statemgrs=tuple(_statemgr(item, path, home) for item in _list(found, path)) if found else (local_state(home),),
        extra_links=tuple(_link(item, path) for item in _list(values.get("extra.links"), path)),
        host=str(values.get("tracker.host", "127.0.0.1")),
        port=_port(values.get("tracker.port", PORT), path),
        token=read_token(_path(token_file, home)) if token_file else None,
        token_required=_flag(values, "tracker.token.required", path, default=True),
        hosts=tuple(str(host) for host in _list(values.get("tracker.hosts"), path)),
        actions=_flag(values, "tracker.actions", path, default=False),
        adopt=adopted_clusters(adopted, home=home, config_path=_path(config_path, home) if config_path else None),
        adopt_directory=home / ADOPTED_DIR if adopted else None,
        profiling_get=_flag(values, "tracker.profiling.get", path, default=False),
        token_file=_path(token_file, home) if token_file else None,
        cors_origins=tuple(str(origin) for origin in _list(values.get("tracker.cors.origins"), path)),
    )


def read_token(path: Path) -> str:
    """The token that callers must send: the first line of a file that only its owner can read.

    Raises:
        ConfigError: it cannot be read, is empty, or others can read or could have written it.
    """
    try:
        lines = read_owned_file(path, max_bytes=_TOKEN_BYTES_MAX, private=True).decode("ascii").strip().splitlines()
    except (HeronError, UnicodeDecodeError) as e:
        why = e if isinstance(e, HeronError) else "it is not ASCII"
        raise ConfigError(f"the Tracker's token {path} cannot be read: {why}") from e
    if not lines:
        raise ConfigError(f"the Tracker's token {path} is empty: write a long random word into it")
    return lines[0].strip()


def default_token(home: Path) -> tuple[str, Path]:
    """The token below HERON_HOME, made now if there is none, and its file.

    Raises:
        ConfigError: it cannot be read or written, or others can read it.
    """
    path = home / TOKEN_FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return read_token(path), path
    except OSError as e:
        raise ConfigError(f"the Tracker's token {path} cannot be written: {e.strerror}; or use --no-token") from e
    with os.fdopen(fd, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    return read_token(path), path


def statemgr(
    name: str, type: str, hostport: str, rootpath: str, *, home: Path, **files: str | None
) -> StateManagerConfig:
    """A state manager as the command line or the file describes it.

    Args:
        files: Those that `StatemgrSpec` names (`credentials_file`, …), as they are written.

    Raises:
        ConfigError: an unknown type, or a part is missing.
    """
    if type not in ("file", "kubernetes", *_SERVERS):
        known = "file, zookeeper, etcd or kubernetes"
        raise ConfigError(f"state manager {name!r}: type must be {known}, not {type!r}")
    if type in _SERVERS and not hostport:
        raise ConfigError(f"state manager {name!r}: hostport must name the {_SERVERS[type]} servers (host:port)")
    root = str(_path(rootpath, home)) if type == "file" and rootpath else rootpath
    if not root.startswith("/"):
        raise ConfigError(f"state manager {name!r}: rootpath must be an absolute path, not {rootpath!r}")
    named: dict[str, Any] = {key: str(_path(value, home)) for key, value in files.items() if value}
    connection = hostport if type != "file" else ""
    return StateManagerConfig(name, StatemgrSpec(type=type, connection=connection, root=root, **named))


def _statemgr(item: Any, path: Path, home: Path) -> StateManagerConfig:
    values = _map(item, f"{path}: statemgrs", _STATEMGR_KEYS)
    text = {key: str(value) if value is not None else "" for key, value in values.items()}
    if text.get("tunnelhost"):
        raise ConfigError(f"{path}: tunnelhost is not supported: open the tunnel with ssh and name its end in hostport")
    if not text.get("name"):
        raise ConfigError(f"{path}: every state manager under statemgrs needs a name")
    return statemgr(
        text["name"],
        text.get("type", ""),
        text.get("hostport", ""),
        text.get("rootpath", ""),
        home=home,
        **{field: text.get(key) for key, field in _STATEMGR_FILES.items()},
    )


def _link(item: Any, path: Path) -> ExtraLink:
    values = _map(item, f"{path}: extra.links", ("name", "formatter"))
    if not values.get("name") or not values.get("formatter"):
        raise ConfigError(f"{path}: every one of extra.links needs a name and a formatter")
    for variable in _VARIABLE.findall(str(values["formatter"])):
        if variable not in _LINK_VARIABLES:
            raise ConfigError(f"{path}: unknown variable ${{{variable}}}{nearest(variable, _LINK_VARIABLES)}")
    return ExtraLink(str(values["name"]), str(values["formatter"]))


def _path(value: Any, home: Path) -> Path:
    return user_path(str(value).replace("${HERON_HOME}", str(home)).replace("${HOME}", "~"))


def _map(value: Any, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a map of keys and values")
    for key in value:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{nearest(str(key), known)}")
    return value


def _list(value: Any, path: Path) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{path}: {value!r} must be a list")
    return value


def _flag(values: Mapping[str, Any], key: str, path: Path, *, default: bool) -> bool:
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{path}: {key} must be true or false, not {value!r}")
    return default if value is None else value


def _port(value: Any, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{path}: tracker.port must be a number, not {value!r}")
    return value
