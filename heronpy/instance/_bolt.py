"""A bolt task: runs user code on received tuples, anchors what it emits, reports what it acked and failed."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from heronpy.api.exceptions import FailedException
from heronpy.api.task_hook import BoltAckInfo, BoltExecuteInfo, BoltFailInfo, EmitInfo
from heronpy.api.tuple import Tuple, TupleHelper
from heronpy.errors import TupleError
from heronpy.instance._anchors import Anchors, anchored, as_anchors
from heronpy.instance._batch_size import BatchSize
from heronpy.instance._core import Delegate, Stopped, TaskCore, TaskFailed
from heronpy.instance._edges import Edge
from heronpy.instance._inbatch import ACKED, FAILED, OPEN, InBatch, root_batches
from heronpy.instance._outputs import Rejected, as_values
from heronpy.instance._pacing import Pacing
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, FAIL, RESET_TIMEOUT, tuple_batch

Process = Callable[[Tuple], None]
RESETS_EVERY_NS = 5_000_000


class BoltTask:
    """One bolt task. See TaskCore for who may call it."""

    def __init__(self, core: TaskCore) -> None:
        self.core = core
        self.active = True
        self._pacing = Pacing(core.config.drain_interval_ms)
        self._done = 0
        """Tuples executed since the last flush: about as many acks wait."""
        self._dirty: list[InBatch] = []
        self._resets: list[Tuple] = []
        self._reset_at_ns = 0
        self._tick_ns = 0
        self._tick_at_ns = 0
        self._poll_user_at_ns = 0
        self._process_began_ns = 0
        self._batch_began_ns = 0
        self._now_running: tuple[str, Iterator[int], int] = ("", iter(()), 0)
        self._batch = BatchSize(core.config, len(core.outputs.edges))
        delegate = Delegate(core)
        self._make_emit(delegate)
        self.user_object: Any = core.make_component(delegate)
        self._auto_ack = bool(getattr(self.user_object, "auto_ack", False))
        self._auto_anchor = bool(getattr(self.user_object, "auto_anchor", False))
        self._auto_fail = bool(getattr(self.user_object, "auto_fail", False))

    # The hot path: closures over shared variables, as in the spout. `current` is the tuple in process(), for automatic
    # anchors; `room` counts down to the flush that bounds the memory of one process().
    def _make_emit(self, delegate: Delegate) -> None:
        core, dirty, signal = self.core, self._dirty, self.core.signal
        choosers = core.outputs.choosers
        tracking = core.tracking
        room = self._batch.tuples
        current: Tuple | None = None

        def emit(
            tup: Any,
            stream: str = "default",
            anchors: Sequence[Tuple] | None = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int]:
            nonlocal room
            if type(tup) is list:
                tup = [*tup]  # user code may go on using its list
            elif type(tup) is not tuple:
                tup = as_values(tup)
            target = choosers[stream](tup) if direct_task is None else core.outputs.direct(stream, direct_task)
            if tracking:
                tag: Any = current
                if anchors is not None:
                    if type(anchors) is list and len(anchors) == 1 and type(anchors[0]) is Tuple:
                        tag = anchors[0]
                    else:
                        tag = as_anchors(anchors)  # a copy: user code may go on using its list
                        room -= len(tag)  # they travel too: 16 bytes for each
                # Both or neither: nothing may raise from here on.
                target.append(tup)
                target.tag(tag)
            else:
                target.append(tup)
            room -= 1
            if room <= 0:
                self.flush()
            return target.ids

        def ack(tup: Tuple) -> None:
            origin: Any = tup.origin_
            origin.marks[tup.index_] = ACKED
            if not origin.dirty:
                origin.dirty = True
                dirty.append(origin)

        def fail(tup: Tuple) -> None:
            origin: Any = tup.origin_
            if origin.marks[tup.index_]:
                return  # acked before, e.g. by a process() that raised afterwards
            origin.marks[tup.index_] = FAILED
            if not origin.dirty:
                origin.dirty = True
                dirty.append(origin)

        def run(tuples: Iterable[Tuple], process: Process) -> None:
            for tup in tuples:
                process(tup)
                if signal.due:
                    self.look_up()

        def run_auto(tuples: Iterable[Tuple], process: Process) -> None:
            nonlocal current
            anchor, acks = self._auto_anchor, self._auto_ack
            ack = delegate.ack  # type: ignore[attr-defined]  # the observed one, if there are hooks
            for tup in tuples:
                if anchor:
                    current = tup
                process(tup)
                if acks and not tup.origin_.marks[tup.index_]:  # type: ignore[attr-defined]  # InBatch has it
                    ack(tup)
                if signal.due:
                    current = None
                    self.look_up()
            current = None

        def refill() -> None:
            nonlocal room
            room = self._batch.tuples

        def rebind() -> None:
            nonlocal choosers, current
            choosers, current = core.outputs.choosers, None

        def no_anchor() -> None:
            nonlocal current
            current = None

        self._run, self._run_auto = run, run_auto
        self._refill, self._rebind, self._no_anchor = refill, rebind, no_anchor
        self._nothing_unsent: Callable[[], bool] = lambda: room == self._batch.tuples and not dirty
        self._fail = fail
        delegate.emit, delegate.ack, delegate.fail = emit, ack, fail  # type: ignore[attr-defined]
        delegate.reset_timeout = self._reset_timeout  # type: ignore[attr-defined]
        if core.debug or core.hooks:
            self._observe(delegate)

    def _observe(self, delegate: Any) -> None:
        """emit, ack and fail for topology.debug and task hooks: slower, so only there."""
        core, emit, ack, fail = self.core, delegate.emit, delegate.ack, delegate.fail

        def observed_emit(
            tup: Any,
            stream: str = "default",
            anchors: Sequence[Tuple] | None = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int]:
            tasks: list[int] = emit(tup, stream, anchors, direct_task, need_task_ids)
            if core.debug:
                core.logger.info("emitted %r to %s on stream %s", tup, tasks, stream)
            for hook in core.hooks:
                hook.emit(EmitInfo(tup, stream, core.task_id, tasks))
            return tasks

        def observed_ack(tup: Tuple) -> None:
            ack(tup)
            for hook in core.hooks:
                hook.bolt_ack(BoltAckInfo(tup, core.task_id, self._since_start_ms()))

        def observed_fail(tup: Tuple) -> None:
            fail(tup)
            for hook in core.hooks:
                hook.bolt_fail(BoltFailInfo(tup, core.task_id, self._since_start_ms()))

        delegate.emit, delegate.ack, delegate.fail = observed_emit, observed_ack, observed_fail

    def _since_start_ms(self) -> float:
        return (self.core.clock() - self._process_began_ns) / 1e6

    def _observed_process(self, process: Process) -> Process:
        core = self.core

        def observed(tup: Tuple) -> None:
            self._process_began_ns = self.core.clock()
            process(tup)
            took_ms = self._since_start_ms()
            for hook in core.hooks:
                hook.bolt_execute(BoltExecuteInfo(tup, core.task_id, took_ms))

        return observed

    def open(self) -> None:
        """Call the user's initialize()."""
        core = self.core
        self.user_object.initialize(core.settings, core.context)
        for hook in core.hooks:
            hook.prepare(core.settings, core.context)
        # Read after initialize(), which may set it: Heron's window bolts do.
        if (ms := core.settings.get("topology.tick.tuple.freq.ms")) is not None:
            self._tick_ns = int(float(ms) * 1e6)
        elif (secs := core.settings.get("topology.tick.tuple.freq.secs")) is not None:
            self._tick_ns = int(float(secs) * 1e9)
        if self._tick_ns:
            self._tick_at_ns = core.clock() + self._tick_ns

    def activate(self) -> None:
        """Nothing: bolts run as long as there are tuples."""

    def deactivate(self) -> None:
        """Nothing, likewise."""

    def close(self) -> None:
        """The end: tell user code, then flush, also if user code raises."""
        self.core.signal.due = False
        self._no_anchor()
        try:
            for hook in self.core.hooks:
                hook.clean_up()
            cleanup = getattr(self.user_object, "cleanup", None) or getattr(self.user_object, "close", None)
            if cleanup is not None:
                cleanup()
        finally:
            self.flush()
            self.core.metrics.poll_user(0, final=True)

    def replan(self, plan: Any) -> None:
        self.flush()
        self.core.replan(plan)
        self._rebind()

    def offer(self, batch: stmgr_pb2.Batch) -> None:
        """Run user code on a batch of tuples."""
        core = self.core
        body = stmgr_pb2.TupleBatch.FromString(batch.body)
        component = core.component_of[body.src_task]
        fields = core.plan.logical.components[component].outputs[body.stream].fields
        origin = InBatch(body, component, fields)
        origin.began_ns = received_ns = core.clock()
        try:
            values = core.deserialize(body.values)
        except Exception as error:
            self._refuse(origin, error)
            return
        # The range is the batch's clock: what is left of it tells how many tuples were begun.
        numbers = iter(range(len(values)))
        tuples = map(Tuple, values, itertools.repeat(origin), numbers)
        began_ns = self._batch_began_ns = self.core.clock()
        core.metrics.add(f"__tuple-deserialization-time-ns/{component}/{body.stream}", began_ns - received_ns)
        core.metrics.mean(
            f"__av-tuple-deserialization-time-ns/{component}/{body.stream}", began_ns - received_ns, len(values)
        )
        if self._nothing_unsent():
            self._pacing.waits_since(began_ns)
        self._now_running = f"{component}/{body.stream}", numbers, len(values)
        process = self.user_object.process
        if core.hooks:
            process = self._observed_process(process)
        run = self._run_auto if self._auto_ack or self._auto_anchor else self._run
        try:
            while operator.length_hint(numbers):
                try:
                    run(tuples, process)
                except FailedException:
                    self._fail_last(origin, numbers, len(values))
                except Exception as error:
                    self._fail_last(origin, numbers, len(values))
                    self._user_error("process()", error)
                except (SystemExit, KeyboardInterrupt):
                    self._fail_last(origin, numbers, len(values))  # sent by close()
                    raise
        finally:
            self._count_executed()
        self._flush_if_due(self.core.clock())

    def _refuse(self, origin: InBatch, error: Exception) -> None:
        """Fail a batch that cannot be read. Which of its tuples is to blame cannot be told."""
        origin.marks[:] = bytes([FAILED]) * origin.count
        origin.dirty = True
        self._dirty.append(origin)
        unreadable = TupleError(
            f"{origin.count} tuples of {origin.component}:{origin.stream} cannot be deserialized: {error}"
        )
        unreadable.__cause__ = error
        self._user_error("deserialize()", unreadable)

    def _flush_if_due(self, now_ns: int) -> None:
        """Flush a bolt that has more to do."""
        if self._pacing.drained(now_ns) and not self._nothing_unsent():
            destinations = 1 + sum(1 for edge in self.core.outputs.edges if edge.values)
            if self._pacing.busy_due(now_ns, self._done, destinations):
                self.flush()

    def _count_executed(self) -> None:
        """Count what was executed since the last call, and the time it took."""
        source, numbers, before = self._now_running
        left = operator.length_hint(numbers)
        executed = before - left
        if executed:
            now_ns = self.core.clock()
            took_ns = now_ns - self._batch_began_ns
            metrics = self.core.metrics
            metrics.add(f"__execute-count/{source}", executed)
            metrics.add(f"__execute-time-ns/{source}", took_ns)
            metrics.mean(f"__execute-latency/{source}", took_ns, executed)
            self._batch_began_ns = now_ns
            self._done += executed
            self._now_running = source, numbers, left

    def _fail_last(self, origin: InBatch, numbers: Iterator[int], count: int) -> None:
        """Fail the tuple whose process() raised."""
        self._no_anchor()
        index = count - operator.length_hint(numbers) - 1
        self._fail(Tuple([], origin, index))

    def poll(self) -> float:
        """Do what is due. Returns how many seconds the task may sleep if no message comes."""
        self._no_anchor()
        self.core.signal.due = False
        now_ns = self.core.clock()
        self._housekeep(now_ns)
        if not self._nothing_unsent() or self._resets:
            if (wait_ns := self._pacing.idle_ns(now_ns)) > 0:
                return wait_ns / 1e9
            self.flush()
        return min(1.0, max(0.0, (self._tick_at_ns - now_ns) / 1e9)) if self._tick_ns else 1.0

    def look_up(self) -> None:
        """Between two tuples of a batch: flush, tick, or stop."""
        signal = self.core.signal
        signal.due = False
        now_ns = self.core.clock()
        self._count_executed()
        self._flush_if_due(now_ns)
        self._housekeep(now_ns)
        if signal.stopping:
            raise Stopped

    def _housekeep(self, now_ns: int) -> None:
        if self._tick_ns and now_ns >= self._tick_at_ns:
            # Ticks that were missed while user code was busy are not made up for, as in Storm.
            self._tick_at_ns += self._tick_ns * ((now_ns - self._tick_at_ns) // self._tick_ns + 1)
            try:
                self.user_object.process_tick(TupleHelper.make_tick_tuple())
            except FailedException:
                self.core.logger.warning("process_tick() raised FailedException: a tick cannot be failed")
            except Exception as error:
                self._user_error("process_tick()", error)
        if now_ns >= self._poll_user_at_ns:
            self._poll_user_at_ns = now_ns + 1_000_000_000
            self.core.metrics.poll_user(now_ns / 1e9)

    def flush(self) -> None:
        """Send what was emitted, then what was acked and failed: an ack carries the ids of the children."""
        core = self.core
        batches: list[stmgr_pb2.Batch] = []
        rejected: list[tuple[Rejected, Sequence[Tuple]]] = []
        for stream, n in core.outputs.emitted().items():
            core.metrics.add(f"__emit-count/{stream}", n)
        for edge in core.outputs.edges:
            if edge.values:
                self._pack(edge, batches, rejected)
                edge.clear()
        if self._resets:
            batches += self._reset_batches()
        for anchor in itertools.chain.from_iterable(anchors for _, anchors in rejected):
            self._spoil(anchor)
        if self._dirty:
            batches += self._settle()
        if batches:
            core.send(batches)
            self._batch.sent(batches)
        self._pacing.sent(core.clock())
        self._done = 0
        self._refill()
        if rejected:
            for other, _anchors in rejected[1:]:
                core.user_error("emit()", other.error)
            self._user_error("emit()", rejected[0][0].error, flushed=True)

    def _spoil(self, anchor: Tuple) -> None:
        """Fail a tuple even if it was acked: what was to come of it cannot be sent."""
        origin = anchor.origin_
        if isinstance(origin, InBatch):
            origin.marks[anchor.index_] = OPEN
            self._fail(anchor)

    def _pack(
        self, edge: Edge, batches: list[stmgr_pb2.Batch], rejected: list[tuple[Rejected, Sequence[Tuple]]]
    ) -> None:
        core = self.core
        parts = core.serialized(edge)
        for part in parts:
            if isinstance(part, Rejected):
                rejected.append((part, _anchors_of(edge.tags[part.index]) if core.tracking else ()))
                if core.tracking:
                    edge.tags[part.index] = ()  # not sent, so it is nobody's child
        tree: Anchors | None = anchored(edge.tags) if core.tracking else None
        for part in parts:
            if isinstance(part, Rejected):
                continue
            start, stop, data = part
            ids, roots, counts = tree.part(start, stop) if tree else (None, None, None)
            batches.append(
                tuple_batch(
                    src_task=core.task_id,
                    dest_task=edge.task,
                    stream=edge.stream,
                    count=stop - start,
                    values=data,
                    ids=ids,
                    roots=roots,
                    root_counts=counts,
                )
            )

    def _settle(self) -> Iterable[stmgr_pb2.Batch]:
        """Batches of acks and fails for everything marked since the last flush."""
        acks: list[tuple[Any, Any]] = []
        fails: list[tuple[Any, Any]] = []
        metrics, now_ns = self.core.metrics, self.core.clock()
        for origin in self._dirty:
            acked, failed = origin.settle()
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
                    fails.append((origin.roots[origin.positions(failed)[0]], None))
        self._dirty.clear()
        return [*root_batches(ACK, acks), *root_batches(FAIL, fails)]

    def _reset_timeout(self, tup: Tuple) -> None:
        """Sent with the next flush; but a process() that takes long must not keep it until it returns."""
        self._resets.append(tup)
        now_ns = self.core.clock()
        if now_ns >= self._reset_at_ns:
            self._reset_at_ns = now_ns + RESETS_EVERY_NS
            self.core.send([*self._reset_batches()])

    def _reset_batches(self) -> Iterable[stmgr_pb2.Batch]:
        parts: list[tuple[Any, Any]] = []
        for tup in self._resets:
            origin = tup.origin_
            if isinstance(origin, InBatch) and origin.tracked:
                parts.append((origin.roots[origin.positions(np.array([tup.index_]))[0]], None))
        self._resets.clear()
        return root_batches(RESET_TIMEOUT, parts)

    def _user_error(self, where: str, error: Exception, *, flushed: bool = False) -> None:
        self.core.user_error(where, error)
        if not self.core.fail_only:
            if not flushed:
                self.flush()  # the failed tuple is replayed at once, not after its timeout
            raise TaskFailed(where) from error


def _anchors_of(tag: Any) -> Sequence[Tuple]:
    return () if tag is None else (tag,) if isinstance(tag, Tuple) else tag
