"""What becomes of a spout's tuples, by reliability mode.

A tracker numbers the roots of what is about to be sent, takes acks and fails, and says which message ids are done. In
at-most-once mode, and in effectively once, nothing travels with the tuples.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heronpy.instance._commit_ledger import CommitLedger
from heronpy.instance._edges import AnchoredFan, Edge, Fan, Put, SharedRoot, Taken, Values
from heronpy.instance._ids import generator
from heronpy.instance._pending import PendingLimit
from heronpy.instance._roots import NOTHING, Finished, RootRing
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, FAIL, RESET_TIMEOUT, decode_roots

U64s = NDArray[np.uint64]
UNLIMITED = 1 << 30


class Column(Protocol):
    """What travels with the tuples for one task."""

    def part(self, start: int, stop: int) -> tuple[U64s | None, U64s | None, NDArray[np.integer[Any]] | None]:
        """Ids, roots and root counts of the tuples from `start` to `stop`; all None if none of them is tracked."""


class SpoutTracker(Protocol):
    """The acks of one spout task."""

    @property
    def make_fan(self) -> Callable[..., Fan]:
        """Makes the targets of tuples that go to several tasks, or to none."""

    @property
    def full_wait_s(self) -> float:
        """How long the task may sleep while there is no room, unless something comes."""

    def mix(self) -> None:
        """A tuple without a message id is about to be emitted; any thread."""

    def keep_ids(self, keep: bool) -> None:
        """Say whether user code wants the message ids back. Call before anything is numbered."""

    @property
    def pending(self) -> int:
        """Trees that were sent and are not done."""

    def room(self, unsent: int, now_ns: int) -> int:
        """How many tuples may be emitted now, given how many were and are not sent."""

    def number(self, taken: Sequence[Taken]) -> Sequence[Column | None]:
        """Give roots to tuples that are about to be sent; `commit` must follow."""

    def commit(self, rejected: Sequence[tuple[int, int]], now_ns: int) -> tuple[Finished, Finished]:
        """Note that what was numbered last is sent.

        Args:
            rejected: what cannot be sent after all, as indexes of the column and in it.
            now_ns: the time of emission.

        Returns:
            Roots that are done at once because they have no reader, and those that failed because they were rejected.
        """

    def received(self, batch: stmgr_pb2.Batch, now_ns: int) -> tuple[Finished, Finished]:
        """Take acks, fails or timeout resets. Returns the roots that are done, and those that failed.

        Raises:
            MalformedBatch: it is none.
        """

    def expired(self, now_ns: int) -> Finished:
        """Roots whose timeout is over."""

    def restored(self, now_ns: int) -> Finished:
        """With checkpoints: whatever was under way is dropped. Returns the roots that were pending."""

    def held(self, task: int, component: str, count: int, now_ns: int) -> tuple[int, str | None]:
        """A bolt holds so many tuples and waits for more; see `PendingLimit.held`."""

    def check_invariants(self) -> None:
        """Raise AssertionError if the bookkeeping contradicts itself. For tests."""


class Untracked:
    """At most once: what becomes of a tuple is not tracked."""

    make_fan: Callable[..., Fan] = Fan
    full_wait_s = 0.1
    pending = 0

    def mix(self) -> None:
        """Nothing: no tuple is tracked."""

    def keep_ids(self, keep: bool) -> None:
        """Nothing, likewise."""

    def room(self, _unsent: int, _now_ns: int) -> int:
        return UNLIMITED

    def number(self, taken: Sequence[Taken]) -> Sequence[Column | None]:
        return [None] * len(taken)

    def commit(self, _rejected: Sequence[tuple[int, int]], _now_ns: int) -> tuple[Finished, Finished]:
        return NOTHING, NOTHING

    def received(self, _batch: stmgr_pb2.Batch, _now_ns: int) -> tuple[Finished, Finished]:
        return NOTHING, NOTHING

    def expired(self, _now_ns: int) -> Finished:
        return NOTHING

    def restored(self, _now_ns: int) -> Finished:
        return NOTHING

    def held(self, _task: int, _component: str, _count: int, _now_ns: int) -> tuple[int, str | None]:
        return 0, None

    def check_invariants(self) -> None:
        """Nothing: there is no bookkeeping."""


class UntilCommit(Untracked):
    """With checkpoints: tuples are not tracked one by one, but those that wait for a commit are bounded in number."""

    def __init__(self, ledger: CommitLedger[Any]) -> None:
        self._ledger = ledger

    def room(self, _unsent: int, _now_ns: int) -> int:
        return 0 if self._ledger.full else UNLIMITED


@dataclass(frozen=True, slots=True)
class RootColumn:
    """The roots of a spout's tuples for one task: each has one, or none."""

    ids: U64s
    roots: U64s
    tracked: NDArray[np.bool_] | None
    """Which tuples have a root; None: all of them."""

    def part(self, start: int, stop: int) -> tuple[U64s, U64s, NDArray[np.integer[Any]] | None]:
        ids, roots = self.ids[start:stop], self.roots[start:stop]
        if self.tracked is None:
            return ids, roots, None
        chosen = self.tracked[start:stop]
        return ids[chosen], roots[chosen], chosen.astype(np.uint16)


