"""The nodes that the active Topology Master writes again when the state manager has lost them: decisions only.

A state manager may come back empty: ZooKeeper without its data directory, a files root that was removed. Others wrote
most nodes of a topology (submit, the scheduler service) and may be long gone, so the active Topology Master remembers
the newest value of each. A killed topology is not brought back: its processes end before its nodes are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from heronpy.statemgr import Kind
from heronpy.tmaster._store_effects import NodeChanged, NodeWritten, StoreFailed, WriteNode

log = logging.getLogger(__name__)

KINDS = (
    Kind.TOPOLOGIES,
    Kind.PACKINGPLANS,
    Kind.EXECUTIONSTATE,
    Kind.SCHEDULERS,
    Kind.LOGLEVELS,
)
"""What is remembered. The physical plan is the publisher's, the epoch and the ephemeral node are the leadership's."""
RETRY_S = 1.0


class DurableNodes:
    """The newest values of a topology's nodes."""

    def __init__(self, values: Mapping[Kind, bytes | None], copy: Mapping[Kind, bytes]) -> None:
        """Begin with what the state manager holds; what it lacks is taken from the copy, and is missing there."""
        found = {kind: value for kind in KINDS if (value := values.get(kind)) is not None}
        self.values: dict[Kind, bytes] = {kind: copy[kind] for kind in KINDS if kind in copy} | found
        self._missing = self.values.keys() - found.keys()
        self._writing: set[Kind] = set()
        self._due_s = 0.0

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next; None: nothing is missing."""
        return self._due_s if self._missing - self._writing else None

    def advance(self, now_s: float) -> list[WriteNode]:
        """Write again what is missing."""
        if now_s < self._due_s:
            return []
        missing = [kind for kind in KINDS if kind in self._missing - self._writing]
        self._writing |= set(missing)
        return [WriteNode(kind, self.values[kind], None, kind) for kind in missing]

    def changed(self, event: NodeChanged) -> None:
        """A node has another value, or has vanished."""
        if event.value is not None:
            self.values[event.kind] = event.value
            self._missing.discard(event.kind)
        elif event.kind in self.values:
            log.warning("%s has vanished from the state manager: it is written again", event.kind.value)
            self._missing.add(event.kind)

    def answered(self, event: NodeWritten | StoreFailed) -> bool:
        """Take the answer to one of our writes. False if it is not one of ours."""
        write = event.write if isinstance(event, NodeWritten) else event.effect
        if not isinstance(write, WriteNode) or write.expected is not None or write.kind not in self._writing:
            return False
        self._writing.discard(write.kind)
        if isinstance(event, StoreFailed):
            log.warning("%s cannot be written again yet: %s", write.kind.value, event.reason)
            self._due_s = event.now_s + RETRY_S
        elif write.value == self.values[write.kind] or not event.done:
            self._missing.discard(write.kind)  # refused: somebody else was quicker, and a watch will report it
        return True
