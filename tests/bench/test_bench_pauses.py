"""How long a pause is that an update makes, as measured from what tasks say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from heronpy.bench.rows.pauses import update_pause_s

STEP_S = 0.1


class Counting:
    """One task. Each question takes a tenth of a second, by its own clock."""

    def __init__(self, *, stops: int, goes_on: int, updated: int, silent: int = 0) -> None:
        """Count nothing from one question to another; the update returns with a third; do not answer a fourth."""
        self.tasks = 1
        self.topology = self
        self._stops, self._goes_on, self._updated, self._silent = stops, goes_on, updated, silent
        self._questions = 0
        self._has_updated = threading.Event()

    def update(self, *, timeout_s: float, **parallelism: int) -> None:
        assert self._has_updated.wait(60)

    def answers(self) -> list[dict[str, Any]]:
        self._questions += 1
        if self._questions >= self._updated:
            self._has_updated.set()
        if self._questions == self._silent:
            return []
        if self._questions < self._goes_on:
            return [{"task": 1, "epoch": 1, "count": min(self._questions, self._stops)}]
        return [{"task": 1, "epoch": 2, "count": 1 + self._questions - self._goes_on}]

    def wait(self, what: str, done: Callable[[], bool], within_s: float) -> None:
        while not done():
            assert self._questions < 1000, what

    def now_s(self) -> float:
        return self._questions * STEP_S


def pause_s(**when: int) -> float:
    counting = Counting(**when)
    return round(update_pause_s(counting, 1, clock=counting.now_s), 3)


def test_a_pause_within_the_update_is_measured() -> None:
    assert pause_s(stops=10, goes_on=30, updated=60) == 2.0


def test_a_pause_that_outlasts_the_update_is_measured_to_its_end() -> None:
    assert pause_s(stops=10, goes_on=60, updated=20) == 5.0


def test_an_update_without_a_pause_has_none() -> None:
    assert pause_s(stops=30, goes_on=30, updated=60) <= 2 * STEP_S


def test_a_task_that_answers_late_has_not_counted() -> None:
    assert pause_s(stops=10, goes_on=30, updated=60, silent=20) == 2.0
