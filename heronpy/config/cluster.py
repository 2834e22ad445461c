"""A cluster's configuration: the YAML files of one directory, and what the command line overrides.

A cluster is a directory with Heron's file names (`statemgr.yaml`, `packing.yaml`, `heron_internals.yaml`, …). Each file
is a flat map of keys; which file a key stands in does not matter, a later file wins over an earlier one. Three kinds of
keys are known: the engine's (`KEYS`), those of a cluster (the fields of `ClusterConfig`), and a topology's
(`topology.…`), which here are defaults for topologies that do not set them. Those of a scheduler
(`heron.scheduler.<name>.…`) the scheduler checks. Every other key is an error, because a
misspelt key that is silently ignored costs its owner a day. `metrics_sinks.yaml` has sections instead: see `_sinks`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from heronpy.config._engine import KEYS, EngineConfig
from heronpy.config._names import is_name
from heronpy.config._scheduler_keys import is_scheduler_key, scheduler_keys
from heronpy.config._sinks import SINKS_FILE, sinks_from, sinks_to_text
from heronpy.config._stateful import translated
from heronpy.config._statemgr_keys import SESSION_TIMEOUT, SESSION_TIMEOUT_MS_MIN, translated_statemgr
from heronpy.errors import ConfigError, nearest
from heronpy.files import user_path

FILES = (
    "cluster.yaml",
    "client.yaml",
    "packing.yaml",
    "scheduler.yaml",
    "stateful.yaml",
    "statemgr.yaml",
    "uploader.yaml",
    "heron_internals.yaml",
    "override.yaml",
)
"""The files of a cluster in the order in which they are read; any of them may be missing."""

_STATE_MANAGERS = {
    "file": "file",
    "zookeeper": "zookeeper",
    "etcd": "etcd",
    "kubernetes": "kubernetes",
    # Heron's class names, so that a statemgr.yaml from there says the same here.
    "LocalFileSystemStateManager": "file",
    "CuratorStateManager": "zookeeper",
}
_FILES = (
    "heron.statemgr.credentials.file",
    "heron.statemgr.tls.ca.file",
    "heron.statemgr.tls.certificate.file",
)
_SCHEDULERS = {
    "LocalScheduler": "local",
    "KubernetesScheduler": "kubernetes",
    "SlurmScheduler": "slurm",
    "SparkScheduler": "spark",
    "YarnScheduler": "yarn",
}
COMMAND_LINE = "command line"
_SINKS_KEY = "heron.metricsmgr.sinks"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def _key(default: Any, key: str) -> Any:
    return field(default=default, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """What the files of one cluster say."""

    cluster: str
    """The name of the cluster's directory."""
    statemgr_type: str = _key("file", "heron.class.state.manager")
    """`file`, `zookeeper`, `etcd` or `kubernetes`."""
    statemgr_connection: str = _key("", "heron.statemgr.connection.string")
    """host:port[,host:port…][/chroot] of the ZooKeeper servers, [https://]host:port,… of etcd, `[CONTEXT/]NAMESPACE`
    for Kubernetes; empty for files."""
    statemgr_root: str = _key("", "heron.statemgr.root.path")
    """The state manager's root: an absolute directory, a znode, or a prefix of keys."""
    statemgr_credentials_file: str = _key("", "heron.statemgr.credentials.file")
    """A file of one line, `user:password`, that you alone can read: etcd's user, or ZooKeeper's digest, whose ACL every
    node gets. Empty: no user."""
    statemgr_ca_file: str = _key("", "heron.statemgr.tls.ca.file")
    """A PEM file of the CAs that the servers' certificates come from. With ZooKeeper it switches TLS on, with etcd
    `https://` does; empty: the system's CAs."""
    statemgr_certificate_file: str = _key("", "heron.statemgr.tls.certificate.file")
    """A PEM file, for you alone to read, with the certificate and private key to show to the servers; empty: none."""
    statemgr_session_timeout_ms: int = _key(10_000, SESSION_TIMEOUT)
    """Not for files: how long a silent process keeps its ephemeral nodes. Shorter finds a lost machine sooner, longer
    forgives a longer pause."""
    scheduler: str = _key("local", "heron.class.scheduler")
    """The name of the scheduler: `local`, or that of an installed one."""
    packing: str = _key("RoundRobinPacking", "heron.class.packing.algorithm")
    """The packing algorithm: RoundRobinPacking, ResourceCompliantRRPacking or FirstFitDecreasingPacking (Heron's Java
    class paths too), or the path `module.Class` of another."""
    repacking: str = _key("", "heron.class.repacking.algorithm")
    """The one that makes the plans of updates. Empty: the same."""
    role_required: bool = _key(False, "heron.config.is.role.required")
    """Refuse commands that name no role, instead of taking the user's name."""
    environ_required: bool = _key(False, "heron.config.is.env.required")
    """Refuse commands that name no environment, instead of taking `default`."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """The engine keys that are set, in the keys' units."""
    topology: Mapping[str, Any] = field(default_factory=dict)
    """The topology keys that are set: defaults for topologies that leave them out. Checked when one is submitted."""
    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's own keys that are set. Checked by the scheduler when a topology is submitted."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each key that is set was set, in words: `cluster file NAME/FILE` or `command line`."""

    def __post_init__(self) -> None:
        servers = {"zookeeper": "ZooKeeper", "etcd": "etcd"}.get(self.statemgr_type)
        if servers is not None and not self.statemgr_connection:
            raise ConfigError(
                f"cluster {self.cluster}: heron.statemgr.connection.string must name the {servers} servers (host:port)"
            )
        if not self.statemgr_root.startswith("/"):
            raise ConfigError(
                f"cluster {self.cluster}: heron.statemgr.root.path must be an absolute path, not {self.statemgr_root!r}"
            )

    def engine_config(self, topology: Mapping[str, Any] | None = None) -> EngineConfig:
        """The engine's configuration for a topology, whose own engine keys win over the cluster's.

        Raises:
            ConfigError: an unknown key, a value of the wrong type, or an impossible combination.
        """
        own = {
            key: value
            for key, value in (topology or {}).items()
            if key.startswith("heron.") and not is_scheduler_key(key)
        }
        return EngineConfig.from_keys({**self.engine, **own})


