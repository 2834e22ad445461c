"""Which Topology Master of a topology may act: decisions only, see `_core`.

Two nodes of the state manager say it. The ephemeral one (`tmasters`) is how others find the active Topology Master, and
how a standby learns that it is gone. But a process that was stopped for long does not know that its session is over. So
the owner of the ephemeral node also takes the next *term* in a durable node (`epochs`), by compare-and-set, and every
write to the state manager depends on that node's value: a Topology Master whose term is over can write nothing more.
The same value holds the restore epoch, so a restore, too, is begun by the active Topology Master or not at all.

A state manager that comes back empty has neither node. Both are made again; the term goes on from what is known here.
"""

from __future__ import annotations

import enum
import logging

from heronpy.errors import StateError
from heronpy.proto import state_pb2
from heronpy.statemgr import Kind, records
from heronpy.tmaster._store_effects import (
    ClaimNode,
    NodeChanged,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    StoreEffect,
    StoreEvent,
    StoreFailed,
    WriteNode,
)

log = logging.getLogger(__name__)

CHECK_S = 2.0
"""How often the active one checks whether it still is, if the state manager reports nothing."""
RETRY_S = 1.0

_READ_EPOCH = ReadNodes((Kind.EPOCHS,))


class Role(enum.Enum):
    STANDBY = "standby"
    """Another one has the ephemeral node, or it is not known yet."""
    ELECTED = "elected"
    """It has the ephemeral node, but not its term yet."""
    LEADER = "leader"
    DEPOSED = "deposed"
    """Another one is the leader. Final: this Topology Master does nothing more."""


