"""A simulated instance at least once with state: counting tasks that track trees, and sources that replay.

The stand-in does what a spout and the bolts behind it do: every tuple has an id, the ids of a tree are XOR-ed at its
source, and a complete tree is acknowledged when the real `CommitLedger` says that a committed checkpoint covers it. A
source knows in memory only what it has to emit again; what an incarnation forgets, the world outside gives again.
"""

from __future__ import annotations

import marshal
from collections import deque
from typing import Any

from heronpy.instance.checkpoints import CommitLedger, InputBatch
from heronpy.proto import stmgr_pb2
from heronpy.testing.simulation._counting_node import CountingNode
from heronpy.testing.simulation._programs import MESSAGE_TIMEOUT_S, Number
from heronpy.testing.simulation._storage import Item, first, owner
from heronpy.wire import ACK, DATA

PENDING_MAX = 40
"""So many trees are pending at a time. Without a bound, replays would bring more replays where a bolt is slow."""


class ReplayingNode(CountingNode):
    """One incarnation of one instance."""

    _limits = ((40, 0.005), (200, 0.3), (1 << 20, 2.0))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._roots = 0
        self._trees: dict[int, tuple[Number, int, float]] = {}
        """By root: the number, what its ids XOR to, and when it times out."""
        self._complete_trees: CommitLedger[Number] = CommitLedger()
        super().__init__(*args, **kwargs)
        self._again = deque(number for number in self._ledger.open if number[0] == self.task)

    def _check(self) -> None:
        super()._check()
        self._complete_trees.check_invariants()

    # the source

    def _emit_next(self) -> bool:
        self._expire()
        if not self._may_emit() or len(self._trees) >= PENDING_MAX:
            return False
        number = self._again.popleft() if self._again else self._ledger.next_number(self.task)
        if number is None:
            return False
        self._roots += 1
        id = self._new_id()
        self._trees[self._roots] = number, id, self._ledger.now_s + MESSAGE_TIMEOUT_S
        self._send_tracked(*first(*number), self._roots, id)
        return True

    def _expire(self) -> None:
        self._ledger.now_s = self.process.loop.now_s
        for root, (number, _, due_s) in list(self._trees.items()):
            if due_s > self._ledger.now_s:
                break  # they are in order
            del self._trees[root]
            self._again.append(number)

    def _acked(self, root: int, value: int) -> None:
        if root not in self._trees:
            return  # it has timed out, or is of a log
        number, before, due_s = self._trees[root]
        self._trees[root] = number, before ^ value, due_s
        if before == value:
            del self._trees[root]
            self._complete_trees.completed(number, 1)

    def _snapshot(self, checkpoint: int) -> None:
        if checkpoint > self._last_taken:
            self._complete_trees.marker_sent(checkpoint)
        super()._snapshot(checkpoint)

    def _on_commit(self, checkpoint: int) -> None:
        for number in self._complete_trees.committed(checkpoint):
            self._storage.acked(number, self._ledger)

    def _rolled_back(self, checkpoint: int) -> None:
        acked, failed = self._complete_trees.restored(checkpoint)
        for number in acked:
            self._storage.acked(number, self._ledger)
        self._again += [*failed, *(number for number, _, _ in self._trees.values())]
        self._trees.clear()

    # all tasks

    def _execute_batch(self, batch: InputBatch) -> None:
        if self.component == "source":
            self._acked(*marshal.loads(batch.data))
            return
        source, number, branch, root, value = marshal.loads(batch.data)
        item = (source, number, branch)
        self.counts[item] += 1
        if self.component == "relay":
            for component, made in self._storage.follows(item):
                id = self._new_id()
                value ^= id
                self._send_tracked(component, made, root, id)
        self._batches.append(
            stmgr_pb2.Batch(dest_task=source, kind=ACK, count=1, body=marshal.dumps((root, value)), src_task=self.task)
        )

    def _send_tracked(self, component: str, item: Item, root: int, id: int) -> None:
        tasks = self._tasks(component)
        dest = tasks[owner(component, item, len(tasks))]
        body = marshal.dumps((*item, root, id))
        self._batches.append(stmgr_pb2.Batch(dest_task=dest, kind=DATA, count=1, body=body, src_task=self.task))

    def _new_id(self) -> int:
        return self._rng.getrandbits(62) + 1