CLUSTER_KEYS: Mapping[str, dataclasses.Field[Any]] = {
    f.metadata["key"]: f for f in dataclasses.fields(ClusterConfig) if f.metadata
}
"""Every key of a cluster and the field that it sets."""


def clusters(config_path: str | Path | None = None) -> list[str]:
    """The names of the clusters that are configured, sorted."""
    root = _conf_root(config_path)
    return sorted(d.name for d in root.iterdir() if d.is_dir() and is_name(d.name))


def load_cluster(
    cluster: str,
    *,
    home: Path,
    role: str = "",
    environ: str = "default",
    topology: str = "",
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> ClusterConfig:
    """Read a cluster's files and override them with `properties`.

    Args:
        home: What ${HERON_HOME} stands for.
        role, environ, topology: What ${ROLE}, ${ENVIRON} and ${TOPOLOGY} stand for.
        properties: Keys from the command line.
        config_path: The directory that holds the clusters' directories; without it, the one that was installed.

    Raises:
        ConfigError: unknown cluster, file or key (the nearest known one is named), or a value of the wrong type.
    """
    known = clusters(config_path)
    if cluster not in known:
        hint = nearest(cluster, known) or f"; known are {', '.join(known) or 'none'}"
        raise ConfigError(f"unknown cluster {cluster!r}{hint}")
    variables = {
        "HERON_HOME": str(home),
        "CLUSTER": cluster,
        "ROLE": role,
        "TOPOLOGY": topology,
        "ENVIRON": environ,
    }
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for path in _files(_conf_root(config_path) / cluster):
        found = _checked(_read(path), str(path), variables)
        values.update(found)
        origins.update(dict.fromkeys(found, f"cluster file {cluster}/{path.name}"))
    sinks = _conf_root(config_path) / cluster / SINKS_FILE
    if sinks.exists():
        values.setdefault(_SINKS_KEY, sinks_to_text(sinks_from(_read(sinks), str(sinks))))
        origins.setdefault(_SINKS_KEY, f"cluster file {cluster}/{SINKS_FILE}")
    given = _checked(properties or {}, "--config-property", variables)
    values.update(given)
    origins.update(dict.fromkeys(given, COMMAND_LINE))
    config = ClusterConfig(
        cluster=cluster,
        engine={key: value for key, value in values.items() if key in KEYS},
        topology={key: value for key, value in values.items() if key.startswith("topology.")},
        scheduler_config=scheduler_keys(values),
        origins=origins,
        **{CLUSTER_KEYS[key].name: _convert(key, value) for key, value in values.items() if key in CLUSTER_KEYS},
    )
    config.engine_config()
    return config


def _conf_root(config_path: str | Path | None) -> Path:
    if config_path is not None:
        root = user_path(config_path)
        if not root.is_dir():
            raise ConfigError(f"--config-path {root} is not a directory")
        return root
    package = Path(__file__).parents[1]
    installed, checkout = package / "conf", package.parent / "deploy" / "conf"
    return installed if installed.is_dir() else checkout


def _files(directory: Path) -> list[Path]:
    for path in sorted(directory.glob("*.yaml")):
        if path.name not in (*FILES, SINKS_FILE):
            known = (*FILES, SINKS_FILE)
            raise ConfigError(f"{path} is not a file of a cluster's configuration{nearest(path.name, known)}")
    return [directory / name for name in FILES if (directory / name).exists()]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except yaml.MarkedYAMLError as e:
        line = f":{e.problem_mark.line + 1}" if e.problem_mark else ""
        raise ConfigError(f"{path}{line} is not valid YAML: {e.problem}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not valid YAML text") from e
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}") from e
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must be a map of keys and values")
    return values


