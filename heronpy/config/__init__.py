"""Configuration: typed sections, and the keys that set them.

What is read from a cluster's YAML files is in `heronpy.config.cluster`, which only those import who submit topologies.
"""

from heronpy.config._engine import (
    FILES_MAX,
    KEYS,
    KIB,
    MIB,
    CheckpointsConfig,
    EngineConfig,
    ExecutorConfig,
    InstanceConfig,
    LoggingConfig,
    MetricsConfig,
    NetworkConfig,
    PackageConfig,
    SecurityConfig,
    ShellConfig,
    StmgrConfig,
    TmasterConfig,
)
from heronpy.config._names import check_name, is_name
from heronpy.config._reliability import (
    ALLOW_DROPPED_STATE,
    ALLOW_EMPTY_STATE,
    ALLOW_LOSSY_SPOUTS,
    CHECKPOINT_INTERVAL_S,
    INEXACT_KEY,
    START_CLEAN,
    ReliabilityMode,
    checkpoint_interval_s,
    is_set,
    state_memory_bytes,
    takes_checkpoints,
)
from heronpy.config._scheduler_keys import is_scheduler_key, scheduler_keys
from heronpy.config._sinks import SINKS_FILE, SinkSpec, sinks_from, sinks_from_text, sinks_to_text

__all__ = [
    "ALLOW_DROPPED_STATE",
    "ALLOW_EMPTY_STATE",
    "ALLOW_LOSSY_SPOUTS",
    "CHECKPOINT_INTERVAL_S",
    "FILES_MAX",
    "INEXACT_KEY",
    "KEYS",
    "KIB",
    "MIB",
    "SINKS_FILE",
    "START_CLEAN",
    "CheckpointsConfig",
    "EngineConfig",
    "ExecutorConfig",
    "InstanceConfig",
    "LoggingConfig",
    "MetricsConfig",
    "NetworkConfig",
    "PackageConfig",
    "ReliabilityMode",
    "SecurityConfig",
    "ShellConfig",
    "SinkSpec",
    "StmgrConfig",
    "TmasterConfig",
    "check_name",
    "checkpoint_interval_s",
    "is_name",
    "is_scheduler_key",
    "is_set",
    "scheduler_keys",
    "sinks_from",
    "sinks_from_text",
    "sinks_to_text",
    "state_memory_bytes",
    "takes_checkpoints",
]
