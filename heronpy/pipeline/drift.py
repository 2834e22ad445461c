"""How far live views are from batch views: what a kill makes a topology count twice, a batch job counts once.

Pure decisions over rows of both sides; `reconcile` brings the rows.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from heronpy.streamlet.monoid import Monoid

Pair = list[Any]
"""[accumulator of the live view, that of the batch view], each None where there is none."""
EQUAL, DIFFERENT, LIVE_ONLY, BATCH_ONLY = "equal", "different", "live only", "batch only"

BUCKETS = ("< -10 %", "-10 … -1 %", "-1 … 0 %", "equal", "0 … 1 %", "1 … 10 %", "> 10 %", "live only", "batch only")
"""Of the distribution of keys by their drift."""
_INT_BITS = 1000
_RELATIVE = 1e-9
"""Sums of floats depend on their order in the last bits: what is nearer than this is equal."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What both sides say about one key."""

    key: Any
    live: Any
    """Result of the live view; None if it has none."""
    batch: Any
    """Result of the batch view; None if it has none."""
    state: str
    """EQUAL, DIFFERENT, LIVE_ONLY or BATCH_ONLY."""
    drift: float | None
    """live - batch, where results are numbers; a side that has none counts as 0."""
    percent: float | None
    """The drift as a share of the batch view's number; None where that is 0 or no number."""


@dataclass(slots=True)
class Totals:
    """What a set of keys adds up to."""

    keys: int = 0
    equal: int = 0
    different: int = 0
    live_only: int = 0
    batch_only: int = 0
    live: float | None = None
    """Sum of the live results, where they are numbers."""
    batch: float | None = None
    """Sum of the batch results, where they are numbers."""

    @property
    def drift(self) -> float | None:
        """live - batch; None where results are not numbers."""
        return None if self.live is None or self.batch is None else self.live - self.batch

    @property
    def percent(self) -> float | None:
        """The drift as a share of the batch results."""
        return _percent(self.drift, self.batch)

    @property
    def drifted(self) -> int:
        """Keys that the two sides do not agree on."""
        return self.keys - self.equal

    def add(self, found: Difference) -> None:
        """Count one key."""
        self.keys += 1
        if found.state == EQUAL:
            self.equal += 1
        elif found.state == LIVE_ONLY:
            self.live_only += 1
        elif found.state == BATCH_ONLY:
            self.batch_only += 1
        else:
            self.different += 1
        if found.drift is not None:
            self.live = (self.live or 0) + (found.live or 0)
            self.batch = (self.batch or 0) + (found.batch or 0)


@dataclass
class ViewDrift:
    """One view, over all batches that both sides can be asked about."""

    view: str
    total: Totals = field(default_factory=Totals)
    """By key, over all these batches together."""
    batches: dict[int, Totals] = field(default_factory=dict)
    """By batch, ascending; also those that have no rows."""
    worst: list[Difference] = field(default_factory=list)
    """The keys that drifted most, most first: by number, then those that are not numbers."""
    buckets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    """Keys by their drift."""
    other: int = 0
    """Keys that differ and are not numbers: they are in no bucket."""


def view_drift(
    view: str, monoid: Monoid, groups: Iterable[tuple[Any, dict[int, Pair]]], batches: Iterable[int], *, limit: int
) -> ViewDrift:
    """Compare both sides of a view.

    Args:
        view: its name.
        monoid: its values'.
        groups: each key with [live, batch] accumulators by batch.
        batches: those that are compared.
        limit: how many keys to keep in `worst`.
    """
    found = ViewDrift(view, batches={batch: Totals() for batch in sorted(batches)})
    heap: list[tuple[tuple[int, float], int, Difference]] = []
    order = itertools.count(0, -1)  # of equals the first stays
    for key, by_batch in groups:
        for batch, (live, other) in by_batch.items():
            found.batches[batch].add(difference(key, live, other, monoid))
        lives, others = zip(*by_batch.values(), strict=True)
        whole = difference(key, _merged(lives, monoid), _merged(others, monoid), monoid)
        found.total.add(whole)
        bucket = _bucket(whole)
        if bucket is None:
            found.other += 1
        else:
            found.buckets[bucket] += 1
        if whole.state != EQUAL and limit > 0:
            entry = (_weight(whole), next(order), whole)
            if len(heap) < limit:
                heapq.heappush(heap, entry)
            else:
                heapq.heappushpop(heap, entry)
    found.worst = [entry[2] for entry in sorted(heap, key=lambda e: e[:2], reverse=True)]
    return found


def difference(key: Any, live: Any, batch: Any, monoid: Monoid) -> Difference:
    """Compare the two accumulators of a key; None: that side has none."""
    seen = None if live is None else monoid.result(live)
    truth = None if batch is None else monoid.result(batch)
    drift = _drift(seen, truth, live is None, batch is None)
    percent = _percent(drift, truth)
    if live is None or batch is None:
        return Difference(key, seen, truth, BATCH_ONLY if live is None else LIVE_ONLY, drift, percent)
    if not _same(seen, truth):
        return Difference(key, seen, truth, DIFFERENT, drift, percent)
    return Difference(key, seen, truth, EQUAL, None if drift is None else 0, None if percent is None else 0.0)


def _merged(accs: Iterable[Any], monoid: Monoid) -> Any:
    there = [acc for acc in accs if acc is not None]
    if len(there) < 2:
        return there[0] if there else None
    whole = monoid.decode(monoid.encode(there[0]))  # merging may change it
    for acc in there[1:]:
        whole = monoid.merge(whole, acc)
    return whole


def _drift(live: Any, batch: Any, no_live: bool, no_batch: bool) -> float | None:
    if not (no_live or _is_number(live)) or not (no_batch or _is_number(batch)):
        return None
    drift: float = (live or 0) - (batch or 0)
    return drift


def _percent(drift: float | None, batch: Any) -> float | None:
    if drift is None or not _is_number(batch) or batch == 0:
        return None
    return drift / abs(float(batch)) * 100


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() < _INT_BITS  # shares are floats
    return isinstance(value, float) and math.isfinite(value)


def _same(live: Any, batch: Any) -> bool:
    if isinstance(live, float) or isinstance(batch, float):
        try:
            return math.isclose(live, batch, rel_tol=_RELATIVE) or (math.isnan(live) and math.isnan(batch))
        except (TypeError, OverflowError):
            return False
    return bool(live == batch)


def _bucket(found: Difference) -> str | None:
    if found.state in (EQUAL, LIVE_ONLY, BATCH_ONLY):
        return found.state
    if found.drift is None:
        return None
    share = found.percent if found.percent is not None else math.copysign(math.inf, found.drift)
    if share < 0:
        return BUCKETS[0 if share < -10 else 1 if share < -1 else 2]
    return BUCKETS[4 if share <= 1 else 5 if share <= 10 else 6]


def _weight(found: Difference) -> tuple[int, float]:
    return (0, 0.0) if found.drift is None else (1, abs(found.drift))
