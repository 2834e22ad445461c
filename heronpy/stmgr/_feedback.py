"""The feedback that waits for one instance: in memory up to a bound, and on disk behind that. Pure.

A bolt that is, directly or through others, its own consumer cannot be held while its own outbox is full: it would wait
for itself. So what goes round a cycle is always taken in. The queue has three parts, oldest first: `_head`, which is
sent from; segments on disk, or on their way there or back; `_tail`, which becomes the next segment. Order is kept,
because something joins the head directly only when there is nothing behind it.

A segment is a serialized frame. Each is a file of its own: space is given back as soon as it is read, and nothing has
to be compacted.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from heronpy.proto import stmgr_pb2
from heronpy.stmgr.events import DeleteSpill, ReadSpill, WriteSpill

BATCH_OVERHEAD_BYTES = 64
"""What a queued batch costs beside its body, about; so that many tiny batches count too."""


class _Place(enum.Enum):
    WRITING = enum.auto()
    DISK = enum.auto()
    READING = enum.auto()


@dataclass(slots=True)
class _Segment:
    number: int
    size: int
    place: _Place
    data: bytes = b""
    """Until it is on disk."""


SpillEffect = WriteSpill | ReadSpill | DeleteSpill
Queued = tuple[int, stmgr_pb2.Batch]
"""A batch behind its size in an account."""


class FeedbackQueue:
    """A queue of batches, most of it on disk."""

    def __init__(self, name: str, memory_bytes: int, segment_bytes: int) -> None:
        """Make an empty queue.

        Args:
            name: of the outbox.
            memory_bytes: of what may wait in the head.
            segment_bytes: of what is written to disk at once, about.
        """
        self._name = name
        self._memory, self._segment_bytes = memory_bytes, segment_bytes
        self._head: deque[Queued] = deque()
        self._segments: deque[_Segment] = deque()
        self._tail: deque[Queued] = deque()
        self._head_bytes = self._tail_bytes = 0
        self.spilled_bytes = 0
        """On disk, or on the way there or back."""
        self.writing_bytes = 0
        self._next_segment = 0

    def __len__(self) -> int:
        """Batches that can be sent now."""
        return len(self._head)

    @property
    def total_bytes(self) -> int:
        return self._head_bytes + self._tail_bytes + self.spilled_bytes

    @property
    def was_spilled(self) -> bool:
        """Whether anything ever went to disk."""
        return self._next_segment > 0

    def put(self, size: int, batch: stmgr_pb2.Batch) -> list[SpillEffect]:
        """Queue a batch."""
        if not self._segments and not self._tail and self._head_bytes + size <= self._memory:
            self._head.append((size, batch))
            self._head_bytes += size
            return []
        self._tail.append((size, batch))
        self._tail_bytes += size
        if self._tail_bytes >= self._segment_bytes:
            return [self._cut()]
        return self.refill()

    def first(self) -> int:
        """Size of the next batch; there is one."""
        return self._head[0][0]

    def take(self) -> Queued:
        """The next batch; there is one. Call `refill` when done."""
        size, batch = self._head.popleft()
        self._head_bytes -= size
        return size, batch

    def written(self, number: int) -> list[SpillEffect]:
        """A segment is on disk."""
        for segment in self._segments:
            if segment.number == number and segment.place is _Place.WRITING:
                segment.place, segment.data = _Place.DISK, b""
                self.writing_bytes -= segment.size
        return self.refill()

    def rewrite(self, number: int) -> list[SpillEffect]:
        """Write a segment again, which could not be written."""
        return [
            WriteSpill(self._name, segment.number, segment.data)
            for segment in self._segments
            if segment.number == number and segment.place is _Place.WRITING
        ]

    def read(self, number: int, data: bytes) -> list[SpillEffect]:
        """A segment was read back."""
        if not self._segments or self._segments[0].number != number:
            return []  # of a queue that was emptied meanwhile
        self.spilled_bytes -= self._segments.popleft().size
        for batch in stmgr_pb2.Frame.FromString(data).batches:
            size = len(batch.body) + BATCH_OVERHEAD_BYTES
            self._head.append((size, batch))
            self._head_bytes += size
        return self.refill()

    def replace(self, keep: list[Queued]) -> None:
        """Put other batches into the head's place."""
        self._head = deque(keep)
        self._head_bytes = sum(size for size, _ in keep)

    def waiting(self) -> Iterator[Queued]:
        """What waits in the head."""
        return iter(self._head)

    def clear(self) -> list[SpillEffect]:
        """Drop everything."""
        effects: list[SpillEffect] = [DeleteSpill(self._name, segment.number) for segment in self._segments]
        self._segments.clear()
        self._head.clear()
        self._tail.clear()
        self._head_bytes = self._tail_bytes = self.spilled_bytes = self.writing_bytes = 0
        return effects

    def _cut(self) -> WriteSpill:
        data = stmgr_pb2.Frame(batches=[batch for _, batch in self._tail]).SerializeToString()
        segment = _Segment(self._next_segment, self._tail_bytes, _Place.WRITING, data)
        self._next_segment += 1
        self._segments.append(segment)
        self.spilled_bytes += segment.size
        self.writing_bytes += segment.size
        self._tail.clear()
        self._tail_bytes = 0
        return WriteSpill(self._name, segment.number, data)

    def refill(self) -> list[SpillEffect]:
        """Fill the head again, from disk or from the tail, if there is little in it."""
        if self._head_bytes > self._memory // 2:
            return []
        if not self._segments:
            self._head.extend(self._tail)
            self._head_bytes += self._tail_bytes
            self._tail.clear()
            self._tail_bytes = 0
            return []
        first = self._segments[0]
        if first.place is _Place.DISK:
            first.place = _Place.READING
            return [ReadSpill(self._name, first.number)]
        return []  # it comes back when it is written, or is on its way

    def check_invariants(self) -> None:
        assert self._head_bytes == sum(size for size, _ in self._head)
        assert self._tail_bytes == sum(size for size, _ in self._tail)
        assert self._tail_bytes < self._segment_bytes
        assert self.spilled_bytes == sum(segment.size for segment in self._segments)
        assert self.writing_bytes == sum(s.size for s in self._segments if s.place is _Place.WRITING)
        numbers = [segment.number for segment in self._segments]
        assert numbers == sorted(set(numbers))
        assert all(bool(segment.data) == (segment.place is _Place.WRITING) for segment in self._segments)
        assert all(segment.place is not _Place.READING for segment in list(self._segments)[1:])
        if not self._head:
            first = self._segments[0] if self._segments else None
            assert not self._tail or self._segments, "what waits could be sent"
            assert first is None or first.place is not _Place.DISK, "what is on disk could be read"
