"""One sink in isolation: a thread, a bounded queue, and a new start after a failure."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from heronpy.config import SinkSpec
from heronpy.errors import NotFoundError
from heronpy.metricsmgr.sinks._spi import IMetricsSink, MetricsRecord, SinkContext

log = logging.getLogger(__name__)

RECORDS_MAX = 1024
"""Records that wait for the sink. More are dropped, and counted."""
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0
HANG_S = 30.0
"""A call that takes longer is reported."""


class SinkRunner:
    """Runs one sink until `stop`. What it counts may be read from any thread.

    Args:
        spec: its section.
        context: where it runs.
        make: makes a sink; called again after each failure.
        backoff_s: the pause after the first failure; each next one is twice as long, up to a minute.
        records_max: how many may wait for it.
        hang_s: how long a call may take until the log says so.
    """

    def __init__(
        self,
        spec: SinkSpec,
        context: SinkContext,
        make: Callable[[], IMetricsSink],
        *,
        backoff_s: float = BACKOFF_FIRST_S,
        records_max: int = RECORDS_MAX,
        hang_s: float = HANG_S,
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
        self._hang_s = hang_s
        self._call: tuple[str, float] | None = None
        """Which method the sink's thread is in, and since when."""
        self._hung: tuple[str, float] | None = None
        """The call that was reported to hang."""
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
        self._watch()
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
            except NotFoundError as e:
                log.error("sink %s is not used: %s", self.name, e)
                self._drop_all()
                return
            # The one place for whatever a sink's code may raise: it is somebody else's, and concerns it alone.
            except (Exception, SystemExit) as e:
                self.failures += 1
                log.warning("sink %s failed %s", self.name, _described(e))
            if time.monotonic() - begun_s > BACKOFF_MAX_S:
                self._backoff_s = self._first_backoff_s  # it was well for a while
            if attempts >= 0 and self.failures > attempts:
                log.error("sink %s is given up; failures: %d", self.name, self.failures)
                self._drop_all()
                return
            if self._stopping.wait(self._backoff_s):
                return
            self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)

    def _live(self) -> None:
        with self._in("its constructor"):
            sink = self._make()
        try:
            with self._in("init"):
                sink.init(self._spec.options, self._context)
            self._feed(sink)
            with self._in("flush"):
                sink.flush()
        finally:
            with self._in("close"):
                sink.close()

    @contextlib.contextmanager
    def _in(self, method: str) -> Iterator[None]:
        """Note that the sink's thread is in one of its methods."""
        call = self._call = (method, time.monotonic())
        try:
            yield
        finally:
            self._call = None
            if self._hung is call:
                log.warning("sink %s has returned from %s after %.0f s", self.name, method, time.monotonic() - call[1])

    def _watch(self) -> None:
        """Say once of a call that it hangs; from the caller's thread, for the sink's cannot."""
        call = self._call
        if call is not None and call is not self._hung and time.monotonic() - call[1] >= self._hang_s:
            self._hung = call
            log.warning("sink %s hangs in %s: what it gets waits, and more than that is dropped", self.name, call[0])

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
                    with self._in("process_record"):
                        sink.process_record(record)
                except BaseException:
                    self._lost += 1
                    raise
                self.processed += 1
            elif self._stopping.is_set() and self._queue.empty():
                return
            if time.monotonic() >= next_flush_s:
                with self._in("flush"):
                    sink.flush()
                next_flush_s = time.monotonic() + interval_s

    def _drop_all(self) -> None:
        while not self._stopping.is_set():
            if self._queue.get() is not None:
                self._lost += 1


def _described(error: BaseException) -> str:
    """Where it was raised, and what, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    first = next(iter(str(error).splitlines()), "")
    return f"in {frame.name} ({Path(frame.filename).name}:{frame.lineno}): {type(error).__name__}: {first}"
