"""The whole configuration that a topology runs with, and where each value comes from. Pure.

Defaults < files of the cluster < `--config-property` < the topology < a component. Which of them set a key is known
when a topology is submitted, and kept in its launch.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heronpy.api.topology import TopologyType
from heronpy.config import KEYS, is_scheduler_key
from heronpy.config.cluster import ClusterConfig
from heronpy.plan import LogicalPlan
from heronpy.proto import topology_pb2
from heronpy.runtime import Launch

DEFAULT = "default"
TOPOLOGY = "topology"
COMPONENT = "component"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of the configuration."""

    of: str
    """Whose: `engine`, `topology`, or the name of a component."""
    key: str
    value: Any
    """In the key's unit. Secrets are in it: see `heronpy.redaction`."""
    origin: str
    """`default`, `cluster file NAME/FILE`, `command line`, `topology`, `component`, or `unknown`."""


def set_by_user(definition: topology_pb2.Topology) -> list[topology_pb2.Config.KeyValue]:
    """What a definition sets: it always carries the built-in defaults, and a value equal to its default is open."""
    default = TopologyType.DEFAULT_TOPOLOGY_CONFIG
    return [kv for kv in definition.topology_config.kvs if kv.key not in default or kv.value != default[kv.key]]


def origins_of(cluster: ClusterConfig, definition: topology_pb2.Topology, merged: Mapping[str, Any]) -> dict[str, str]:
    """Where each key was set that is not left at its default.

    Args:
        cluster: the cluster's files and the command line.
        definition: what the user's code made.
        merged: the topology's configuration, with what the cluster adds.
    """
    own = {kv.key for kv in set_by_user(definition)}
    return {**cluster.origins, **dict.fromkeys(own & set(merged), TOPOLOGY)}


def effective_config(logical: LogicalPlan, launch: Launch | None) -> list[Setting]:
    """Every value that is in force: the engine's, the topology's, then those of its components.

    Args:
        logical: the topology.
        launch: its launch.json; None if it cannot be read from here: then the engine's values are not known, nor who
            set the topology's.
    """
    settings = []
    if launch is not None:
        values = {**_defaults(), **launch.config.to_keys(), **_cluster_values(launch)}
        settings = [Setting("engine", key, value, launch.origins.get(key, DEFAULT)) for key, value in values.items()]
    settings += [
        Setting(TOPOLOGY, key, value, _origin(key, value, launch))
        for key, value in logical.config.items()
        if launch is None or (key not in KEYS and not is_scheduler_key(key))  # the engine's are above
    ]
    settings += [
        Setting(component.name, key, value, COMPONENT)
        for component in logical.components.values()
        for key, value in component.config.items()
    ]
    return settings


def _origin(key: str, value: Any, launch: Launch | None) -> str:
    if launch is not None:
        return launch.origins.get(key, DEFAULT)
    return DEFAULT if TopologyType.DEFAULT_TOPOLOGY_CONFIG.get(key) == value else UNKNOWN


def _defaults() -> dict[str, Any]:
    return {key: default / scale if scale != 1 else default for key, (_, _, default, scale) in KEYS.items()}


def _cluster_values(launch: Launch) -> dict[str, Any]:
    """The cluster's keys that a running topology still depends on."""
    statemgr = launch.statemgr
    return {
        "heron.class.state.manager": statemgr.type,
        "heron.statemgr.connection.string": statemgr.connection,
        "heron.statemgr.root.path": statemgr.root,
        "heron.statemgr.credentials.file": statemgr.credentials_file,
        "heron.statemgr.tls.ca.file": statemgr.ca_file,
        "heron.statemgr.tls.certificate.file": statemgr.certificate_file,
        "heron.statemgr.session.timeout.ms": statemgr.session_timeout_ms,
        "heron.class.scheduler": launch.scheduler,
        **launch.scheduler_config,
    }