def _checked(values: Mapping[str, Any], where: str, variables: Mapping[str, str]) -> dict[str, Any]:
    known = {*KEYS, *CLUSTER_KEYS}
    values = translated_statemgr(translated(values, where), where)
    for key in values:
        if key not in known and not str(key).startswith("topology.") and not is_scheduler_key(str(key)):
            raise ConfigError(f"{where}: unknown configuration key {key!r}{nearest(str(key), known)}")
    return {key: _substitute(value, key, variables) for key, value in values.items()}


def _substitute(value: Any, key: str, variables: Mapping[str, str]) -> Any:
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        if match[1] == "HOME":  # not before it is needed: a uid without a name has none
            return str(user_path("~"))
        if match[1] not in variables:
            raise ConfigError(f"{key}: unknown variable ${{{match[1]}}}{nearest(match[1], ['HOME', *variables])}")
        return variables[match[1]]

    return _VARIABLE.sub(replacement, value)


def _convert(key: str, value: Any) -> Any:
    if CLUSTER_KEYS[key].type == "bool":
        if not isinstance(value, bool):
            raise ConfigError(f"{key} must be true or false, not {value!r}")
        return value
    if key == SESSION_TIMEOUT:
        if not isinstance(value, int) or isinstance(value, bool) or value < SESSION_TIMEOUT_MS_MIN:
            raise ConfigError(f"{key} must be a number of milliseconds from {SESSION_TIMEOUT_MS_MIN} on, not {value!r}")
        return value
    text = "" if value is None else str(value)
    if key == "heron.class.scheduler":
        return _SCHEDULERS.get(text.rpartition(".")[2], text)
    if key in _FILES:
        return str(user_path(text).absolute()) if text else ""
    if key != "heron.class.state.manager":
        return text
    kind = _STATE_MANAGERS.get(text.rpartition(".")[2])
    if kind is None:
        known = ", ".join(sorted(set(_STATE_MANAGERS.values())))
        raise ConfigError(f"{key} must be one of {known}, not {text!r}{nearest(text, _STATE_MANAGERS)}")
    return kind
