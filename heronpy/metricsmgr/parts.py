"""The Metrics Manager as a service, and the parts that it and reporters are made of: what the tests drive."""

from heronpy.metricsmgr._accumulator import DROPPED_NAME, EXCEPTIONS_MAX, Accumulator
from heronpy.metricsmgr._ledger import LIVES_MAX, NAMES_MAX, SourceSnapshot
from heronpy.metricsmgr._outbox import LIVES_WAITING_MAX, Outbox
from heronpy.metricsmgr._pace import pauses as report_pauses
from heronpy.metricsmgr._process import other_process_metrics, process_metrics
from heronpy.metricsmgr._prometheus import HeronCollector, SeriesName, series_name
from heronpy.metricsmgr._prometheus_names import HELP
from heronpy.metricsmgr._service import BATCH_REPORTS, MetricsManager

__all__ = [
    "BATCH_REPORTS",
    "DROPPED_NAME",
    "EXCEPTIONS_MAX",
    "HELP",
    "LIVES_MAX",
    "LIVES_WAITING_MAX",
    "NAMES_MAX",
    "Accumulator",
    "HeronCollector",
    "MetricsManager",
    "Outbox",
    "SeriesName",
    "SourceSnapshot",
    "other_process_metrics",
    "process_metrics",
    "report_pauses",
    "series_name",
]
