"""A live view as a sink: what comes between two checkpoints is merged into it when the second is committed, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.connectors import Sink, SinkContext, SinkWriter, TransactionalSinkWriter
from heronpy.streamlet.graph import StoreNode

if TYPE_CHECKING:
    from heronpy.stores import Store, StoreContext


class StoreOutput(Sink):
    """Elements are (batch, key, value). Not a description: made in the task that writes."""

    exactly_once = True

    def __init__(self, node: StoreNode, context: StoreContext) -> None:
        assert context.failed is not None
        self._node = node
        self._context = context

    def open(self, context: SinkContext) -> SinkWriter:
        raise AssertionError("it is used with checkpoints only")

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        return _Writer(self._node.store, self._context, context)


class _Writer(TransactionalSinkWriter):
    """Accumulators in memory. What is prepared has them encoded, and says by what name a commit is known.

    There is nothing to fence: whichever task commits what a checkpoint has, it is stored once.
    """

    def __init__(self, store: Store, view: StoreContext, context: SinkContext) -> None:
        assert view.failed is not None
        self._store, self._view = store, view
        self._monoid, self._failed = view.monoid, view.failed
        self._run = context.topology_id
        self._id = str(context.task_index)
        self._writers = {self._id: store.writer(view, self._id)}
        """By task; others than its own are of tasks that are no more."""
        self._batches: dict[int, dict[Any, Any]] = {}
        """Accumulators by batch and key."""

    def write(self, element: tuple[int, Any, Any]) -> None:
        batch, key, value = element
        accs = self._batches.get(batch)
        if accs is None:
            accs = self._batches[batch] = {}
        accs[key] = self._monoid.add(accs[key], value) if key in accs else self._monoid.lift(value)

    def prepare(self, checkpoint_id: int) -> Any:
        if not self._batches:
            return None
        encode, failed = self._monoid.encode, self._failed
        batches, self._batches = self._batches, {}
        rows = []
        for batch, accs in batches.items():
            for key, acc in accs.items():
                try:
                    rows.append((batch, key, encode(acc)))
                except Exception as error:  # the monoid's word
                    failed(key, acc, error)
        return self._id, self._run, checkpoint_id, rows

    def commit(self, prepared: Any) -> None:
        writer_id, run, checkpoint_id, rows = prepared
        if writer_id not in self._writers:
            self._writers[writer_id] = self._store.writer(self._view, writer_id)
        writer, decode = self._writers[writer_id], self._monoid.decode
        try:
            for batch, key, data in rows:
                acc = decode(data)
                try:
                    writer.merge(key, acc, batch)
                except Exception as error:  # no such key can be stored, or the monoid's word
                    self._failed(key, acc, error)
            writer.commit_once(run, checkpoint_id)
        except BaseException:
            self._writers.pop(writer_id).close()  # with what it was given: who repeats this gives it again
            raise

    def abort(self, prepared: Any) -> None:
        pass

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


__all__ = ["StoreOutput"]