class Trees:
    """At least once: every tree is tracked in a ring, and bounded in number."""

    def __init__(
        self,
        task: int,
        *,
        limit: PendingLimit,
        timeout_ns: int,
        streams: Sequence[str],
        lock: AbstractContextManager[Any],
    ) -> None:
        """Start with nothing on its way.

        Args:
            task: the spout's task id.
            limit: how many trees may be on their way.
            timeout_ns: after which a tree is failed; 0: never.
            streams: the spout's streams, in the order of the numbers in `Finished.streams`.
            lock: held while tuples are taken out of the pairs.
        """
        self._limit = limit
        self._mixed = False
        """Some tuple had no message id. Set before it is emitted, and never taken back."""
        self._task = task
        self._ring = RootRing(task, keep_ids=True, keep_streams=len(streams) > 1)
        self._timeout_ns = timeout_ns
        self._numbers = {stream: number for number, stream in enumerate(streams)}
        self._fanned: deque[SharedRoot] = deque()
        """Roots of several copies, or of none, that were emitted and not numbered yet."""
        self._fans = False
        self._lock = lock
        self._ring_lock = threading.Lock()
        """Held while the ring changes, and no longer: acks are taken while another thread sends, or waits to."""
        self._ids: list[Any] = []
        self._streams: list[int] = []
        self._copies: list[tuple[NDArray[np.int64], U64s]] = []
        self._sequences: list[NDArray[np.int64]] = []

    @property
    def full_wait_s(self) -> float:
        return 0.1 if self._limit.fixed else 0.02

    def mix(self) -> None:
        self._mixed = True

    def keep_ids(self, keep: bool) -> None:
        self._ring = RootRing(self._task, keep_ids=keep, keep_streams=len(self._numbers) > 1)

    def make_fan(self, edges: Sequence[Edge], stream: str = "") -> Fan:
        """A fan whose copies share a root."""
        self._fans = True
        fan = AnchoredFan(edges)
        fan.put = self._shared(fan.put, stream)
        return fan

    def _shared(self, put: Put, stream: str) -> Put:
        fanned, lock = self._fanned, self._lock

        def put_shared(item: tuple[Values, Any]) -> None:
            values, message_id = item
            if message_id is None:
                put(item)
                return
            root = SharedRoot(message_id, stream)
            # All copies of a root are numbered and sent together, also if another thread sends meanwhile: a tree that
            # is known by a part of its copies could look complete.
            with lock:
                put((values, root))
                fanned.append(root)

        return put_shared

    @property
    def pending(self) -> int:
        return self._ring.pending

    def room(self, unsent: int, now_ns: int) -> int:
        return self._limit.room(self._ring.pending + unsent, now_ns)

    def number(self, taken: Sequence[Taken]) -> Sequence[Column | None]:
        self._ids, self._streams, self._copies, self._sequences = [], [], [], []
        if self._fans:
            self._number_fanned()
        return [self._column(each) for each in taken]

    def _number_fanned(self) -> None:
        for _ in range(len(self._fanned)):
            root = self._fanned.popleft()
            root.number = len(self._ids)
            self._open(root.message_id, root.stream)

    def _open(self, message_id: Any, stream: str) -> None:
        self._ids.append(message_id)
        self._streams.append(self._numbers.get(stream, 0))

    def _column(self, taken: Taken) -> Column | None:
        tags, count = taken.tags, len(taken.tags)
        mask: NDArray[np.bool_] | None = None
        if self._mixed or self._fans:
            sequences, mask = self._by_tag(taken)
            if not mask.any():
                self._sequences.append(sequences)
                return None
            if mask.all():
                mask = None
        else:
            sequences = np.arange(len(self._ids), len(self._ids) + count, dtype=np.int64)
            self._ids += tags
            if len(self._numbers) > 1:
                self._streams += self._stream_numbers(taken)
        sequences += self._ring.next
        ids: U64s = generator.random_raw(count)
        self._sequences.append(sequences)
        self._copies.append((sequences, ids) if mask is None else (sequences[mask], ids[mask]))
        return RootColumn(ids, self._ring.roots(sequences), mask)

    def _by_tag(self, taken: Taken) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Numbers of the tuples' roots, and which have one: some have none, or share it with copies elsewhere."""
        numbers = np.full(len(taken.tags), -1, dtype=np.int64)
        for index, tag in enumerate(taken.tags):
            if type(tag) is SharedRoot:
                numbers[index] = tag.number
            elif tag is not None:
                numbers[index] = len(self._ids)
                self._open(tag, taken.stream_of(index))
        return numbers, numbers >= 0

    def _stream_numbers(self, taken: Taken) -> list[int]:
        if taken.stream_indexes is None:
            return [self._numbers[taken.streams[0]]] * len(taken.tags)
        return np.array([self._numbers[s] for s in taken.streams])[taken.stream_indexes].tolist()  # type: ignore[no-any-return]  # numpy's tolist

    def commit(self, rejected: Sequence[tuple[int, int]], now_ns: int) -> tuple[Finished, Finished]:
        if not self._ids:
            return NOTHING, NOTHING
        with self._ring_lock:
            first = self._ring.next
            done = self._ring.commit(len(self._ids), self._ids, self._copies, now_ns, self._streams)
            lost = np.array([self._sequences[column][index] for column, index in rejected], dtype=np.int64)
            lost = lost[lost >= first]  # the others had no root
            failed = self._ring.fail(self._ring.roots(lost), now_ns) if len(lost) else NOTHING
            self._limit.acked(done.count)
        return done, failed

    def received(self, batch: stmgr_pb2.Batch, now_ns: int) -> tuple[Finished, Finished]:
        body = decode_roots(batch.body, with_values=batch.kind == ACK)
        with self._ring_lock:
            if batch.kind == ACK:
                done = self._ring.ack(body.roots, body.values, now_ns)
                self._limit.acked(done.count)
                return done, NOTHING
            if batch.kind == FAIL:
                return NOTHING, self._ring.fail(body.roots, now_ns)
            if batch.kind == RESET_TIMEOUT and not (batch.src_task and self._limit.starves(now_ns)):
                self._ring.reset_timeout(body.roots, now_ns)
            return NOTHING, NOTHING

    def expired(self, now_ns: int) -> Finished:
        if not self._timeout_ns:
            return NOTHING
        with self._ring_lock:
            return self._ring.expire(now_ns - self._timeout_ns, now_ns)

    def restored(self, now_ns: int) -> Finished:
        with self._ring_lock:
            return self._ring.expire(now_ns + 1, now_ns)

    def held(self, task: int, component: str, count: int, now_ns: int) -> tuple[int, str | None]:
        return self._limit.held(task, component, count, self._ring.pending, now_ns)

    def check_invariants(self) -> None:
        self._ring.check_invariants()


class TreesUntilCommit(Trees):
    """The same with checkpoints: complete trees that wait for a commit are bounded in number, too."""

    def __init__(self, task: int, ledger: CommitLedger[Finished], **settings: Any) -> None:
        """As `Trees`; the ledger is the spout's."""
        super().__init__(task, **settings)
        self._ledger = ledger

    def room(self, unsent: int, now_ns: int) -> int:
        return 0 if self._ledger.full else super().room(unsent, now_ns)
