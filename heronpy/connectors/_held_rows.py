"""Rows exactly once, for stores with transactions: until they are committed they are in the checkpoint."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from typing import Any, Final, NamedTuple

from heronpy.connectors.spi import SinkContext, TransactionalSinkWriter
from heronpy.errors import CheckpointError, FencedError

OPENED: Final = -2
"""Progress of a task that has prepared nothing, as far as is known. If something was, its progress is lost."""
NOTHING: Final = -1
"""Progress of a task that has prepared something, and committed nothing."""
ROWS_MAX: Final = 1_000_000
"""So many rows are held between two checkpoints."""
_KEY_CHARACTERS_MAX = 200


class PreparedRows(NamedTuple):
    """What one task wrote between two checkpoints. In them a plain tuple."""

    sink: str
    """Key of its progress, and …"""
    task: int
    """… the task: its progress is the newest checkpoint whose rows are there."""
    owner: str
    """The writer that prepared it."""
    checkpoint_id: int
    rows: tuple[Any, ...]


class HeldRowsWriter(TransactionalSinkWriter):
    """Rows in memory, prepared as themselves.

    A commit is one transaction of the store: the rows, and the progress that says they are there. An open writer owns
    the progress of its task, and knows by it when a newer one has taken over.

    Who has lost the progress must not take what was prepared before for uncommitted. So opening the sink begins none:
    that is done before something is prepared for the first time.
    """

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._epoch, self._task = context.epoch, context.task_index
        self._sink = progress_key(context)
        self._owner = os.urandom(8).hex()
        self._rows: list[Any] = []
        self._begun = False

    @abstractmethod
    def row(self, element: Any) -> Any:
        """An element as it is held; picklable. Raises ValueError if this sink cannot hold it."""

    @abstractmethod
    def commit_rows(self, prepared: PreparedRows) -> None:
        """As `commit`."""

    @abstractmethod
    def begin_progress(self) -> None:
        """Have the store know that something is about to be prepared. Changes nothing if something was.

        Raises:
            HeronError: as `prepare`.
        """

    def unknown(self, where: str, prepared: PreparedRows) -> CheckpointError:
        """There is no progress of a task that has prepared something."""
        at = prepared.checkpoint_id
        return CheckpointError(
            f"sink {self._context.name}: {where} has no progress of {prepared.sink}, task {prepared.task}, so it is "
            f"unknown whether what was prepared for checkpoint {at} is there: put the progress back, or enter {at} if "
            f"it is there, and {NOTHING} if it is not"
        )

    def check(self, rows: list[Any]) -> None:
        """Raise CheckpointError if the store would refuse these rows: later there is no way back."""

    def write(self, element: Any) -> None:
        row = self.row(element)
        if len(self._rows) >= ROWS_MAX:
            raise CheckpointError(
                f"sink {self._context.name}: {ROWS_MAX} rows wait for a checkpoint: take them more often, or use more "
                "tasks"
            )
        self._rows.append(row)

    def prepare(self, checkpoint_id: int) -> tuple[Any, ...] | None:
        if not self._rows:
            return None
        self.check(self._rows)
        if not self._begun:
            self.begin_progress()
            self._begun = True
        rows, self._rows = tuple(self._rows), []
        return tuple(PreparedRows(self._sink, self._task, self._owner, checkpoint_id, rows))

    def commit(self, prepared: tuple[Any, ...]) -> None:
        self.commit_rows(PreparedRows(*prepared))

    def abort(self, prepared: tuple[Any, ...]) -> None:
        """Nothing is to be undone: they are nowhere but in the checkpoint."""

    def fenced(self) -> FencedError:
        return FencedError(
            f"sink {self._context.name}: task {self._task} of restore epoch {self._epoch} is fenced: a newer one writes"
        )


def progress_key(context: SinkContext) -> str:
    """The key of a sink's progress, so short that a column holds it."""
    key = f"{context.topology_id}/{context.name}"
    if len(key) <= _KEY_CHARACTERS_MAX:
        return key
    return f"{key[:_KEY_CHARACTERS_MAX]}…{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"
