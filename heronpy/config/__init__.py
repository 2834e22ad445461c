"""Configuration: typed sections, and the keys that set them.

What is read from a cluster's YAML files is in `heronpy.config.cluster`, which only those import who submit topologies.
"""

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
    NetworkConfig,
    SecurityConfig,
    StmgrConfig,
    TmasterConfig,
)
from heronpy.config._names import check_name
from heronpy.config._reliability import ReliabilityMode
from heronpy.config._sinks import SINKS_FILE, SinkSpec, sinks_from, sinks_from_text, sinks_to_text

__all__ = [
    "FILES_MAX",
    "KEYS",
    "KIB",
    "MIB",
    "SINKS_FILE",
    "EngineConfig",
    "ExecutorConfig",
    "InstanceConfig",
    "LoggingConfig",
    "MetricsConfig",
    "NetworkConfig",
    "ReliabilityMode",
    "SecurityConfig",
    "SinkSpec",
    "StmgrConfig",
    "TmasterConfig",
    "check_name",
    "sinks_from",
    "sinks_from_text",
    "sinks_to_text",
]
