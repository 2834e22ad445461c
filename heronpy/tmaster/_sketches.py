"""The distributions of one component's latencies by minute, merged over its instances."""

from __future__ import annotations

from heronpy.sketch import Sketch

NAMES_MAX = 256
"""Most latencies of one component; more are not kept."""


class SketchSpace:
    """Sketches by name: of each minute, and of all time."""

    def __init__(self) -> None:
        self._all_time: dict[str, Sketch] = {}
        self._minutes: dict[int, dict[str, Sketch]] = {}

    def add(self, minute: int | None, name: str, sketch: Sketch) -> None:
        """Add what was measured in a minute; None: the minute is unknown."""
        if name not in self._all_time and len(self._all_time) >= NAMES_MAX:
            return
        self._all_time.setdefault(name, Sketch()).merge(sketch)
        if minute is not None:
            self._minutes.setdefault(minute, {}).setdefault(name, Sketch()).merge(sketch)

    def keep(self, first: int, last: int) -> None:
        """Drop the minutes outside of these."""
        for minute in [m for m in self._minutes if not first <= m <= last]:
            del self._minutes[minute]

    def all_time(self, name: str) -> Sketch:
        return self._all_time.get(name, Sketch())

    def minutes(self, name: str, first: int, last: int) -> dict[int, Sketch]:
        """What was measured in each of these minutes, both inclusive; only those in which something was."""
        found = {m: sketches[name] for m, sketches in self._minutes.items() if name in sketches}
        return {minute: sketch for minute, sketch in found.items() if first <= minute <= last}

    def merged(self, name: str, first: int, last: int) -> Sketch:
        """What was measured in these minutes, both inclusive."""
        merged = Sketch()
        for sketch in self.minutes(name, first, last).values():
            merged.merge(sketch)
        return merged
