"""From a class's name in `metrics_sinks.yaml` to a sink."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from heronpy.errors import NotFoundError
from heronpy.metricsmgr.sinks._file import FileSink
from heronpy.metricsmgr.sinks._graphite import GraphiteSink
from heronpy.metricsmgr.sinks._spi import IMetricsSink

_OURS: dict[str, Callable[[], IMetricsSink]] = {"FileSink": FileSink, "GraphiteSink": GraphiteSink}


def sink_factory(sink_class: str) -> Callable[[], IMetricsSink]:
    """What makes a sink: one of ours, or `module.Class`.

    Raises:
        NotFoundError: there is no such class.
    """
    if sink_class in _OURS:
        return _OURS[sink_class]
    module_name, _, name = sink_class.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise NotFoundError(f"there is no sink {sink_class!r}: {e}") from e
    if not callable(found):
        raise NotFoundError(f"{sink_class!r} is no class of a sink")
    return found  # type: ignore[no-any-return]  # whatever it makes is used as a sink, and isolated
