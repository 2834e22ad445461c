"""The bolt of a live view: merges values in memory, and commits what has come together many times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heronpy.api import Tuple
from heronpy.errors import ConfigError, UnavailableError
from heronpy.streamlet._bolts import WAIT_S, StageBolt
from heronpy.streamlet._store_output import StoreOutput
from heronpy.streamlet._task import now_ms
from heronpy.streamlet.bootstrap import read_cut
from heronpy.streamlet.graph import StoreNode
from heronpy.streamlet.live_length import claim_length

if TYPE_CHECKING:
    from heronpy.stores import StoreWriter

ENTRIES_MAX = 50_000
WARN_EVERY_MS = 5_000


def repeats(node: StoreNode) -> str:
    """Why a view cannot be written effectively once."""
    return f"view {node.store_name}: {node.store!r} has no commit_once(), so a restore would repeat what it has written"


class StoreBolt(StageBolt):
    """One writer of a view. Keys come by fields grouping, so no other task writes them.

    Effectively once it is a sink that commits with the checkpoints.
    """

    commit_every_ms = 100

    def set_up(self) -> None:
        from heronpy.stores import StoreContext

        node = self.stage.head.node
        assert isinstance(node, StoreNode)
        self._monoid = node.monoid
        directory = self.definition.directory
        if directory is not None:
            claim_length(directory, self.definition.batch_length_ms)
        context = StoreContext(
            view=node.store_name,
            monoid=node.monoid,
            directory=directory,
            failed=lambda key, acc, error: self.failed((key, acc), error),
        )
        self._writer: StoreWriter | None = None
        if self.exact:
            if not node.store.exactly_once:
                raise ConfigError(f"{node.stage} cannot be effectively once: {repeats(node)}")
            self._write = self.task.writer_of(self.stage.name, StoreOutput(node, context))
        else:
            self.commits = True
            self._writer = node.store.writer(context, str(self.task.context.get_this_task_index()))
        self._cut = read_cut(directory) if directory is not None else None
        self._batches: dict[int, dict[Any, Any]] = {}
        """Accumulators by batch and key."""
        self._entries = 0
        self._tuples: list[Tuple] = []
        """What the accumulators are made of."""
        self._merged: list[Tuple] = []
        """What the writer was given, and has not committed."""
        self._uncommitted = False
        self._warn_at_ms = 0

    def taker(self) -> Callable[[Tuple], None]:
        length_ms, cut, tracking = self.definition.batch_length_ms, self._cut, self.tracking
        lift, add, batches = self._monoid.lift, self._monoid.add, self._batches
        tuples_append = self._append

        def take(tup: Tuple) -> None:
            key, value, time_ms, *_ = tup.values
            if cut is not None and time_ms < cut:
                self.ack(tup)
                return
            batch = time_ms // length_ms
            accs = batches.get(batch)
            if accs is None:
                accs = batches[batch] = {}
            try:
                if key in accs:
                    accs[key] = add(accs[key], value)
                else:
                    accs[key] = lift(value)
                    self._entries += 1
            except Exception as error:
                self.failed((key, value), error)
                self.ack(tup)
                return
            if tracking:
                tuples_append(tup)
            if self.away or self._entries >= ENTRIES_MAX:
                self._full()

        return self._take_once if self.exact else take

    def _take_once(self, tup: Tuple) -> None:
        """`process` effectively once."""
        key, value, time_ms, *_ = tup.values
        if self._cut is None or time_ms >= self._cut:
            try:
                self._write((time_ms // self.definition.batch_length_ms, key, value))
            except Exception as error:
                self.failed((key, value), error)
        self.ack(tup)

    def _append(self, tup: Tuple) -> None:
        self._tuples.append(tup)

    def _full(self) -> None:
        if now_ms() >= self._commit_at_ms or not self._uncommitted:
            self.commit()
        if self.away:
            time.sleep(WAIT_S)

    def commit(self) -> None:
        """Hand everything to the store, then ack it. What cannot be committed is kept, and tried again."""
        self._commit_at_ms = now_ms() + self.commit_every_ms
        try:
            self.commit_now()
            self.away = False
        except UnavailableError as error:
            self.away = True
            if now_ms() >= self._warn_at_ms:
                self._warn_at_ms = now_ms() + WARN_EVERY_MS
                waiting = len(self._merged) + len(self._tuples)
                self.logger.warning("%s; %d tuples wait for view %s", error, waiting, self.stage.name)

    def commit_now(self) -> None:
        self._commit_merged()  # first what an earlier try has left
        if self._entries or self._tuples:
            self._merge()
            self._commit_merged()

    def cleanup(self) -> None:
        super().cleanup()
        if self._writer is not None:
            self._writer.close()

    def _merge(self) -> None:
        assert self._writer is not None
        merge = self._writer.merge
        for batch, accs in self._batches.items():
            for key, acc in accs.items():
                try:
                    merge(key, acc, batch)
                except Exception as error:  # no such key can be stored, or the monoid's word
                    self.failed((key, acc), error)
        self._batches.clear()
        self._entries = 0
        self._merged += self._tuples
        self._tuples.clear()
        self._uncommitted = True

    def _commit_merged(self) -> None:
        if not self._uncommitted:
            return
        assert self._writer is not None
        self._writer.commit()
        self._uncommitted = False
        ack = self.ack
        for tup in self._merged:
            ack(tup)
        self._merged.clear()
