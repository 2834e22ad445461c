"""Elements whose ids may be there twice: of those with one id the earliest counts, so that each run chooses it.

Of those with one time it is the first of the input, which each attempt at a task chooses, too: what is computed from it
may be there in part when Spark repeats the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.pipeline.exchange import Layout
from heronpy.pipeline.task import Task


class UniqueReducer:
    """Rows are (id, time, place in the input, element), their head the input. Emits (input, time, element)."""

    def __init__(self, task: Task, layout: Layout) -> None:
        self._report, self._layout = task.report, layout
        self._first: dict[str, dict[str, tuple[int, int, Any]]] = {}

    def add(self, stage: str, rows: list[tuple[str, int, int, Any]]) -> None:
        first = self._first.setdefault(stage, {})
        for name, time, place, value in rows:
            before = first.get(name)
            if before is None:
                first[name] = (time, place, value)
                continue
            if (time, place) < before[:2]:
                first[name] = (time, place, value)
            self._drop(max(time, before[0]))

    def dump(self) -> Iterator[tuple[str, Iterable[tuple[str, int, int, Any]]]]:
        for stage, first in self._first.items():
            yield stage, ((name, *found) for name, found in first.items())

    def results(self) -> Iterator[tuple[str, int, Any]]:
        for stage, first in self._first.items():
            for time, _, value in first.values():
                yield stage, time, value

    def _drop(self, time_ms: int) -> None:
        batch = time_ms // self._layout.batch_length_ms
        if self._layout.is_wanted(batch):
            self._report.duplicates[batch] += 1
