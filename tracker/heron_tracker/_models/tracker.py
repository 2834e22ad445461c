"""The Tracker itself: what it follows, and what is asked of it."""

from __future__ import annotations

from pydantic import BaseModel, Field


class StateManagerStatus(BaseModel):
    """Not of Heron."""

    name: str
    type: str
    location: str
    connected: bool
    since: str
    error: str | None
    topologies: int
    damaged: dict[str, str] = Field(description="Topologies whose state cannot be read, and why.")


class PrometheusTarget(BaseModel):
    """Prometheus' shape. Not of Heron."""

    targets: list[str]
    labels: dict[str, str]


class Version(BaseModel):
    """Not of Heron."""

    version: str
    actions: bool = Field(description="Whether topologies can be activated, deactivated, restarted and killed here.")
