"""A spout task: pulls tuples from user code, tracks their roots, tells user code what became of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from heronpy.api.spout import Spout
from heronpy.api.task_hook import EmitInfo, SpoutAckInfo, SpoutFailInfo
from heronpy.instance._batch_size import BatchSize
from heronpy.instance._core import Delegate, TaskCore, TaskFailed
from heronpy.instance._edges import Edge
from heronpy.instance._outputs import Rejected, as_values
from heronpy.instance._pacing import Pacing
from heronpy.instance._pending import HELD, PendingLimit
from heronpy.instance._roots import Finished, RootRing
from heronpy.instance._spout_counts import SpoutCounts
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, FAIL, RESET_TIMEOUT, U64, tuple_batch

CHUNK_MAX = 1024
CHUNK_LONG_NS = 2_000_000
CHUNK_SHORT_NS = 500_000
SWIFT_CHUNK = 16
"""A spout that makes fewer calls than this in a chunk's time has slow calls: it waits for its source."""
SWEEPS_PER_TIMEOUT = 20


class SpoutTask:
    """One spout task. See TaskCore for who may call it."""

    def __init__(self, core: TaskCore) -> None:
        self.core = core
        self.active = False
        settings = core.settings
        self._timeout_ns = int(float(settings.get("topology.message.timeout.secs", 30)) * 1e9)
        if str(settings.get("topology.enable.message.timeouts", "true")).lower() != "true":
            self._timeout_ns = 0
        self._pacing = Pacing(core.config.drain_interval_ms)
        self._chunk = 1
        self._sweep_at_ns = 0
        self._instant: list[Any] = []
        streams = list(core.component.outputs) or ["default"]
        self._counts = SpoutCounts(core.metrics, streams)
        self._numbers = {stream: number for number, stream in enumerate(streams)}
        self._streams: list[int] = []
        """The streams of the opened roots, or of the ids in `_instant`, as numbers; empty if there is only one."""
        self._batch = BatchSize(core.config, len(core.outputs.edges))
        delegate = Delegate(core)
        self._make_emit(delegate)
        self.user_object: Any = None
        self.user_object = core.make_component(delegate)
        kind = type(self.user_object)
        self._wants_ack = _overrides(kind, "ack") or bool(core.hooks)
        self._wants_fail = _overrides(kind, "fail") or bool(core.hooks)
        self._ring = RootRing(core.task_id, keep_ids=self._wants_ack or self._wants_fail, keep_streams=len(streams) > 1)
        self._limit = PendingLimit(_pending_of(core))
        self.idle = False
        """The last poll found nothing to emit."""

    # The hot path. emit and the loop around next_tuple are closures over the same few variables, because a closure
    # cell costs a fifth of an attribute. `room` counts down to the flush that bounds the memory of one next_tuple();
    # the loop also reads it to see whether a call emitted anything.
    def _make_emit(self, delegate: Delegate) -> None:
        core = self.core
        choosers = core.outputs.choosers
        tracking, instant, signal = core.tracking, self._instant, core.signal
        numbers, streams, several = self._numbers, self._streams, len(self._numbers) > 1
        room = self._batch.tuples
        opened = 0
        ids: list[Any] = []

        def emit(
            tup: Any,
            tup_id: Any = None,
            stream: str = "default",
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int]:
            nonlocal room, opened
            if type(tup) is list:
                tup = [*tup]  # user code may go on using its list
            elif type(tup) is not tuple:
                tup = as_values(tup)
            target = choosers[stream](tup) if direct_task is None else core.outputs.direct(stream, direct_task)
            target.append(tup)
            if tracking:
                if tup_id is None:
                    target.tag(-1)
                else:
                    target.tag(opened)
                    opened += 1
                    ids.append(tup_id)
                    if several:
                        streams.append(numbers[stream])
            elif tup_id is not None:
                instant.append(tup_id)
                if several:
                    streams.append(numbers[stream])
            room -= 1
            if room <= 0:
                self.flush()
            return target.ids

        def run(next_tuple: Callable[[], None], calls: Iterator[int]) -> bool:
            """Call next_tuple once for each of `calls`; stop when one emits nothing. Returns whether one did not."""
            for _ in calls:
                left = room
                next_tuple()
                if room == left:
                    return True
                if signal.due:
                    return False
            return False

        def take() -> tuple[int, list[Any], list[int]]:
            """Roots opened since the last call, their message ids and their streams."""
            nonlocal room, opened
            count, room, opened = opened, self._batch.tuples, 0
            if not count:
                return 0, [], []  # the streams may be those of `instant`
            taken = ids.copy(), streams.copy()
            ids.clear()
            streams.clear()
            return count, *taken

        def refill() -> None:
            nonlocal room
            room = self._batch.tuples

        def rebind() -> None:
            nonlocal choosers
            choosers = core.outputs.choosers

        self._run, self._take, self._rebind, self._refill = run, take, rebind, refill
        self._open_roots: Callable[[], int] = lambda: opened
        self._unsent: Callable[[], int] = lambda: self._batch.tuples - room
        if core.debug or core.hooks:
            emit = self._observed(emit)
        delegate.emit = emit  # type: ignore[attr-defined]  # what a spout's delegate has beside a bolt's

    def _observed(self, emit: Callable[..., list[int]]) -> Callable[..., list[int]]:
        """emit for topology.debug and task hooks: slower, so only there."""
        core = self.core

        def observed(
            tup: Any,
            tup_id: Any = None,
            stream: str = "default",
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int]:
            tasks = emit(tup, tup_id, stream, direct_task, need_task_ids)
            if core.debug:
                core.logger.info("emitted %r to %s on stream %s", tup, tasks, stream)
            for hook in core.hooks:
                hook.emit(EmitInfo(tup, stream, core.task_id, tasks))
            return tasks

        return observed

    def open(self) -> None:
        """Call the user's initialize()."""
        self.user_object.initialize(self.core.settings, self.core.context)
        for hook in self.core.hooks:
            hook.prepare(self.core.settings, self.core.context)

    def activate(self) -> None:
        if not self.active:
            self.active = True
            self._call("activate()", self.user_object.activate)

    def deactivate(self) -> None:
        if self.active:
            self.active = False
            self._call("deactivate()", self.user_object.deactivate)

    def close(self) -> None:
        """The end: flush what was emitted, then tell user code."""
        self.core.signal.due = False
        self.flush()
        try:
            for hook in self.core.hooks:
                hook.clean_up()
        finally:
            self.user_object.close()
        self.core.metrics.poll_user(0, final=True)

    def replan(self, plan: Any) -> None:
        self.flush()
        self.core.replan(plan)
        self._rebind()

    @property
    def pending(self) -> int:
        """Tuple trees on their way."""
        return self._ring.pending + self._open_roots()

    def poll(self) -> float:
        """Do a bounded piece of work. Returns how many seconds the task may sleep if no message comes."""
        now_ns = self.core.clock()
        self._housekeep(now_ns)
        if not self.active:
            self.flush()
            return 0.1
        room = CHUNK_MAX
        if self.core.tracking:
            room = self._limit.room(self._ring.pending + self._open_roots(), now_ns)
            if room <= 0:
                # Acks come back in batches: what is emitted for each of them is collected, too.
                if self._unsent() and (wait_ns := self._pacing.idle_ns(now_ns)) > 0:
                    return wait_ns / 1e9
                self.flush()
                return 0.1 if self._limit.fixed else 0.02
        if not self._unsent():
            self._pacing.waits_since(now_ns)
        count = min(self._chunk, room)
        calls = iter(range(count))  # what is left of it tells how many calls were made
        try:
            self.idle = self._run(self.user_object.next_tuple, calls)
        except Exception as error:
            self.idle = True
            self._user_error("next_tuple()", error)
        if self._instant:
            self._ack_instantly()
        self.core.signal.due = False
        after_ns = self.core.clock()
        self._counts.called(count - operator.length_hint(calls), after_ns - now_ns)
        self._adapt_chunk(after_ns - now_ns)
        return self._pace(after_ns)

    def _pace(self, now_ns: int) -> float:
        """Send if it is time to. Returns how many seconds the task may sleep."""
        unsent = self._unsent()
        if self.idle:
            sleep_ns = int(self.core.config.idle_sleep_ms * 1e6)
            if unsent and (wait_ns := self._pacing.idle_ns(now_ns)) > 0:
                return min(wait_ns, sleep_ns) / 1e9
            self.flush()
            return sleep_ns / 1e9
        if unsent and self._pacing.drained(now_ns):
            destinations = sum(1 for edge in self.core.outputs.edges if edge.values)
            if self._chunk < SWIFT_CHUNK or self._pacing.busy_due(now_ns, unsent, destinations):
                self.flush()
        return 0.0

    def _adapt_chunk(self, took_ns: int) -> None:
        if took_ns > CHUNK_LONG_NS:
            self._chunk = max(1, self._chunk // 2)
        elif took_ns < CHUNK_SHORT_NS:
            self._chunk = min(CHUNK_MAX, self._chunk * 2)

    def _housekeep(self, now_ns: int) -> None:
        if now_ns < self._sweep_at_ns:
            return
        if self.core.tracking and self._timeout_ns:
            self._sweep_at_ns = now_ns + min(self._timeout_ns // SWEEPS_PER_TIMEOUT, 1_000_000_000)
            expired = self._ring.expire(now_ns - self._timeout_ns, now_ns)
            if expired.count:
                self._counts.timed_out(expired)
                self._failed(expired)
        else:
            self._sweep_at_ns = now_ns + 1_000_000_000
        self.core.metrics.gauge("__pending-acked-count", self._ring.pending)
        self.core.metrics.poll_user(now_ns / 1e9)

    def offer(self, batch: stmgr_pb2.Batch) -> None:
        """Take acks, fails or timeout resets."""
        body = stmgr_pb2.RootBatch.FromString(batch.body)
        roots = np.frombuffer(body.roots, dtype=U64)
        now_ns = self.core.clock()
        if batch.kind == ACK:
            self._acked(self._ring.ack(roots, np.frombuffer(body.values, dtype=U64), now_ns))
        elif batch.kind == FAIL:
            self._failed(self._ring.fail(roots, now_ns))
        elif batch.kind == RESET_TIMEOUT:
            self._ring.reset_timeout(roots, now_ns)

    def flush(self) -> None:
        """Send everything emitted so far. All edges at once: a root's copies must be known before one can be acked."""
        if self.user_object is None:
            return  # it is emitting in its __init__; nobody could be told what becomes of that yet
        count, ids, streams = self._take()
        core = self.core
        for stream, n in core.outputs.emitted().items():
            core.metrics.add(f"__emit-count/{stream}", n)
        edges = [edge for edge in core.outputs.edges if edge.values]
        if not count:
            self._send_untracked(edges)
            return
        first = self._ring.next
        batches: list[stmgr_pb2.Batch] = []
        rejected: list[tuple[Rejected, int]] = []
        tracked: list[tuple[Any, Any]] = []
        for edge in edges:
            numbers = np.array(edge.tags, dtype=np.int64)
            mask = numbers >= 0
            every = bool(mask.all())
            sequences = numbers + first
            edge_ids = _random(len(numbers))
            for part in core.serialized(edge):
                if isinstance(part, Rejected):
                    rejected.append((part, edge.tags[part.index]))
                    continue
                start, stop, data = part
                cut = slice(start, stop)
                chosen = mask[cut]
                roots = self._ring.roots(sequences[cut])
                batches.append(
                    tuple_batch(
                        src_task=core.task_id,
                        dest_task=edge.task,
                        stream=edge.stream,
                        count=stop - start,
                        values=data,
                        ids=edge_ids[cut] if every else edge_ids[cut][chosen],
                        roots=roots if every else roots[chosen],
                        root_counts=None if every else chosen.astype(np.uint16),
                    )
                )
            tracked.append((sequences, edge_ids) if every else (sequences[mask], edge_ids[mask]))
            edge.clear()
        now_ns = self.core.clock()
        done = self._ring.commit(count, ids, tracked, now_ns, streams)
        self._dispatch(batches)
        if done.count:
            self._acked(done)
        if rejected:
            lost = np.array([first + tag for _, tag in rejected if tag >= 0], dtype=np.int64)
            if len(lost):
                self._failed(self._ring.fail(self._ring.roots(lost), now_ns))
            self._refuse([r for r, _ in rejected])

    def _send_untracked(self, edges: list[Edge]) -> None:
        core = self.core
        batches: list[stmgr_pb2.Batch] = []
        rejected: list[Rejected] = []
        for edge in edges:
            for part in core.serialized(edge):
                if isinstance(part, Rejected):
                    rejected.append(part)
                    continue
                start, stop, data = part
                batches.append(
                    tuple_batch(
                        src_task=core.task_id, dest_task=edge.task, stream=edge.stream, count=stop - start, values=data
                    )
                )
            edge.clear()
        self._dispatch(batches)
        if rejected:
            self._refuse(rejected)

    def _dispatch(self, batches: list[stmgr_pb2.Batch]) -> None:
        if batches:
            self.core.send(batches)
            self._batch.sent(batches)
            self._pacing.sent(self.core.clock())
            self._refill()

    def _refuse(self, rejected: list[Rejected]) -> None:
        """Tuples that could not be sent: an error of user code each, told one by one."""
        for r in rejected[1:]:
            self.core.user_error("emit()", r.error)
        self._user_error("emit()", rejected[0].error)

    def _acked(self, done: Finished) -> None:
        if not done.count:
            return
        self._counts.acked(done)
        self._limit.acked(done.count)
        if self._wants_ack:
            for message_id, latency_ns in zip(done.message_ids, done.latencies_ns.tolist(), strict=True):
                self._call("ack()", self.user_object.ack, message_id)
                for hook in self.core.hooks:
                    self._call(
                        "spout_ack()", hook.spout_ack, SpoutAckInfo(message_id, self.core.task_id, latency_ns / 1e6)
                    )

    def _failed(self, gone: Finished) -> None:
        if not gone.count:
            return
        self._counts.failed(gone)
        if self._wants_fail:
            for message_id, latency_ns in zip(gone.message_ids, gone.latencies_ns.tolist(), strict=True):
                self._call("fail()", self.user_object.fail, message_id)
                for hook in self.core.hooks:
                    self._call(
                        "spout_fail()", hook.spout_fail, SpoutFailInfo(message_id, self.core.task_id, latency_ns / 1e6)
                    )

    def _ack_instantly(self) -> None:
        """At most once: a tuple with an id counts as acked as soon as it is emitted, as in Heron."""
        ids = self._instant.copy()
        self._instant.clear()
        self._counts.acked_at_once(self._streams, len(ids))
        self._streams.clear()
        if self._wants_ack:
            for message_id in ids:
                self._call("ack()", self.user_object.ack, message_id)
                for hook in self.core.hooks:
                    self._call("spout_ack()", hook.spout_ack, SpoutAckInfo(message_id, self.core.task_id, 0.0))

    def _call(self, where: str, function: Callable[..., None], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            self._user_error(where, error)

    def _user_error(self, where: str, error: Exception) -> None:
        self.core.user_error(where, error)
        if not self.core.fail_only:
            raise TaskFailed(where) from error


def _pending_of(core: TaskCore) -> int | None:
    """The limit of pending trees; None for one that adapts."""
    configured = core.settings.get("topology.max.spout.pending")
    if configured not in (None, ""):
        return int(configured)
    components = core.plan.logical.components.values()
    held = any(str(c.config.get("topology.component.holds.tuples", "false")).lower() == "true" for c in components)
    return HELD if held else None


def _random(count: int) -> Any:
    return _generator.random_raw(count)


_generator = np.random.SFC64()  # the fastest of numpy's; ids must be unlikely to collide, not hard to guess


def _overrides(kind: type, name: str) -> bool:
    return getattr(kind, name, None) is not getattr(Spout, name, None)
