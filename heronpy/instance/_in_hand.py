"""The batch of tuples that a bolt executes, and how far it is."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heronpy.api.tuple import Tuple
from heronpy.instance._inbatch import InBatch, per_origin
from heronpy.instance._metrics import TaskMetrics
from heronpy.wire import Tuples


class BatchInHand:
    """One received batch, from when its values are deserialized until its last tuple is executed."""

    __slots__ = ("_counted", "_numbers", "_skipped", "_tuples", "_values", "began_ns", "count", "origins", "received")

    def __init__(
        self,
        tuples: Tuples,
        values: Sequence[list[Any]],
        component: str,
        fields_of: Callable[[str], Sequence[str]],
        skipped: int,
    ) -> None:
        """Nothing of it is executed yet.

        Args:
            tuples: the batch, without what was skipped.
            values: of each of its tuples.
            component: which has sent it.
            fields_of: the names of the values of a stream's tuples.
            skipped: so many tuples at its beginning were executed before a restore.
        """
        self.count = tuples.count
        self.origins = [InBatch(tuples, component, stream, fields_of(stream)) for stream in tuples.streams]
        self._tuples, self._values, self._skipped = tuples, values, skipped
        # The range is the batch's clock: what is left of it says how many tuples were begun.
        self._numbers = iter(range(tuples.count))
        self._counted = 0
        self.began_ns = 0
        """When its execution began, or what was executed was last counted."""
        if tuples.stream_indexes is None:
            origin_of_each: Iterator[InBatch] = itertools.repeat(self.origins[0])
        else:
            origin_of_each = map(self.origins.__getitem__, tuples.stream_indexes.tolist())
        self.received: Iterator[Tuple] = map(Tuple, values, origin_of_each, self._numbers)
        """Its tuples; who takes one has begun it."""

    @property
    def left(self) -> int:
        """How many of its tuples are not begun."""
        return operator.length_hint(self._numbers)

    @property
    def begun(self) -> int:
        """How many of its tuples are executed, between two of them; with those before a restore."""
        return self._skipped + self.count - self.left

    def last(self) -> Tuple:
        """The tuple that was begun last."""
        index = self.count - self.left - 1
        stream = 0 if self._tuples.stream_indexes is None else int(self._tuples.stream_indexes[index])
        return Tuple(self._values[index], self.origins[stream], index)

    def count_received(self, metrics: TaskMetrics, received_ns: int, now_ns: int) -> list[tuple[InBatch, int]]:
        """Count the time that deserialization took; execution begins. Returns how many tuples each origin has."""
        self.began_ns = now_ns
        counts = per_origin(self._tuples, self.origins, 0, self.count)
        for origin, count in counts:
            origin.began_ns = received_ns
            source, share_ns = f"{origin.component}/{origin.stream}", (now_ns - received_ns) * count / (self.count or 1)
            metrics.add(f"__tuple-deserialization-time-ns/{source}", share_ns)
            metrics.mean(f"__av-tuple-deserialization-time-ns/{source}", share_ns, count)
        return counts

    def count_executed(self, metrics: TaskMetrics, now_ns: int) -> int:
        """Count what was executed since the last call, and the time it took. Returns how many tuples that were."""
        begun, counted, took_ns = self.count - self.left, self._counted, now_ns - self.began_ns
        if begun == counted:
            return 0
        for origin, count in per_origin(self._tuples, self.origins, counted, begun):
            source, share_ns = f"{origin.component}/{origin.stream}", took_ns * count / (begun - counted)
            metrics.add(f"__execute-count/{source}", count)
            metrics.add(f"__execute-time-ns/{source}", share_ns)
            metrics.mean(f"__execute-latency/{source}", share_ns, count)
        self.began_ns, self._counted = now_ns, begun
        return begun - counted