class Leadership:
    """Acquires and maintains the leadership of one Topology Master. At most one request is under way at a time."""

    def __init__(self, topology: str, topology_id: str, location: bytes) -> None:
        self.role = Role.STANDBY
        self.deposed_because = ""
        self._topology, self._topology_id = topology, topology_id
        self._claim = ClaimNode(location)
        self._epoch = state_pb2.Epoch(topology_id=topology_id, leader=location)
        self._fence = b""
        self._raise_to = 0
        self._pending: StoreEffect | None = None
        self._check = False
        self._due_s = 0.0
        self._retry_s = 0.0
        """Not sooner than this: the last request failed."""

    @property
    def fence(self) -> bytes:
        """What the node `epochs` holds as long as this Topology Master may write."""
        return self._fence

    @property
    def restore_epoch(self) -> int:
        """The durable one."""
        return self._epoch.restore_epoch

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next; None while a request is under way."""
        if self._pending is not None or self.role is Role.DEPOSED:
            return None
        return self._retry_s if self._urgent else max(self._due_s, self._retry_s)

    @property
    def _urgent(self) -> bool:
        return self.role is Role.LEADER and (self._check or self._raise_to > self._epoch.restore_epoch)

    def advance(self, now_s: float) -> list[StoreEffect]:
        """What is to be done now."""
        if self._pending is not None or self.role is Role.DEPOSED or now_s < self._retry_s:
            return []
        if self._urgent:
            return self._ask(_READ_EPOCH) if self._check else self._write_epoch(self._raised(), self._fence)
        if now_s < self._due_s:
            return []
        return self._ask(_READ_EPOCH if self.role is Role.ELECTED else self._claim)

    def check(self) -> None:
        """Have the term checked: a write was refused, or the node has vanished."""
        self._check = self.role is Role.LEADER

    def raise_restore_epoch(self, to: int) -> None:
        """Make the restore epoch at least `to`, durably. `restore_epoch` says when it is done."""
        self._raise_to = max(self._raise_to, to)

    def on(self, event: StoreEvent) -> list[StoreEffect]:
        """Take an answer or a change."""
        if isinstance(event, NodeChanged):
            self._changed(event)
            return self.advance(event.now_s)
        pending, answered = self._pending, _answered(event)
        if pending is None or answered != pending:
            return []
        self._pending = None
        self._due_s = event.now_s + (CHECK_S if self.role is Role.LEADER else RETRY_S)
        match event:
            case NodeClaimed():
                self._claimed(event)
            case NodesRead():
                return self._read(event.values[Kind.EPOCHS])
            case NodeWritten():
                self._written(event)
            case StoreFailed():
                log.warning("cannot look after the leadership: %s", event.reason)
                self._retry_s = event.now_s + RETRY_S
                return []
        return self.advance(event.now_s)

    def _changed(self, event: NodeChanged) -> None:
        if event.kind is Kind.TMASTERS and event.value != self._claim.location:
            self._due_s = event.now_s
        if event.kind is Kind.EPOCHS and event.value != self._fence:
            self.check()

    def _claimed(self, event: NodeClaimed) -> None:
        if self.role is Role.LEADER:
            if not event.owned:
                self._depose("another Topology Master has taken its node")
            # Changes that follow each other closely are seen as one, or none: an epoch that was written and removed.
            self._check = True
        elif event.owned:
            self.role, self._due_s = Role.ELECTED, event.now_s
        else:
            log.info("another Topology Master is active, this one stands by")

    def _read(self, value: bytes | None) -> list[StoreEffect]:
        if self.role is Role.LEADER:
            self._check = False
            found = self._parsed(value)
            if value is None or found is None:
                return self._write_epoch(self._raised(), value)
            if (found.term, found.leader) != (self._epoch.term, self._epoch.leader):
                self._depose("another Topology Master has the next term")
            else:
                self._adopt(value)  # raised by a write whose answer was lost
            return []
        before = self._parsed(value) or state_pb2.Epoch()
        mine = state_pb2.Epoch()
        mine.CopyFrom(self._epoch)
        mine.term = max(mine.term, before.term) + 1
        if before.topology_id == self._topology_id:  # else left behind by an earlier topology of the same name
            mine.restore_epoch = max(mine.restore_epoch, before.restore_epoch)
        return self._write_epoch(mine, value)

    def _parsed(self, value: bytes | None) -> state_pb2.Epoch | None:
        """The epoch of a node; None: it is damaged, which is as good as lost."""
        try:
            return records.epoch(self._topology, value)
        except StateError as e:
            log.error("%s; it is written again", e)
            return None

    def _written(self, event: NodeWritten) -> None:
        if event.done:
            self._adopt(event.write.value)
            if self.role is Role.ELECTED:
                log.info("this Topology Master is the active one, term %d", self._epoch.term)
                self.role = Role.LEADER
            self._due_s = event.now_s + CHECK_S
        elif self.role is Role.LEADER:
            self._check = True
        else:
            self.role, self._due_s = Role.STANDBY, event.now_s  # somebody else is as far: from the beginning

    def _adopt(self, value: bytes) -> None:
        self._epoch, self._fence = state_pb2.Epoch.FromString(value), value

    def _raised(self) -> state_pb2.Epoch:
        raised = state_pb2.Epoch()
        raised.CopyFrom(self._epoch)
        raised.restore_epoch = max(raised.restore_epoch, self._raise_to)
        return raised

    def _write_epoch(self, epoch: state_pb2.Epoch, expected: bytes | None) -> list[StoreEffect]:
        return self._ask(WriteNode(Kind.EPOCHS, epoch.SerializeToString(), expected, Kind.EPOCHS))

    def _ask(self, effect: StoreEffect) -> list[StoreEffect]:
        self._pending = effect
        return [effect]

    def _depose(self, reason: str) -> None:
        self.role, self.deposed_because = Role.DEPOSED, reason


def _answered(event: NodeClaimed | NodesRead | NodeWritten | StoreFailed) -> StoreEffect:
    match event:
        case NodeClaimed():
            return event.claim
        case NodesRead():
            return event.read
        case NodeWritten():
            return event.write
        case StoreFailed():
            return event.effect
