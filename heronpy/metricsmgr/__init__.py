"""Metrics: how a process reports them (`Reporter`), and the Metrics Manager that collects them in every container.

`python -m heronpy.metricsmgr --dir D --container N` runs a Metrics Manager. It keeps the sums of its container,
exports them to Prometheus and forwards them to the Topology Master. Everything imported here is light, because every
process imports it.
"""

from heronpy.metricsmgr._exception_group import exception_group
from heronpy.metricsmgr._ledger import Delta, Histogram, Ledger, Life, Source, life_of
from heronpy.metricsmgr._reporter import SOCKET_NAME, Reporter

__all__ = ["SOCKET_NAME", "Delta", "Histogram", "Ledger", "Life", "Reporter", "Source", "exception_group", "life_of"]
