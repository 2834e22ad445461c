"""Three hours of a topology's metrics by minute, and their sums of all time.

Reports say how much counters have grown since the report before (`Delta`), and that goes to the minute of the report,
on the clock of its source but never later than now. Two cases are not that simple:

* A report after a gap of more than a minute (its Metrics Manager was away) is about all minutes since the last one.
  Counters are spread evenly over them, in whole numbers; means all go to the last minute.
* The first report of a life says what happened since that life began. If it began while this history did, that is
  the gap. If not, this Topology Master is a restarted one, and it is not known any more which minutes it was: it counts
  for all time only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heronpy.metricsmgr import Delta
from heronpy.proto import metrics_pb2
from heronpy.tmaster._series import Floats, Ints, SeriesSpace
from heronpy.tmaster._sketches import SketchSpace

MINUTE_MS = 60_000
MINUTES = 180
BIRTH_GRACE_MS = 60_000
"""A life that began this long before the history is taken to have begun with it: a topology's processes all start
at about the same time, in no order."""
COUNTER, GAUGE, MEAN = metrics_pb2.Metric.COUNTER, metrics_pb2.Metric.GAUGE, metrics_pb2.Metric.MEAN
_ONE = np.ones((1, 1))
REPORTED = ""
"""The name of the series that counts a source's reports; its slot is the source's number."""


@dataclass(slots=True)
class _Source:
    number: int
    own_slot: Ints
    """In `reported`."""
    slots: dict[metrics_pb2.Metric.Kind, tuple[list[str], Ints]] = field(default_factory=dict)
    """By kind: the names of the last report, and their slots. Names seldom change from one report to the next."""


class ComponentHistory:
    """The series of one component."""

    def __init__(self) -> None:
        self.spaces = {
            COUNTER: SeriesSpace(width=1, fill=0.0),
            MEAN: SeriesSpace(width=2, fill=0.0),
            GAUGE: SeriesSpace(width=1, fill=float("nan")),
        }
        self.sketches = SketchSpace()
        """Distributions of latencies, of all instances together: one an instance would take as much as all the rest."""
        self.reported = SeriesSpace(width=1, fill=0.0)
        """Reports by source."""
        self.sources: dict[str, _Source] = {}
        self.ids: dict[int, str] = {}
        """Source by number."""

    @property
    def series(self) -> int:
        return sum(len(space) for space in self.spaces.values())

    def source(self, id: str) -> _Source:
        source = self.sources.get(id)
        if source is None:
            number = self.reported.next_slot
            self.reported.slots_of(number, [REPORTED], room=1)
            source = self.sources[id] = _Source(number, np.array([number]))
            self.ids[number] = id
        return source

    def reported_in(self, first: int, last: int) -> NDArray[np.bool_]:
        """By source number: whether it reported in these minutes."""
        everybody = np.arange(max(self.ids, default=-1) + 1)
        reported: NDArray[np.bool_] = self.reported.summed(everybody, first, last)[0] > 0
        return reported

    def forget(self, id: str) -> None:
        source = self.sources.pop(id, None)
        if source is not None:
            for space in (*self.spaces.values(), self.reported):
                space.forget(source.number)
            del self.ids[source.number]

    def keep(self, first: int, last: int) -> None:
        self.sketches.keep(first, last)
        for space in (*self.spaces.values(), self.reported):
            space.keep(first, last)


class History:
    """All components.

    Args:
        series_max: most series; those that come later are not kept, and counted.
        started_ms: when this history began.
    """

    def __init__(self, *, series_max: int, started_ms: int) -> None:
        self.started_ms = started_ms
        self.dropped = 0
        """Numbers that were not kept because there were too many series."""
        self.components: dict[str, ComponentHistory] = {}
        self._series_max = series_max
        self._series = 0
        self._component_of: dict[str, str] = {}
        self._minute = started_ms // MINUTE_MS

    def add(self, delta: Delta, now_ms: int) -> None:
        """Take in what a report brought."""
        self.advance(now_ms)
        if self._component_of.setdefault(delta.source, delta.component) != delta.component:
            self.forget(delta.source)
            self._component_of[delta.source] = delta.component
        component = self.components.setdefault(delta.component, ComponentHistory())
        source = component.source(delta.source)
        minutes = self._minutes_of(delta, now_ms)
        for minute in minutes:
            component.reported.add(minute, source.own_slot, _ONE)
        self._add_counters(component, source, delta, minutes)
        self._add_means(component, source, delta, minutes)
        for name, sketch in delta.sketches.items():
            component.sketches.add(minutes[-1] if minutes else None, name, sketch)
        if delta.gauges:
            slots, numbers = self._placed(component, source, GAUGE, delta.gauges, [list(delta.gauges.values())])
            component.spaces[GAUGE].put(min(delta.time_ms, now_ms) // MINUTE_MS, slots, numbers)

    def advance(self, now_ms: int) -> None:
        """Drop what is too old. A clock that was set back loses the minutes that are not yet there."""
        minute = now_ms // MINUTE_MS
        if minute != self._minute:
            self._minute = minute
            for component in self.components.values():
                component.keep(minute - MINUTES + 1, minute)

    def forget(self, source: str) -> None:
        """Drop all that is known of a source."""
        component = self.components.get(self._component_of.pop(source, ""))
        if component is not None:
            before = component.series
            component.forget(source)
            self._series -= before - component.series

    def check_invariants(self) -> None:
        assert self._series == sum(c.series for c in self.components.values()) <= self._series_max
        for component in self.components.values():
            assert {id: s.number for id, s in component.sources.items()} == {n: i for i, n in component.ids.items()}
            for space in (*component.spaces.values(), component.reported):
                space.check_invariants()

    def _minutes_of(self, delta: Delta, now_ms: int) -> range:
        """The minutes that a report's counters are about; none if they are unknown."""
        if delta.first_of_life and delta.since_ms < self.started_ms - BIRTH_GRACE_MS:
            return range(0)
        until_ms = min(delta.time_ms, now_ms)
        last, oldest = until_ms // MINUTE_MS, self._minute - MINUTES + 1
        if last < oldest:
            return range(0)
        if until_ms - delta.since_ms <= MINUTE_MS:
            return range(last, last + 1)
        return range(max(delta.since_ms // MINUTE_MS + 1, oldest), last + 1)

    def _add_counters(self, component: ComponentHistory, source: _Source, delta: Delta, minutes: range) -> None:
        if not delta.counters:
            return
        grown = [list(delta.counters.values())]
        slots, numbers = self._placed(component, source, COUNTER, delta.counters, grown)
        space = component.spaces[COUNTER]
        space.add_all_time(slots, numbers)
        if len(minutes) == 1:  # nearly always
            space.add(minutes[0], slots, numbers)
            return
        done = np.zeros_like(numbers)
        for n, minute in enumerate(minutes, start=1):
            due = numbers if n == len(minutes) else np.floor(numbers * (n / len(minutes)))
            space.add(minute, slots, due - done)
            done = due

    def _add_means(self, component: ComponentHistory, source: _Source, delta: Delta, minutes: range) -> None:
        if not delta.means:
            return
        sums, counts = zip(*delta.means.values(), strict=True)
        slots, numbers = self._placed(component, source, MEAN, delta.means, [sums, counts])
        component.spaces[MEAN].add_all_time(slots, numbers)
        if minutes:
            component.spaces[MEAN].add(minutes[-1], slots, numbers)

    def _placed(
        self,
        component: ComponentHistory,
        source: _Source,
        kind: metrics_pb2.Metric.Kind,
        names: Iterable[str],
        numbers: object,
    ) -> tuple[Ints, Floats]:
        """The slots of the names, and the numbers of those that have one."""
        wanted = list(names)
        known = source.slots.get(kind)
        if known is None or known[0] != wanted:
            space = component.spaces[kind]
            before = len(space)
            slots = space.slots_of(source.number, wanted, room=self._series_max - self._series)
            self._series += len(space) - before
            known = source.slots[kind] = (wanted, slots)
        slots, array = known[1], np.array(numbers, dtype=np.float64)
        if slots.min() < 0:
            self.dropped += int((slots < 0).sum())
            array, slots = array[:, slots >= 0], slots[slots >= 0]
            del source.slots[kind]  # there may be room next time
        return slots, array
