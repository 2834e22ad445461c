"""What a sink gets, and what it has to do."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class MetricKind(enum.Enum):
    """What a value means."""

    COUNTER = "counter"
    """A sum since the process started, over all its lives that the Metrics Manager has seen."""
    GAUGE = "gauge"
    """A value, or a mean since the report before."""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    name: str
    """Heron's name, e.g. `__emit-count/default`."""
    value: float
    kind: MetricKind


@dataclass(frozen=True, slots=True)
class ExceptionRecord:
    """An exception that was raised since the record before."""

    stacktrace: str
    first_time_ms: int
    last_time_ms: int
    count: int
    """Since the process started."""


@dataclass(frozen=True, slots=True)
class MetricsRecord:
    """What one process reported."""

    topology: str
    component: str
    instance: str
    """Its id; unique in the topology."""
    container: int
    time_ms: int
    metrics: tuple[MetricInfo, ...]
    exceptions: tuple[ExceptionRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Where a sink runs."""

    topology: str
    container: int
    sink: str
    """The name of its section in `metrics_sinks.yaml`."""
    log_dir: Path
    """The container's directory for logs, which the Tracker serves."""


class IMetricsSink(ABC):
    """A sink. All calls come from one thread; an exception from any of them closes it, and later makes a new one."""

    @abstractmethod
    def init(self, config: Mapping[str, Any], context: SinkContext) -> None:
        """Begin. `config` has the keys of the sink's section."""

    @abstractmethod
    def process_record(self, record: MetricsRecord) -> None:
        """Take in what a process reported."""

    @abstractmethod
    def flush(self) -> None:
        """Let others see what was taken in. Called every `flush-frequency-ms`, and before the end."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Called once, also after a failure."""
