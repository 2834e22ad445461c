"""One sink in isolation: a thread, a bounded queue, and a new start after a failure."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from heronpy.config import SinkSpec
from heronpy.metricsmgr.sinks._spi import IMetricsSink, MetricsRecord, SinkContext

log = logging.getLogger(__name__)

RECORDS_MAX = 1024
"""Records that wait for the sink. More are dropped, and counted."""
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0


class SinkRunner:
    """Runs one sink until `stop`. What it counts may be read from any thread.

    Args:
        spec: its section.
        context: where it runs.
        make: makes a sink; called again after each failure.
        backoff_s: the pause after the first failure; each next one is twice as long, up to a minute.
    """

    def __init__(
        self,
        spec: SinkSpec,
        context: SinkContext,
        make: Callable[[], IMetricsSink],
        *,
        backoff_s: float = BACKOFF_FIRST_S,
        records_max: int = RECORDS_MAX,
    ) -> None:
        self.name = spec.name
        self.processed = 0
        """Records that the sink has taken."""
        self.failures = 0
        """How often it failed."""
        self._spec, self._context, self._make = spec, context, make
        self._first_backoff_s = self._backoff_s = backoff_s
        self._queue: queue.Queue[MetricsRecord | None] = queue.Queue(maxsize=records_max)
        self._refused = 0  # counted by the caller's thread
        self._lost = 0  # counted by the sink's
        self._stopping = threading.Event()
        # A daemon: a sink that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"sink/{spec.name}", daemon=True)

    @property
    def dropped(self) -> int:
        """Records that the sink never got: it was too slow, or had failed."""
        return self._refused + self._lost

    def start(self) -> None:
        self._thread.start()

    def offer(self, record: MetricsRecord) -> None:
        """Give the sink a record, as soon as it has time. Never waits."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._refused += 1

    def stop(self, timeout_s: float) -> bool:
        """Let the sink take what waits, flush and close it. False if it did not do so in time."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        attempts = self._spec.restart_attempts
        while True:
            begun_s = time.monotonic()
            try:
                self._live()
                return
            # The one place for whatever a sink's code may raise: it is somebody else's, and concerns it alone.
            except Exception as e:
                self.failures += 1
                log.warning("sink %s failed: %s: %s", self.name, type(e).__name__, e)
            if time.monotonic() - begun_s > BACKOFF_MAX_S:
                self._backoff_s = self._first_backoff_s  # it was well for a while
            if attempts >= 0 and self.failures > attempts:
                log.error("sink %s is given up after %d failures", self.name, self.failures)
                self._drop_all()
                return
            if self._stopping.wait(self._backoff_s):
                return
            self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)

    def _live(self) -> None:
        sink = self._make()
        try:
            sink.init(self._spec.options, self._context)
            self._feed(sink)
            sink.flush()
        finally:
            sink.close()

    def _feed(self, sink: IMetricsSink) -> None:
        """Return when it is to stop, and nothing waits any more."""
        interval_s = self._spec.flush_interval_ms / 1000
        next_flush_s = time.monotonic() + interval_s
        while True:
            try:
                record = self._queue.get(timeout=max(0.0, next_flush_s - time.monotonic()))
            except queue.Empty:
                record = None
            if record is not None:
                try:
                    sink.process_record(record)
                except Exception:
                    self._lost += 1
                    raise
                self.processed += 1
            elif self._stopping.is_set() and self._queue.empty():
                return
            if time.monotonic() >= next_flush_s:
                sink.flush()
                next_flush_s = time.monotonic() + interval_s

    def _drop_all(self) -> None:
        while not self._stopping.is_set():
            if self._queue.get() is not None:
                self._lost += 1
