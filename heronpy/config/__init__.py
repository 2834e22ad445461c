"""Configuration: typed sections, and the keys that set them."""

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
    "KEYS",
    "KIB",
    "MIB",
    "EngineConfig",
    "ExecutorConfig",
    "InstanceConfig",
    "LoggingConfig",
    "MetricsConfig",
    "StmgrConfig",
    "TmasterConfig",
]
