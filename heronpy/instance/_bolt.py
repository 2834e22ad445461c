"""A bolt task: runs user code on received tuples, anchors what it emits, reports what it acked and failed."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.api.exceptions import FailedException
from heronpy.api.task_hook import BoltExecuteInfo
from heronpy.api.tuple import Tuple, TupleHelper
from heronpy.errors import TupleError
from heronpy.instance._acks import Acks
from heronpy.instance._anchors import anchored
from heronpy.instance._batch_size import BatchSize
from heronpy.instance._core import Delegate, Deserialize, Stopped, TaskCore, TaskFailed, Unwinding
from heronpy.instance._edges import AnchoredFan, Fan, Taken
from heronpy.instance._emitter import Ack, BoltLoop, Process, make_emitter, observed_emit
from heronpy.instance._holding import HoldingReports, TimeoutRenewals
from heronpy.instance._in_hand import BatchInHand
from heronpy.instance._inbatch import InBatch, root_batches
from heronpy.instance._pacing import ACK_TASKS_MAX, Pacing
from heronpy.instance._sender import packed
from heronpy.instance._serializing import Rejected
from heronpy.instance._set_aside import OUTAGES, FailedTuple, refusing
from heronpy.instance._settling import settles_tuples
from heronpy.instance._task import Task
from heronpy.instance._task_config import tick_interval_ns
from heronpy.plan import has_event_time
from heronpy.proto import stmgr_pb2
from heronpy.shown import said
from heronpy.wire import CONTROL, DATA, FAIL, MalformedBatch, Tuples, decode_control, decode_tuples

if TYPE_CHECKING:
    from heronpy.instance._lone_keys import LoneKeys
    from heronpy.instance._timers import TaskTimers

RESETS_EVERY_NS = 5_000_000
POLL_USER_METRICS_NS = 1_000_000_000


class BoltTask(Task):
    """One bolt task. See TaskCore for who may call it."""

    def __init__(self, core: TaskCore) -> None:
        self.core = core
        self.active = True
        self._pacing = Pacing(core.config.drain_interval_ms)
        self._done = 0
        """Tuples executed since the last flush: about as many acks wait."""
        self._sending = False
        self._rejected: deque[Rejected] = deque()
        """Tuples that could not be sent, and were not reported yet. Any thread appends."""
        self._reset_at_ns = 0
        self._tick_ns = 0
        self._tick_at_ns = 0
        self._poll_user_at_ns = 0
        self._housekept_ns = core.clock()
        self._process_began_ns = 0
        self._in_hand: BatchInHand | None = None
        self._between_tuples = False
        """What is raised is no fault of the tuple that was executed last."""
        self._timers: TaskTimers | None = None
        self._lone_keys: LoneKeys | None = None
        core.open_outputs(AnchoredFan if core.tracking else Fan)
        self._batch = BatchSize(core.config, len(core.outputs.pairs))
        self._emitter = make_emitter(core, self._batch, flush=self.flush, service_signals=self.service_signals)
        self._acks = Acks(core, self._since_start_ms)
        self._holding = HoldingReports(core.task_id)
        timeout_ns = core.settings.message_timeout_ns
        renews = core.tracking and core.settings.windows_hold and timeout_ns
        self._renewals = TimeoutRenewals(core.task_id, timeout_ns) if renews else None
        self.user_object: Any = None
        self._fail: Ack
        self._loop: BoltLoop
        self._delegate = delegate = Delegate(core)
        delegate.reset_timeout, delegate.send_watermark = self._reset_timeout, self.send_watermark
        self._bind(self._emitter.emit)
        self._observe_hooks()
        self.user_object = core.make_component(delegate)
        self._bind(delegate.emit)
        self._acks.settles = core.states is not None and not core.tracking and settles_tuples(type(self.user_object))
        received = getattr(self.user_object, "receive_watermark", None)
        self._watermark_receivers: list[Callable[[int, int], None]] = [] if received is None else [received]

    def _bind(self, emit: Callable[..., list[int]]) -> None:
        core, delegate, user_object = self.core, self._delegate, self.user_object
        self._fail = self._acks.fail if core.states is None or core.tracking else self._roll_back
        delegate.emit, delegate.ack, delegate.fail = emit, self._acks.ack, self._fail
        if user_object is not None:
            core.bind(user_object, delegate)
            acks, anchors = (bool(getattr(user_object, name, False)) for name in ("auto_ack", "auto_anchor"))
            self._loop = self._emitter.bolt_loop(anchors, self._acks.ack if acks else None)

    def _observe(self) -> None:
        self._acks.observe()
        self._bind(observed_emit(self.core, self._emitter.emit))

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
        if hasattr(self.user_object, "on_timer"):
            from heronpy.instance._timers import TaskTimers  # by those who have them

            self._timers = TaskTimers(core, self.user_object, self._user_error, self.send_watermark)
            self._watermark_receivers.append(self._timers.receive_watermark)
        own_time = self._watermark_receivers and has_event_time(core.user_config)
        if not own_time and core.context.sends_watermarks():
            from heronpy.instance._relay import WatermarkRelay

            self._watermark_receivers.append(WatermarkRelay(core, self.send_watermark).receive)
        core.initialize(self.user_object)
        for hook in core.hooks:
            hook.prepare(core.user_config, core.context)
        if core.states is not None and core.states.place.tasks == 1:
            from heronpy.instance._lone_keys import LoneKeys  # by those that have states

            self._lone_keys = LoneKeys(core, core.states)
        self._tick_ns = tick_interval_ns(core.user_config)
        if self._tick_ns:
            self._tick_at_ns = core.clock() + self._tick_ns

    def activate(self) -> None:
        """Nothing: bolts run as long as there are tuples."""

    def deactivate(self) -> None:
        """Nothing, likewise."""

    def close(self) -> None:
        """Clean up the user's component, then flush, even if it raises."""
        self.core.signal.due = False
        self._emitter.no_anchor()
        try:
            for hook in self.core.hooks:
                hook.clean_up()
            cleanup = getattr(self.user_object, "cleanup", None) or getattr(self.user_object, "close", None)
            if cleanup is not None:
                cleanup()
        finally:
            self.flush()
            self.core.metrics.poll_user(0, final=True)

    def check_invariants(self) -> None:
        """Raise AssertionError if the bookkeeping contradicts itself. For tests."""
        assert self._acks.held >= 0, "more tuples were settled than came"

    def doze(self, asleep: bool) -> bool:
        """The task is about to sleep, or awake: see Emitter."""
        return self._emitter.doze(asleep) and not (asleep and self._acks and self._emitter.doze(False))

    def offer(self, batch: stmgr_pb2.Batch, skip: int = 0) -> None:
        """Run user code on a batch of tuples, or take control.

        Args:
            batch: what has come.
            skip: so many tuples at its beginning were executed before.
        """
        try:
            if batch.kind == DATA:
                serializer = batch.serializer
                deserialize = self.core.deserializer(serializer) if serializer else self.core.deserialize
                self._execute(decode_tuples(batch.body), skip, deserialize)
            elif batch.kind == CONTROL:
                self._control(decode_control(batch.body))
            else:
                raise MalformedBatch("a batch of acks or fails came to a bolt")
        except MalformedBatch as error:
            self.core.malformed(error)

    def _control(self, control: stmgr_pb2.ControlBatch) -> None:
        if control.WhichOneof("control") == "watermark":
            try:
                for receive in self._watermark_receivers:
                    receive(control.src_task, control.watermark)
            except Exception as error:
                self._user_error("receive_watermark()", error)

    def _execute(self, tuples: Tuples, skip: int, deserialize: Deserialize) -> None:
        core = self.core
        received_ns = core.clock()
        component = core.component_of.get(tuples.src_task)
        if component is None:
            raise MalformedBatch(f"a batch of tuples is from task {tuples.src_task}, which is in no plan")
        declared = core.plan.logical.components[component].outputs
        if unknown := [stream for stream in tuples.streams if stream not in declared]:
            raise MalformedBatch(f"a batch of tuples is of stream {component}:{unknown[0]}, which is not declared")
        try:
            values, all_readable = self._deserialized(tuples, deserialize)
            if len(values) != tuples.count:
                raise MalformedBatch(f"a batch of {tuples.count} tuples holds {len(values)}")
        except BaseException as error:
            self._refuse(tuples, component, error)
            return
        if skip:
            values, tuples = values[skip:], tuples.without_first(skip)
        batch = BatchInHand(tuples, values, component, lambda stream: declared[stream].fields, skip)
        for origin, count in batch.count_received(core.metrics, received_ns, core.clock()):
            self._acks.took_up(origin, count)
        if len(tuples.roots):
            self._holding.received(tuples.roots)
            if self._renewals is not None:
                self._renewals.received(batch.origins)
        self._run(batch, all_readable=all_readable)

    def _deserialized(self, tuples: Tuples, deserialize: Deserialize) -> tuple[list[Any], bool]:
        """The values of each tuple, and whether all of them could be read."""
        try:
            return tuples.deserialized(deserialize), True
        except BaseException as error:  # also sys.exit() in a __setstate__
            from heronpy.instance.unreadable import read_alone, read_each  # costs some milliseconds

            if deserialize is not pickle.loads:
                if tuples.count != max(1, len(tuples.part_sizes)):
                    raise  # it is unknown which of them is to blame
                return tuples.deserialized(lambda part: read_alone(part, deserialize)), False
            try:
                return tuples.deserialized(read_each), False
            except ValueError:
                raise error from None

    def _run(self, batch: BatchInHand, *, all_readable: bool) -> None:
        core = self.core
        if self._nothing_unsent():
            self._pacing.waits_since(batch.began_ns)
        self._in_hand = batch
        process = self.user_object.process
        if self._timers is not None:
            process = self._timers.observing(process)
        if core.hooks:
            process = self._observed_process(process)
        if self._lone_keys is not None:
            if self._lone_keys.is_done:
                self._lone_keys = None
            else:
                process = self._lone_keys.observing(process)
        if not all_readable:
            process = refusing(process)
        if self.set_aside:
            process = self.set_aside.sifted(process, self._acks.ack, self._emitter.emit)
        try:
            while batch.left:
                try:
                    self._loop(batch.received, process)
                except FailedException:
                    self._fail_last(batch)
                except Exception as error:
                    outage = isinstance(error, OUTAGES)
                    self._note_failed(self._fail_last(batch, outage=outage), outage=outage)
                    self._user_error("process()", error)
                except Unwinding:
                    raise
                except BaseException as error:  # sys.exit(), a coroutine of the user's that was cancelled
                    if not self._between_tuples:
                        self._note_failed(self._fail_last(batch))  # sent by close()
                        core.user_error("process()", error)
                    raise
        finally:
            self._count_executed()
            self._in_hand = None
        now_ns = core.clock()
        self._flush_if_due(now_ns)
        if now_ns - self._housekept_ns >= core.config.drain_interval_ms * 1e6:
            self._housekeep(now_ns)  # a bolt that always has a batch is never polled, and rarely prompted
        if self._rejected:
            self.settle()

    def _refuse(self, tuples: Tuples, component: str, error: BaseException) -> None:
        """Fail a batch that cannot be read."""
        if len(tuples.roots):
            self._dispatch([*root_batches(FAIL, [(tuples.roots, None)])])
        for stream in tuples.streams:
            self.core.metrics.add(f"__fail-count/{component}/{stream}", tuples.count / len(tuples.streams))
        core = self.core
        if core.states is not None and not core.settings.fail_only and not isinstance(error, OUTAGES):
            core.failed = core.failed or FailedTuple.unreadable(core, component)
        what = f"{tuples.count} tuples of {component}:{', '.join(tuples.streams)} cannot be deserialized"
        unreadable = TupleError(f"{what} by {core.settings.serializer}: {said(error)}")
        unreadable.__cause__ = error
        self._user_error("deserialize()", unreadable)

    def _nothing_unsent(self) -> bool:
        return not self._emitter.unsent() and not self._acks

    def _flush_if_due(self, now_ns: int) -> None:
        """Flush a bolt that has more to do."""
        if self._pacing.drained(now_ns) and not self._nothing_unsent():
            destinations = sum(1 for pair in self.core.outputs.pairs if pair)
            destinations += min(self.core.spout_tasks, ACK_TASKS_MAX) if self.core.tracking else 1
            if self._pacing.busy_due(now_ns, self._done, destinations):
                self.flush()

    def _count_executed(self) -> None:
        """Count what was executed since the last call, and the time it took."""
        if self._in_hand is not None:
            self._done += self._in_hand.count_executed(self.core.metrics, self.core.clock())

    def _fail_last(self, batch: BatchInHand, *, outage: bool = False) -> Tuple:
        """Fail the tuple whose process() raised, and return it. It is not to blame for an outage."""
        self._emitter.no_anchor()
        tup = batch.last()
        if outage and self._fail == self._roll_back:
            self._acks.fail(tup)
            self.core.roll_back(f"a tuple of {tup.component}:{tup.stream} met an outage")
        else:
            self._fail(tup)
        return tup

    def _note_failed(self, tup: Tuple, *, outage: bool = False) -> None:
        """With checkpoints: user code raised on a tuple, and that is a rollback."""
        core = self.core
        if core.states is not None and not core.settings.fail_only and not outage:
            core.failed = core.failed or FailedTuple.of(core, tup)

    def _roll_back(self, tup: Tuple) -> None:
        """fail() effectively once: only a restore has a tuple executed again."""
        self._acks.fail(tup)
        if isinstance(tup.origin_, InBatch):
            self.core.failed = failed = self.core.failed or FailedTuple.of(self.core, tup)
            self.core.roll_back(f"{failed.where}, was failed")

    def poll(self) -> float:
        """Do what is due. Returns how many seconds the task may sleep if no message comes."""
        self._emitter.no_anchor()
        self.core.signal.due = False
        now_ns = self.core.clock()
        self._housekeep(now_ns)
        if self._rejected:
            self.settle()
        if not self._nothing_unsent():
            if (wait_ns := self._pacing.idle_ns(now_ns)) > 0:
                return wait_ns / 1e9
            self.flush()
        held = self._acks.held if self.core.tracking else 0
        if not held:
            self._holding.nothing_held()
        elif reports := self._holding.due(held, now_ns):
            self._dispatch(reports)
        wait_s = self._holding.wait_s if held else 1.0
        if self._timers is not None:
            wait_s = min(wait_s, self._timers.wait_s)
        return min(wait_s, max(0.0, (self._tick_at_ns - now_ns) / 1e9)) if self._tick_ns else wait_s

    def service_signals(self) -> None:
        """Between two tuples of a batch: flush, tick, or stop."""
        signal = self.core.signal
        signal.due = False
        self._between_tuples = True  # if this raises, the task ends
        now_ns = self.core.clock()
        self._count_executed()
        self._flush_if_due(now_ns)
        self._housekeep(now_ns)
        if self._rejected:
            self.settle()
        if signal.interrupt is not None:
            signal.interrupt()
        if signal.stopping:
            raise Stopped
        self._between_tuples = False

    def _housekeep(self, now_ns: int) -> None:
        self._housekept_ns = now_ns
        if self._tick_ns and now_ns >= self._tick_at_ns:
            # Ticks that were missed while user code was busy are not made up for, as in Storm.
            self._tick_at_ns += self._tick_ns * ((now_ns - self._tick_at_ns) // self._tick_ns + 1)
            try:
                self.user_object.process_tick(TupleHelper.make_tick_tuple())
            except FailedException:
                self.core.logger.warning("process_tick() raised FailedException: a tick cannot be failed")
            except Exception as error:
                self._user_error("process_tick()", error)
        if self._timers is not None:
            self._timers.fire()
        if self._renewals is not None and (renewals := self._renewals.due(now_ns)):
            self._dispatch(renewals)
        if now_ns >= self._poll_user_at_ns:
            self._poll_user_at_ns = now_ns + POLL_USER_METRICS_NS
            self.core.metrics.poll_user(now_ns / 1e9)

    @property
    def begun(self) -> int:
        """How many tuples of the batch in hand are executed, between two of them; 0 if there is none."""
        return 0 if self._in_hand is None else self._in_hand.begun

    @property
    def unsettled(self) -> int:
        if self.core.tracking:
            return 0  # a tree that is not complete waits for no commit, and comes again
        rest = 0 if self._in_hand is None else self._in_hand.left
        return self._acks.held - rest

    def settle_more(self) -> None:
        self._housekeep(self.core.clock())
        self.flush()
        self.settle()

    def flush(self) -> None:
        """Send what was emitted, then what was acked and failed: an ack carries the ids of the children.

        Any thread. A tuple that cannot be sent is reported later, by the task's own thread.
        """
        with self.core.lock:
            if self._sending or self.core.staging:
                return  # emitted while a value was being serialized
            self._sending = True
            try:
                self._send()
            finally:
                self._sending = False

    def _send(self) -> None:
        core = self.core
        settled = self._acks.take()  # before the emitted tuples: see there
        batches: list[stmgr_pb2.Batch] = []
        spoiled: list[Tuple] = []
        for taken in self._emitter.drain():
            self._pack(taken, batches, spoiled)
        batches += self._acks.batches(settled, spoiled, core.clock())
        self._dispatch(batches)
        self._pacing.sent(core.clock())
        self._done = 0

    def _pack(self, taken: Taken, batches: list[stmgr_pb2.Batch], spoiled: list[Tuple]) -> None:
        core = self.core
        parts = core.serialized(taken)
        for part in parts:
            if isinstance(part, Rejected):
                self._rejected.append(part)
                core.signal.due = True
                if core.tracking:
                    spoiled += _anchors_of(taken.tags[part.index])
                    taken.tags[part.index] = ()  # not sent, so it is not a child of its anchors
        batches += packed(core, taken, parts, anchored(taken.tags) if core.tracking else None)

    def _dispatch(self, batches: list[stmgr_pb2.Batch]) -> None:
        if batches:
            with self.core.lock:
                self.core.send(batches)
                self._batch.sent(batches)

    def settle(self) -> None:
        if not self._rejected:
            return
        self._cannot_send([self._rejected.popleft().error for _ in range(len(self._rejected))])

    def _reset_timeout(self, tup: Tuple) -> None:
        """Sent with the next flush; but a process() that takes long must not keep it until it returns."""
        self._acks.reset_timeout(tup)
        now_ns = self.core.clock()
        if now_ns >= self._reset_at_ns:
            self._reset_at_ns = now_ns + RESETS_EVERY_NS
            with self.core.lock:
                self._dispatch(self._acks.reset_batches())

    def _user_error(self, where: str, error: Exception) -> None:
        self.core.user_error(where, error)
        if not self.core.settings.fail_only:
            self.flush()  # the failed tuple is replayed at once, not after its timeout
            raise TaskFailed(where) from error


def _anchors_of(tag: Any) -> Sequence[Tuple]:
    return () if tag is None else (tag,) if isinstance(tag, Tuple) else tag
