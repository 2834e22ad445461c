"""What waits in windows, and when it is due. Pure.

A pane is what has come for one window and was not emitted yet. It is due when the watermark has passed the window's
end. What comes for a window that is past already makes a new pane with only what is new, so results of one window are
parts to be merged ("discarding" in Akidau et al., The Dataflow Model, VLDB 2015, §2.3). Such a pane waits for a grace,
so that what is replayed after a kill comes together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from heronpy.streamlet._windows import window_starts
from heronpy.streamlet.windowconfig import WindowConfig

T = TypeVar("T")

GRACE_MS = 1000


class Panes(Generic[T]):
    """The panes of one task."""

    def __init__(self, config: WindowConfig, make: Callable[[], T], *, grace_ms: int = GRACE_MS) -> None:
        """Begin with none.

        Args:
            config: the windows.
            make: an empty pane.
            grace_ms: how long a pane of a window that is past waits for more.
        """
        self._config = config
        self._make = make
        self._grace_ms = grace_ms
        self._panes: dict[int, T] = {}
        self._late: dict[int, int] = {}
        """When panes that were made late are due, by their window's start."""
        self._starts: list[int] = []
        """A heap of the starts of all panes."""
        # Between two beginnings and ends of windows all times are in the same ones, and neighbours come together.
        self._slot_ms = math.gcd(config.duration_ms, config.slide_ms)
        self._slot: int | None = None
        self._slot_panes: list[T] = []

    def __len__(self) -> int:
        return len(self._panes)

    def of(self, time_ms: int, watermark: int, now_ms: int) -> list[T]:
        """The panes that an element of this time belongs to, earliest window first. Not to be changed."""
        slot = time_ms // self._slot_ms
        if slot == self._slot:
            return self._slot_panes
        panes: list[T] = []
        for start in window_starts(time_ms, self._config):
            pane = self._panes.get(start)
            if pane is None:
                pane = self._panes[start] = self._make()
                heapq.heappush(self._starts, start)
                if start + self._config.duration_ms <= watermark:
                    self._late[start] = now_ms + self._grace_ms
            panes.append(pane)
        self._slot, self._slot_panes = slot, panes
        return panes

    def due(self, watermark: int, now_ms: int) -> Iterator[tuple[int, T]]:
        """Take the panes that are due: the start of each one's window, and the pane. Earliest window first."""
        kept: list[int] = []
        while self._starts and self._starts[0] + self._config.duration_ms <= watermark:
            start = heapq.heappop(self._starts)
            if self._late.get(start, now_ms) > now_ms:
                kept.append(start)
                continue
            self._late.pop(start, None)
            self._slot, self._slot_panes = None, []
            yield start, self._panes.pop(start)
        for start in kept:
            heapq.heappush(self._starts, start)

    def check_invariants(self) -> None:
        """Raise AssertionError if the bookkeeping contradicts itself. For tests."""
        assert sorted(self._starts) == sorted(self._panes)
        assert self._late.keys() <= self._panes.keys()


class Held:
    """A tuple in several windows: done with when the last of its panes has fired."""

    __slots__ = ("left", "tup")

    def __init__(self, tup: Any, left: int) -> None:
        self.tup = tup
        self.left = left


def released(held: list[Any]) -> Iterator[Any]:
    """The tuples of a fired pane that are in no other: plain ones, and Held ones that have become free."""
    for one in held:
        if type(one) is Held:
            one.left -= 1
            if not one.left:
                yield one.tup
        else:
            yield one


def anchors_of(held: list[Any]) -> list[Any]:
    """The tuples themselves."""
    return [one.tup if type(one) is Held else one for one in held]
