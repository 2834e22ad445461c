"""How a topology is and what it does, at a glance. Not of Heron."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Load(BaseModel):
    """What a component or an instance does, over the interval. Not of Heron."""

    emitted: float
    executed: float
    acked: float
    failed: float
    emit_rate: float | None = Field(description="Per second; none over all time.")
    execute_rate: float | None
    complete_latency_ms: float | None
    execute_latency_ms: float | None
    process_latency_ms: float | None
    capacity: float | None = Field(description="Share of the time in `process` (of the busiest instance).")
    cpu_cores: float | None
    memory_bytes: float | None
    backpressure_ms: float = Field(description="How long it has throttled the spouts.")


class HealthReason(BaseModel):
    kind: str = Field(
        description="tmaster, stopped, state, checkpoints, ready, restarts, failures, silence, backpressure."
    )
    state: str = Field(description="How bad this alone is.")
    text: str


class Health(BaseModel):
    """How a topology is, as its Topology Master assesses it. Not of Heron."""

    state: str = Field(description="healthy, starting, degraded, unhealthy.")
    restarts: int = Field(description="Of all its processes, in the last 10 minutes.")
    reasons: list[HealthReason] = Field(description="The worst first; none of a healthy topology.")


class TopologyHealth(Health):
    cluster: str
    role: str
    environ: str
    name: str


class InstanceLoad(Load):
    id: str
    container: int
    restarts: int = Field(description="Since it was started on purpose.")
    recent_restarts: int = Field(description="In the last 10 minutes.")
    attached: bool
    pid: int
    uptime_s: float | None


class Percentiles(BaseModel):
    """Of a latency, within 1.6 %. Not of Heron."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class ComponentLoad(Load):
    name: str
    complete_percentiles: Percentiles | None
    execute_percentiles: Percentiles | None = Field(description="Of batches, weighed by their tuples.")
    process_percentiles: Percentiles | None = Field(description="Of batches, weighed by their tuples.")
    restarts: int
    recent_restarts: int
    kind: str
    parallelism: int
    instances: list[InstanceLoad]


class Culprit(BaseModel):
    instance: str
    held_ms: float


class Summary(BaseModel):
    """Not of Heron."""

    cluster: str
    role: str
    environ: str
    name: str
    id: str
    status: str
    ready: bool
    tracked: bool = Field(description="Tuples are acked: at least once or better.")
    health: Health
    tmaster: str
    interval: int = Field(description="Seconds; -1: all time.")
    as_of: str | None = Field(
        description="When the numbers were measured, if they are not live; null if they are, or none are known."
    )
    components: list[ComponentLoad]
    culprits: list[Culprit] = Field(description="Who throttled the spouts, the worst first.")
