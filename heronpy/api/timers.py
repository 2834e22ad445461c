"""Timers of bolts: `on_timer` is called when event time or processing time has come so far.

    class Reminders(Bolt):
        outputs = ["user"]

        def initialize(self, config, context):
            self.timers = context.timers

        def process(self, tup):
            self.timers.event(tup["user"], tup["at"] + 60_000)

        def on_timer(self, timer):
            self.emit([timer.key])

A bolt has timers if it has `on_timer`. They are state: effectively once, those of the last checkpoint return after a
failure, and go along with their keys when the number of tasks changes. Times are in ms since the epoch. Neither clock
goes backwards; a timer whose time has passed fires once, soon.

Event time is that of the field `topology.bolts.tuple.timestamp.field.name` of the component's configuration, or of an
extractor; its watermark is that of windowed bolts, by the same keys. Without either it stands still.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from heronpy.api.bolt.window_settings import TimeSettings, time_ms
from heronpy.api.followed_watermarks import FollowedWatermarks
from heronpy.windows import END, NEVER, Sent, Watermarks

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext
    from heronpy.api.tuple import Tuple

TIMERS: Final = "timers"
"""Name of the state of timers."""
CLOCKS: Final = "timers.clocks"
"""Name of the state of their clocks."""
AT_ONCE_MAX: Final = 1000
"""Timers that fire before the task does anything else."""
STALE_MAX: Final = 1000
"""Entries of cancelled timers that a heap may have, unless they are fewer than those of others."""


class TimerKind(enum.Enum):
    """By which time a timer fires."""

    EVENT = "event"
    PROCESSING = "processing"


class Timer(NamedTuple):
    """What `on_timer` is given."""

    key: Any
    at_ms: int
    kind: TimerKind


_Heap = list[tuple[int, int, Any]]


class Timers:
    """The timers of one task. Used by its thread."""

    def __init__(
        self, context: TopologyContext, config: Mapping[str, Any], *, keyed: bool, wall_ms: Callable[[], int]
    ) -> None:
        """Those that are saved.

        Args:
            context: the task's.
            config: the component's.
            keyed: whether all inputs are grouped by key; else timers belong to the task.
            wall_ms: processing time in ms since the epoch.
        """
        self._set: MutableMapping[Any, tuple[tuple[bool, int], ...]]
        self._set = context.keyed_state(TIMERS) if keyed else _OfTask(context.split_state(TIMERS, index=_task))
        self._clocks = context.task_state(CLOCKS, default=None, merge=_latest, split=lambda saved, n: [saved] * n)
        self._wall_ms = wall_ms
        self._now_ms = wall_ms()
        self.ahead_ms = 0
        """By how much processing time is ahead of the wall clock: on another host, or before that was put right, it was
        as late as this already. To stand still would have timers wait for that long."""
        if self._clocks.value is not None:
            self.ahead_ms = max(0, self._clocks.value[0] - self._now_ms)
            self._now_ms += self.ahead_ms
        settings = TimeSettings(**TimeSettings.values(config))
        self._interval_ms, self._timestamp = settings.interval_ms, settings.timestamp
        self._look_at_ms = 0
        self._idle = False
        """Nothing was waited for when time was looked at."""
        self._followed = FollowedWatermarks(context)
        self._watermarks = settings.watermarks(context, self._now_ms, self._followed)
        self._sent = Sent(every_ms=0) if self._timestamp is not None and context.sends_watermarks() else None
        if self._clocks.value is not None:
            _, watermarks, *foremost = self._clocks.value
            self._watermarks.restore(watermarks)
            self._watermarks.take_over(*foremost or [NEVER])
        self._numbers = itertools.count()
        self._heaps: dict[bool, _Heap] = {True: [], False: []}
        self._count = {True: 0, False: 0}
        """Of timers that are set, by whether they are of event time."""
        for key, timers in self._set.items():
            for event, at_ms in timers:
                heapq.heappush(self._heaps[event], (at_ms, next(self._numbers), key))
                self._count[event] += 1

    @property
    def now_ms(self) -> int:
        """Processing time."""
        self._now_ms = max(self._now_ms, self._wall_ms() + self.ahead_ms)
        return self._now_ms

    @property
    def watermark(self) -> int:
        """How far event time has come; `heronpy.windows.NEVER` before anything is known."""
        return self._watermarks.watermark

    def event(self, key: Any, at_ms: int) -> None:
        """Have `on_timer` called when the watermark has reached a time; the same twice is one.

        Raises:
            UsageError: all inputs are grouped by key, and the key belongs to another task.
        """
        self._add(key, True, at_ms)

    def processing(self, key: Any, at_ms: int) -> None:
        """Have `on_timer` called at a processing time; see `now_ms`. Raises as `event`."""
        self._add(key, False, at_ms)

    def cancel(self, key: Any) -> None:
        """Forget all timers of a key. Raises as `event`."""
        for event, _ in self._set.pop(key, ()):
            self._count[event] -= 1

    def _add(self, key: Any, event: bool, at_ms: int) -> None:
        timers = self._set.get(key, ())
        if (event, at_ms) not in timers:
            self._set[key] = (*timers, (event, at_ms))
            self._count[event] += 1
            heap = self._heaps[event]
            heapq.heappush(heap, (at_ms, next(self._numbers), key))
            if len(heap) > 2 * self._count[event] + STALE_MAX:
                self._drop_stale(event)

    def _drop_stale(self, event: bool) -> None:
        """Without this, what is set anew with each tuple would stay until its first time has come."""
        set_at: dict[tuple[Any, int], tuple[int, int, Any]] = {}
        for at_ms, number, key in self._heaps[event]:
            if (event, at_ms) in self._set.get(key, ()):
                set_at.setdefault((key, at_ms), (at_ms, number, key))
        self._heaps[event][:] = set_at.values()
        heapq.heapify(self._heaps[event])

    # For the engine

    def observing(self, process: Callable[[Tuple], None]) -> Callable[[Tuple], None]:
        """A `process` that has seen the time of each tuple."""
        timestamp, observe = self._timestamp, self._watermarks.observe
        if timestamp is None:
            return process

        def observed(tup: Tuple) -> None:
            try:
                at_ms = time_ms(timestamp(tup))
            except (KeyError, TypeError, ValueError, OverflowError):
                pass  # what is wrong with a tuple is for its bolt to say
            else:
                observe((tup.component, tup.stream), at_ms, self._now_ms)
            process(tup)

        return observed

    def receive_watermark(self, task: int, watermark: int) -> None:
        """A task before this one has sent its watermark."""
        self._followed.mark(task, watermark)

    def watermark_due(self, windows: tuple[int, bool] = (END, True)) -> int | None:
        """The watermark to send to the tasks after this one, when timers have fired; None: not now.

        Args:
            windows: how far the bolt's windows are, and whether they wait for nothing.
        """
        heap = self._heaps[True]
        if self._sent is None or (heap and heap[0][0] <= self.watermark):  # more are due than fire at once
            return None
        reached, idle = windows
        watermark = END if self._idle and idle else min(self.watermark, reached)
        return watermark if self._sent.due(watermark, self.now_ms) else None

    def due(self) -> Iterator[Timer]:
        """Timers whose time has come, each to be fired before the next is asked for; at most `AT_ONCE_MAX`."""
        now_ms = self.now_ms
        if self._timestamp is not None and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + self._interval_ms
            self._watermarks.advance(now_ms)
            self._idle = self._watermarks.idle
        left = AT_ONCE_MAX
        for event, clock_ms in ((True, self.watermark), (False, now_ms)):
            heap, added = self._heaps[event], next(self._numbers)
            while left and heap and heap[0][0] <= clock_ms:
                at_ms, number, key = heapq.heappop(heap)
                if number > added:  # by on_timer: in its turn
                    heapq.heappush(heap, (at_ms, number, key))
                    break
                if self._take(key, event, at_ms):
                    left -= 1
                    yield Timer(key, at_ms, TimerKind.EVENT if event else TimerKind.PROCESSING)

    def _take(self, key: Any, event: bool, at_ms: int) -> bool:
        timers = self._set.get(key, ())
        if (event, at_ms) not in timers:
            return False
        self._count[event] -= 1
        if others := tuple(timer for timer in timers if timer != (event, at_ms)):
            self._set[key] = others
        else:
            del self._set[key]
        return True

    @property
    def wait_s(self) -> float:
        """How long nothing is due."""
        soonest_ms = min(
            self._heaps[False][0][0] if self._heaps[False] else END,
            self._look_at_ms if self._heaps[True] and self._timestamp is not None else END,
        )
        if self._heaps[True] and self._heaps[True][0][0] <= self.watermark:
            return 0.0
        return max(0, soonest_ms - self.now_ms) / 1000

    def save(self) -> None:
        """Bring the state of the clocks up to date, for a snapshot."""
        self._clocks.value = (self.now_ms, self._watermarks.saved(), self._watermarks.foremost)

    @property
    def indexed(self) -> int:
        """How many times are kept in memory, those of cancelled timers included."""
        return sum(map(len, self._heaps.values()))

    def check_invariants(self) -> None:
        """Raise AssertionError if heaps and state contradict each other. For tests."""
        for event, count in self._count.items():
            assert count == sum(each == event for timers in self._set.values() for each, _ in timers)
        for key, timers in self._set.items():
            assert timers
            for event, at_ms in timers:
                assert any(each[0] == at_ms and each[2] == key for each in self._heaps[event])


class _OfTask(MutableMapping[Any, Any]):
    """Timers of a bolt whose inputs have no keys in common: those of a task that is no more go to another."""

    def __init__(self, splits: Any) -> None:
        self._splits = splits
        own = self._own = splits.entries.place.index
        for task, key in [split for split in splits if split[0] != own]:
            moved = splits.pop((task, key))
            self[key] = tuple(dict.fromkeys((*self.get(key, ()), *moved)))

    def __getitem__(self, key: Any) -> Any:
        return self._splits[self._own, key]

    def __setitem__(self, key: Any, timers: Any) -> None:
        self._splits[self._own, key] = timers

    def __delitem__(self, key: Any) -> None:
        del self._splits[self._own, key]

    def __iter__(self) -> Iterator[Any]:
        return iter([key for _, key in self._splits])

    def __len__(self) -> int:
        return len(self._splits)


def _task(split: tuple[int, Any]) -> int:
    return split[0]


def _latest(saved: Any) -> Any:
    """Of all tasks. The foremost may be another's than the watermark, and older versions have not saved it."""
    known = [each for each in saved if each is not None]
    if not known:
        return None
    now_ms, watermarks, *_ = zip(*known, strict=False)
    foremost = max((one for _, _, *foremost in known for one in foremost), default=NEVER)
    return max(now_ms), Watermarks.merged(watermarks), foremost


__all__ = ["AT_ONCE_MAX", "Timer", "TimerKind", "Timers"]
