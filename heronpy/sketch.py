"""A sketch of latencies: quantiles within 1.6 %, from counts that are added and merged like any other counters.

After DDSketch (Masson, Rim, Lee, PVLDB 12(12), 2019), with its linear mapping: the buckets are the powers of two, each
divided into 32 equal parts. The bucket of a value is then its float64's exponent and first five mantissa bits, which
is one shift for a whole array. So nothing is computed per tuple, merging is adding, and a difference of two sketches
of one growing source is a sketch again.

Rejected: t-digest (its merges depend on their order) and fixed bounds (one set cannot serve both 50 µs and 50 s).
"""

from __future__ import annotations

import functools
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add, sub
from typing import TYPE_CHECKING, Final

from heronpy.proto import metrics_pb2, tmaster_pb2

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PARTS_BITS: Final = 5
"""Parts of a power of two, as a power of two: with 32 of them the middle of a bucket is at most 1/64 off."""
_SHIFT: Final = 52 - PARTS_BITS
_BIAS: Final = 1023 << PARTS_BITS
LOWEST_NS: Final = 1 << 10
HIGHEST_NS: Final = 1 << 44
"""About 1 µs and 5 hours: what is below or above counts in the first or last bucket."""
_FIRST: Final = 10 << PARTS_BITS
BUCKETS: Final = 34 << PARTS_BITS
QUANTILES: Final = (0.5, 0.95, 0.99)


def bucket_of(ns: float) -> int:
    """The bucket of one latency in ns."""
    if ns < LOWEST_NS:
        return 0
    mantissa, exponent = math.frexp(ns)
    found = ((exponent - 1) << PARTS_BITS) + int((mantissa * 2 - 1) * (1 << PARTS_BITS)) - _FIRST
    return min(found, BUCKETS - 1)


def buckets_of(ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The buckets of many latencies in ns."""
    found: NDArray[np.int64] = (ns.astype("float64").view("int64") >> _SHIFT) - (_BIAS + _FIRST)
    return found.clip(0, BUCKETS - 1, out=found)


def edge_ns(bucket: int) -> float:
    """Where a bucket begins, and the one before it ends."""
    exponent, part = bucket >> PARTS_BITS, bucket & ((1 << PARTS_BITS) - 1)
    return math.ldexp(1 + part / (1 << PARTS_BITS), exponent + 10)


def _middle_ns(bucket: int) -> float:
    return (edge_ns(bucket) + edge_ns(bucket + 1)) / 2


@functools.lru_cache(maxsize=256)
def _buckets_below(bound_ns: float) -> int:
    """How many buckets have their middle at or below a bound."""
    return bisect_right(range(BUCKETS), bound_ns, key=_middle_ns)


class Sketch:
    """Counts by bucket. Only the buckets from the first to the last that has any are kept.

    Without numpy, although it would be faster: a merge of 200 buckets takes some microseconds either way and happens a
    few times per report, whereas importing numpy is a third of what the start of a Metrics Manager costs.
    """

    __slots__ = ("counts", "first")

    def __init__(self, first: int = 0, counts: Iterable[int] = ()) -> None:
        self.first = first
        self.counts = array("q", counts)

    @classmethod
    def of_dense(cls, dense: Sequence[int]) -> Sketch:
        """The sketch of the counts of all BUCKETS, which are copied."""
        return cls(0, dense)._trimmed()

    @classmethod
    def from_proto(cls, proto: metrics_pb2.Sketch) -> Sketch:
        """The sketch of a message; buckets that do not exist are cut off."""
        first = min(proto.first, BUCKETS)
        return cls(first, proto.counts[: BUCKETS - first])

    def to_proto(self) -> metrics_pb2.Sketch:
        return metrics_pb2.Sketch(first=self.first, counts=self.counts)

    def dense(self) -> array[int]:
        """All BUCKETS, as a new array."""
        dense = array("q", bytes(8 * BUCKETS))
        dense[self.first : self.first + len(self.counts)] = self.counts
        return dense

    @property
    def count(self) -> int:
        return sum(self.counts)

    def merge(self, other: Sketch) -> None:
        """Add what another one counted."""
        if not len(other.counts):
            return
        if not len(self.counts):
            self.first, self.counts = other.first, other.counts[:]
            return
        first = min(self.first, other.first)
        last = max(self.first + len(self.counts), other.first + len(other.counts))
        if first != self.first or last != self.first + len(self.counts):
            larger = array("q", bytes(8 * (last - first)))
            larger[self.first - first : self.first - first + len(self.counts)] = self.counts
            self.first, self.counts = first, larger
        there = slice(other.first - first, other.first - first + len(other.counts))
        self.counts[there] = array("q", list(map(add, self.counts[there], other.counts)))

    def since(self, before: Sketch) -> Sketch:
        """What was counted after `before`, an earlier state of the same source."""
        counts = self.counts[:]
        first = max(self.first, before.first)
        last = max(first, min(self.first + len(counts), before.first + len(before.counts)))
        there = slice(first - self.first, last - self.first)
        known = before.counts[first - before.first : last - before.first]
        counts[there] = array("q", list(map(sub, counts[there], known)))
        if counts and min(counts) < 0:  # it was no earlier state
            counts = array("q", (max(count, 0) for count in counts))
        return Sketch(self.first, counts)._trimmed()

    def _trimmed(self) -> Sketch:
        first, last = 0, len(self.counts)
        while first < last and not self.counts[first]:
            first += 1
        while first < last and not self.counts[last - 1]:
            last -= 1
        return Sketch(self.first + first, self.counts[first:last])

    def quantiles_ns(self, wanted: Sequence[float] = QUANTILES) -> list[float] | None:
        """Quantiles in ns, each within 1.6 %; None if nothing was counted."""
        total = list(accumulate(self.counts))
        if not total or not total[-1]:
            return None
        return [_middle_ns(self.first + bisect_right(total, q * (total[-1] - 1))) for q in wanted]

    def below(self, bounds_ns: Iterable[float]) -> list[int]:
        """How many are at most each bound; one inside of a bucket counts the bucket if it is past its middle."""
        total = list(accumulate(self.counts, initial=0))
        return [total[min(max(_buckets_below(bound) - self.first, 0), len(self.counts))] for bound in bounds_ns]


LATENCIES: Final = ("__complete-latency", "__execute-latency", "__process-latency")
"""The metrics that have sketches, by stream."""


def by_latency(series: Iterable[tmaster_pb2.MetricSeries]) -> dict[tuple[str, str], Sketch]:
    """The sketches of a reply, merged over streams: by component and metric (without its stream)."""
    found: dict[tuple[str, str], Sketch] = {}
    for one in series:
        if one.HasField("sketch"):
            key = one.component, one.name.partition("/")[0]
            found.setdefault(key, Sketch()).merge(Sketch.from_proto(one.sketch))
    return found
