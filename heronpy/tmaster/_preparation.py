"""What executors are to start before it is in force: a node beside the packing plan. Decisions only, see `_core`.

The node names what an update is going to need, and nothing else may be concluded from it. The active one writes it
for its update, and empties it if nothing came of that: what a predecessor has left behind ends so, too. A plan that is
durable stays in the node: executors may see the two nodes in any order, and would end what they have just started.
"""

from __future__ import annotations

from heronpy.plan import PackingPlan
from heronpy.statemgr import Kind
from heronpy.tmaster._store_effects import NodeChanged, NodeWritten, StoreEvent, StoreFailed, WriteNode

KIND = Kind.NEXTPACKINGPLANS
RETRY_S = 1.0


class Preparation:
    """The node, as far as it is known."""

    def __init__(self, value: bytes) -> None:
        """Begin with what the state manager has; empty: nothing is being prepared."""
        self._value = value
        self._wanted = b""
        self._encoded: tuple[PackingPlan | None, bytes] = None, b""
        """The newest plan that was asked about: each event asks, and a large one takes milliseconds to encode."""
        self._writing = False
        self._retry_s = 0.0

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next; None: nothing is due."""
        return self._retry_s if self._value != self._wanted and not self._writing else None

    def names(self, packing: PackingPlan) -> bool:
        """Whether it is a packing plan that is named."""
        return bool(self._value) and self._value == self._bytes_of(packing)

    def advance(self, wanted: PackingPlan | None, fence: bytes, now_s: float) -> list[WriteNode]:
        """Have something prepared; None: nothing."""
        self._wanted = self._bytes_of(wanted) if wanted is not None else b""
        if self.due_s is None or now_s < self.due_s:
            return []
        self._writing = True
        return [WriteNode(KIND, self._wanted, fence, Kind.EPOCHS)]

    def take(self, event: StoreEvent) -> bool:
        """Take an answer, or a change of the node. False if it is about something else."""
        match event:
            case NodeChanged(kind, value):
                if kind is not KIND:
                    return False
                self._value = value or b""
            case NodeWritten(WriteNode(kind, value), done, now_s):
                if kind is not KIND:
                    return False
                self._writing = False
                if done:
                    self._value = value
                else:
                    self._retry_s = now_s + RETRY_S
            case StoreFailed(WriteNode(kind), _, now_s):
                if kind is not KIND:
                    return False
                self._writing, self._retry_s = False, now_s + RETRY_S
            case _:
                return False
        return True

    def _bytes_of(self, packing: PackingPlan) -> bytes:
        if self._encoded[0] is not packing:
            self._encoded = packing, packing.to_proto().SerializeToString()
        return self._encoded[1]
