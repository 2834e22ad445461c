"""Configuration: typed sections, and the keys that set them."""

from heronpy.config._cluster import (
    CLUSTER_KEYS,
    ClusterConfig,
    check_name,
    clusters,
    load_cluster,
)
from heronpy.config._engine import (
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

__all__ = [
    "CLUSTER_KEYS",
    "KEYS",
    "KIB",
    "MIB",
    "ClusterConfig",
    "EngineConfig",
    "ExecutorConfig",
    "InstanceConfig",
    "LoggingConfig",
    "MetricsConfig",
    "StmgrConfig",
    "TmasterConfig",
    "check_name",
    "clusters",
    "load_cluster",
]
