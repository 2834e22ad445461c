"""The spout of every source: reads records in batches, and sends them through the nodes fused with it.

A record is done when every tree that it began is acked, and every sink of the stage has what it got of it. The engine
begins a tree with each emit, so a record counts them. A record of which one tree failed is sent again at once, the same
record with the same id and time; what is left of its earlier trees counts no more.

Effectively once there are no trees: positions in the source's splits are state. What a read has returned is emitted in
one call, as snapshots are taken between two. At least once with checkpoints the spout stays through a rollback, and
emits again what no commit covers; the engine acks a tree with the commit that covers it, and so is a record done that
began none, because operators of this stage may have it in their state. These go back, as those of all stages.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from heronpy.api import (
    ITwoPhaseStatefulComponent,
    Spout,
    State,
    TopologyContext,
    TopologyReliabilityMode,
    api_constants,
)
from heronpy.config import ALLOW_LOSSY_SPOUTS, is_set
from heronpy.connectors import Record, Source, SourceContext, SourceReader
from heronpy.connectors.split_set import SplitSet
from heronpy.connectors.split_shares import PENDING_MAX, SplitShares
from heronpy.errors import ConfigError, UnavailableError
from heronpy.streamlet._definition import loads
from heronpy.streamlet._generated import GeneratorSource, SupplierSource
from heronpy.streamlet._stages import Exit
from heronpy.streamlet._task import StageTask, now_ms
from heronpy.streamlet.chain import after, directed, from_spout
from heronpy.streamlet.graph import SourceNode
from heronpy.streamlet.operators import Put
from heronpy.windows import END, Clock, SplitClocks

READ_LIMIT = 256
EMIT_LIMIT = 100
"""Records that are emitted in one call, effectively once."""
ACKS_MAX = 4096
"""Records that are reported to the reader together, at most …"""
CHORES_EVERY_MS = 50
"""… and at least so often."""
FLUSH_EVERY_MS = 1000
FLUSH_ELEMENTS = 10_000
HELD_MAX = 10 * FLUSH_ELEMENTS
"""A sink that cannot be reached holds up its source then."""
UNASKED_MS = 1000
"""A source that was not asked for longer, because the task was held or waited for acks, was not silent meanwhile."""
BARREN_MS = 5
"""How long records that emit nothing are worked through in one call."""
MARKS_PER_LIMIT = 8

# What a record's list holds (a list is the cheapest object to make): the record, how much of it is on its way, and,
# where splits share the limit of that, the shares that have counted it.
RECORD, OPEN, SHARES = 0, 1, 2


class SourceSpout(Spout, ITwoPhaseStatefulComponent):
    """One task of a source."""

    kept_through_rollbacks = True
    _state_of_operators: State | None = None

    def init_state(self, state: State) -> None:
        self._state_of_operators = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._config = config
        definition = loads(config)
        self._task = task = StageTask(definition, context, self.logger, self._state_of_operators)
        task.exit_of = self._exit_of
        stage = definition.stage
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        self._tracking = mode == TopologyReliabilityMode.ATLEAST_ONCE
        self._queue: deque[Record] = deque()
        self._replays: deque[Record] = deque()
        self._done: list[Record] = []
        self._held: list[list[Any]] = []
        """Records in sinks that were not flushed yet."""
        self._held_elements = 0
        self._treeless: list[list[Any]] = []
        """At least once with checkpoints: records without a tree on its way that were finished since the last one."""
        self._uncommitted: deque[tuple[int, list[list[Any]]]] = deque()
        """The same by the checkpoint that covers them."""
        self._chores_at_ms = self._flush_at_ms = 0
        self._since_mark = 0
        limit = config.get(api_constants.TOPOLOGY_MAX_SPOUT_PENDING)
        self._mark_every = max(1, int(limit) // MARKS_PER_LIMIT) if limit else 1 << 30

        def clock() -> Clock:
            return Clock(definition.max_lateness_ms, definition.idle_timeout_ms, now_ms())

        self._clock = clock()
        self._asked_at_ms = now_ms()
        """When the last read returned."""
        self._split_clocks: SplitClocks | None = None
        self._shares: SplitShares | None = None
        """Where windows after this source hold its elements."""
        self._trees_max = 1
        """How many trees a record began at most."""
        self._put: Put = after(stage.head, task)
        node, ids = stage.head.node, f"{stage.name}/ids"
        assert isinstance(node, SourceNode)
        self._context = context
        task_index, num_tasks = self._share()
        self._source_context = source_context = SourceContext(
            name=stage.name,
            task_index=task_index,
            num_tasks=num_tasks,
            config=config,
            directory=definition.directory,
            dead_letter=task.dead_letter_of(stage.name),
        )
        self._splits: SplitSet | None = None
        self._reader: SourceReader | None = None
        self._divided = None if isinstance(node.source, (GeneratorSource, SupplierSource)) else node.source
        """The source, if tasks divide it among themselves."""
        memory = task.memory
        if not task.exact:
            if task.saved and isinstance(node.source, GeneratorSource) and node.source.stateful:
                self._reader = node.source.open_saved(source_context, memory.of(stage.name), memory.of(ids))
            else:
                self._reader = node.source.open(source_context)
            if self._reader.splits() is not None:
                self._split_clocks = SplitClocks(clock)
                if self._tracking and not task.saved and stage.watermarks_out:
                    self._pending_max = int(limit) if limit else PENDING_MAX
                    self._shares = SplitShares(self._pending_max)
                    self.ack, self.fail = self._ack_shared, self._fail_shared  # type: ignore[method-assign]  # as below
            return
        self.next_tuple = self._next_read  # type: ignore[method-assign]  # no test of the mode for each tuple
        if not can_go_back(node.source):
            if not is_set(config, ALLOW_LOSSY_SPOUTS):
                raise ConfigError(f"{stage.name} cannot be effectively once: {no_positions(node.source)}")
            self.logger.warning("%s: a rollback loses what is in flight", no_positions(node.source))
            self._reader = node.source.open(source_context)
            return
        if isinstance(node.source, GeneratorSource):
            self._reader = node.source.open_saved(source_context, memory.of(stage.name), memory.of(ids))
            return
        if node.source.interleaved:
            self._split_clocks = SplitClocks(clock)
        self._positions = context.split_state("positions")
        self._splits = SplitSet(
            node.source,
            self._positions,
            source_context,
            discover_every_s=node.discover_every_s or node.source.discover_every_s,
            idle_after_s=definition.idle_timeout_ms / 1000,
            forget_after_s=node.forget_after_s,
        )

    def next_tuple(self) -> None:
        """Emit what a record makes. Records that make nothing are passed over, for a while."""
        queue = self._replays or self._queue or self._more()
        if not queue or self._process(queue.popleft()):
            return
        until_ms = now_ms() + BARREN_MS
        while queue := self._replays or self._queue or self._more():
            if self._process(queue.popleft()) or now_ms() >= until_ms:
                return

    def _next_read(self) -> None:
        """`next_tuple` effectively once."""
        until_ms = now_ms() + BARREN_MS
        while True:
            self._chores()
            if self._splits is not None:
                name, records, position = self._splits.read(EMIT_LIMIT)
                self._asked_at_ms = now_ms()
                clocks = self._split_clocks
                if clocks is not None:
                    clocks.read(name if records else None)
                emitted = self._pass_on(records, self._clock if clocks is None or name is None else clocks.of(name))
                if name is not None and position is not None:
                    self._positions[name] = position
            else:
                assert self._reader is not None
                records = self._reader.read(1)
                self._asked_at_ms = now_ms()
                emitted = self._pass_on(records, self._clock)
                self._done += records
            if emitted or not records or now_ms() >= until_ms:
                return

    def _pass_on(self, records: Sequence[Record], clock: Clock) -> bool:
        """Send records through the stage. Returns whether they emitted anything."""
        place, put = self._task.place, self._put
        before = place.pending[OPEN]
        for value, time_ms, id, _ in records:
            if time_ms > clock.latest_ms:
                clock.observe(time_ms)
            place.time_ms, place.id = time_ms, id
            put(value)
        if records:
            clock.fresh = True
            self._since_mark += len(records)
            if self._since_mark >= self._mark_every:
                self._mark(hurry=True)
        return bool(place.pending[OPEN] != before)

    def _more(self) -> deque[Record]:
        """Read the next records, and do what is to be done now and then."""
        self._chores()
        assert self._reader is not None
        context = self._source_context
        if self._divided is not None and self._share() != (context.task_index, context.num_tasks):
            self._reader = self._opened_anew(self._divided, self._reader)
        if self._held_elements < HELD_MAX and not self._reader.ended:
            limit = READ_LIMIT
            if self._shares is not None and self._split_clocks is not None:
                limit, paused = self._shares.divide(self._reader, READ_LIMIT, self._trees_max)
                self._split_clocks.kept_back(paused)
            self._queue.extend(self._reader.read(limit))
            self._asked_at_ms = now_ms()
            if self._split_clocks is not None:
                self._split_clocks.read(self._reader.split_of(self._queue[0]) if self._queue else None)
        return self._queue

    def _share(self) -> tuple[int, int]:
        """Index of this task, and how many there are: together they read everything."""
        tasks = self._context.get_component_tasks(self._context.get_component_id()) or ()
        return self._context.get_this_task_index(), len(tasks)

    def _opened_anew(self, source: Source, reader: SourceReader) -> SourceReader:
        """A reader as that of a task that is restarted, since an update has changed the number of tasks."""
        self._ack_done()
        reader.close()
        if self._shares is not None:
            self._shares = SplitShares(self._pending_max)  # what is on its way is counted by the old one
        task_index, num_tasks = self._share()
        self.logger.info("this is task %d of %d now: the source is opened anew", task_index, num_tasks)
        self._source_context = dataclasses.replace(self._source_context, task_index=task_index, num_tasks=num_tasks)
        return source.open(self._source_context)

    def _process(self, record: Record) -> bool:
        """Send a record through the stage. Returns whether it emitted anything."""
        place, clock = self._task.place, self._clock
        if self._split_clocks is not None:
            assert self._reader is not None
            clock = self._split_clocks.of(self._reader.split_of(record))
        value, time_ms, id, _ = record
        if time_ms > clock.latest_ms:
            clock.observe(time_ms)
        clock.fresh = True
        place.time_ms, place.id = time_ms, id
        place.pending = pending = [record, 1]  # 1: it is in hand; acks may come while it is
        if self._tracking:
            place.root = pending
        try:
            self._put(value)
        except Exception:
            self._replays.append(record)  # the engine may go on: see topology.exception.policy
            if self._shares is not None:
                self._began(pending, self._shares)
            pending[OPEN] = 0
            raise
        emitted = pending[OPEN] != 1
        if emitted and self._shares is not None:
            self._began(pending, self._shares)
        self._since_mark += 1
        if self._since_mark >= self._mark_every:
            self._mark(hurry=True)
        if not self._tracking:
            self._done.append(record)
        elif self._task.writers:
            self._held.append(pending)
        else:
            self._finished(pending)
        if self._task.writers:
            self._held_elements += 1
        return emitted

    def _began(self, pending: list[Any], shares: SplitShares) -> None:
        """A record has begun its trees, all of them."""
        assert self._reader is not None
        trees = pending[OPEN] - 1
        self._trees_max = max(self._trees_max, trees)
        shares.emitted(self._reader.split_of(pending[RECORD]), trees)
        pending.append(shares)

    def _finished(self, pending: list[Any]) -> None:
        """A record is processed, and sinks of this stage have it."""
        if self._task.saved and pending[OPEN] == 1:
            self._treeless.append(pending)
        else:
            SourceSpout.ack(self, pending)

    def _ack_shared(self, tup_id: Any) -> None:
        """`ack` where splits share a limit."""
        self._settled(tup_id)
        SourceSpout.ack(self, tup_id)

    def _fail_shared(self, tup_id: Any) -> None:
        """`fail` where splits share a limit."""
        self._settled(tup_id)
        SourceSpout.fail(self, tup_id)

    def _settled(self, pending: list[Any]) -> None:
        assert self._reader is not None
        pending[SHARES].settled(self._reader.split_of(pending[RECORD]))

    def ack(self, tup_id: Any) -> None:
        left = tup_id[OPEN] - 1
        tup_id[OPEN] = left
        if left == 0:
            self._done.append(tup_id[RECORD])
            if len(self._done) >= ACKS_MAX:
                self._ack_done()

    def fail(self, tup_id: Any) -> None:
        if tup_id[OPEN] > 0:
            tup_id[OPEN] = 0
            self._replays.append(tup_id[RECORD])

    def deactivate(self) -> None:
        self._try_flushing()
        self._ack_done()

    def close(self) -> None:
        self.deactivate()
        self._task.close()
        for reader in (self._reader, self._splits):
            if reader is not None:
                reader.close()

    def pre_save(self, checkpoint_id: str) -> None:
        self._flush_sinks()  # after a rollback operators of this stage may know what was not written
        if self._treeless:
            self._uncommitted.append((int(checkpoint_id), self._treeless))
            self._treeless = []
        self._task.prepare(int(checkpoint_id))
        if self._splits is not None:
            self._splits.prepare(int(checkpoint_id))

    def post_save(self, checkpoint_id: str) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= int(checkpoint_id):
            for pending in self._uncommitted.popleft()[1]:
                self.ack(pending)
        self._task.commit(int(checkpoint_id))
        if self._splits is not None:
            self._splits.commit(int(checkpoint_id))

    def pre_restore(self, checkpoint_id: str) -> None:
        self._task.abort(int(checkpoint_id))

    def go_back(self, checkpoint_id: int, saved: Mapping[Any, Any]) -> None:
        """All others go back to a checkpoint, and so do operators of this stage: they would drop what comes again.

        What they do not know any more comes again, too. What has a tree on its way is failed by the engine.
        """
        self._task.go_back(loads(self._config).stage, saved)
        while self._uncommitted and self._uncommitted[-1][0] > checkpoint_id:
            self._treeless += self._uncommitted.pop()[1]
        forgotten, self._treeless = self._treeless, []
        for pending in (*forgotten, *self._held):
            self.fail(pending)

    def _chores(self) -> None:
        """What is done between two batches, if it is time."""
        now = now_ms()
        if now < self._chores_at_ms:
            return
        self._chores_at_ms = now + CHORES_EVERY_MS
        if (unasked_ms := now - self._asked_at_ms) > UNASKED_MS:
            self._asked_at_ms = now
            for clocks in (self._clock, self._split_clocks, self._task):
                if clocks is not None:
                    clocks.paused(unasked_ms)
        if self._task.writers and (now >= self._flush_at_ms or self._held_elements >= FLUSH_ELEMENTS):
            self._flush_at_ms = now + FLUSH_EVERY_MS
            self._try_flushing()
        self._ack_done()
        self._mark()

    def _try_flushing(self) -> None:
        try:
            self._flush_sinks()
        except UnavailableError as error:
            self.logger.warning("%s; %d elements wait", error, self._held_elements)

    def _flush_sinks(self) -> None:
        """Flush sinks of this stage; what they were given is done then.

        Raises:
            UnavailableError: not now; nothing is lost.
        """
        for writer in self._task.writers:
            writer.flush()
        held, self._held = self._held, []
        self._held_elements = 0
        for pending in held:
            self._finished(pending)

    def _ack_done(self) -> None:
        if self._done:
            assert self._reader is not None
            done, self._done = self._done, []
            self._reader.ack(done)

    def _mark(self, *, hurry: bool = False) -> None:
        self._since_mark = 0
        if not self._task.stage.watermarks_out:
            return
        reader = self._splits or self._reader
        assert reader is not None
        ended = not self._queue and not self._replays and reader.ended
        head = END if ended else self._source_watermark()
        watermark = self._task.watermark_due(head, hurry=hurry)
        if watermark is not None:
            self.delegate.send_watermark(watermark)

    def _source_watermark(self) -> int:
        if self._split_clocks is None:
            return self._clock.watermark(now_ms())
        if self._splits is not None:
            return self._split_clocks.watermark(self._splits.names(), now_ms())
        assert self._reader is not None
        return self._split_clocks.watermark(self._reader.splits() or (), now_ms())

    def _exit_of(self, exit: Exit) -> Put:
        task = self._task
        if exit.direct is None:
            return from_spout(exit, self.emit, task.place, task.failed)
        place, emit, stream = task.place, self.emit, exit.stream

        def send(values: tuple[Any, ...], task_id: int) -> None:
            place.pending[OPEN] += 1
            emit(values, place.root, stream, task_id)

        return directed(exit, send, task.context.get_component_tasks(exit.consumer) or [], place, task.failed)


def can_go_back(source: Source) -> bool:
    """Whether a source can be read effectively once."""
    return source.stateful if isinstance(source, GeneratorSource) else source.rewindable


def no_positions(source: Source) -> str:
    """Why one cannot."""
    if isinstance(source, GeneratorSource):
        return "a generator must have all that it goes on from in its state, and say so: stateful = True"
    return f"{source!r} has no positions to go back to"
