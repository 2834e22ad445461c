"""The parts of a Grafana dashboard, and their JSON.

Only what our dashboards use. Positions and ids are given when the JSON is made, so a row is written down as a list of
panels from left to right.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 41
"""Of the dashboard's JSON. Grafana of this age and younger reads it; an older one ignores what it does not know."""
WIDTH = 24
"""Columns of a dashboard."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One graph, one number, or one table."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    """A unit by Grafana's name, e.g. `bytes`, `ns`, `percentunit`."""
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    description: str = ""
    width: int = 8
    height: int = 8
    warn_at: float | None = None
    """A number is orange from here; a graph gets a line."""
    quiet: bool = False
    """Empty until something happens, e.g. a failure, or where nobody takes checkpoints."""

    def to_json(self, id: int, x: int, y: int) -> dict[str, Any]:
        """The panel at a place."""
        instant = self.kind != "timeseries"
        return {
            "id": id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": _DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [
                {
                    "refId": ref,
                    "datasource": _DATASOURCE,
                    "editorMode": "code",
                    "expr": query.expr,
                    "legendFormat": query.legend or "__auto",
                    "instant": instant,
                    "range": not instant,
                    **({"format": "table"} if self.kind == "table" else {}),
                }
                for ref, query in zip(string.ascii_uppercase, self.queries, strict=False)
            ],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
        }

    def _defaults(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if self.warn_at is not None:
            steps.append({"color": "orange", "value": self.warn_at})
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "noValue": "none" if self.quiet else "no data",
            "thresholds": {"mode": "absolute", "steps": steps},
        }
        if self.kind == "timeseries":
            defaults["min"] = 0
            defaults["custom"] = {
                "drawStyle": "line",
                "fillOpacity": 10,
                "showPoints": "never",
                "thresholdsStyle": {"mode": "off" if self.warn_at is None else "dashed"},
            }
        return defaults

    def _options(self) -> dict[str, Any]:
        if self.kind == "timeseries":
            return {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        if self.kind == "stat":
            return {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "none" if self.warn_at is None else "background",
                "graphMode": "none",
            }
        return {"showHeader": True}


@dataclass(frozen=True, slots=True)
class Row:
    """A section with a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A value that the reader chooses, or a constant (`values`) that queries use."""

    name: str
    label: str = ""
    metric: str = ""
    """The choices are the values of the label `name` in the series that this selects."""
    constant: str = ""
    """The value, of a variable that is not shown."""
    current: str = ""
    """The value chosen at first; empty: all."""
    many: bool = True
    """Several may be chosen, or all."""

    def to_json(self) -> dict[str, Any]:
        """The variable as Grafana has it."""
        if self.constant:
            return {"name": self.name, "type": "constant", "hide": 2, "query": self.constant, "skipUrlSync": True}
        query = f"label_values({self.metric}, {self.name})"
        chosen = {"text": self.current, "value": self.current} if self.current else {"text": "All", "value": "$__all"}
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": self.name},
            "definition": query,
            "refresh": 2,  # whenever the time range changes: instances come and go
            "sort": 1,
            "multi": self.many,
            "includeAll": self.many,
            "allValue": ".*" if self.many else None,
            "current": chosen,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard that can be imported into Grafana."""

    uid: str
    title: str
    description: str
    tags: tuple[str, ...]
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    def panels(self) -> Iterator[Panel]:
        """All panels, in reading order."""
        for row in self.rows:
            yield from row.panels

    def to_json(self, datasource: str = "") -> dict[str, Any]:
        """The dashboard as Grafana imports it.

        Args:
            datasource: Name of the Prometheus data source that is chosen at first; empty: Grafana's default.
        """
        current = {"text": datasource or "default", "value": datasource or "default"}
        choice = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": list(self.tags),
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,  # one crosshair for all graphs
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [{**choice, "current": current}, *(v.to_json() for v in self.variables)]},
            "annotations": {"list": []},
            "links": [],
            "panels": _laid_out(self.rows),
        }


def _laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    placed: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        grid = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": grid,
            }
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            placed.append(panel.to_json(len(placed) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed
