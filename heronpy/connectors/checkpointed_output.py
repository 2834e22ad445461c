"""What one task writes to a sink where checkpoints are taken: two-phase commit with each of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from heronpy.api import TopologyContext
from heronpy.connectors.spi import Sink, SinkContext, SinkWriter, TransactionalSinkWriter

log = logging.getLogger(__name__)


class Pending(NamedTuple):
    """What was prepared, and may be uncommitted. In checkpoints a plain tuple."""

    checkpoint_id: int
    task: int
    """Index of the task that prepared it."""
    prepared: Any


class CheckpointedOutput:
    """A sink's writer, open in one task: exactly once if the sink can, else at least once. `write` takes an element.

    What is prepared and not known to be committed is in the task's state, so a restore commits it.
    """

    def __init__(self, sink: Sink, sink_context: SinkContext, context: TopologyContext, *, state: str) -> None:
        """Open it, and commit what the restored checkpoint has. While the component is initialized.

        Args:
            sink: Where elements go.
            sink_context: Where it is opened.
            context: The task's.
            state: Name of its state in the component.

        Raises:
            HeronError: as of `Sink.open_transactional`, and of `commit`.
        """
        self._task = sink_context.task_index
        self._writer: SinkWriter | None = None
        self._transactions: TransactionalSinkWriter | None = None
        if not sink.exactly_once:
            if self._task == 0:  # one warning is enough
                log.warning("%r writes at least once: a rollback repeats what it has written", sink)
            self._writer = sink.open(sink_context)
            self.write = self._writer.write
            return
        self.pending = context.task_state(state, default=(), split=split_pending, merge=merge_pending)
        self._transactions = sink.open_transactional(sink_context)
        self._transactions.recover([each.prepared for each in self._uncommitted()])
        self.pending.value = ()
        self.write = self._transactions.write

    def prepare(self, checkpoint_id: int) -> None:
        """Prepare what came since the last checkpoint; what was prepared for one that failed waits with it.

        Raises:
            HeronError: as of `TransactionalSinkWriter.prepare` or `SinkWriter.flush`.
        """
        if self._transactions is None:
            assert self._writer is not None
            self._writer.flush()
            return
        prepared = self._transactions.prepare(checkpoint_id)
        if prepared is not None:
            self.pending.value = (*self.pending.value, (checkpoint_id, self._task, prepared))

    def commit(self, checkpoint_id: int) -> None:
        """Commit what was prepared for a checkpoint and for those before it.

        Raises:
            HeronError: as of `TransactionalSinkWriter.commit`.
        """
        if self._transactions is None:
            return
        for each in self._uncommitted():
            if each.checkpoint_id <= checkpoint_id:
                self._transactions.commit(each.prepared)
        self.pending.value = tuple(tuple(each) for each in self._uncommitted() if each.checkpoint_id > checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """Abort what was prepared after a checkpoint: it will never be committed.

        Raises:
            HeronError: as of `TransactionalSinkWriter.abort`.
        """
        if self._transactions is None:
            return
        for each in self._uncommitted():
            if each.checkpoint_id > checkpoint_id:
                self._transactions.abort(each.prepared)

    def close(self) -> None:
        """Let go of files and connections; what was not prepared is gone."""
        writer = self._transactions or self._writer
        assert writer is not None
        writer.close()

    def _uncommitted(self) -> list[Pending]:
        return [Pending(*each) for each in self.pending.value]


def merge_pending(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """What all tasks had."""
    return tuple(each for value in values for each in value)


def split_pending(value: tuple[Any, ...], tasks: int) -> list[tuple[Any, ...]]:
    """For each of another number of tasks; what one task had prepared stays together and in its order."""
    return [tuple(each for each in value if Pending(*each).task % tasks == index) for index in range(tasks)]
