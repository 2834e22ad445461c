"""What a task of a batch job notes down, and sends along with its results.

Spark may run a task twice. Accumulators would then count twice; a report travels with the task's output, and so counts
exactly when the output does.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from heronpy.errors import is_shortage

_ROW_GROUP = ", row group "
"""In what an archive says of a place, after the path."""


class Part(NamedTuple):
    """A file that a task has written, under a name that no other attempt uses."""

    stage: str
    batch: int
    number: int
    """Which file of the batch."""
    rows: int
    written: Path
    final: str
    """What it is called once its version counts."""


def file_of(where: str) -> str:
    """The file in what an archive says of a place."""
    return where.partition(_ROW_GROUP)[0]


@dataclass
class Report:
    """What one task did."""

    read: int = 0
    """Elements of the input, also those that are only looked back at."""
    elements: Counter[int] = field(default_factory=Counter)
    """Of the batches that are computed, by batch id, as the input times them."""
    duplicates: Counter[int] = field(default_factory=Counter)
    """Dropped, by batch id."""
    failed: Counter[int] = field(default_factory=Counter)
    """Elements for which user code raised, by batch id."""
    malformed: int = 0
    """Rows that could not be read."""
    malformed_in: set[str] = field(default_factory=set)
    """The files that they are in, as far as inputs are archives."""
    malformed_again: set[str] = field(default_factory=set)
    """Those in which whoever looked for duplicates among the elements could not read something."""
    first_failure: tuple[str, str] | None = None
    """The stage and reason of the first failure, and its traceback."""
    parts: list[Part] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Put another task's report to this."""
        self.read += other.read
        self.elements += other.elements
        self.duplicates += other.duplicates
        self.failed += other.failed
        self.malformed += other.malformed
        self.malformed_in |= other.malformed_in
        self.malformed_again |= other.malformed_again
        self.first_failure = self.first_failure or other.first_failure
        self.parts += other.parts


class Task:
    """Bookkeeping of a running task."""

    def __init__(self, directory: Path, index: int, batch_length_ms: int, config: dict[str, Any]) -> None:
        """Begin a task.

        Args:
            directory: the job's.
            index: number of the partition.
            batch_length_ms: length of a batch.
            config: the program's configuration keys.
        """
        self.index = index
        self.config = config
        self.report = Report()
        self._directory = directory
        self._batch_length_ms = batch_length_ms
        self._letters: dict[str, Any] = {}

    def failed(self, stage: str, element: Any, time_ms: int, error: Exception) -> None:
        """Set an element aside for which user code raised.

        A shortage is raised instead: the task fails, Spark repeats it, and in the end the job says why.
        """
        if is_shortage(error):
            raise error
        reason = f"{type(error).__name__}: {error}"
        if self.report.first_failure is None:
            lines = "".join(traceback.format_exception(error))
            self.report.first_failure = (f"{stage}: {reason}", lines)
        self.report.failed[time_ms // self._batch_length_ms] += 1
        self._origin(stage)(f"{stage} at {time_ms} ms", element, reason)

    def failing(self, stage: str, time_ms: int) -> Callable[[Any, Exception], None]:
        """`failed` for elements of one stage and time."""
        return lambda element, error: self.failed(stage, element, time_ms, error)

    def dead_letter(self, stage: str) -> Callable[[str, Any, str], None]:
        """Where a source or an archive sets malformed rows aside."""
        letters = self._origin(stage)

        def malformed(where: str, row: Any, reason: str) -> None:
            self.report.malformed += 1
            self.report.malformed_in.add(file_of(where))
            letters(where, row, reason)

        return malformed

    def close(self) -> None:
        """Close the files of dead letters."""
        for letters in self._letters.values():
            letters.close()

    def _origin(self, stage: str) -> Any:
        letters = self._letters.get(stage)
        if letters is None:
            from heronpy.archive import DeadLetters

            letters = self._letters[stage] = DeadLetters(self._directory, stage)
        return letters
