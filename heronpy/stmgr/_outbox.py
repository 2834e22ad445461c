"""What waits for one link: batches, in order of each sender. Pure.

An outbox outlives its connection: what waits for an instance that is being restarted is delivered to its next
incarnation, unless it is tracked (see `_core`). Feedback has a queue of its own, so that what may be held for want of
room and what may not do not stand in each other's way; frames are taken from both in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from heronpy.config import StmgrConfig
from heronpy.proto import stmgr_pb2
from heronpy.stmgr._feedback import BATCH_OVERHEAD_BYTES, FeedbackQueue, Queued, SpillEffect

SEGMENT_FRAMES = 4
"""A segment of spilled feedback has about the size of so many frames."""


class Outbox:
    """The queue of one link."""

    def __init__(self, name: str, config: StmgrConfig) -> None:
        """Make an empty outbox for the instance or Stream Manager `name`."""
        self.name = name
        self.bytes = 0
        """Of everything but feedback, what is being written included."""
        self.drained = 0
        """Bytes of that that have left so far."""
        self.feedback = FeedbackQueue(name, config.outbox_bytes_low, SEGMENT_FRAMES * config.frame_bytes)
        self.feedback_paused = False
        """The peer takes no feedback."""
        self.frame_bytes = config.frame_bytes
        """A frame gets no batch more that would make it larger."""
        self._queue: deque[Queued] = deque()
        self._in_flight: list[Queued] = []
        self._in_flight_feedback = 0
        self._feedback_next = False

    def __len__(self) -> int:
        """Batches that could be sent now."""
        return len(self._queue) + (0 if self.feedback_paused else len(self.feedback))

    @property
    def feedback_bytes(self) -> int:
        return self.feedback.total_bytes + self._in_flight_feedback

    def put(self, batch: stmgr_pb2.Batch, body_bytes: int = 0) -> None:
        """Queue a batch. A caller that knows the size of the body saves a copy: protobuf only measures by copying."""
        size = (body_bytes or len(batch.body)) + BATCH_OVERHEAD_BYTES
        self._queue.append((size, batch))
        self.bytes += size

    def put_feedback(self, batch: stmgr_pb2.Batch) -> list[SpillEffect]:
        """Queue a batch that goes round a cycle."""
        return self.feedback.put(len(batch.body) + BATCH_OVERHEAD_BYTES, batch)

    def take(self) -> tuple[list[stmgr_pb2.Batch], list[SpillEffect]]:
        """Take about a frame of batches; there are some. They stay in the account until `written`."""
        assert not self._in_flight
        feedback = bool(self.feedback) and not self.feedback_paused and (self._feedback_next or not self._queue)
        self._feedback_next = not feedback
        if feedback:
            taken = self._frame(self.feedback.take, self.feedback.first, self.feedback)
            self._in_flight_feedback = sum(size for size, _ in taken)
        else:
            taken = self._frame(self._queue.popleft, lambda: self._queue[0][0], self._queue)
        self._in_flight = taken
        return [batch for _, batch in taken], self.feedback.refill() if feedback else []

    def _frame(
        self, take: Callable[[], Queued], first: Callable[[], int], queue: deque[Queued] | FeedbackQueue
    ) -> list[Queued]:
        taken = [take()]
        room = self.frame_bytes - taken[0][0]
        while queue and first() <= room:
            taken.append(take())
            room -= taken[-1][0]
        return taken

    def written(self) -> list[stmgr_pb2.Batch]:
        """What was taken has left, or is lost with the connection. Returns it."""
        taken, self._in_flight = self._in_flight, []
        if self._in_flight_feedback:
            self._in_flight_feedback = 0
        else:
            size = sum(size for size, _ in taken)
            self.bytes -= size
            self.drained += size
        return [batch for _, batch in taken]

    def withdraw(self, unwanted: Callable[[stmgr_pb2.Batch], bool]) -> list[stmgr_pb2.Batch]:
        """Take out the batches in memory that `unwanted` says; what is on disk stays."""
        out: list[stmgr_pb2.Batch] = []

        def kept(queue: list[Queued]) -> list[Queued]:
            keep = []
            for size, batch in queue:
                if unwanted(batch):
                    out.append(batch)
                else:
                    keep.append((size, batch))
            return keep

        before = sum(size for size, _ in self._queue)
        self._queue = deque(kept(list(self._queue)))
        self.bytes -= before - sum(size for size, _ in self._queue)
        self.feedback.replace(kept(list(self.feedback.waiting())))
        return out

    def clear(self) -> list[SpillEffect]:
        """Drop everything but what is being written."""
        self.bytes -= sum(size for size, _ in self._queue)
        self._queue.clear()
        return self.feedback.clear()

    def check_invariants(self) -> None:
        in_flight = 0 if self._in_flight_feedback else sum(size for size, _ in self._in_flight)
        assert self.bytes == sum(size for size, _ in self._queue) + in_flight
        self.feedback.check_invariants()
