"""Acks and fails of a bolt, from user code to batches.

`ack` and `fail` write a byte, from any thread and without a lock; a flush turns all marks since the last one into
batches. The order matters: marks are read *before* emitted tuples are taken, and sent after them. So a thread that
emits and then acks has the child in the ack's value; else its tree could look complete without the child.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heronpy.api.task_hook import BoltAckInfo, BoltFailInfo
from heronpy.api.tuple import Tuple
from heronpy.instance._core import TaskCore
from heronpy.instance._inbatch import ACKED, FAILED, InBatch, Index, U64s, root_batches
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, FAIL, RESET_TIMEOUT


@dataclass(slots=True)
class Settled:
    """What is settled of one batch since the last flush."""

    origin: InBatch
    acked: Index
    failed: Index

    def spoil(self, index: int) -> int:
        """Fail a tuple even if it was acked. Returns how many open tuples that settles: 1 or 0."""
        if index in self.failed:
            return 0
        was_open = self.origin.spoil(index)
        self.acked = self.acked[self.acked != index]
        self.failed = np.append(self.failed, index)
        return int(was_open)


class Acks:
    """The marks of one bolt task."""

    def __init__(self, core: TaskCore, since_start_ms: Callable[[], float]) -> None:
        """Nothing is marked.

        Args:
            core: the task's.
            since_start_ms: time since process() was called, for task hooks.
        """
        self._core = core
        self._since_start_ms = since_start_ms
        self._dirty: deque[InBatch] = deque()
        self._late: deque[InBatch] = deque()
        self._resets: deque[Tuple] = deque()
        self.ack, self.fail = self._make_marks()
        self.settles = False
        """Whether all that is taken up is to be settled, also what is not tracked."""
        # Each is counted by one thread at a time: the task's, and the sender's.
        self._taken_up = 0
        self._settled = 0

    def _make_marks(self) -> tuple[Callable[[Tuple], None], Callable[[Tuple], None]]:
        dirty, late, signal, core = self._dirty, self._late, self._core.signal, self._core

        def ack(tup: Tuple) -> None:
            origin: Any = tup.origin_
            origin.marks[tup.index_] = ACKED
            if not origin.dirty:
                marked(origin)

        def fail(tup: Tuple) -> None:
            origin: Any = tup.origin_
            if not isinstance(origin, InBatch):
                return
            if origin.marks[tup.index_]:
                if origin.marks[tup.index_] == ACKED:
                    late.append(origin)  # e.g. by a process() that raised after its ack
                return
            if origin.failed is None:
                with core.lock:
                    origin.failed = origin.failed or set()
            origin.failed.add(tup.index_)
            origin.marks[tup.index_] = FAILED
            if not origin.dirty:
                marked(origin)

        def marked(origin: InBatch) -> None:
            origin.dirty = True
            dirty.append(origin)
            if signal.dozing:
                signal.dozing = False
                core.wake()

        return ack, fail

    def observe(self) -> None:
        """Have task hooks called: slower, so only where there are any."""
        core, ack, fail = self._core, self.ack, self.fail

        def observed_ack(tup: Tuple) -> None:
            ack(tup)
            for hook in core.hooks:
                hook.bolt_ack(BoltAckInfo(tup, core.task_id, self._since_start_ms()))

        def observed_fail(tup: Tuple) -> None:
            fail(tup)
            for hook in core.hooks:
                hook.bolt_fail(BoltFailInfo(tup, core.task_id, self._since_start_ms()))

        self.ack, self.fail = observed_ack, observed_fail

    @property
    def held(self) -> int:
        """Tuples that were taken up and are neither acked nor failed; unless it `settles` only tracked ones."""
        return self._taken_up - self._settled

    def took_up(self, origin: InBatch, count: int) -> None:
        """The task has taken up tuples of a batch."""
        if self._holds(origin):
            self._taken_up += count

    def _holds(self, origin: InBatch) -> bool:
        """Whether the tuples of a batch count as held."""
        return origin.tracked or self.settles

    def __bool__(self) -> bool:
        """Whether there is something to send."""
        return bool(self._dirty or self._resets)

    def reset_timeout(self, tup: Tuple) -> None:
        """Give a tuple's trees their full timeout again, with the next flush."""
        self._resets.append(tup)

    def take(self) -> dict[InBatch, Settled]:
        """What was marked since the last call. Call before emitted tuples are taken."""
        taken: dict[InBatch, Settled] = {}
        for _ in range(len(self._dirty)):
            origin = self._dirty.popleft()
            acked, failed, late = origin.settle()
            self._settled += len(acked) + len(failed) if self._holds(origin) else 0
            if late:
                self._count_late(origin, late)
            if origin in taken:  # marked by another thread meanwhile
                acked = np.concatenate([taken[origin].acked, acked])
                failed = np.concatenate([taken[origin].failed, failed])
            taken[origin] = Settled(origin, acked, failed)
        for _ in range(len(self._late)):
            self._count_late(self._late.popleft(), 1)
        return taken

    def _count_late(self, origin: InBatch, count: int) -> None:
        """Count acks of failed tuples, and fails of acked ones: the first of the two has won."""
        self._core.metrics.add(f"__settled-twice-count/{origin.component}/{origin.stream}", count)

    def batches(self, settled: dict[InBatch, Settled], spoiled: Sequence[Tuple], now_ns: int) -> list[stmgr_pb2.Batch]:
        """What is sent for it, after the tuples that were emitted meanwhile.

        Args:
            settled: what `take` returned.
            spoiled: tuples that fail even if they were acked: what was to come of them cannot be sent.
            now_ns: the time.
        """
        for anchor in spoiled:
            origin = anchor.origin_
            if isinstance(origin, InBatch):
                nothing = np.zeros(0, dtype=np.int64)
                opened = settled.setdefault(origin, Settled(origin, nothing, nothing)).spoil(anchor.index_)
                self._settled += opened if self._holds(origin) else 0
        acks: list[tuple[U64s, U64s | None]] = []
        fails: list[tuple[U64s, U64s | None]] = []
        metrics = self._core.metrics
        for each in settled.values():
            origin, acked, failed = each.origin, each.acked, each.failed
            source = f"{origin.component}/{origin.stream}"
            # A clock per tuple would cost more than many a bolt does: latencies are those of the batch, from when the
            # task took it up until its acks leave.
            took_ns = now_ns - origin.began_ns
            if len(acked):
                metrics.add(f"__ack-count/{source}", len(acked))
                metrics.mean(f"__process-latency/{source}", took_ns * len(acked), len(acked))
                if origin.tracked:
                    acks.append(origin.ack_values(acked))
            if len(failed):
                metrics.add(f"__fail-count/{source}", len(failed))
                metrics.mean(f"__fail-latency/{source}", took_ns * len(failed), len(failed))
                if origin.tracked:
                    fails.append((origin.roots_of(failed), None))
        return [*self.reset_batches(), *root_batches(ACK, acks), *root_batches(FAIL, fails)]

    def reset_batches(self) -> list[stmgr_pb2.Batch]:
        """Timeout resets since the last call. One thread at a time."""
        parts: list[tuple[U64s, U64s | None]] = []
        for _ in range(len(self._resets)):
            tup = self._resets.popleft()
            origin = tup.origin_
            if isinstance(origin, InBatch) and origin.tracked:
                parts.append((origin.roots_of(np.array([tup.index_])), None))
        return [*root_batches(RESET_TIMEOUT, parts)]
