"""A spout task: pulls tuples from user code, and reports to it what became of them."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.instance._batch_size import BatchSize
from heronpy.instance._core import Delegate, TaskCore, TaskFailed
from heronpy.instance._edges import Taken
from heronpy.instance._emitter import make_emitter, observed_emit
from heronpy.instance._outcomes import Outcomes
from heronpy.instance._pacing import IdlePause, Pacing, Ramp
from heronpy.instance._pending import HELD, PendingLimit
from heronpy.instance._roots import Finished
from heronpy.instance._sender import packed
from heronpy.instance._serializing import Rejected
from heronpy.instance._task import Task
from heronpy.instance._tracking import SpoutTracker, Trees, TreesUntilCommit, UntilCommit, Untracked
from heronpy.proto import stmgr_pb2
from heronpy.wire import CONTROL, DATA, MalformedBatch, decode_control

if TYPE_CHECKING:
    from heronpy.checkpoints import Saved

CHUNK_MAX = 1024
CHUNK_LONG_NS = 2_000_000
CHUNK_SHORT_NS = 500_000
SWIFT_CHUNK = 16
"""A spout that makes fewer calls than this in a chunk's time has slow calls: it waits for its source."""
SWEEPS_PER_TIMEOUT = 20
INACTIVE_WAIT_S = 0.1


