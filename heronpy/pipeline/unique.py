"""Elements whose ids may be there twice: of those with one id the earliest counts, so that each run chooses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from heronpy.pipeline.exchange import Layout
from heronpy.pipeline.task import Task


class UniqueReducer:
    """Rows are (id, time, element), their head the input that they are of. Emits (input, time, element)."""

    def __init__(self, task: Task, layout: Layout) -> None:
        self._report, self._layout = task.report, layout
        self._first: dict[str, dict[str, tuple[int, Any]]] = {}

    def add(self, stage: str, rows: list[tuple[str, int, Any]]) -> None:
        first = self._first.setdefault(stage, {})
        for name, time, value in rows:
            before = first.get(name)
            if before is None:
                first[name] = (time, value)
                continue
            if time < before[0]:
                first[name] = (time, value)
            self._drop(max(time, before[0]))

    def dump(self) -> Iterator[tuple[str, Iterable[tuple[str, int, Any]]]]:
        for stage, first in self._first.items():
            yield stage, ((name, *found) for name, found in first.items())

    def results(self) -> Iterator[tuple[str, int, Any]]:
        for stage, first in self._first.items():
            for time, value in first.values():
                yield stage, time, value

    def _drop(self, time_ms: int) -> None:
        batch = time_ms // self._layout.batch_length_ms
        if self._layout.is_wanted(batch):
            self._report.duplicates[batch] += 1
