"""Simulated time, and processes that live in it: they die, stop and continue between any two steps."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

NS = 1_000_000_000
Call = Callable[[], None]


class Loop:
    """Calls in order of time; those of one time in the order in which they were scheduled."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ns = NS
        """Not 0: cores take 0 for "never"."""
        self.steps = 0
        self._heap: list[tuple[int, int, Call]] = []
        self._numbers = itertools.count()

    @property
    def now_s(self) -> float:
        return self.now_ns / NS

    def rng(self, name: str) -> random.Random:
        """Random numbers for one purpose: what else is drawn does not change them, so that schedules can shrink."""
        return random.Random(f"{self.seed}/{name}")

    def after(self, delay_s: float, call: Call) -> None:
        """Schedule a call."""
        heapq.heappush(self._heap, (self.now_ns + math.ceil(delay_s * NS), next(self._numbers), call))

    def run_until(self, end_s: float) -> None:
        """Make every call that is due before a time."""
        end_ns = int(end_s * NS)
        while self._heap and self._heap[0][0] < end_ns:
            self.now_ns, _, call = heapq.heappop(self._heap)
            self.steps += 1
            call()
        self.now_ns = max(self.now_ns, end_ns)


@dataclass(eq=False)
class Process:
    """One incarnation of a process. Its calls wait while it is stopped, and come to nothing when it is dead."""

    loop: Loop
    name: str
    incarnation: int
    alive: bool = True
    stopped: bool = False
    on_death: list[Call] = field(default_factory=list)
    on_stop: list[Call] = field(default_factory=list)
    on_continue: list[Call] = field(default_factory=list)
    check: Call = lambda: None
    """Called after each step, or after each of `check_every`."""
    check_every: int = 1
    clock_ns: int = 0
    """How far the clock of its host is ahead."""
    _steps: int = 0
    _waiting: list[Call] = field(default_factory=list)

    def after(self, delay_s: float, call: Call) -> None:
        """Schedule a step of this process."""
        self.loop.after(delay_s, lambda: self._step(call))

    def _step(self, call: Call) -> None:
        if self.stopped and self.alive:
            self._waiting.append(call)
        elif self.alive:
            call()
            self._steps += 1
            if self._steps % self.check_every == 0:
                self.check()

    def die(self) -> None:
        """SIGKILL."""
        if not self.alive:
            return
        self.alive = False
        calls, self.on_death = self.on_death, []
        for call in calls:
            call()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True
        for call in self.on_stop:
            call()

    def resume(self) -> None:
        """SIGCONT."""
        if not self.stopped:
            return
        self.stopped = False
        waiting, self._waiting = self._waiting, []
        for call in (*waiting, *self.on_continue):
            self.after(0, call)