class SpoutTask(Task):
    """One spout task. See TaskCore for who may call it."""

    def __init__(self, core: TaskCore) -> None:
        self.core = core
        self.active = False
        self._held = False
        """By backpressure; only with checkpoints, else its link is not read."""
        self._rests = True
        """Is inactive or held: emits nothing new."""
        self.idle = False
        """The last poll found nothing to emit."""
        self._pacing = Pacing(core.config.drain_interval_ms)
        self._idle_pause = IdlePause(core.config.idle_sleep_ms, core.config.idle_sleep_max_ms)
        self._ramp: Ramp | None = None
        """While it comes to speed after a hold."""
        self._chunk = 1
        self._sweep_at_ns = 0
        self._sending = False
        self.outcomes = Outcomes(core, self._call)
        """What is reported to user code of its tuples."""
        self._sent: deque[tuple[Finished, Finished, list[Rejected]]] = deque()
        """What sending has brought to light: roots done, roots failed, tuples refused. Any thread appends."""
        self._tracker = self._make_tracker()
        core.open_outputs(self._tracker.make_fan)
        self._batch = BatchSize(core.config, len(core.outputs.pairs))
        self._emitter = make_emitter(
            core, self._batch, flush=self.flush, note=self.outcomes.instant.append, mix=self._tracker.mix
        )
        self.user_object: Any = None
        self._delegate = delegate = Delegate(core)
        delegate.emit, delegate.send_watermark = self._emitter.emit, self.send_watermark
        self._observe_hooks()
        self.user_object = core.make_component(delegate)
        self.outcomes.report_to(self.user_object)
        self._tracker.keep_ids(self.outcomes.wanted)

    def _observe(self) -> None:
        if self.user_object is not None and self.core.tracking and not self.outcomes.wanted:
            if self.pending:
                raise RuntimeError("a spout's first task hook must be added before it emits, in initialize()")
            self._tracker.keep_ids(True)
        self.outcomes.wants_ack = self.outcomes.wants_fail = True
        self._delegate.emit = observed_emit(self.core, self._emitter.emit)
        if self.user_object is not None:
            self.core.bind(self.user_object, self._delegate)

    def _make_tracker(self) -> SpoutTracker:
        core, settings, ledger = self.core, self.core.settings, self.outcomes.ledger
        if not core.tracking:
            return Untracked() if ledger is None else UntilCommit(ledger)
        fixed = settings.max_spout_pending
        limit = PendingLimit(HELD if fixed is None and settings.holds_tuples else fixed)
        trees: dict[str, Any] = {
            "limit": limit,
            "timeout_ns": settings.message_timeout_ns,
            "streams": list(core.component.outputs) or ["default"],
            "lock": core.lock,
        }
        if ledger is None:
            return Trees(core.task_id, **trees)
        return TreesUntilCommit(core.task_id, ledger, **trees)

    def open(self) -> None:
        """Call the user's initialize()."""
        self.core.initialize(self.user_object)
        for hook in self.core.hooks:
            hook.prepare(self.core.user_config, self.core.context)

    def activate(self) -> None:
        if not self.active:
            self.active = True
            self._rests = self._held
            self._call("activate()", self.user_object.activate)

    def deactivate(self) -> None:
        if self.active:
            self.active = False
            self._rests = True
            self._call("deactivate()", self.user_object.deactivate)

    def hold(self, held: bool) -> None:
        """Emit nothing new, or go on. Snapshots are taken, and markers sent, nevertheless."""
        self._held = held
        self._rests = held or not self.active
        self._ramp = Ramp()

    def close(self) -> None:
        """Flush what was emitted, then close the user's component."""
        self.core.signal.due = False
        self.flush()
        self.settle()
        try:
            for hook in self.core.hooks:
                hook.clean_up()
        finally:
            self.user_object.close()
        self.core.metrics.poll_user(0, final=True)

    @property
    def pending(self) -> int:
        """Tuple trees on their way, and tuples that are not sent."""
        return self._tracker.pending + self._emitter.unsent()

    def check_invariants(self) -> None:
        """Raise AssertionError if the bookkeeping contradicts itself. For tests."""
        self._tracker.check_invariants()

    def doze(self, asleep: bool) -> bool:
        """The task is about to sleep, or awake: see Emitter."""
        return self._emitter.doze(asleep)

    def poll(self) -> float:
        """Do a bounded piece of work. Returns how many seconds the task may sleep if no message comes."""
        now_ns = self.core.clock()
        self._housekeep(now_ns)
        self.settle()
        if self._rests:
            self.flush()
            return INACTIVE_WAIT_S
        emitter = self._emitter
        room = self._tracker.room(emitter.unsent(), now_ns)
        if room <= 0:
            # Acks come back in batches: what is emitted for each of them is collected, too.
            if emitter.unsent() and (wait_ns := self._pacing.idle_ns(now_ns)) > 0:
                return wait_ns / 1e9
            self.flush()
            return self._tracker.full_wait_s
        if (ramp := self._ramp) is not None:
            if ramp.over:
                self._ramp = None
            elif (left := ramp.room(now_ns) - emitter.unsent()) > 0:
                room = min(room, left)
            else:
                self.flush()
                return ramp.wait_s(now_ns)
        if not emitter.unsent():
            self._pacing.waits_since(now_ns)
        count = min(self._chunk, room, CHUNK_MAX)
        calls = iter(range(count))  # what is left of it says how many calls were made
        try:
            self.idle = emitter.poll_spout(self.user_object.next_tuple, calls)
        except Exception as error:
            self.idle = True
            self._user_error("next_tuple()", error)
        if self.outcomes.instant:
            self.outcomes.ack_instantly()
        self.settle()
        self.core.signal.due = False
        after_ns = self.core.clock()
        self.outcomes.called(count - operator.length_hint(calls), after_ns - now_ns)
        self._adapt_chunk(after_ns - now_ns)
        return self._pace(after_ns)

    def _pace(self, now_ns: int) -> float:
        """Send if it is time to. Returns how many seconds the task may sleep."""
        unsent = self._emitter.unsent()
        if unsent or not self.idle:
            self._idle_pause.emitted()
        if self.idle:
            sleep_ns = self._idle_pause.pause_ns(now_ns)
            if unsent:
                if (wait_ns := self._pacing.idle_ns(now_ns)) > 0:
                    return min(wait_ns, sleep_ns) / 1e9
                self.flush()
            return sleep_ns / 1e9
        if unsent and self._pacing.drained(now_ns):
            destinations = sum(1 for pair in self.core.outputs.pairs if pair)
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
        timeout_ns = self.core.settings.message_timeout_ns if self.core.tracking else 0
        self._sweep_at_ns = now_ns + min(timeout_ns // SWEEPS_PER_TIMEOUT or 1_000_000_000, 1_000_000_000)
        self.outcomes.timed_out(self._tracker.expired(now_ns))
        self.core.metrics.gauge("__pending-acked-count", self._tracker.pending)
        self.core.metrics.poll_user(now_ns / 1e9)

    def offer(self, batch: stmgr_pb2.Batch) -> None:
        """Take acks, fails, timeout resets or control."""
        now_ns = self.core.clock()
        try:
            if batch.kind == CONTROL:
                self._control(decode_control(batch.body), now_ns)
            elif batch.kind != DATA:
                done, failed = self._tracker.received(batch, now_ns)
                self.outcomes.acked(done)
                self.outcomes.failed(failed)
            else:
                raise MalformedBatch("a batch of tuples came to a spout")
        except MalformedBatch as error:
            self.core.malformed(error)

    def _control(self, control: stmgr_pb2.ControlBatch, now_ns: int) -> None:
        if control.WhichOneof("control") == "held":
            holder = self.core.component_of.get(control.src_task, f"task {control.src_task}")
            waited_ns, advice = self._tracker.held(control.src_task, holder, control.held, now_ns)
            if waited_ns:
                self.core.metrics.add(f"__held-back-time-ns/{holder}", waited_ns)
            if advice is not None:
                self.core.logger.warning("%s", advice)

    def send_marker(self, checkpoint: int) -> None:
        super().send_marker(checkpoint)
        self.outcomes.ack_instantly()
        if self.outcomes.ledger is not None:
            self.outcomes.ledger.marker_sent(checkpoint)

    def committed(self, checkpoint: int) -> None:
        super().committed(checkpoint)
        if self.outcomes.ledger is not None:
            self.outcomes.ack_groups(self.outcomes.ledger.committed(checkpoint))

    @property
    def replays(self) -> bool:
        """Whether at a restore it emits again what is failed, rather than go back to a position in its state."""
        if not self.core.tracking or self.core.states is None:
            return False
        return not self.core.states.declared or getattr(self.user_object, "kept_through_rollbacks", False)

    def restored(self, checkpoint: int) -> None:
        """All are restored from a checkpoint: ack what it covers. At least once, fail the rest, so that it comes again.

        Raises:
            TaskFailed: user code failed.
        """
        assert self.outcomes.ledger is not None
        if not self.core.tracking:
            self.committed(checkpoint)
            return
        with self.core.lock:
            pending = self._tracker.restored(self.core.clock())
        acked, failed = self.outcomes.ledger.restored(checkpoint)
        self.outcomes.ack_groups(acked)
        for finished in (*failed, pending):
            self.outcomes.failed(finished)

    def kept(self, checkpoint: int, saved: Saved) -> None:
        """As `restored`, and the object of this one stays: if it has state, it is given what the checkpoint has of it.

        Raises:
            TaskFailed: user code failed.
            CheckpointError: what was saved cannot be restored.
        """
        assert self.core.states is not None
        self.core.states.keep(saved)
        if getattr(self.user_object, "kept_through_rollbacks", False) and hasattr(self.user_object, "go_back"):
            self.flush()  # what waits is failed with the rest, as its component will not know it any more
            state = self.core.states.saved_component_state(saved)
            self._call("go_back()", self.user_object.go_back, checkpoint, state)
        self.restored(checkpoint)

    def flush(self) -> None:
        """Send everything emitted so far, to all tasks at once: a root's copies must be known before one can be acked.

        Any thread. What it brings to light is reported to user code later, by the task's own thread.
        """
        if self.user_object is None:
            return  # it is emitting in its __init__; acks could not be reported yet
        with self.core.lock:
            if self._sending or self.core.staging:
                return  # emitted while a value was being serialized
            self._sending = True
            try:
                self._send(self._emitter.drain())
            finally:
                self._sending = False

    def _send(self, taken: Sequence[Taken]) -> None:
        core = self.core
        columns = self._tracker.number(taken)
        batches: list[stmgr_pb2.Batch] = []
        refused: list[Rejected] = []
        places: list[tuple[int, int]] = []
        for number, (each, column) in enumerate(zip(taken, columns, strict=True)):
            parts = core.serialized(each)
            batches += packed(core, each, parts, column)
            for part in parts:
                if isinstance(part, Rejected):
                    refused.append(part)
                    places.append((number, part.index))
        done, failed = self._tracker.commit(places, core.clock())
        self._dispatch(batches)
        if done.count or failed.count or refused:
            self._sent.append((done, failed, refused))

    def _dispatch(self, batches: list[stmgr_pb2.Batch]) -> None:
        if batches:
            self.core.send(batches)
            self._batch.sent(batches)
            if (ramp := self._ramp) is not None:
                ramp.sent(sum(batch.count for batch in batches if batch.kind == DATA))
            self._pacing.sent(self.core.clock())

    def settle(self) -> None:
        while self._sent:
            done, failed, refused = self._sent.popleft()
            self.outcomes.acked(done)
            self.outcomes.failed(failed)
            if refused:
                self._cannot_send([each.error for each in refused])

    def _call(self, where: str, function: Callable[..., None], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            self._user_error(where, error)

    def _user_error(self, where: str, error: Exception) -> None:
        self.core.user_error(where, error)
        if not self.core.settings.fail_only:
            raise TaskFailed(where) from error
