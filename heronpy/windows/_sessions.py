"""Sessions: windows that grow with their elements, and merge where an element joins two.

The state of a key is a list: its alarm, and then its sessions, which do not touch one another, earliest first:
[start, end, count, due, fired, accumulator], with the fields of `_panes.py`. A session that is closed leaves nothing
behind, and neither does its key.

A key has one alarm, not later than the first thing that the watermark causes. A session that grows leaves it alone:
when it rings, it is set anew. Alarms are in buckets of a sixteenth of the gap, because a heap of all keys was half of
the cost of a session; so panes of different keys are in the order of their ends only up to that.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from heronpy.windows._effects import Closed, Effect, Late, Timing
from heronpy.windows._engine import NOTHING, WindowEngine, delay_of, reached
from heronpy.windows._folds import Fold
from heronpy.windows._spans import END, FOREVER, NEVER, Session, Span
from heronpy.windows._triggers import Windowing

ALARM = 0
START, STOP, COUNT, DUE, FIRED, ACC = 0, 1, 2, 3, 4, 5


class SessionEngine(WindowEngine):
    """See the file."""

    def __init__(
        self, windowing: Windowing, fold: Fold, state: MutableMapping[Any, Any] | None = None, watermark: int = NEVER
    ) -> None:
        super().__init__(windowing, fold, state, watermark)
        assert isinstance(windowing.windows, Session)
        self._lift, self._fold_add = fold.lift, fold.add
        self._gap_ms = windowing.windows.gap_ms
        self._accumulating = windowing.accumulating
        self._simple = self._watermarked and self._early is None
        self._bucket_ms = max(1, self._gap_ms // 16)
        self._alarms: dict[int, list[Any]] = {}
        """Keys by the bucket of their alarm. An entry counts only while the key says the same."""
        self._buckets: list[int] = []
        """A heap of those that there are."""
        self._timers: list[tuple[int, int, Any]] = []
        """A heap of processing times: due, a number, key. It counts only while a session says the same."""
        self._numbers = itertools.count()
        for key, found in self._saved():
            # The key says when its alarm is, so it stays, unless times are others now: what is read here may be a copy.
            alarm = min(map(self._alarm_of, found[1:]))
            if alarm < found[ALARM]:
                self._set_alarm(key, self.state[key], alarm)
            elif found[ALARM] < END:
                self._enter(key, found[ALARM])
            for session in found[1:]:
                if session[DUE] is not None:
                    heapq.heappush(self._timers, (session[DUE], next(self._numbers), key))

    def add(self, key: Any, value: Any, time_ms: int, now_ms: int = 0) -> Sequence[Effect]:
        found = self.state.get(key)
        if found is not None and self._simple:
            last = found[-1]
            if last[START] <= time_ms < last[STOP] and not last[FIRED]:
                # Most elements are like this: they lengthen the last session.
                last[ACC] = self._fold_add(last[ACC], value)
                last[COUNT] += 1
                if time_ms + self._gap_ms > last[STOP]:
                    last[STOP] = time_ms + self._gap_ms
                return NOTHING
        end = time_ms + self._gap_ms
        touched = [] if found is None else [s for s in found[1:] if time_ms < s[STOP] and s[START] < end]
        if found is not None and touched:
            session = self._joined(touched, value, time_ms, end)
            for one in touched:
                _remove(found, one)
        elif self._too_late(end):
            return [Late(key, value, time_ms)]
        else:
            session = [time_ms, end, 1, None, self._watermarked and end <= self.watermark, self._lift(value)]
        if found is None:
            found = self.state[key] = [END]
        found.append(session)
        if len(found) > 2:
            found[1:] = sorted(found[1:], key=_start)
        alarm = self._alarm_of(session)
        if alarm < found[ALARM]:
            self._set_alarm(key, found, alarm)
        if self._simple and not session[FIRED]:
            return NOTHING
        return self._after_add(key, session, self._clock(now_ms))

    def _joined(self, touched: list[list[Any]], value: Any, time_ms: int, end: int) -> list[Any]:
        """One session of several and an element that lies between them."""
        start = min(time_ms, touched[0][START])
        stop = max(end, touched[-1][STOP])
        due = [session[DUE] for session in touched if session[DUE] is not None]
        accs = [session[ACC] for session in touched if len(session) > ACC]
        acc = self.fold.lift(value) if len(accs) != 1 else self.fold.add(accs[0], value)
        if len(accs) > 1:
            # The first, which may be changed in place, comes last: where something does not fit, all are as they were.
            for other in accs[1:]:
                acc = self.fold.merge(acc, other)
            acc = self.fold.merge(accs[0], acc)
        count = 1 + sum(session[COUNT] for session in touched)
        fired = self._watermarked and stop <= self.watermark
        return [start, stop, count, min(due, default=None), fired, acc]

    def _after_add(self, key: Any, session: list[Any], now_ms: int) -> Sequence[Effect]:
        rule = self._late if session[FIRED] else self._early
        if reached(rule, session[COUNT]):
            return [self._fire(key, session, Timing.LATE if session[FIRED] else Timing.EARLY)]
        delay_ms = delay_of(rule)
        if delay_ms is not None and session[DUE] is None:
            session[DUE] = now_ms + delay_ms
            heapq.heappush(self._timers, (session[DUE], next(self._numbers), key))
        return NOTHING

    def _hasten(self, latest_ms: int) -> None:
        for due, _, key in [timer for timer in self._timers if timer[0] > latest_ms]:
            for session in self.state[key][1:]:
                if session[DUE] == due:
                    session[DUE] = latest_ms
                    heapq.heappush(self._timers, (latest_ms, next(self._numbers), key))

    def flush(self) -> Iterator[Effect]:
        new = [key for key, found in self._saved() if any(session[COUNT] for session in found[1:])]
        for key in new:
            for session in self.state[key][1:]:
                if session[COUNT]:
                    timing = Timing.LATE if session[FIRED] else Timing.EARLY
                    yield self._fire(key, session, timing, closes=not self._accumulating)

    def _due(self) -> Iterator[Effect]:
        while self._timers and self._timers[0][0] <= self._now_ms:
            due, _, key = heapq.heappop(self._timers)
            for session in self.state.get(key, (END,))[1:]:
                if session[DUE] == due:
                    yield self._fire(key, session, Timing.LATE if session[FIRED] else Timing.EARLY)
        while self._buckets and self._buckets[0] <= self.watermark:
            bucket = self._buckets[0]
            keys = self._alarms.pop(heapq.heappop(self._buckets))
            for key in keys:
                found = self.state.get(key)
                if found is None or found[ALARM] != bucket:
                    continue
                found[ALARM] = END
                for session in found[1:]:
                    yield from self._ring(key, session)
                if len(found) > 1:
                    self._reset_alarm(key, found)
            if bucket + self._bucket_ms > self.watermark:
                break  # what is left in it comes later
        if self.watermark == END:
            for key in list(self.state):  # those that wait for more late elements
                for session in self.state[key][1:]:
                    yield from self._ring(key, session)

    def _ring(self, key: Any, session: list[Any]) -> Iterator[Effect]:
        """Fire and close a session, if it is time."""
        if self._watermarked and not session[FIRED] and session[STOP] <= self.watermark:
            session[FIRED] = True
            if len(session) > ACC:
                yield self._fire(key, session, Timing.ON_TIME)
        if session[STOP] <= self.watermark and (self._too_late(session[STOP]) or self.watermark == END):
            if not self._has(key, session):
                return
            if session[COUNT]:
                yield self._fire(key, session, Timing.LATE if session[FIRED] else Timing.ON_TIME, closes=True)
                return
            self._forget(key, session)
            if len(session) > ACC:
                yield Closed(key, Span(session[START], session[STOP]), (session[ACC],))

    def _fire(self, key: Any, session: list[Any], timing: Timing, *, closes: bool = False) -> Effect:
        span, acc = Span(session[START], session[STOP]), session[ACC]
        session[COUNT], session[DUE] = 0, None
        released: tuple[Any, ...] = ()
        if session[FIRED] and self._lateness_ms in (0, FOREVER):
            closes = True  # how far it reached is not needed any more
        if closes or not self._accumulating:
            released = (acc,)
            del session[ACC:]
        if closes:
            self._forget(key, session)
        return self._pane(key, span, (acc,), timing, released)

    def _alarm_of(self, session: list[Any]) -> int:
        """When the watermark has something to do with a session."""
        stop: int = session[STOP]
        if self._watermarked and not session[FIRED]:
            return stop
        return END if self._lateness_ms == FOREVER else stop + self._lateness_ms

    def _reset_alarm(self, key: Any, found: list[Any]) -> None:
        alarm = min(self._alarm_of(session) for session in found[1:])
        if alarm < END:
            self._set_alarm(key, found, alarm)

    def _set_alarm(self, key: Any, found: list[Any], at: int) -> None:
        bucket = at - at % self._bucket_ms
        if bucket == found[ALARM]:
            return
        found[ALARM] = bucket
        self._enter(key, bucket)

    def _enter(self, key: Any, bucket: int) -> None:
        keys = self._alarms.get(bucket)
        if keys is None:
            self._alarms[bucket] = [key]
            heapq.heappush(self._buckets, bucket)
        else:
            keys.append(key)

    def _has(self, key: Any, session: list[Any]) -> bool:
        return any(session is one for one in self.state.get(key, ()))

    def _forget(self, key: Any, session: list[Any]) -> None:
        found = self.state[key]
        if len(found) == 2:
            del self.state[key]
        _remove(found, session)

    def check_invariants(self) -> None:
        assert sorted(self._buckets) == sorted(self._alarms)
        due = {(key, at) for at, _, key in self._timers}
        for key, (alarm, *sessions) in self.state.items():
            assert sessions
            assert alarm == END or key in self._alarms[alarm]
            assert all(a[STOP] <= b[START] for a, b in itertools.pairwise(sessions))
            for session in sessions:
                assert session[START] + self._gap_ms <= session[STOP]
                assert alarm <= self._alarm_of(session)
                assert len(session) > ACC or not session[COUNT]
                assert session[DUE] is None or (key, session[DUE]) in due


def _remove(found: list[Any], session: list[Any]) -> None:
    """Take a session out of the state of its key, by identity: two may be equal in passing."""
    for at in range(len(found) - 1, 0, -1):
        if found[at] is session:
            del found[at]
            return


def _start(session: list[Any]) -> int:
    start: int = session[START]
    return start


__all__ = ["SessionEngine"]
