"""Dashboards for Grafana, made from logical plans, and what Prometheus needs to find the topologies.

A dashboard has the sections of Heron's Viz: health, resources, one per component, Stream Managers. Its queries use the
names and labels of the Metrics Managers' Prometheus endpoints; the scrape configuration and the alert rules that belong
to them are in `deploy/prometheus`.
"""

from heronpy.viz._dashboard import topology_dashboard
from heronpy.viz._grafana import GrafanaClient
from heronpy.viz._overview import overview_dashboard
from heronpy.viz._panels import Dashboard, Panel, Query, Row, Variable
from heronpy.viz._targets import Discovery, limits, on_this_host, targets

__all__ = [
    "Dashboard",
    "Discovery",
    "GrafanaClient",
    "Panel",
    "Query",
    "Row",
    "Variable",
    "limits",
    "on_this_host",
    "overview_dashboard",
    "targets",
    "topology_dashboard",
]
