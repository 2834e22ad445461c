"""What a task of a batch job notes down, and sends along with its results.

Spark may run a task twice. Accumulators would then count twice; a report travels with the task's output, and so counts
exactly when the output does.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from heronpy.errors import TupleError, is_shortage
from heronpy.filesystem import Location
from heronpy.pipeline.letters import staged_name
from heronpy.shown import said

_ROW_GROUP = ", row group "
"""In what an archive says of a place, after the path."""
_BATCH = "batch="
"""How the names of an archive's folders begin."""
_OPEN_MAX = 64
"""Files of dead letters that a task holds open."""


class Part(NamedTuple):
    """A file that a task has written, under a name that no other attempt uses."""

    stage: str
    batch: int
    number: int
    """Which file of the batch."""
    rows: int
    written: Location
    final: str
    """What it is called once its version counts."""


def file_of(where: str) -> str:
    """The file in what an archive says of a place."""
    return where.partition(_ROW_GROUP)[0]


def batch_of(where: str) -> int | None:
    """The batch id in what an archive says of a place; None: there is none."""
    folder = Path(file_of(where)).parent.name
    number = folder.removeprefix(_BATCH)
    return int(number) if folder != number and number.lstrip("-").isdigit() else None


@dataclass
class Report:
    """What one task did."""

    took_s: float = 0.0
    """Of the whole Spark job."""
    read: int = 0
    """Elements of the input, also those that are only looked back at."""
    rows: Counter[str] = field(default_factory=Counter)
    """Read of each archive."""
    held_back: int = 0
    """Of these, those that may be there twice."""
    compared: int = 0
    """Rows that were read again, as they may be there twice."""
    elements: Counter[int] = field(default_factory=Counter)
    """Of the batches that are computed, by batch id, as the input times them."""
    duplicates: Counter[int] = field(default_factory=Counter)
    """Dropped, by batch id."""
    failed: Counter[int] = field(default_factory=Counter)
    """Elements for which user code raised, by batch id."""
    refused: Counter[int] = field(default_factory=Counter)
    """Of these, those in reductions and behind them."""
    raised: int = 0
    """How often it raised, also for elements that are only looked back at."""
    malformed: int = 0
    """Rows that could not be read, without those that are only looked back at."""
    malformed_in: set[str] = field(default_factory=set)
    """The files that they are in, as far as inputs are archives."""
    malformed_again: set[str] = field(default_factory=set)
    """Those in which the search for duplicates among the elements could not read something."""
    unsendable: set[str] = field(default_factory=set)
    """Reductions of which something reduced could not be pickled: with one value at fault, others of its key."""
    first_failure: tuple[str, str] | None = None
    """The stage and reason of the first failure, and its traceback."""
    parts: list[Part] = field(default_factory=list)
    divided: dict[int, int] = field(default_factory=dict)
    """Of the whole Spark job: among how many parts the keys of each batch are divided, with rows or without."""
    letters: list[Location] = field(default_factory=list)
    """Files of dead letters, which are staged."""

    def add(self, other: Report) -> None:
        """Put another task's report to this."""
        self.read += other.read
        self.rows += other.rows
        self.held_back += other.held_back
        self.compared += other.compared
        self.elements += other.elements
        self.duplicates += other.duplicates
        self.failed += other.failed
        self.refused += other.refused
        self.raised += other.raised
        self.unsendable |= other.unsendable
        self.malformed += other.malformed
        self.malformed_in |= other.malformed_in
        self.malformed_again |= other.malformed_again
        self.first_failure = self.first_failure or other.first_failure
        self.parts += other.parts
        self.letters += other.letters


class Task:
    """Bookkeeping of a running task."""

    def __init__(
        self,
        directory: Location,
        version: str,
        index: int,
        batch_length_ms: int,
        is_wanted: Callable[..., bool],
        config: dict[str, Any],
        running: Container[str] = (),
        read: Container[int] | None = None,
    ) -> None:
        """Begin a task.

        Args:
            directory: the job's.
            version: of its files.
            index: number of the partition.
            batch_length_ms: length of a batch.
            is_wanted: whether a batch id is computed (of a stage, if one is named): what fails in others is set aside
                by the run that computes them.
            config: the program's configuration keys.
            running: see `BatchPlan.running`.
            read: batches whose elements are read: where what was kept of others raises, that is no share of them.
                None: all.
        """
        self.index = index
        self.config = config
        self.report = Report()
        self._directory, self._version = directory, version
        self._batch_length_ms = batch_length_ms
        self._is_wanted, self._running, self._read = is_wanted, running, read
        self._letters: dict[tuple[str, int | None], Any] = {}

    def failed(self, stage: str, element: Any, time_ms: int, error: Exception) -> None:
        """Set an element aside for which user code raised.

        A shortage is raised instead: the task fails, Spark repeats it, and in the end the job says why.

        Args:
            stage: whose code it was.
            element: what it was given.
            time_ms: of the element, or of the result that it would have had a part in.
            error: what it raised.
        """
        if is_shortage(error):
            raise error
        reason = said(error)
        batch = time_ms // self._batch_length_ms
        if self._read is None or batch in self._read:
            if self.report.first_failure is None:
                lines = "".join(traceback.format_exception(error))
                self.report.first_failure = (f"{stage}: {reason}", lines)
            self.report.raised += 1
        if self._is_wanted(batch, stage):
            self.report.failed[batch] += 1
            self.report.refused[batch] += stage in self._running
            self._origin(stage, batch)(f"{stage} at {time_ms} ms", element, reason)

    def failing(self, stage: str, time_ms: int) -> Callable[[Any, Exception], None]:
        """`failed` for elements of one stage and time."""
        return lambda element, error: self.failed(stage, element, time_ms, error)

    def reduced(self, stage: str, time_ms: int) -> Callable[[Any, Exception], None]:
        """`failing` for what was reduced of several elements, and cannot be sent."""

        def failed(row: Any, error: Exception) -> None:
            if not isinstance(error, TupleError):  # of a key
                self.report.unsendable.add(stage)
            self.failed(stage, row, time_ms, error)

        return failed

    def dead_letter(self, stage: str, *, archived: bool) -> Callable[[str, Any, str], None]:
        """Where a source, or an archive, sets malformed rows aside."""

        def malformed(where: str, row: Any, reason: str) -> None:
            self.report.malformed_in.add(file_of(where))
            batch = batch_of(where) if archived else None
            if batch is None or self._is_wanted(batch):
                self.report.malformed += 1
                self._origin(stage, batch)(where, row, reason)

        return malformed

    def close(self) -> None:
        """Close the files of dead letters."""
        for letters in self._letters.values():
            letters.close()

    def finished(self) -> Report:
        """The report, when all is done."""
        self.close()
        self.report.letters = [path for letters in self._letters.values() for path in letters.files]
        return self.report

    def _origin(self, stage: str, batch: int | None) -> Any:
        letters = self._letters.get((stage, batch))
        if letters is None:
            from heronpy.archive import DeadLetters

            if len(self._letters) % _OPEN_MAX == 0:
                self.close()  # the next letter of each opens another file
            name = staged_name(batch, self._version)
            letters = self._letters[stage, batch] = DeadLetters(self._directory, stage, staged=name)
        return letters
