"""What the core of a Stream Manager knows of one connection, with an instance or with a peer."""

from __future__ import annotations

from collections import deque

from heronpy.proto import stmgr_pb2
from heronpy.stmgr._delivered import Delivered
from heronpy.stmgr._metrics import FROM_STMGRS, FROM_WORKERS, TO_WORKERS, to_stmgr
from heronpy.stmgr._outbox import Outbox


class CoreLink:
    """The state of a connection. The core alone changes it."""

    def __init__(
        self, number: int, outbox: Outbox, *, is_peer: bool, incarnation: int, delivered: Delivered | None
    ) -> None:
        self.number, self.name, self.outbox, self.is_peer = number, outbox.name, outbox, is_peer
        self.incarnation = incarnation
        self.sent = to_stmgr(outbox.name) if is_peer else TO_WORKERS
        self.received = FROM_STMGRS if is_peer else FROM_WORKERS
        self.delivered = delivered
        self.feedback: frozenset[int] = frozenset()
        """Tasks behind the feedback edges of this instance."""
        self.control: deque[stmgr_pb2.Frame] = deque()
        """Plans, orders and backpressure, which overtake batches. What is to arrive in order is a batch."""
        self.takes_batches = True
        """False: an instance that has not restored the epoch; what is for it waits in the outbox."""
        self.idle = False
        """The writer waits for a `Wake`, and none is under way."""
        self.merging = False
        """The writer waits for a time, so that small batches are sent together."""
        self.last_ns = 0
        self.in_flight: bytes | None = None
        """The frame of batches that is being written."""
        self.in_flight_epoch = 0
        """Of that frame, with checkpoints."""
