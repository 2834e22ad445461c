"""What a spout task counts: its calls of next_tuple, and what became of its roots, by stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from heronpy.instance._metrics import TaskMetrics
from heronpy.instance._roots import Finished


class SpoutCounts:
    """Writes to the metrics of a task, by Heron's names. Task thread only."""

    def __init__(self, metrics: TaskMetrics, streams: Sequence[str]) -> None:
        """Start.

        Args:
            metrics: where to count.
            streams: the spout's streams, in the order of the numbers in `Finished.streams`.
        """
        self._metrics = metrics
        self._streams = streams

    def called(self, calls: int, took_ns: int) -> None:
        """Note `calls` calls of next_tuple in a row, which took so long together."""
        self._metrics.add("__next-tuple-count", calls)
        self._metrics.mean("__next-tuple-latency", took_ns, calls)
        self._metrics.add("__produce-tuple-count", 1)

    def acked(self, done: Finished) -> None:
        for stream, count, latency_ns in self._by_stream(done):
            self._metrics.add(f"__ack-count/{stream}", count)
            each = done.latencies_ns
            if len(self._streams) > 1:
                each = each[done.streams == self._streams.index(stream)]
            self._metrics.mean(f"__complete-latency/{stream}", latency_ns, count, each)

    def acked_at_once(self, streams: Sequence[str]) -> None:
        """Note untracked tuples, which count as acked, by the streams that they were emitted to."""
        for stream, count in Counter(streams).items():
            self._metrics.add(f"__ack-count/{stream}", count)

    def failed(self, gone: Finished) -> None:
        for stream, count, latency_ns in self._by_stream(gone):
            self._metrics.add(f"__fail-count/{stream}", count)
            self._metrics.mean(f"__fail-latency/{stream}", latency_ns, count)

    def timed_out(self, gone: Finished) -> None:
        """Note roots that are failed because of their timeout; `failed` is called, too."""
        for stream, count, _ in self._by_stream(gone):
            self._metrics.add(f"__timeout-count/{stream}", count)

    def _by_stream(self, roots: Finished) -> Iterator[tuple[str, int, float]]:
        """Stream, number of roots and the sum of their latencies in ns, for every stream that has any."""
        if len(self._streams) < 2:
            yield self._streams[0], roots.count, float(roots.latencies_ns.sum())
            return
        counts = np.bincount(roots.streams)
        latencies_ns = np.bincount(roots.streams, weights=roots.latencies_ns)
        for number in np.flatnonzero(counts).tolist():
            yield self._streams[number], int(counts[number]), float(latencies_ns[number])
