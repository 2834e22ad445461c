"""From a class's name in `metrics_sinks.yaml` to a sink."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from heronpy.errors import NotFoundError
from heronpy.metricsmgr.sinks._file import FileSink
from heronpy.metricsmgr.sinks._graphite import GraphiteSink
from heronpy.metricsmgr.sinks._spi import IMetricsSink

_OURS: dict[str, Callable[[], IMetricsSink]] = {"FileSink": FileSink, "GraphiteSink": GraphiteSink}


def sink_factory(sink_class: str) -> Callable[[], IMetricsSink]:
    """What makes a sink: one of ours, or `module.Class` of anything that the Metrics Manager can import.

    The module is imported when the first sink is made, so in the sink's own thread: importing may fail and hang, too.
    Making one raises NotFoundError if there is no such class.
    """
    return _OURS.get(sink_class) or functools.partial(_make, sink_class)


def _make(sink_class: str) -> IMetricsSink:
    module_name, _, name = sink_class.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise NotFoundError(f"{sink_class!r} cannot be imported: {e}; is it installed, or on PYTHONPATH?") from e
    if not callable(found):
        raise NotFoundError(f"{sink_class!r} is not a class of a sink")
    return found()  # type: ignore[no-any-return]  # whatever it makes is used as a sink, and isolated
