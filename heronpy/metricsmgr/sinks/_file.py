"""Metrics as JSON lines in files that rotate.

`metrics.json.<container>.0`, `.1`, ...: one line per process and flush, with its counters as sums since it started.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heronpy.metricsmgr.sinks._spi import IMetricsSink, MetricsRecord, SinkContext

FILE_BYTES_MAX = 10 << 20
"""A file that is larger is not continued."""
EXCEPTIONS_MAX = 64
"""Most exceptions of one process in one line."""


class FileSink(IMetricsSink):
    """Writes the latest record of each process at each flush. Keys: `filename-output`, `file-maximum`."""

    def __init__(self, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self._file_bytes_max = file_bytes_max
        self._waiting: dict[str, MetricsRecord] = {}

    def init(self, config: Mapping[str, Any], context: SinkContext) -> None:
        name = str(config.get("filename-output", "metrics.json"))
        if Path(name).name != name:
            raise ValueError(f"filename-output must be a file's name without directories, not {name!r}")
        self._files = max(1, int(config.get("file-maximum", 5)))
        self._base = context.log_dir / f"{name}.{context.container}"
        self._base.parent.mkdir(parents=True, exist_ok=True)

    def process_record(self, record: MetricsRecord) -> None:
        before = self._waiting.get(record.instance)
        if before is not None and before.exceptions:
            exceptions = {e.stacktrace: e for e in (*before.exceptions, *record.exceptions)}
            record = replace(record, exceptions=tuple(exceptions.values())[-EXCEPTIONS_MAX:])
        self._waiting[record.instance] = record

    def flush(self) -> None:
        if not self._waiting:
            return
        lines = "".join(_line(record) for record in self._waiting.values())
        newest = self._path(0)
        if newest.exists() and newest.stat().st_size + len(lines) > self._file_bytes_max:
            self._rotate()
        with newest.open("ab+") as f:
            if f.tell() and os.pread(f.fileno(), 1, f.tell() - 1) != b"\n":
                f.write(b"\n")  # a full disk has taken a part of a line
            f.write(lines.encode())
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()

    def _path(self, n: int) -> Path:
        """The newest file is number 0."""
        return self._base.with_name(f"{self._base.name}.{n}")

    def _rotate(self) -> None:
        self._path(self._files - 1).unlink(missing_ok=True)
        for n in range(self._files - 2, -1, -1):
            if self._path(n).exists():
                self._path(n).replace(self._path(n + 1))


def _line(record: MetricsRecord) -> str:
    values = {
        "time_ms": record.time_ms,
        "topology": record.topology,
        "component": record.component,
        "instance": record.instance,
        "container": record.container,
        # JSON has no NaN and no infinity.
        "metrics": {m.name: m.value if math.isfinite(m.value) else None for m in record.metrics},
        "exceptions": [
            {
                "stacktrace": e.stacktrace,
                "first_time_ms": e.first_time_ms,
                "last_time_ms": e.last_time_ms,
                "count": e.count,
            }
            for e in record.exceptions
        ],
    }
    return json.dumps(values, separators=(",", ":")) + "\n"
