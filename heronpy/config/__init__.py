"""Configuration: typed sections, and the keys that set them."""

from heronpy.config._cluster import (
    CLUSTER_KEYS,
    ClusterConfig,
    check_name,
    clusters,
    load_cluster,
)
from heronpy.config._engine import (
    FILES_MAX,
    KEYS,
    KIB,
    MIB,
    EngineConfig,
    ExecutorConfig,
    InstanceConfig,
    LoggingConfig,
    MetricsConfig,
    StmgrConfig,
    TmasterConfig,
)
from heronpy.config._sinks import SINKS_FILE, SinkSpec, sinks_from, sinks_from_text, sinks_to_text

__all__ = [
    "CLUSTER_KEYS",
    "FILES_MAX",
    "KEYS",
    "KIB",
    "MIB",
    "SINKS_FILE",
    "ClusterConfig",
    "EngineConfig",
    "ExecutorConfig",
    "InstanceConfig",
    "LoggingConfig",
    "MetricsConfig",
    "SinkSpec",
    "StmgrConfig",
    "TmasterConfig",
    "check_name",
    "clusters",
    "load_cluster",
    "sinks_from",
    "sinks_from_text",
    "sinks_to_text",
]
