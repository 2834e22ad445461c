"""Metrics, their history and queries, and exceptions."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Metrics(BaseModel):
    interval: int = Field(description="Seconds; -1: all time.")
    component: str
    metrics: dict[str, dict[str, str]] = Field(description="Value by metric and instance.")


class Timeline(BaseModel):
    component: str
    starttime: int
    endtime: int
    timeline: dict[str, dict[str, dict[str, float]]] = Field(description="Value by metric, instance and minute.")


class QueryLine(BaseModel):
    instance: str | None = Field(default=None, description="Left out of a line that belongs to no instance.")
    data: dict[str, float]


class QueryResult(BaseModel):
    starttime: int
    endtime: int
    timeline: list[QueryLine]


class ExceptionEntry(BaseModel):
    hostname: str
    instance_id: str
    stacktrace: str
    lasttime: str
    firsttime: str
    count: int
    logging: str
    group: str = Field(description="Equal for exceptions that differ only in numbers and ids. Not of Heron.")


class ExceptionClass(BaseModel):
    class_name: str
    lasttime: str
    firsttime: str
    count: int


class HistoryLine(BaseModel):
    metric: str
    kind: str
    data: dict[str, float]


class History(BaseModel):
    """Not of Heron."""

    percentiles: dict[str, dict[str, dict[str, float]]] = Field(
        default={},
        description="By latency (without its stream), p50, p95 or p99, and time: in ns.",
    )

    component: str
    starttime: int
    endtime: int
    step: int = Field(description="Seconds from point to point.")
    lines: list[HistoryLine]


class UserMetric(BaseModel):
    """A metric that the topology registered itself. Not of Heron."""

    metric: str
    kind: str
    components: list[str] = Field(description="Those that reported it.")


class UserMetrics(BaseModel):
    """Not of Heron."""

    total: int = Field(description="How many there are, also those that are left out.")
    metrics: list[UserMetric]
