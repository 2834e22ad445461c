"""Windows on a grid that fire once, when the watermark passes their end.

Each element is folded once, into its slice: a stretch of the grid in which all times belong to the same windows
(Krishnamurthy et al., On-the-Fly Sharing for Streamed Aggregation, SIGMOD 2006, §3; Li et al., SIGMOD Record 34(1),
2005, call them panes). A window merges its slices when it fires. A tumbling window is its only slice.

An element for a window that has fired must not go to a slice that other windows share with it. It gets an accumulator
for that window alone, which fires by the late trigger as a pane with only what is new.

The state of a key is a flat list of pairs: first, the (start, end) of each late pane and its [count, accumulator], then
the start of each slice, in order, and its accumulator. A list costs a third of a dict, and nearly every element is in
the last slice.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from heronpy.windows._effects import Effect, FoldFailed, Late, Pane, Placed, Timing
from heronpy.windows._engine import NOTHING, WindowEngine, delay_of, reached
from heronpy.windows._folds import Fold
from heronpy.windows._spans import END, NEVER, Sliding, Span, Tumbling
from heronpy.windows._triggers import Windowing


def _find(panes: list[Any], place: int | Span) -> int | None:
    """Where a slice or a late pane is in the state of a key."""
    for at in range(len(panes) - 2, -1, -2):
        if panes[at] == place:
            return at
    return None


def _insert(panes: list[Any], slot: int, acc: Any) -> None:
    """Add a slice that is not there."""
    at = len(panes)
    while at and panes[at - 2].__class__ is int and panes[at - 2] > slot:
        at -= 2
    panes[at:at] = (slot, acc)


class _Slice:
    """The index of one slice."""

    __slots__ = ("keys", "next_start")

    def __init__(self, next_start: int) -> None:
        self.keys: list[Any] = []
        """Who has an accumulator, in the order of arrival."""
        self.next_start = next_start
        """Its first window that has not fired since the slice is there."""


class SlicedEngine(WindowEngine):
    """See the file."""

    def __init__(
        self, windowing: Windowing, fold: Fold, state: MutableMapping[Any, Any] | None = None, watermark: int = NEVER
    ) -> None:
        super().__init__(windowing, fold, state, watermark)
        assert isinstance(windowing.windows, (Tumbling, Sliding))
        self._windows = windowing.windows
        self._size_ms = windowing.windows.size_ms
        self._slide_ms = windowing.windows.slide_ms
        self._slice_ms = windowing.windows.slice_ms
        self._slices: dict[int, _Slice] = {}
        self._starts: list[int] = []
        """A heap of the starts of windows that are to fire."""
        self._pending: set[int] = set()
        """The same."""
        self._late_keys: dict[Span, dict[Any, None]] = {}
        """Who has a late pane, by window."""
        self._late_due_ms: dict[Span, int] = {}
        self.add, self._leave_slice = self._compiled()  # type: ignore[method-assign]
        self._index()

    def add(self, key: Any, value: Any, time_ms: int, now_ms: int = 0) -> Sequence[Effect]:
        raise AssertionError("replaced by a closure")

    def _compiled(self) -> tuple[Callable[..., Sequence[Effect]], Callable[[], None]]:
        """`add`, and what makes it forget the slice of the last element. Closures: attributes cost more."""
        state, lift, fold_add = self.state, self.fold.lift, self.fold.add
        offset_ms, slice_ms = self._windows.offset_ms % self._slice_ms, self._slice_ms
        enter, add_late = self._enter, self._add_late
        nothing = NOTHING
        slot = after = END
        keys: list[Any] | None = None
        late: range | None = None

        def add(key: Any, value: Any, time_ms: int, now_ms: int = 0) -> Sequence[Effect]:
            nonlocal slot, after, keys, late
            if not slot <= time_ms < after:
                at = time_ms - (time_ms - offset_ms) % slice_ms
                keys, starts = enter(at)
                late = starts or None
                slot, after = at, at + slice_ms
            if keys is not None:
                panes = state.get(key)
                if panes is None:
                    state[key] = [slot, lift(value)]
                    keys.append(key)
                elif panes[-2] == slot:
                    panes[-1] = fold_add(panes[-1], value)
                else:
                    place = _find(panes, slot)
                    if place is None:
                        _insert(panes, slot, lift(value))
                        keys.append(key)
                    else:
                        panes[place + 1] = fold_add(panes[place + 1], value)
            return nothing if late is None else add_late(key, value, time_ms, now_ms, late, keys is not None)

        def leave() -> None:
            nonlocal slot, after
            slot = after = END  # neighbours come together; but what is known of a slice changes as time advances

        return add, leave

    def _enter(self, slot: int) -> tuple[list[Any] | None, range]:
        """A slice that elements are to be folded into.

        Returns its keys, or None if all of its windows have fired, and the starts of those that have.
        """
        starts = self._windows.starts(slot)
        found = self._slices.get(slot)
        first = starts[0]
        if found is not None:
            first = found.next_start
        else:
            while first <= starts[-1] and first + self._size_ms <= self.watermark:
                first += self._slide_ms
            if first <= starts[-1]:
                found = self._slices[slot] = _Slice(first)
                for start in range(first, starts[-1] + 1, self._slide_ms):
                    if start not in self._pending:
                        self._pending.add(start)
                        heapq.heappush(self._starts, start)
        return None if found is None else found.keys, range(starts[0], first, self._slide_ms)

    def _add_late(
        self, key: Any, value: Any, time_ms: int, now_ms: int, starts: range, in_slice: bool
    ) -> Sequence[Effect]:
        """An element came for windows that have fired; `in_slice`: it was also folded for others."""
        now_ms = self._clock(now_ms)
        effects: list[Effect] = []
        placed = int(in_slice)
        for start in starts:
            span = Span(start, start + self._size_ms)
            if self._too_late(span.end_ms):
                continue
            placed += 1
            panes = self.state.get(key)
            at = None if panes is None else _find(panes, span)
            if panes is None or at is None:
                acc, count = self.fold.lift(value), 1
            else:
                count, acc = panes[at + 1]
                acc, count = self.fold.add(acc, value), count + 1
            if reached(self._late, count) and span.end_ms <= self.watermark:
                self._forget_late(key, span)
                effects.append(self._pane(key, span, [acc], Timing.LATE, (acc,)))
                continue
            if panes is None:
                self.state[key] = [span, [count, acc]]
            elif at is None:
                panes[:0] = (span, [count, acc])
            else:
                panes[at + 1] = [count, acc]
            if span not in self._late_keys:
                self._late_keys[span] = {}
                on_time = span.end_ms > self.watermark  # the watermark has gone back: it waits for it as others do
                delay_ms = 0 if on_time else delay_of(self._late)
                self._late_due_ms[span] = END if delay_ms is None else now_ms + delay_ms
            self._late_keys[span][key] = None
        if not placed:
            return [Late(key, value, time_ms)]
        if placed > 1:
            effects.insert(0, Placed(placed))
        return effects

    def _due(self) -> Iterator[Effect]:
        self._leave_slice()
        while self._starts and self._starts[0] + self._size_ms <= self.watermark:
            yield from self._fire(heapq.heappop(self._starts))
        if self._late_keys:
            yield from self._late_due()

    def flush(self) -> Iterator[Effect]:
        self._leave_slice()
        while self._starts:
            yield from self._fire(heapq.heappop(self._starts))
        for span in sorted(self._late_keys):
            yield from self._fire_late(span)

    def _fire(self, start: int) -> Iterator[Effect]:
        self._pending.discard(start)
        end, after = start + self._size_ms, start + self._slide_ms
        span, timing = Span(start, end), Timing.ON_TIME if end <= self.watermark else Timing.EARLY
        if self._slice_ms == self._size_ms:
            found = self._slices.pop(start, None)
            pop = self.state.pop
            result = None if type(self.fold).result is Fold.result else self.fold.result
            for key in () if found is None else found.keys:
                panes = pop(key)
                acc = panes[1] if len(panes) == 2 else self._put_back(key, panes, start)
                try:
                    pane = Pane(key, span, acc if result is None else result(acc), timing, (acc,))
                except Exception as error:
                    yield FoldFailed(key, span, (acc,), error, (acc,))
                    continue
                yield pane
            return
        slots = range(start, end, self._slice_ms)
        slices = {slot: found for slot in slots if (found := self._slices.get(slot)) is not None}
        # A slice may have been in this window already, before the watermark went back.
        had = {slot for slot, found in slices.items() if found.next_start > start}
        if had or sum(len(found.keys) for found in slices.values()) < len(self.state):
            slots_of = [found.keys for slot, found in slices.items() if slot not in had]
            keys: Iterable[Any] = dict.fromkeys(itertools.chain.from_iterable(slots_of))
        else:
            keys = list(self.state)  # most are in several slices of the window: each is asked once
        for slot, found in slices.items():
            if slot < after:
                del self._slices[slot]
            else:
                found.next_start = max(found.next_start, after)
        for key in keys:
            merged = self._merged(key, span, after, had, timing)
            if merged is not None:
                yield merged

    def _merged(self, key: Any, span: Span, after: int, had: set[int], timing: Timing) -> Effect | None:
        """The pane of a key, if it is in the window; its slices that begin before `after` leave."""
        panes = self.state[key]
        first, last, end = 0, len(panes), span.end_ms
        while panes[first].__class__ is Span:
            first += 2
            if first == last:
                return None
        while panes[last - 2] >= end:
            last -= 2
            if first == last:
                return None
        left = first
        while left < last and panes[left] < after:
            left += 2
        accs = panes[first + 1 : last : 2]
        if had:
            accs = [panes[at + 1] for at in range(first, last, 2) if panes[at] not in had]
        released: tuple[Any, ...] = ()
        if left - first == len(panes):
            released = tuple(panes[1::2])
            del self.state[key]
        elif left > first:
            released = tuple(panes[first + 1 : left : 2])
            del panes[first:left]
        return self._pane(key, span, accs, timing, released)

    def _late_due(self) -> Iterator[Effect]:
        for span in sorted(self._late_keys):
            if span.end_ms > self.watermark:
                break
            due_ms = self._late_due_ms[span]
            if due_ms > self._now_ms and not self._too_late(span.end_ms) and not due_ms == self.watermark == END:
                continue
            yield from self._fire_late(span)

    def _fire_late(self, span: Span) -> Iterator[Effect]:
        while keys := self._late_keys.get(span):
            key = next(iter(keys))
            acc = self._peek(key, span)[1]
            self._forget_late(key, span)
            yield self._pane(key, span, (acc,), Timing.LATE, (acc,))

    def _put_back(self, key: Any, panes: list[Any], slot: int) -> Any:
        """Return the state of a key without a slice, whose accumulator this returns."""
        self.state[key] = panes
        return self._take(key, slot)

    def _peek(self, key: Any, place: int | Span) -> Any:
        panes = self.state[key]
        at = _find(panes, place)
        assert at is not None
        return panes[at + 1]

    def _take(self, key: Any, place: int | Span) -> Any:
        panes = self.state[key]
        if len(panes) == 2:
            del self.state[key]
            return panes[1]
        at = _find(panes, place)
        assert at is not None
        acc = panes[at + 1]
        del panes[at : at + 2]
        return acc

    def _forget_late(self, key: Any, span: Span) -> None:
        keys = self._late_keys.get(span)
        if keys is None or key not in keys:
            return
        del keys[key]
        self._take(key, span)
        if not keys:
            del self._late_keys[span], self._late_due_ms[span]

    def _index(self) -> None:
        for key, panes in self._saved():
            for at in range(0, len(panes), 2):
                place = panes[at]
                if not isinstance(place, int):
                    span = panes[at] = Span(*place)
                    self._late_keys.setdefault(span, {})[key] = None
                    self._late_due_ms[span] = NEVER
                else:
                    keys, _ = self._enter(place)
                    assert keys is not None, "a slice without windows to come is not kept"
                    keys.append(key)

    def check_invariants(self) -> None:
        assert sorted(self._starts) == sorted(self._pending)
        found = {(key, place) for key, panes in self.state.items() for place in panes[::2]}
        slices = {(key, slot) for slot, kept in self._slices.items() for key in kept.keys}
        late = {(key, span) for span, keys in self._late_keys.items() for key in keys}
        assert found == slices | late
        assert sum(len(kept.keys) for kept in self._slices.values()) == len(slices)
        assert all(panes for panes in self.state.values())
        assert self._late_due_ms.keys() == self._late_keys.keys()
        for slot, kept in self._slices.items():
            last = self._windows.starts(slot)[-1]
            assert kept.next_start <= last
            assert all(start in self._pending for start in range(kept.next_start, last + 1, self._slide_ms))


__all__ = ["SlicedEngine"]
