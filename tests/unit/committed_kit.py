"""A sink and a store that show what is committed, exactly once and in this process, for programs in the simulator."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

from heronpy.connectors import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.stores import Store, StoreContext, StoreReader, StoreWriter

COMMITTED: dict[tuple[int, int], list[Any]] = {}
"""By task and checkpoint: what a sink has made visible."""
VIEW: Counter[str] = Counter()
"""What the live view has by batch and key, and under what numbers it was committed."""
PROGRESS: dict[tuple[str, str], int] = {}


def forget() -> None:
    """Nothing is committed."""
    COMMITTED.clear()
    VIEW.clear()
    PROGRESS.clear()


def results() -> Counter[str]:
    """What is visible."""
    return Counter(repr(row) for rows in COMMITTED.values() for row in rows) + VIEW


class OutSink(Sink):
    """Exactly once, in this process."""

    exactly_once = True

    def open(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        return OutWriter(context.task_index)


class OutWriter(TransactionalSinkWriter):
    def __init__(self, task: int) -> None:
        self.task = task
        self.rows: list[Any] = []

    def write(self, element: Any) -> None:
        self.rows.append(pickle.loads(pickle.dumps(element)))

    def prepare(self, checkpoint_id: int) -> Any:
        rows, self.rows = self.rows, []
        return (self.task, checkpoint_id, rows) if rows else None

    def commit(self, prepared: Any) -> None:
        task, checkpoint_id, rows = prepared
        COMMITTED[task, checkpoint_id] = rows

    def abort(self, prepared: Any) -> None:
        pass


class OutStore(Store):
    """Exactly once, in this process."""

    exactly_once = True

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        return OutStoreWriter(writer_id)

    def reader(self, context: StoreContext) -> StoreReader:
        raise NotImplementedError


class Twice(OutStore):
    exactly_once = False


class OutStoreWriter(StoreWriter):
    def __init__(self, writer_id: str) -> None:
        self.writer_id = writer_id
        self.waiting: Counter[str] = Counter()

    def merge(self, key: Any, delta: Any, batch: int = 0) -> None:
        self.waiting[repr((batch, key))] += delta

    def commit(self) -> None:
        raise AssertionError("a restore would repeat it")

    def commit_once(self, name: str, number: int) -> None:
        if PROGRESS.get((self.writer_id, name), 0) < number:
            PROGRESS[self.writer_id, name] = number
            VIEW.update(self.waiting)
        self.waiting.clear()

    def close(self) -> None:
        pass
