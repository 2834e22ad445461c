"""Metrics to Graphite: its plaintext protocol over TCP.

A line is `<prefix>.<topology>.<component>.<instance>.<metric> <value> <seconds>`. Characters that mean something in
Graphite's paths become underscores, and a slash in a metric's name a dot: `__emit-count.default`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from heronpy.address import bare_host, join_address
from heronpy.metricsmgr.sinks._spi import IMetricsSink, MetricsRecord, SinkContext

log = logging.getLogger(__name__)

BUFFER_BYTES_MAX = 4 << 20
"""Lines that wait for a connection; the oldest are evicted."""
TIMEOUT_S = 5.0
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class GraphiteSink(IMetricsSink):
    """Keeps its lines until they are sent. Keys: `graphite-host`, `graphite-port`, `metrics-prefix`."""

    def __init__(self, *, buffer_bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self._buffer_bytes_max = buffer_bytes_max
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._socket: socket.socket | None = None
        self._away = False
        """Whether the last attempt to send has failed: it is reported once."""
        self.dropped = 0
        """Records that were evicted for others."""

    def init(self, config: Mapping[str, Any], context: SinkContext) -> None:
        self._address = bare_host(str(config.get("graphite-host", "127.0.0.1"))), int(config.get("graphite-port", 2003))
        prefix = str(config.get("metrics-prefix", "heron"))
        self._prefix = ".".join([*(_safe(part) for part in prefix.split(".") if part), _safe(context.topology)])

    def process_record(self, record: MetricsRecord) -> None:
        data = "".join(self._lines(record)).encode()
        self._waiting.append(data)
        self._bytes += len(data)
        while self._bytes > self._buffer_bytes_max:
            self._bytes -= len(self._waiting.pop(0))
            self.dropped += 1

    def flush(self) -> None:
        # A server that is away is not a failure: the lines wait. Only the end of the sink loses them.
        if not self._waiting:
            return
        try:
            connected = self._connected()
            while self._waiting:
                connected.sendall(self._waiting[0])
                self._bytes -= len(self._waiting.pop(0))
        except OSError as e:
            if not self._away:
                log.warning("Graphite at %s takes no metrics, they wait: %s", join_address(*self._address), e)
            self._away = True
            self._disconnect()
        else:
            self._away = False

    def close(self) -> None:
        self._disconnect()
        self._waiting.clear()
        self._bytes = 0

    def _connected(self) -> socket.socket:
        if self._socket is not None and _hung_up(self._socket):
            self._disconnect()
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=TIMEOUT_S)
        return self._socket

    def _disconnect(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone either way
                self._socket.close()
        self._socket = None

    def _lines(self, record: MetricsRecord) -> Iterator[str]:
        base = f"{self._prefix}.{_safe(record.component)}.{_safe(record.instance)}"
        for metric in record.metrics:
            if math.isfinite(metric.value):
                name = ".".join(_safe(part) for part in metric.name.split("/"))
                yield f"{base}.{name} {metric.value:.17g} {record.time_ms // 1000}\n"


def _safe(part: str) -> str:
    return _UNSAFE.sub("_", part) or "_"


def _hung_up(connected: socket.socket) -> bool:
    """Whether the server has closed: else the first lines after that would be sent into nothing."""
    connected.settimeout(0)
    try:
        return connected.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connected.settimeout(TIMEOUT_S)
